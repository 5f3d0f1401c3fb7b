"""Recipes: what is read, and every mistake with its line and column."""

import copy
import hashlib
import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any, Literal

import pytest

from surgery import registry
from surgery.errors import RecipeError, SurgeryError, UsageError
from surgery.recipe import (
    Comparison,
    Expect,
    FrozenDict,
    InputsSpec,
    PassStep,
    Recipe,
    RepeatStep,
    TensorSpec,
    UseStep,
    VerifySpec,
    When,
    load,
    names,
    parse,
    shipped,
    single_step,
)
from surgery.recipe.nodes import resolve
from surgery.registry import Size, graph_pass

REAL_FOLDER = shipped.folder


@pytest.fixture(autouse=True)
def passes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Only these passes exist during a test."""
    monkeypatch.setattr(registry, "_PASSES", {})
    monkeypatch.setattr(registry, "_discovered", True)

    @graph_pass("drop-dropout")
    def drop_dropout(graph: object) -> None:
        """Drop."""

    @graph_pass("fold-constants")
    def fold_constants(graph: object, *, max_growth: Size = 0, rounds: int = 1, deep: bool = False) -> None:
        """Fold."""

    @graph_pass("fuse-attention")
    def fuse_attention(graph: object, *, heads: int, target: Literal["onnx", "onnxruntime"] = "onnx") -> None:
        """Fuse."""

    @graph_pass("pin-dims")
    def pin_dims(graph: object, *, dims: dict[str, list[int]]) -> None:
        """Pin."""

    yield


@pytest.fixture(autouse=True)
def shelf(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of shipped recipes in place of the real one."""
    folder = tmp_path_factory.mktemp("shelf")
    (folder / "tidy.yaml").write_text("recipe: tidy\nsteps: [drop-dropout]\nexpect: {ops: {Dropout: 0}}\n")
    (folder / "bert.yaml").write_text("steps:\n  - use: tidy\n")
    monkeypatch.setattr(shipped, "folder", lambda: folder)
    return folder


def mistakes(text: str | bytes, path: str | Path | None = "r.yaml", *, trust: bool = False) -> list[str]:
    """All mistakes in a text, as the user sees them."""
    with pytest.raises(RecipeError) as caught:
        parse(text, path, trust=trust)
    error = caught.value
    assert error.exit_code == 2
    assert str(error).splitlines() == [str(problem) for problem in error.problems]
    return [str(problem) for problem in error.problems]


def step(text: str) -> str:
    """A recipe of one step."""
    return f"steps:\n  - {text}\n"


def only(recipe: Recipe) -> Any:
    (found,) = recipe.steps
    return found


EXAMPLE = """\
# yaml-language-server: $schema=recipe.schema.json
recipe: example
about: |
  Clean up an encoder.
  \tFuse it, too.
model: ../models/bert-tiny.onnx
plugins: []
inputs:
  dims: {batch: [1, 3], sequence: 8}
  tensors:
    attention_mask: {values: [0, 1]}
    input_ids: {range: [0, 99]}
verify: {rtol: 1e-4, atol: 1e-5, seed: 3, mode: end, unverified: accept, timeout: 60, memory: 2GiB}
steps:
  - use: tidy
  - drop-dropout
  - drop-dropout:
  - fold-constants: {max_growth: 1MB}
  - repeat: until-stable
    steps: [drop-dropout, fold-constants: {rounds: 2}]
  - repeat: 3
    when: {opset: "< 20"}
    steps:
      - drop-dropout
  - pass: fuse-attention
    with: {heads: 12}
    when: {ops: {Softmax: ">= 1"}, nodes: "> 10"}
    on_failure: rollback
    expect: {sites: 12, signature: unchanged}
expect: {ops: {Dropout: 0}, nodes: "<= 500", signature: unchanged}
output: "{stem}.opt.onnx"
"""


def test_everything_that_a_recipe_can_say() -> None:
    recipe = parse(EXAMPLE, "recipes/r.yaml")
    assert recipe.name == "example"
    assert recipe.about == "Clean up an encoder.\n\tFuse it, too."
    assert recipe.path == Path("recipes/r.yaml")
    assert recipe.model == Path("models/bert-tiny.onnx")
    assert recipe.output == "{stem}.opt.onnx"
    assert recipe.plugins == ()
    assert recipe.inputs.dims == {"batch": (1, 3), "sequence": (8,)}
    assert recipe.inputs.tensors["attention_mask"] == TensorSpec(values=(0, 1))
    assert recipe.inputs.tensors["input_ids"] == TensorSpec(range=(0, 99))
    assert recipe.verify == VerifySpec(1e-4, 1e-5, 3, "end", "accept", 60.0, 2 * 2**30)
    assert recipe.expect == Expect({"Dropout": Comparison("==", 0)}, Comparison("<=", 500), signature="unchanged")


def test_every_form_of_a_step() -> None:
    use, name, null, options, stable, rounds, long = parse(EXAMPLE, "r.yaml").steps
    assert isinstance(use, UseStep) and use.recipe.name == "tidy"
    assert use.recipe.expect.ops == {"Dropout": Comparison("==", 0)}
    assert name == null == PassStep("drop-dropout")
    assert options == PassStep("fold-constants", {"max_growth": "1MB"})
    assert stable == RepeatStep(None, (PassStep("drop-dropout"), PassStep("fold-constants", {"rounds": 2})))
    when = When(opset=Comparison("<", 20))
    assert rounds == RepeatStep(3, (PassStep("drop-dropout"),), when=when)
    when = When({"Softmax": Comparison(">=", 1)}, Comparison(">", 10))
    expect = Expect(sites=Comparison("==", 12), signature="unchanged")
    assert long == PassStep("fuse-attention", {"heads": 12}, "rollback", expect, when=when)


def test_options_of_any_shape() -> None:
    recipe = parse("steps: [pin-dims: {dims: {batch: [1, 3], length: &l [8], width: *l}}]")
    assert only(recipe).options == {"dims": {"batch": [1, 3], "length": [8], "width": [8]}}


def test_steps_know_their_place() -> None:
    recipe = parse(EXAMPLE, "r.yaml")
    places = [(step.line, step.column) for step in recipe.steps]
    assert places == [(15, 5), (16, 5), (17, 5), (18, 5), (19, 5), (21, 5), (25, 5)]
    assert recipe.steps[0].where == "r.yaml:15:5"
    assert recipe.steps[4].steps[1].where == "r.yaml:20:27"  # type: ignore[union-attr]


def test_defaults() -> None:
    recipe = parse("steps: [drop-dropout]")
    assert recipe == Recipe("recipe", (PassStep("drop-dropout"),))
    assert recipe.verify == VerifySpec(None, None, 0, "each", "refuse", 300, None)
    assert recipe.inputs == InputsSpec({}, {})
    assert only(recipe).where == "<recipe>:1:9"
    assert parse("steps: [drop-dropout]", "a/b.yaml").name == "b"


def test_sections_may_be_left_empty() -> None:
    text = "about:\ninputs:\nverify:\nexpect:\nmodel:\nplugins:\nsteps:\n  - pass: drop-dropout\n    with:\n    when:\n"
    assert only(parse(text)) == PassStep("drop-dropout")


def test_recipes_do_not_change_and_can_be_copied() -> None:
    recipe = parse(EXAMPLE)
    with pytest.raises(FrozenInstanceError):
        recipe.name = "other"  # type: ignore[misc]
    options = recipe.steps[3].options  # type: ignore[union-attr]
    for change in (
        lambda: options.update(a=1),  # type: ignore[attr-defined]
        lambda: options.pop("max_growth"),  # type: ignore[attr-defined]
        lambda: options.__setitem__("a", 1),  # type: ignore[attr-defined]
        lambda: options.clear(),  # type: ignore[attr-defined]
    ):
        with pytest.raises(TypeError, match="does not change"):
            change()
    assert pickle.loads(pickle.dumps(recipe)) == recipe
    assert copy.deepcopy(recipe) == recipe
    assert isinstance(copy.deepcopy(options), FrozenDict)


def test_the_schema_is_light() -> None:
    code = (
        "import sys; from surgery.recipe.schema import VerifySpec; import surgery.recipe;"
        "print([m for m in ('ruamel', 'pydantic', 'onnx', 'surgery.recipe.loader') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_load_stays_a_function() -> None:
    import surgery.recipe

    assert callable(surgery.recipe.load)
    surgery.recipe.load("tidy")
    assert callable(surgery.recipe.load)
    with pytest.raises(AttributeError):
        surgery.recipe.nothing  # noqa: B018


# Comparisons


@pytest.mark.parametrize(
    ("value", "op", "number"),
    [
        (0, "==", 0),
        ("0", "==", 0),
        ("== 3", "==", 3),
        (">= 1", ">=", 1),
        ("<=500", "<=", 500),
        (" < 2 ", "<", 2),
        ("> 7", ">", 7),
        ("!= 0", "!=", 0),
    ],
)
def test_comparisons(value: object, op: Any, number: int) -> None:
    comparison = Comparison.parse(value)
    assert comparison == Comparison(op, number)
    assert str(comparison) == f"{op} {number}"
    assert Comparison.parse(str(comparison)) == comparison


def test_a_comparison_is_a_number_or_text() -> None:
    for value in (True, 1.5, None, [1]):
        with pytest.raises(ValueError, match=r"^a comparison is a number, or text such as '>= 1'$"):
            Comparison.parse(value)


def test_comparisons_hold() -> None:
    counts = (1, 2, 3)
    found = {op: [Comparison.parse(f"{op} 2").holds(count) for count in counts] for op in ("==", "!=", "<", "<=")}
    assert found["=="] == [False, True, False]
    assert found["!="] == [True, False, True]
    assert found["<"] == [True, False, False]
    assert found["<="] == [True, True, False]
    assert [Comparison.parse("> 2").holds(count) for count in counts] == [False, False, True]
    assert [Comparison.parse(">= 2").holds(count) for count in counts] == [False, True, True]


# YAML 1.2


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1E5", 1e5),
        ("-.5", -0.5),
        ("1.", 1.0),
        (".inf", float("inf")),
        ("-.INF", float("-inf")),
        ("+1", 1),
        ("0777", 777),
        ("0o17", 15),
        ("0x1F", 31),
        ("0b1", "0b1"),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("2001-01-01", "2001-01-01"),
        ("on", "on"),
        ("yes", "yes"),
        ("No", "No"),
        ("y", "y"),
        ("true", True),
        ("FALSE", False),
        ("tRUE", "tRUE"),
        ("null", None),
        ("~", None),
        ("", None),
        ("e5", "e5"),
        ("9" * 5000, float("inf")),
        ("=", "="),
        ("<<", "<<"),
    ],
)
def test_plain_scalars(text: str, value: object) -> None:
    assert resolve(text) == value
    assert type(resolve(text)) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffsteps: [drop-dropout]",
        "steps:\r\n  - drop-dropout\r\n",
        "steps:\r  - drop-dropout\r",
        "---\nsteps: [drop-dropout]\n...\n",
        "%YAML 1.2\n---\nsteps: [drop-dropout]\n",
        '{"steps": ["drop-dropout"]}',
        "steps:\n- drop-dropout\n",
        "steps: [!!str drop-dropout]",
        "steps: [! drop-dropout]",
        "steps:\t[drop-dropout]\t# a tab between tokens is a blank\n",
        "steps:\n  -\tdrop-dropout\n",
        "steps:\n  - drop-dropout\n\t\n \t# a comment\n",
        "steps: [\n\tdrop-dropout\n]\n",
        "about: 'a\n\tb'\nsteps: [drop-dropout]\n",
        "about: |\n  a\n  \tb\nsteps: [drop-dropout]\n",
        'about: "\\u0001\\x85"\nsteps: [drop-dropout]\n',
        "about: a\x85b\u2028c\nsteps: [drop-dropout]\n",
    ],
)
def test_texts_that_are_fine(text: str) -> None:
    assert parse(text).steps == parse(text.encode()).steps == (PassStep("drop-dropout"),)


def test_anchors() -> None:
    recipe = parse("steps:\n  - repeat: 2\n    steps: &a [drop-dropout]\n  - repeat: 3\n    steps: *a\n")
    assert [step.steps for step in recipe.steps] == [(PassStep("drop-dropout"),)] * 2  # type: ignore[union-attr]
    assert only(parse("about: &x drop-dropout\nsteps: [*x]")).name == "drop-dropout"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["1:1: this recipe is empty; it needs 'steps'"]),
        ("# nothing\n", ["1:1: this recipe is empty; it needs 'steps'"]),
        ("---\n", ["1:1: this recipe is empty; it needs 'steps'"]),
        ("~", ["1:1: this recipe is empty; it needs 'steps'"]),
        ("just text", ["1:1: a recipe is a mapping with 'steps', not 'just text'"]),
        ("- drop-dropout", ["1:1: a recipe is a mapping, not a list; write 'steps:' above the list"]),
        (
            "- drop-dropuot",
            [
                "1:1: a recipe is a mapping, not a list; write 'steps:' above the list",
                "1:3: no pass 'drop-dropuot'; did you mean 'drop-dropout'?",
            ],
        ),
        ("{}", ["1:1: a recipe needs 'steps', a list of passes"]),
        ("about: x\nsteps:\n", ["2:1: a recipe needs 'steps', a list of passes"]),
        (
            "steps: [drop-dropout]\n---\na: 1\n",
            ["2:1: a recipe is one YAML document; this begins another"],
        ),
        ("steps: [drop-dropout]\n... x\n", ["2:5: a recipe is one YAML document; nothing can follow here"]),
        (
            "about: a\nsteps: [drop-dropout]\nabout: b\n",
            ["3:1: duplicate key 'about'; line 1 has it already; remove one"],
        ),
        (
            step("fold-constants: {rounds: 1, rounds: 2}"),
            ["2:33: duplicate key 'rounds'; line 2 has it already; remove one"],
        ),
        (
            "steps: [drop-dropout]\nsteps: [drop-dropuot]\n",
            [
                "2:1: duplicate key 'steps'; line 1 has it already; remove one",
                "2:9: no pass 'drop-dropuot'; did you mean 'drop-dropout'?",
            ],
        ),
        ("steps: [drop-dropout]\n1: a\n", ["2:1: a key is text, not 1; quote it"]),
        ("steps: [drop-dropout]\n? [a]\n: b\n", ["2:3: a key is text, not a list"]),
        (
            "steps: [*a]",
            ["1:9: an empty step; name a pass or remove the '-'", "1:9: no anchor '&a' stands above this alias"],
        ),
        (
            "steps: &a [*a]",
            ["1:12: alias '*a' stands inside what it names", "1:12: an empty step; name a pass or remove the '-'"],
        ),
        (
            "steps: [drop-dropout]\nexpect: {nodes: != 3}\n",
            ["2:17: '!=' is read as a YAML tag, and recipes have none; quote the text"],
        ),
        (
            "steps: !x [drop-dropout]",
            ["1:8: '!x' is read as a YAML tag, and recipes have none; remove it"],
        ),
        ("about: a\x07\nsteps: [drop-dropout]", ["1:9: character U+0007 cannot stand in a recipe; remove it"]),
        ("steps: " + "[" * 50, ["1:31: nested more than 24 deep"]),
    ],
)
def test_mistakes_of_the_whole(text: str, expected: list[str]) -> None:
    assert mistakes(text) == [f"r.yaml:{line}" for line in expected]


def test_bytes_that_are_no_text() -> None:
    assert mistakes(b"a\0b") == ["r.yaml:1:1: this is not a text file; a recipe is YAML in UTF-8"]
    assert mistakes("steps: [a]".encode("utf-16")) == ["r.yaml:1:1: this is not a text file; a recipe is YAML in UTF-8"]
    latin = "about: ok\nsteps: [a, # für\n]\n".encode("latin-1")
    assert mistakes(latin) == [
        "r.yaml:2:9: no pass 'a'; 'surgery passes' lists them",
        "r.yaml:2:15: byte 0xfc is not UTF-8; save the file as UTF-8",
    ]


def test_aliases_do_not_explode() -> None:
    lines = ["about: x", "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    found = mistakes("\n".join(lines))
    assert any("larger than 100000 entries with its aliases" in line for line in found)
    lines = ["a0: &a0 [1]"] + [f"a{n}: &a{n} [[[[*a{n - 1}]]]]" for n in range(1, 9)]
    assert any("nested more than 24 deep" in line for line in mistakes("\n".join(lines)))


SYNTAX = [
    ("a: b: c", "1:5: a ':' cannot stand here; check the indentation, or quote the text"),
    ("a\nb: c", "2:2: a ':' cannot stand here; check the indentation, or quote the text"),
    ("a: - b", "1:4: a '-' cannot stand here; put the list on its own lines, indented"),
    ("- a\nb: c", "2:1: this does not line up with the list above; check the indentation"),
    ("a:\n  b: 1\n c: 2", "3:2: this does not line up with the keys above; check the indentation"),
    ("a: b\nc", "2:1: a ':' is missing after this key"),
    ("a: [b, c", "1:4: this '[' is never closed"),
    ("a: {b: c", "1:4: this '{' is never closed"),
    ("a: [b}", "1:6: a list in brackets needs ',' or ']' here"),
    ("a: {b: [c}}", "1:10: a list in brackets needs ',' or ']' here"),
    ("a: {b: c]", "1:9: a mapping in braces needs ',' or '}' here"),
    ("a: 'b", "1:4: this quote is never closed"),
    ('a: "b\n', "1:4: this quote is never closed"),
    ('a: "\\q"', "1:6: no such escape in double quotes; write '\\\\' or use single quotes"),
    ('a: "\\UFFFFFFFF"', "1:1: this is not YAML; check the indentation and the quotes"),
    ("a: @b", "1:4: a text that begins with '@' needs quotes"),
    ("a: `b`", "1:4: a text that begins with '`' needs quotes"),
    ("a: %b", "1:4: a text that begins with '%' needs quotes"),
    ("a: > 5", "1:4: a text that begins with '>' or '|' needs quotes: \"> 1\""),
    ("a: >= 5", "1:4: a text that begins with '>' or '|' needs quotes: \"> 1\""),
    ("a: {b: >= 5}", "1:8: a text that begins with '>' needs quotes"),
    ("a: * b", "1:5: a '*' begins an alias and needs a name; quote the text"),
    ("a: & b", "1:5: a '&' begins an anchor and needs a name; quote the text"),
    ("a: !x!y z", "1:4: a '!' begins a YAML tag; quote the text"),
    ("a: !<x y", "1:7: a '!' begins a YAML tag; quote the text"),
    ("%YAML 3.0\n---\na: 1", "1:1: a recipe is YAML 1.2 and needs no '%YAML' line"),
    ("%YAML x\n---\na: 1", "1:7: a '%' at the start of a line begins a YAML directive; quote the text"),
    ("a: 'it's'", "1:8: the value before this has ended; check the quotes and the indentation"),
    ("a: |\n   b\n  c", "3:3: the value before this has ended; check the quotes and the indentation"),
    ("a: |x\n b", "1:4: a text that begins with '>' or '|' needs quotes: \"> 1\""),
    ("%TAG ! x\n%TAG ! y\n---\na", "2:1: a '!' begins a YAML tag; quote the text"),
    ("...", "1:1: a value is missing here"),
    ("a: ]", "1:4: a value is missing here"),
    ("a: ? b", "1:4: a '?' cannot stand here; quote the text"),
]


@pytest.mark.parametrize(("text", "expected"), SYNTAX)
def test_syntax_errors(text: str, expected: str) -> None:
    assert f"r.yaml:{expected}" in mistakes(text)


def test_what_stands_before_a_syntax_error_is_checked() -> None:
    text = "recipe: x\nmodle: m.onnx\nsteps:\n  - drop-dropuot\n  - fuse-attention: {heads: 1, haeds: 'a\n"
    assert mistakes(text) == [
        "r.yaml:2:1: no key 'modle'; did you mean 'model'?",
        "r.yaml:4:5: no pass 'drop-dropuot'; did you mean 'drop-dropout'?",
        "r.yaml:5:39: this quote is never closed",
    ]


@pytest.mark.parametrize(
    "text", ["steps: a: b", "steps:\n  - repeat: 2\n    x", "recipe: x\n  y", "steps:\n  - pass: @", "steps: ["]
)
def test_a_syntax_error_brings_no_others_along(text: str) -> None:
    assert len(mistakes(text)) == 1


# Tabs


def test_tabs_in_the_indentation() -> None:
    tab = "a tab in the indentation; use spaces"
    assert mistakes("steps:\n\t- drop-dropout\n") == [f"r.yaml:2:1: {tab}"]
    assert mistakes("steps:\n- fold-constants:\n\t\trounds: 1\n  \n- drop-dropout\n") == [f"r.yaml:3:1: {tab}"]
    assert mistakes("steps:\n  - drop-dropout\n  \t- drop-dropout\n") == [f"r.yaml:3:3: {tab}"]
    assert mistakes("steps:\n- drop-dropout\n\t- drop-dropout\n") == [f"r.yaml:3:1: {tab}"]
    assert mistakes("\trecipe: x\nsteps: [drop-dropout]\n") == [f"r.yaml:1:1: {tab}"]
    assert mistakes("verify:\n\tseed: 1\nsteps: [\n\tdrop-dropout]\nabout: 'a\n\tb'\n") == [f"r.yaml:2:1: {tab}"]
    assert mistakes("about: |\n\ta\nsteps: [drop-dropout]\n") == [f"r.yaml:2:1: {tab}"]
    assert mistakes("about: |\n  a\n  \tb\nverify:\n\tseed: 1\nsteps: [drop-dropout]\n") == [f"r.yaml:5:1: {tab}"]


def test_columns_behind_tabs_are_those_of_the_file() -> None:
    text = "steps:\n\t- drop-dropuot\n\t- pass: fold-constants\n\t  with: {rouns: 1}\n\t  wen: {}\n"
    assert [line for line in mistakes(text) if "a tab" not in line] == [
        "r.yaml:2:4: no pass 'drop-dropuot'; did you mean 'drop-dropout'?",
        "r.yaml:4:11: pass 'fold-constants' has no option 'rouns'; did you mean 'rounds'?",
        "r.yaml:5:4: no key 'wen'; did you mean 'when'?",
    ]


def test_tabs_do_not_hide_a_syntax_error() -> None:
    assert (
        mistakes("steps:\n\t- drop-dropout\nexpect: {a: [}\n")[0] == "r.yaml:2:1: a tab in the indentation; use spaces"
    )
    assert len(mistakes("steps:\n\t- drop-dropout\nexpect: {\n")) == 2


def test_six_mistakes_at_once(tmp_path: Path) -> None:
    path = tmp_path / "six.yaml"
    path.write_text(
        "recipe: six\nabout: one\nabout: two\nsteps:\n  - drop-dropuot\n  - fold-constants: {max_grwth: 1MB}\n"
        "  - fold-constants: {rounds: many}\n\t- drop-dropout\n  - repeat: until-stable\n"
    )
    with pytest.raises(RecipeError) as caught:
        load(path)
    assert str(caught.value).splitlines() == [
        f"{path}:3:1: duplicate key 'about'; line 2 has it already; remove one",
        f"{path}:5:5: no pass 'drop-dropuot'; did you mean 'drop-dropout'?",
        f"{path}:6:22: pass 'fold-constants' has no option 'max_grwth'; did you mean 'max_growth'?",
        str(caught.value.problems[3]),
        f"{path}:8:1: a tab in the indentation; use spaces",
        f"{path}:9:5: 'repeat' needs 'steps', the list of what to repeat",
    ]
    assert str(caught.value.problems[3]).startswith(f"{path}:7:22: option 'rounds' of 'fold-constants' takes int: ")


def test_six_mistakes_without_steps_at_the_top() -> None:
    text = "recipe: six\nrecipe: again\ndo:\n\t- drop-dropuot\n\t- fold-constants: {rouns: 1, deep: 3}\n"
    assert [line.split(";")[0] for line in mistakes(text)] == [
        "r.yaml:1:1: a recipe needs 'steps', a list of passes",
        "r.yaml:2:1: duplicate key 'recipe'",
        "r.yaml:3:1: no key 'do'",
        "r.yaml:4:1: a tab in the indentation",
        "r.yaml:4:4: no pass 'drop-dropuot'",
        "r.yaml:5:1: a tab in the indentation",
        "r.yaml:5:21: pass 'fold-constants' has no option 'rouns'",
        "r.yaml:5:31: option 'deep' of 'fold-constants' takes bool: input should be a valid boolean",
    ]


# Messages of the parts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("drop-dropuot", "2:5: no pass 'drop-dropuot'; did you mean 'drop-dropout'?"),
        ("DropDropout", "2:5: no pass 'DropDropout'; did you mean 'drop-dropout'?"),
        (
            "drop-dropout\n   - fold-constants",
            "2:5: no pass 'drop-dropout - fold-constants'; a name has no blanks; check the indentation",
        ),
        ("drop_dropout:", "2:5: no pass 'drop_dropout'; did you mean 'drop-dropout'?"),
        ("xyz", "2:5: no pass 'xyz'; 'surgery passes' lists them"),
        ("tidy", "2:5: no pass 'tidy'; it is a recipe: write 'use: tidy'"),
        ("pass: drop-dropuot", "2:11: no pass 'drop-dropuot'; did you mean 'drop-dropout'?"),
        ("fold-constants: {depth: 2}", "2:22: pass 'fold-constants' has no option 'depth'; did you mean 'deep'?"),
        ("fold-constants: 5", "2:21: 'fold-constants' takes a mapping of options, not 5"),
        ("fold-constants: [rounds]", "2:21: 'fold-constants' takes a mapping of options, not a list"),
        ("fold-constants: {1: 2}", "2:22: a key is text, not 1; quote it"),
        ("fuse-attention", "2:5: pass 'fuse-attention' needs the option 'heads' (int)"),
        ("fuse-attention: {target: onnx}", "2:5: pass 'fuse-attention' needs the option 'heads' (int)"),
        ("", "2:4: an empty step; name a pass or remove the '-'"),
        ("''", "2:5: a step is the name of a pass or a mapping, not ''"),
        ("{}", "2:5: an empty step; name a pass or remove the '-'"),
        ("5", "2:5: a step is the name of a pass or a mapping, not 5"),
        ("[a]", "2:5: a step is the name of a pass or a mapping, not a list"),
        ("pass:", "2:5: 'pass' needs the name of a pass"),
        ("pass: 5", "2:11: 'pass' takes the name of a pass, not 5"),
        ("pass: '5'", "2:11: no pass '5'; 'surgery passes' lists them"),
        ("pass: drop-dropout\n    with: 5", "3:11: 'with' takes a mapping of options, not 5"),
        ("pas: drop-dropout", "2:5: no key 'pas'; did you mean 'pass'?"),
        (
            "pass: drop-dropout\n    option: {}",
            "3:5: no key 'option'; known here: pass, with, when, on_failure, expect",
        ),
        ("pass: drop-dropout\n    options: {}", "3:5: no key 'options'; did you mean 'with'?"),
        ("pass: drop-dropout\n    if: {}", "3:5: no key 'if'; did you mean 'when'?"),
        ("pass: drop-dropout\n    use: tidy", "3:5: 'use' cannot stand beside 'pass'; a step is one of them"),
        (
            "pass: drop-dropout\n    on_failure: bisect",
            "3:17: on_failure: bisect is not there yet; use rollback",
        ),
        (
            "pass: drop-dropout\n    on_failure: rolback",
            "3:17: 'on_failure' takes abort, rollback or keep, not 'rolback'; did you mean 'rollback'?",
        ),
        ("pass: drop-dropout\n    on_failure: 1", "3:17: 'on_failure' takes abort, rollback or keep, not 1"),
        (
            "fold-constants: {rounds: 1}\n    when: {nodes: 1}",
            "3:5: 'when' cannot stand beside 'fold-constants'; write 'pass: fold-constants' and put its options "
            "under 'with'",
        ),
        (
            "fold-constants:\n    rounds: 1",
            "3:5: 'rounds' stands beside 'fold-constants', not in it; indent it further",
        ),
        (
            "fold-constants: {rounds: 1}\n    drop-dropout: {}",
            "3:5: 'drop-dropout' cannot stand beside 'fold-constants'; begin each step with '- '",
        ),
        ("5: {}", "2:5: a key is text, not 5; quote it"),
        ("drop-dropout: {}\n    5: a", "3:5: a key is text, not 5; quote it"),
        ("when: {}", "2:5: this step has no 'pass', 'use' or 'repeat'"),
        ("steps: [drop-dropout]", "2:5: 'steps' needs 'repeat' beside it: until-stable, or a number of rounds"),
        ("repeat: 2", "2:5: 'repeat' needs 'steps', the list of what to repeat"),
        ("repeat: 2\n    steps: []", "3:12: 'steps' lists no step; name at least one pass"),
        ("repeat: 2\n    steps: tidy", "3:12: 'steps' takes a list, not 'tidy'; begin each step with '- '"),
        (
            "repeat: forever\n    steps: [drop-dropout]",
            "2:13: 'repeat' takes until-stable or a number of rounds, not 'forever'",
        ),
        (
            "repeat: until_stable\n    steps: [drop-dropout]",
            "2:13: 'repeat' takes until-stable or a number of rounds, not 'until_stable'; did you mean 'until-stable'?",
        ),
        ("repeat: 0\n    steps: [drop-dropout]", "2:13: 'repeat' is at least 1, not 0"),
        ("repeat: true\n    steps: [a]", "2:13: 'repeat' takes until-stable or a number of rounds, not true"),
        ("repaet: 2\n    steps: [drop-dropout]", "2:5: no key 'repaet'; did you mean 'repeat'?"),
        (
            "repeat: 2\n    steps: [drop-dropout]\n    on_failure: keep",
            "4:5: no key 'on_failure'; known here: repeat, steps, when",
        ),
        ("use:", "2:5: 'use' needs the name or path of a recipe"),
        ("use: [a]", "2:10: 'use' takes the name or path of a recipe, not a list"),
        ("use: tydy", "2:10: no recipe 'tydy'; did you mean 'tidy'?"),
        ("use: zzzz", "2:10: no recipe 'zzzz'; shipped are bert, tidy"),
        ("use: .", "2:10: '.' is a directory, not a recipe"),
        ("use: tidy\n    steps: []", "3:5: no key 'steps'; known here: use, when"),
    ],
)
def test_mistakes_in_a_step(text: str, expected: str) -> None:
    assert f"r.yaml:{expected}" in mistakes(step(text))


def test_a_wrong_step_is_said_once() -> None:
    for text in ("pass: drop-dropuot", "pas: drop-dropout", "repaet: 2\n    steps: [drop-dropout]", "use: tydy", "5"):
        assert len(mistakes(step(text))) == 1


def test_options_beside_the_name_are_checked_too() -> None:
    assert mistakes(step("fold-constants:\n    rouns: 1\n    deep: 2")) == [
        "r.yaml:3:5: 'rouns' stands beside 'fold-constants', not in it; indent it further",
        "r.yaml:3:5: pass 'fold-constants' has no option 'rouns'; did you mean 'rounds'?",
        "r.yaml:4:5: 'deep' stands beside 'fold-constants', not in it; indent it further",
        mistakes(step("fold-constants: {deep: 2}"))[0].replace("2:22", "4:5"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("recipe: 5", "1:9: 'recipe' takes the name of the recipe, not 5"),
        ("recipe: ''", "1:9: 'recipe' takes the name of the recipe, not ''"),
        ("recipe: [a]", "1:9: 'recipe' takes the name of the recipe, not a list"),
        ('recipe: "a\\nb"', "1:9: 'recipe' takes the name of the recipe on one line, without control characters"),
        ("about: {a: b}", "1:8: 'about' takes text, not a mapping"),
        ("model: 5", "1:8: 'model' takes the path of a model, not 5"),
        ('model: "a\\0b"', "1:8: 'model' takes the path of a model on one line, without control characters"),
        ("output: [a]", "1:9: 'output' takes a file name such as '{stem}.opt.onnx', not a list"),
        ("output: '{stm}.onnx'", "1:9: 'output' knows no '{stm}'; did you mean '{stem}'?"),
        ("output: '{}.onnx'", "1:9: 'output' knows no '{}'; did you mean '{stem}'?"),
        ("plugins: 5", "1:10: 'plugins' takes the names of modules and the paths of .py files, not 5"),
        ("plugins: [a b]", "1:11: a plugin is an installed module or a .py file, not 'a b'"),
        ("plugins: [./a]", "1:11: a plugin is an installed module or a .py file, not './a'"),
        ("plugins: [nowhere.py]", "1:11: no plugin file 'nowhere.py'"),
        ("plugins: [no_such_module]", "1:11: no plugin module 'no_such_module'; install it, or name a .py file"),
        ("plugins: [builtins.x]", "1:11: no plugin module 'builtins.x'; install it, or name a .py file"),
        ("name: x", "1:1: no key 'name'; did you mean 'recipe'?"),
        ("inputs: 5", "1:9: 'inputs' takes a mapping such as {dims: {batch: 1}}, not 5"),
        ("inputs: {dim: {batch: 1}}", "1:10: no key 'dim'; did you mean 'dims'?"),
        ("inputs: {dims: [1]}", "1:16: 'dims' takes a mapping such as {batch: [1, 3]}, not a list"),
        ("inputs: {dims: {batch: []}}", "1:24: dim 'batch' lists no extent"),
        ("inputs: {dims: {batch: 0}}", "1:24: 'batch' is at least 1, not 0"),
        ("inputs: {dims: {batch: [1, -2]}}", "1:28: 'batch' is at least 1, not -2"),
        ("inputs: {dims: {batch: 1.5}}", "1:24: 'batch' takes a whole number or a list of them, not 1.5"),
        ("inputs: {dims: {batch: }}", "1:23: 'batch' takes a whole number or a list of them, not nothing"),
        (
            "inputs: {dims: {batch: '3'}}",
            "1:24: 'batch' takes a whole number or a list of them, not '3'; remove the quotes",
        ),
        ("inputs: {dims: {3: 1}}", "1:17: a key is text, not 3; quote it"),
        ("inputs: {tensors: 1}", "1:19: 'tensors' takes a mapping such as {mask: {values: [0, 1]}}, not 1"),
        (
            "inputs: {tensors: {x: [0]}}",
            "1:23: 'x' takes a mapping such as {values: [0, 1]} or {range: [0, 9]}, not a list",
        ),
        ("inputs: {tensors: {x: {}}}", "1:23: input 'x' takes one of values, range, file; here are 0"),
        (
            "inputs: {tensors: {x: {values: [0], range: [0, 1]}}}",
            "1:23: input 'x' takes one of values, range, file; here are 2",
        ),
        ("inputs: {tensors: {x: {vals: [0]}}}", "1:24: no key 'vals'; did you mean 'values'?"),
        ("inputs: {tensors: {x: {values: 0}}}", "1:32: 'values' takes a list such as [0, 1], not 0"),
        ("inputs: {tensors: {x: {values: []}}}", "1:32: 'values' takes a list such as [0, 1], not a list"),
        ("inputs: {tensors: {x: {values: [[0]]}}}", "1:33: 'values' lists numbers, bools or texts, not a list"),
        (
            "inputs: {tensors: {x: {range: [0]}}}",
            "1:31: 'range' takes the least and the greatest value, such as [0, 9], not a list",
        ),
        ("inputs: {tensors: {x: {range: [9, 0]}}}", "1:31: 'range' starts above its end; did you mean [0, 9]?"),
        (
            "inputs: {tensors: {x: {range: [0, .inf]}}}",
            "1:31: 'range' takes the least and the greatest value, such as [0, 9], not a list",
        ),
        ("inputs: {tensors: {x: {file: 1}}}", "1:30: 'file' takes the path of a .npy or .npz file, not 1"),
        ("inputs: {tensors: {x: {file: a.pb}}}", "1:30: 'file' takes the path of a .npy or .npz file, not 'a.pb'"),
        ("inputs: {tensors: {x: {file: a.npy}}}", "1:30: no file 'a.npy' in the recipe's folder"),
        ("verify: off", "1:9: 'verify' takes a mapping such as {rtol: 1e-4, atol: 1e-5}, not 'off'"),
        ("verify: {rtol: tight}", "1:16: 'rtol' takes a number, not 'tight'"),
        ("verify: {rtol: '1e-4'}", "1:16: 'rtol' takes a number, not '1e-4'; remove the quotes"),
        ("verify: {rtol: -1e-4}", "1:16: 'rtol' is never negative: -1e-4"),
        ("verify: {atol: .nan}", "1:16: 'atol' takes a number, not .nan"),
        ("verify: {atol: true}", "1:16: 'atol' takes a number, not true"),
        ("verify: {seed: 1.5}", "1:16: 'seed' takes a whole number, not 1.5"),
        ("verify: {seed: -1}", "1:16: 'seed' is at least 0, not -1"),
        ("verify: {seed: true}", "1:16: 'seed' takes a whole number, not true"),
        ("verify: {timeout: 0}", "1:19: 'timeout' is more than 0, not 0"),
        ("verify: {timeout: 5m}", "1:19: 'timeout' takes a number of seconds, not '5m'"),
        ("verify: {mode: eech}", "1:16: 'mode' takes each, end or off, not 'eech'; did you mean 'each'?"),
        ("verify: {unverified: [a]}", "1:22: 'unverified' takes refuse or accept, not a list"),
        ("verify: {memory: much}", "1:18: 'memory' takes a size such as 512MB or 2GiB, not 'much'"),
        ("verify: {memory: -5}", "1:18: 'memory' takes a size such as 512MB or 2GiB, not -5"),
        ("verify: {memory: true}", "1:18: 'memory' takes a size such as 512MB or 2GiB, not true"),
        (f"verify: {{memory: {'9' * 400}MB}}", f"1:18: 'memory' takes a size such as 512MB or 2GiB, not '{'9' * 40}…'"),
        ("verify: {rtoll: 1}", "1:10: no key 'rtoll'; did you mean 'rtol'?"),
        ("expect: [a]", "1:9: 'expect' takes a mapping such as {ops: {Dropout: 0}, nodes: \"<= 500\"}, not a list"),
        ("expect: {sites: 1}", "1:10: no key 'sites'; known here: ops, nodes, opset, signature"),
        ("expect: {signature: same}", "1:21: 'signature' takes unchanged, not 'same'"),
        ("expect: {ops: [Dropout]}", "1:15: 'ops' takes a mapping such as {Dropout: 0}, not a list"),
        ("expect: {ops: {Dropout: none}}", "1:25: 'none' is not a comparison such as 0, '>= 1' or '<= 500'"),
        ("expect: {ops: {Dropout: }}", "1:24: 'Dropout' takes a number or a comparison such as '>= 1', not nothing"),
        ("expect: {nodes: -1}", "1:17: a count is never negative: -1"),
        ("expect: {nodes: '> -1'}", "1:17: a count is never negative: '> -1'"),
        ("expect: {nodes: 1.5}", "1:17: 'nodes' takes a number or a comparison such as '>= 1', not 1.5"),
        ("expect: {nodes: '=> 1'}", "1:17: '=>' does not compare; did you mean '>= 1'?"),
        ("expect: {nodes: '= 1'}", "1:17: '=' does not compare; did you mean '== 1'?"),
        ("expect: {nodes: '>> 1'}", "1:17: '>>' does not compare; use ==, !=, <, <=, > or >="),
        ("expect:\n  nodes: >1\n", "2:10: 'nodes' has an empty text here; put the comparison in quotes: '>= 1'"),
        ("expect: {opset: [1]}", "1:17: 'opset' takes a number or a comparison such as '>= 1', not a list"),
    ],
)
def test_mistakes_in_a_section(text: str, expected: str) -> None:
    assert mistakes(f"{text}\nsteps: [drop-dropout]\n") == [f"r.yaml:{expected}"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("when: {node: 1}", "3:12: no key 'node'; did you mean 'nodes'?"),
        ("when: {sites: 1}", "3:12: no key 'sites'; known here: ops, nodes, opset"),
        ("when: {ops: {Relu: many}}", "3:24: 'many' is not a comparison such as 0, '>= 1' or '<= 500'"),
        ("when: 5", "3:11: 'when' takes a mapping such as {ops: {Softmax: \">= 1\"}}, not 5"),
        ("expect: {sites: -1}", "3:21: a count is never negative: -1"),
    ],
)
def test_mistakes_beside_a_pass(text: str, expected: str) -> None:
    assert mistakes(step(f"pass: drop-dropout\n    {text}")) == [f"r.yaml:{expected}"]


def test_steps_that_are_no_list() -> None:
    assert mistakes("steps: drop-dropuot") == [
        "r.yaml:1:8: 'steps' takes a list, not 'drop-dropuot'; begin each step with '- '",
        "r.yaml:1:8: no pass 'drop-dropuot'; did you mean 'drop-dropout'?",
    ]
    assert mistakes("steps:\n  drop-dropout:\n  fold-constants:\n") == [
        "r.yaml:2:3: 'steps' takes a list, not a mapping; begin each step with '- '"
    ]
    assert mistakes("steps: []") == ["r.yaml:1:8: 'steps' lists no step; name at least one pass"]


def test_what_stands_under_a_misspelt_key_is_checked() -> None:
    for key, message in (
        ("step", "1:1: no key 'step'; did you mean 'steps'?"),
        ("passes", "1:1: no key 'passes'; did you mean 'steps'?"),
    ):
        assert mistakes(f"{key}:\n  - drop-dropuot\n") == [
            f"r.yaml:{message}",
            "r.yaml:2:5: no pass 'drop-dropuot'; did you mean 'drop-dropout'?",
        ]
    assert len(mistakes("do:\n  - drop-dropuot\n")) == 3


def test_messages_stay_on_one_line() -> None:
    long = "x" * 900  # a YAML key is at most 1,024 characters
    text = (
        f'"a\\nb\\e[31m": 1\n"{long}": 1\nverify: {{memory: "1\\n2"}}\nexpect: {{nodes: "a\\nb{long}"}}\nsteps:\n'
        f'  - "p\\nq"\n  - "{long}": 5\n  - fold-constants: {{"o\\np": 1, max_growth: "{long}"}}\n  - use: "{long}"\n'
    )
    found = mistakes(text)
    assert len(found) == 10
    assert all(line.isprintable() and len(line) < 400 for line in found)


# Files


def test_the_real_shelf_is_there() -> None:
    assert (REAL_FOLDER() / "tidy.yaml").is_file()


def test_load_by_name_and_by_path(tmp_path: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert names() == ("bert", "tidy")
    assert load("tidy").name == "tidy"
    assert load("bert").path == shelf / "bert.yaml"
    Path("tidy").mkdir()
    assert load("tidy").path == shelf / "tidy.yaml"
    Path("own").write_text("steps: [drop-dropout]")
    assert load("own").name == load("./own").name == load(Path("own")).name == "own"
    Path("bert").write_text("steps: [drop-dropout]")
    assert load(Path("bert")).path == Path("bert")
    assert load("./bert").path == Path("bert")


def test_recipes_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("steps: [drop-dropout]")
    Path("m.onnx").write_bytes(b"\x08\x0a")
    Path("large.yaml").write_text("#" * 200_000)
    Path("folder").mkdir()
    for name, message in {
        "bret": "no recipe 'bret'; did you mean 'bert'?",
        "nothing": "no recipe 'nothing'; shipped are bert, tidy",
        "mien.yaml": "no recipe 'mien.yaml'; did you mean 'mine.yaml'?",
        "mine.yml": "no recipe 'mine.yml'; did you mean 'mine.yaml'?",
        "mine": "no recipe 'mine'; did you mean 'mine.yaml'?",
        "x/tidy.yaml": "no recipe 'x/tidy.yaml'; did you mean 'tidy'?",
        "folder": "'folder' is a directory, not a recipe",
        "": "'' is a directory, not a recipe",
        "m.onnx": "'m.onnx' is a model, not a recipe; the recipe comes first, then the model",
        "large.yaml": "'large.yaml' is too large for a recipe (more than 128 KiB)",
        "a\0b": "no recipe 'a b'; shipped are bert, tidy",
        "z" * 5000: f"no recipe '{'z' * 40}…'; shipped are bert, tidy",
    }.items():
        with pytest.raises(UsageError) as caught:
            load(name)
        assert str(caught.value) == message


def test_paths_start_at_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a" / "b").mkdir(parents=True)
    Path("a/x.npy").write_bytes(b"")
    text = "model: ../m.onnx\ninputs: {tensors: {x: {file: ../x.npy}}}\nsteps: [{use: ../c.yaml}]\n"
    Path("a/b/r.yaml").write_text(text)
    Path("a/c.yaml").write_text("model: /abs/m.onnx\nsteps: [drop-dropout]")
    recipe = load("a/b/r.yaml")
    assert recipe.model == Path("a/m.onnx")
    assert recipe.inputs.tensors["x"].file == Path("a/x.npy")
    assert only(recipe).recipe.path == Path("a/c.yaml")
    assert only(recipe).recipe.model == Path("/abs/m.onnx")
    # Behind a link `..` is not the folder above in the name.
    (tmp_path / "far" / "deep").mkdir(parents=True)
    Path("link").symlink_to(tmp_path / "far" / "deep")
    Path("link/r.yaml").write_text("model: ../m.onnx\nsteps: [drop-dropout]")
    model = load("link/r.yaml").model
    assert model is not None and model.resolve() == tmp_path.resolve() / "far" / "m.onnx"


def test_mistakes_of_nested_recipes_come_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    Path("r.yaml").write_text("steps:\n  - use: sub/a.yaml\n  - use: sub/a.yaml\n  - drop-dropuot\n  - use: sub\n")
    Path("sub/a.yaml").write_text("steps:\n  - use: b.yaml\n  - use: c.yaml\n  - xyz\n")
    Path("sub/b.yaml").write_text("stops: [drop-dropout]\n")
    with pytest.raises(RecipeError) as caught:
        load("r.yaml")
    assert str(caught.value).splitlines() == [
        "r.yaml:4:5: no pass 'drop-dropuot'; did you mean 'drop-dropout'?",
        "r.yaml:5:10: 'sub' is a directory, not a recipe",
        "sub/a.yaml:3:10: no recipe 'c.yaml'; did you mean 'b.yaml'?",
        "sub/a.yaml:4:5: no pass 'xyz'; 'surgery passes' lists them",
        "sub/b.yaml:1:1: no key 'stops'; did you mean 'steps'?",
    ]


def test_circles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shelf: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.yaml").write_text(step("use: own.yaml"))
    Path("a.yaml").write_text(step("use: b.yaml"))
    Path("b.yaml").write_text(step("repeat: 2\n    steps: [{use: ./c.yaml}]"))
    Path("c.yaml").write_text(step("use: ../c/a.yaml").replace("../c", f"../{tmp_path.name}"))
    (shelf / "loop.yaml").write_text(step("use: loop"))
    for name, message in {
        "own.yaml": "own.yaml:2:10: a recipe cannot use itself: own.yaml -> own.yaml",
        "a.yaml": "c.yaml:2:10: a recipe cannot use itself: a.yaml -> b.yaml -> c.yaml -> a.yaml",
        "loop": f"{shelf}/loop.yaml:2:10: a recipe cannot use itself: loop.yaml -> loop.yaml",
    }.items():
        with pytest.raises(RecipeError) as caught:
            load(name)
        assert str(caught.value) == message
    (found,) = mistakes(step("use: own.yaml"), "./own.yaml")
    assert found == "./own.yaml:2:10: a recipe cannot use itself: own.yaml -> own.yaml"


def test_the_same_recipe_twice_is_no_circle() -> None:
    first, second = parse("steps: [{use: tidy}, {use: bert}]").steps
    assert isinstance(first, UseStep) and isinstance(second, UseStep)
    assert only(second.recipe).recipe is first.recipe


def test_deep_nesting_ends_in_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(12):
        inner = f"{{use: r{number + 1}.yaml}}"
        for _ in range(10):
            inner = f"{{repeat: 2, steps: [{inner}]}}"
        Path(f"r{number}.yaml").write_text(f"steps: [{inner}]")
    with pytest.raises(RecipeError, match=r"^r7.yaml:1:\d+: recipes nested more than 8 deep$"):
        load("r0.yaml")


# Plugins


PLUGIN = """
from surgery import graph_pass

@graph_pass('{}')
def change(graph: object, *, strength: int = 1) -> None:
    'Change.'
"""


def test_local_python_needs_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    Path("sub/wrong.py").write_text(PLUGIN.format("from-wrong") + "import builtins\nbuiltins.surgery_ran = True\n")
    Path("sub/x.yaml").write_text("plugins: [./wrong.py]\nsteps: [{from-wrong: {strength: 2}}]\n")
    digest = hashlib.sha256(Path("sub/wrong.py").read_bytes()).hexdigest()[:12]
    with pytest.raises(UsageError) as caught:
        load("sub/x.yaml")
    assert str(caught.value) == f"sub/x.yaml wants to run ./wrong.py (sha256 {digest}…); pass --trust if you trust it"
    import builtins

    assert not hasattr(builtins, "surgery_ran")
    recipe = load("sub/x.yaml", trust=True)
    assert builtins.surgery_ran  # type: ignore[attr-defined]
    del builtins.surgery_ran  # type: ignore[attr-defined]
    assert recipe.plugins == ("sub/wrong.py",)
    assert only(recipe) == PassStep("from-wrong", {"strength": 2})


def test_mistakes_come_with_the_question_for_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.py").write_text(PLUGIN.format("from-p"))
    found = mistakes("plugins: p.py\nabot: x\nsteps: [from-p, fold-constants: {rouns: 1}]\n")
    assert [line.split(" (")[0] for line in found] == [
        "r.yaml:1:10: the recipe wants to run p.py",
        "r.yaml:2:1: no key 'abot'; did you mean 'about'?",
        "r.yaml:3:34: pass 'fold-constants' has no option 'rouns'; did you mean 'rounds'?",
    ]
    assert found[0].endswith("; pass --trust if you trust it")


def test_plugins_of_nested_recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    Path("sub/q.py").write_text(PLUGIN.format("from-q"))
    Path("sub/n.yaml").write_text("plugins: [q.py]\nsteps: [from-q]\n")
    text = "steps:\n  - from-q\n  - use: sub/n.yaml\n"
    with pytest.raises(UsageError, match=r"^sub/n.yaml wants to run q.py \(sha256 "):
        parse(text, "r.yaml")
    assert parse(text, "r.yaml", trust=True).plugins == ()
    assert mistakes("steps:\n  - from-qq\n  - use: sub/n.yaml\n", trust=True) == [
        "r.yaml:2:5: no pass 'from-qq'; did you mean 'from-q'?"
    ]


def test_plugins_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "installed"))
    Path("installed").mkdir()
    Path("installed/broken_plugin.py").write_text("raise RuntimeError('no\\nway')\n")
    Path("installed/leaving_plugin.py").write_text("raise SystemExit(3)\n")
    Path("syntax.py").write_text("def\n")
    text = "plugins: [syntax.py, broken_plugin, leaving_plugin]\nsteps: [unknown-pass]\n"
    found = mistakes(text, trust=True)
    assert found[0].startswith("r.yaml:1:11: plugin 'syntax.py' cannot be imported: SyntaxError: ")
    assert found[1] == "r.yaml:1:22: plugin 'broken_plugin' cannot be imported: RuntimeError: no way"
    assert found[2] == "r.yaml:1:37: plugin 'leaving_plugin' cannot be imported: SystemExit: 3"
    assert len(found) == 3


def test_modules_need_trust_only_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "installed").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "installed" / "good_plugin.py").write_text(PLUGIN.format("from-good"))
    (tmp_path / "here" / "local_plugin.py").write_text(PLUGIN.format("from-local"))
    (tmp_path / "here" / "local_package").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.syspath_prepend(str(tmp_path / "installed"))
    assert only(parse("plugins: [good_plugin]\nsteps: [from-good]")).name == "from-good"
    # `python -m` looks in the current folder, so that a module there is a file that nobody installed.
    monkeypatch.syspath_prepend(str(tmp_path / "here"))
    with pytest.raises(UsageError, match=r"^r.yaml wants to run local_plugin \(sha256 [0-9a-f]{12}…\); "):
        parse("plugins: [local_plugin]\nsteps: [from-local]", "r.yaml")
    with pytest.raises(UsageError, match=r"^r.yaml wants to run local_package.inner; "):
        parse("plugins: [local_package.inner]\nsteps: [from-local]", "r.yaml")
    text = "plugins: [local_plugin]\nsteps: [from-local]"
    assert only(parse(text, "r.yaml", trust=True)).name == "from-local"


# One step


def test_single_step() -> None:
    recipe = single_step("fold-constants", {"max_growth": "1MB"})
    assert recipe == Recipe("fold-constants", (PassStep("fold-constants", {"max_growth": "1MB"}),))
    assert only(single_step("drop-dropout", on_failure="keep", verify=VerifySpec(seed=4))).on_failure == "keep"
    with pytest.raises(UsageError, match="did you mean 'drop-dropout'"):
        single_step("drop-dropuot")
    with pytest.raises(UsageError, match="has no option 'rouns'"):
        single_step("fold-constants", {"rouns": 1})
    with pytest.raises(UsageError, match="needs the option 'heads'"):
        single_step("fuse-attention")


# Any text at all


PIECES = ["\t", "\n", " ", "  ", ":", ": ", "- ", "-", "[", "]", "{", "}", "'", '"', "#", "&a ", "*a", "!", "|", ">"]
PIECES += [
    "?",
    "%",
    "@",
    "\\",
    "\0",
    "é",
    "\ud800",
    "\x07",
    "\x85",
    "---\n",
    "...\n",
    "<<: ",
    "steps",
    "pass",
    "0",
    "e",
]


def mutate(text: str, chance: random.Random) -> str:
    for _ in range(chance.choice((1, 1, 2, 4, 8))):
        at = chance.randrange(len(text) + 1)
        if chance.random() < 0.5:
            text = text[:at] + text[at + chance.choice((1, 1, 2, 5, 20)) :]
        else:
            text = text[:at] + chance.choice(PIECES) + text[at:]
    return text


@pytest.mark.parametrize("seed", range(4))
def test_any_text_gives_a_recipe_or_its_mistakes(seed: int) -> None:
    chance = random.Random(seed)
    base = EXAMPLE.split("steps:")[0].split("verify")[0][-120:] + "steps:" + EXAMPLE.split("steps:", 1)[1]
    outcomes = set()
    for number in range(220):
        text = mutate(base if number % 2 else step("fold-constants: {rounds: 1}\n  - use: tidy"), chance)
        given: str | bytes = text if number % 3 else text.encode(errors="surrogatepass")
        try:
            outcomes.add(type(parse(given, "r.yaml")))
        except SurgeryError as error:
            assert isinstance(error, RecipeError | UsageError)
            assert all(line.isprintable() for line in str(error).splitlines())
            outcomes.add(type(error))
    assert RecipeError in outcomes
