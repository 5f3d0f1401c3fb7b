"""The guide to rules: its recipes are run, its mistakes are made, its tables are those of the engine."""

import re

import onnx
import pytest
from support import ROOT
from support.breadth import sampled

from surgery.base.errors import RecipeError
from surgery.engine.pipeline.runner import apply
from surgery.engine.recipe import parse
from surgery.engine.recipe.rules import Rule
from surgery.model.graph import text
from surgery.model.patterns.vocabulary import FUNCTIONS

DOCS = ROOT / "docs" / "how-to"
GUIDE = (DOCS / "write-a-rule.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", GUIDE, flags=re.MULTILINE | re.DOTALL)
RECIPES = {body.split()[1]: body for language, body in BLOCKS if language == "yaml"}
SWISH = "g (float[N,4] x) => (float[N,4] y) { s = Sigmoid(x) t = Mul(s, x) y = Relu(t) }"


def swish() -> onnx.ModelProto:
    return text.parse(SWISH)


@pytest.mark.parametrize("name", sampled([name for name in RECIPES if name != "wrong"], 3))
def test_the_recipes_run(name: str) -> None:
    recipe = parse(RECIPES[name], DOCS / "rules.yaml")
    result = apply(swish() if recipe.model is None else recipe.model, recipe)
    assert result.ok
    used = {step.name: step.sites for step in result.steps if step.name in recipe.rules}
    idle = {"fold-bn-with-bias"}  # no Conv of this model has a bias
    assert {rule for rule, sites in used.items() if not sites} <= idle


def test_an_operator_without_a_library_fails_unless_the_recipe_accepts_it() -> None:
    assert not apply(swish(), parse(RECIPES["swish"].replace("accept", "refuse"))).ok
    (step,) = apply(swish(), parse(RECIPES["swish"])).steps
    assert step.verdict is not None and step.verdict.status == "unverified"
    (step,) = apply(swish(), parse(RECIPES["swish-function"])).steps
    assert step.verdict is not None and step.verdict.status == "equal"


def test_the_mistakes() -> None:
    with pytest.raises(RecipeError) as raised:
        parse(RECIPES["wrong"], "wrong.yaml")
    (shown,) = (body for language, body in BLOCKS if language == "text")
    assert str(raised.value) == shown.rstrip("\n")


def table(name: str) -> str:
    return re.search(rf"<!-- {name} -->\n(.*?)<!-- end -->", GUIDE, flags=re.DOTALL).group(1)  # type: ignore[union-attr]


def test_the_tables() -> None:
    functions = {
        f"{name}({_arguments(function.takes, function.more)})": function.about for name, function in FUNCTIONS.items()
    }
    functions["opset()"] = "the version of the default opset of the model"
    assert table("vocabulary") == _table("Function", functions)
    keys = {name: str(field.description) for name, field in Rule.model_fields.items()}
    assert table("keys") == _table("Key", keys)


_SHOWN = {"value": "x", "present": "x", "values": "xs", "number": "n", "list": "list", "any": "n"}


def _arguments(takes: tuple[str, ...], more: bool) -> str:
    names = [_SHOWN[kind] for kind in takes]
    if names == ["x", "x"]:
        names = ["x", "z"]
    return ", ".join(names) + (", ..." if more else "")


def _table(head: str, rows: dict[str, str]) -> str:
    lines = [f"| {head} | |", "|---|---|", *(f"| `{name}` | {about} |" for name, about in rows.items())]
    return "\n".join(lines) + "\n"
