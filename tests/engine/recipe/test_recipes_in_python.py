"""Recipes and models as Python programs give them, and the functions next to `apply`."""

from pathlib import Path

import onnx
import onnx_ir
import pytest

import surgery
from surgery.base.errors import RecipeError, UsageError
from surgery.engine import recipe
from surgery.engine.recipe import from_python, resolved
from surgery.model import storage
from surgery.model.graph import text

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, 4] x) => (float[batch, 4] y) { i = Identity(x) r = Relu(i) y = Neg(r) }"""
STEPS = ["drop-identity", {"rename": {"outputs": {"y": "z"}}}]


@pytest.fixture
def model() -> onnx.ModelProto:
    return text.parse(MODEL)


def ends(result: surgery.Result) -> tuple[list[str], list[str]]:
    graph = result.proto.graph
    return [node.op_type for node in graph.node], [value.name for value in graph.output]


@pytest.mark.parametrize("form", ["list", "steps", "mixed", "mapping", "yaml", "path", "loaded", "flow"])
def test_a_recipe_is_given_in_any_form(form: str, model: onnx.ModelProto, tmp_path: Path) -> None:
    yaml = "steps:\n  - drop-identity\n  - rename: {outputs: {y: z}}\n"
    (tmp_path / "r.yaml").write_text(yaml)
    loaded = recipe.parse(yaml)
    forms = {
        "list": STEPS,
        "steps": loaded.steps,
        "mixed": [loaded.steps[0], STEPS[1]],
        "mapping": {"steps": STEPS},
        "yaml": yaml,
        "flow": "{steps: [drop-identity, {rename: {outputs: {y: z}}}]}",
        "path": tmp_path / "r.yaml",
        "loaded": loaded,
    }
    result = surgery.apply(model, forms[form])
    assert result.ok and ends(result) == (["Relu", "Neg"], ["z"])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([], "an empty list is no recipe"),
        (3, "a value of type int is no recipe"),
        (["drop-identty"], "no pass 'drop-identty'; did you mean 'drop-identity'"),
        ({"steps": [{"rename": {"outputs": {"y": object()}}}]}, "a recipe has only texts, numbers, lists and mappings"),
        ("nosuch", "no recipe 'nosuch'"),
    ],
)
def test_a_wrong_recipe_gets_a_message(wrong: from_python.Given, message: str, model: onnx.ModelProto) -> None:
    with pytest.raises((UsageError, RecipeError), match=message):
        surgery.apply(model, wrong)


@pytest.mark.parametrize("form", ["proto", "path", "text", "ir", "loaded"])
def test_a_model_is_given_in_any_form(form: str, model: onnx.ModelProto, tmp_path: Path) -> None:
    onnx.save(model, tmp_path / "m.onnx")
    forms: dict[str, storage.Model] = {
        "proto": model,
        "path": tmp_path / "m.onnx",
        "text": str(tmp_path / "m.onnx"),
        "ir": onnx_ir.from_proto(model),
        "loaded": surgery.load(tmp_path / "m.onnx"),
    }
    given_model = forms[form]
    result = surgery.apply(given_model, STEPS, output=tmp_path / "out.onnx")
    assert result.ok and ends(result) == (["Relu", "Neg"], ["z"]) and (tmp_path / "out.onnx").is_file()
    assert surgery.histogram(given_model) == {"Identity": 1, "Neg": 1, "Relu": 1}
    assert surgery.check(given_model).ok
    assert surgery.verify(given_model, model).ok


def test_functions_stand_next_to_apply(model: onnx.ModelProto, tmp_path: Path) -> None:
    ran = surgery.run(model, "set-dims", dims={"batch": 2}, output=tmp_path / "two.onnx")
    assert ran.ok and onnx.load(tmp_path / "two.onnx").graph.input[0].type.tensor_type.shape.dim[0].dim_value == 2
    with pytest.raises(UsageError, match="no pass 'set-dim'"):
        surgery.run(model, "set-dim")
    planned = surgery.plan(model, STEPS)
    assert planned.ok and [len(step.sites) for step in planned.plan.steps] == [1, 1]
    found = surgery.opset(model)
    assert found.opset == 17 and {18, 21} <= {one.opset for one in found.candidates if one.is_reached}
    why = surgery.explain("drop-identity", model)
    assert len(why.sites) == 1
    values = (
        ran,
        planned,
        found,
        why,
        surgery.inspect(model),
        surgery.diff(model, model),
        surgery.verify(model, model),
    )
    for value in values:
        assert len(repr(value)) < 200 and repr(value).startswith("<"), repr(value)


def test_a_resolved_recipe_lists_no_option_without_a_value() -> None:
    (step,) = resolved.data(from_python.read([{"set-metadata": {"producer": "me"}}], trust=False))["steps"]
    assert step["set-metadata"]["producer"] == "me" and None not in step["set-metadata"].values()
