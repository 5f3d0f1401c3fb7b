"""Recipes as YAML 1.2: scalars, anchors, syntax errors, tabs."""

from pathlib import Path

import pytest
from support.recipe_texts import mistakes, only, step

from surgery.base.errors import RecipeError
from surgery.engine.recipe import PassStep, load, parse
from surgery.engine.yaml.yaml_nodes import resolve

pytestmark = pytest.mark.usefixtures("passes", "shelf")

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
            ["1:9: an empty step; name a pass or remove the '-'", "1:9: no anchor '&a' is defined above this alias"],
        ),
        (
            "steps: [drop-dropout]\noutput: */x.onnx\n",
            ["2:9: no anchor '&/x.onnx' is defined above this alias; put text that begins with * in quotes"],
        ),
        (
            "steps: &a [*a]",
            [
                "1:12: alias '*a' is inside the node that it refers to",
                "1:12: an empty step; name a pass or remove the '-'",
            ],
        ),
        (
            "steps: [drop-dropout]\nexpect: {nodes: != 3}\n",
            ["2:17: '!=' is read as a YAML tag, which recipes do not allow; quote the text"],
        ),
        (
            "steps: !x [drop-dropout]",
            ["1:8: '!x' is read as a YAML tag, which recipes do not allow; remove it"],
        ),
        ("about: a\x07\nsteps: [drop-dropout]", ["1:9: character U+0007 is not allowed in a recipe; remove it"]),
        ("steps: " + "[" * 80, ["1:71: nested more than 64 deep"]),
    ],
)
def test_mistakes_of_the_whole_document(text: str, expected: list[str]) -> None:
    assert mistakes(text) == [f"r.yaml:{line}" for line in expected]


def test_bytes_that_are_not_text() -> None:
    assert mistakes(b"a\0b") == ["r.yaml:1:1: this is not a text file; it must be YAML in UTF-8"]
    assert mistakes("steps: [a]".encode("utf-16")) == ["r.yaml:1:1: this is not a text file; it must be YAML in UTF-8"]
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
    lines = ["a0: &a0 [1]"] + [f"a{n}: &a{n} [[[[*a{n - 1}]]]]" for n in range(1, 21)]
    assert any("nested more than 64 deep" in line for line in mistakes("\n".join(lines)))


SYNTAX = [
    ("a: b: c", "1:5: a ':' is not allowed here; check the indentation, or quote the text"),
    ("a\nb: c", "2:2: a ':' is not allowed here; check the indentation, or quote the text"),
    ("a: - b", "1:4: a '-' is not allowed here; put the list on its own lines, indented"),
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
    ("a: ? b", "1:4: a '?' is not allowed here; quote the text"),
]


@pytest.mark.parametrize(("text", "expected"), SYNTAX)
def test_syntax_errors(text: str, expected: str) -> None:
    assert f"r.yaml:{expected}" in mistakes(text)


def test_text_before_a_syntax_error_is_checked() -> None:
    text = "recipe: x\nmodle: m.onnx\nsteps:\n  - drop-dropuot\n  - fuse-attention: {heads: 1, haeds: 'a\n"
    assert mistakes(text) == [
        "r.yaml:2:1: no key 'modle'; did you mean 'model'?",
        "r.yaml:4:5: no pass 'drop-dropuot'; did you mean 'drop-dropout'?",
        "r.yaml:5:39: this quote is never closed",
    ]


@pytest.mark.parametrize(
    "text", ["steps: a: b", "steps:\n  - repeat: 2\n    x", "recipe: x\n  y", "steps:\n  - pass: @", "steps: ["]
)
def test_a_syntax_error_causes_no_further_errors(text: str) -> None:
    assert len(mistakes(text)) == 1


# Tabs


def test_tabs_in_the_indentation() -> None:
    tab = "a tab in the indentation; use spaces"
    assert mistakes("steps:\n\t- drop-dropout\n") == [f"r.yaml:2:1: {tab}"]
    assert mistakes("steps:\n- fold-constants:\n\t\trounds: 1\n  \n- drop-dropout\n") == [f"r.yaml:3:1: {tab}"]
    assert mistakes("steps:\n  - drop-dropout\n  \t- drop-dropout\n") == [f"r.yaml:3:3: {tab}"]
    assert mistakes("steps:\n- drop-dropout\n\t- drop-dropout\n") == [f"r.yaml:3:1: {tab}"]
    assert mistakes("steps:\n   - drop-dropout\n\n\t- drop-dropout\n") == [f"r.yaml:4:1: {tab}"]
    assert mistakes("\trecipe: x\nsteps: [drop-dropout]\n") == [f"r.yaml:1:1: {tab}"]
    assert mistakes("verify:\n\tseed: 1\nsteps: [\n\tdrop-dropout]\nabout: 'a\n\tb'\n") == [f"r.yaml:2:1: {tab}"]
    assert mistakes("about: |\n\ta\nsteps: [drop-dropout]\n") == [f"r.yaml:2:1: {tab}"]
    assert mistakes("about: |\n  a\n  \tb\nverify:\n\tseed: 1\nsteps: [drop-dropout]\n") == [f"r.yaml:5:1: {tab}"]


def test_columns_after_tabs_match_the_file() -> None:
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
        f"{path}:9:5: 'repeat' needs 'steps', the steps to repeat",
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
