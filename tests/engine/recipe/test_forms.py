"""What a recipe can say."""

import copy
import pickle
import random
import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
from support.breadth import sampled
from support.recipe_texts import EXAMPLE, only, step

from surgery.base.errors import RecipeError, SurgeryError, UsageError
from surgery.engine.recipe import (
    CountCondition,
    Expect,
    PassStep,
    Recipe,
    RepeatStep,
    UseStep,
    When,
    parse,
    single_step,
)
from surgery.verification.inputs.spec import (
    AccuracySpec,
    FrozenDict,
    InputsSpec,
    MetricLimit,
    SampleSpec,
    TensorSpec,
    VerifySpec,
)

pytestmark = pytest.mark.usefixtures("passes", "shelf")


def test_every_key_of_a_recipe() -> None:
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
    assert recipe.expect == Expect(
        {"Dropout": CountCondition("==", 0)}, CountCondition("<=", 500), signature="unchanged"
    )


def test_every_form_of_a_step() -> None:
    use, name, null, options, stable, rounds, long = parse(EXAMPLE, "r.yaml").steps
    assert isinstance(use, UseStep) and use.recipe.name == "tidy"
    assert use.recipe.expect.ops == {"Dropout": CountCondition("==", 0)}
    assert name == null == PassStep("drop-dropout")
    assert options == PassStep("fold-constants", {"max_growth": "1MB"})
    assert stable == RepeatStep(None, (PassStep("drop-dropout"), PassStep("fold-constants", {"rounds": 2})))
    when = When(opset=CountCondition("<", 20))
    assert rounds == RepeatStep(3, (PassStep("drop-dropout"),), when=when)
    when = When({"Softmax": CountCondition(">=", 1)}, CountCondition(">", 10))
    expect = Expect(sites=CountCondition("==", 12), signature="unchanged")
    assert long == PassStep("fuse-attention", {"heads": 12}, "rollback", expect, when=when)


def test_use_leaves_out_passes_and_changes_options() -> None:
    inner = "{recipe: i, steps: [drop-dropout, {repeat: 2, steps: [{fold-constants: {rounds: 2, max_growth: 1MB}}]}]}"
    text = f"steps: [{{use: {inner}, without: drop-dropout, with: {{fold-constants: {{rounds: 3}}}}}}]"
    (use,) = parse(text).steps
    assert isinstance(use, UseStep)
    assert use.recipe.steps == (RepeatStep(2, (PassStep("fold-constants", {"rounds": 3, "max_growth": "1MB"}),)),)
    assert (use.without, use.options) == (("drop-dropout",), {"fold-constants": {"rounds": 3}})
    assert parse(text.replace("drop-dropout, with", "[drop-dropout], with")).steps == (use,)


def test_mistakes_in_changes_of_a_used_recipe() -> None:
    inner = "{recipe: inner, steps: [drop-dropout, fold-constants]}"
    changes = "without: [drop-dropuot], with: {fold-constants: {rouns: 3}, fuse: {}, drop-dropout: 3}"
    with pytest.raises(RecipeError) as found:
        parse(f"steps:\n  - use: {inner}\n    {changes.replace(', with', chr(10) + '    with')}", "r.yaml")
    assert str(found.value).splitlines() == [
        "r.yaml:3:15: recipe 'inner' has no step 'drop-dropuot'; did you mean 'drop-dropout'?",
        "r.yaml:4:29: pass 'fold-constants' has no option 'rouns'; did you mean 'rounds'?",
        "r.yaml:4:40: recipe 'inner' has no step 'fuse'",
        "r.yaml:4:64: 'drop-dropout' takes a mapping of options, not 3",
    ]


def test_options_of_any_shape() -> None:
    recipe = parse("steps: [pin-dims: {dims: {batch: [1, 3], length: &l [8], width: *l}}]")
    assert only(recipe).options == {"dims": {"batch": [1, 3], "length": [8], "width": [8]}}


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("snr >= 30 dB", [MetricLimit("snr", 30.0)]),
        ("snr>=30", [MetricLimit("snr", 30.0)]),
        ("[cosine >= 0.999, top1 >= 99 %]", [MetricLimit("cosine", 0.999), MetricLimit("top1", 0.99)]),
        ("{all: max_rel <= 5e-2, y: snr >= 40 dB}", [MetricLimit("max_rel", 0.05), MetricLimit("snr", 40.0, "y")]),
        ("{y: [snr >= 40 dB, cosine >= 1]}", [MetricLimit("snr", 40.0, "y"), MetricLimit("cosine", 1.0, "y")]),
    ],
)
def test_a_budget_is_of_limits_to_all_outputs_or_to_some(text: str, limits: list[MetricLimit]) -> None:
    recipe = parse(f"accuracy: {{budget: {text}, sets: 3}}\ncalibration: {{sets: 5}}\nsteps: [drop-dropout]")
    assert recipe.verify.accuracy == AccuracySpec(tuple(limits), SampleSpec(sets=3))
    assert recipe.inputs.calibration == SampleSpec(sets=5)


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
        with pytest.raises(TypeError, match="cannot be changed"):
            change()
    assert pickle.loads(pickle.dumps(recipe)) == recipe
    assert copy.deepcopy(recipe) == recipe
    assert isinstance(copy.deepcopy(options), FrozenDict)


def test_the_schema_is_light() -> None:
    code = (
        "import sys; from surgery.engine.recipe.schema import VerifySpec; import surgery.engine.recipe;"
        "print([m for m in ('ruamel', 'pydantic', 'onnx', 'surgery.engine.recipe.loader') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_load_stays_a_function() -> None:
    import surgery.engine.recipe

    assert callable(surgery.engine.recipe.load)
    surgery.engine.recipe.load("tidy")
    assert callable(surgery.engine.recipe.load)
    with pytest.raises(AttributeError):
        surgery.engine.recipe.nothing  # noqa: B018


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
    comparison = CountCondition.parse(value)
    assert comparison == CountCondition(op, number)
    assert str(comparison) == f"{op} {number}"
    assert CountCondition.parse(str(comparison)) == comparison


def test_a_comparison_is_a_number_or_text() -> None:
    for value in (True, 1.5, None, [1]):
        with pytest.raises(ValueError, match=r"^a comparison is a number, or text such as '>= 1'$"):
            CountCondition.parse(value)


def test_comparisons_are_evaluated() -> None:
    counts = (1, 2, 3)
    found = {op: [CountCondition.parse(f"{op} 2").holds(count) for count in counts] for op in ("==", "!=", "<", "<=")}
    assert found["=="] == [False, True, False]
    assert found["!="] == [True, False, True]
    assert found["<"] == [True, False, False]
    assert found["<="] == [True, True, False]
    assert [CountCondition.parse("> 2").holds(count) for count in counts] == [False, False, True]
    assert [CountCondition.parse(">= 2").holds(count) for count in counts] == [False, True, True]


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


@pytest.mark.parametrize("seed", sampled(range(4), 4))
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
