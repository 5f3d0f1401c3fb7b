"""The same in all layers by one act, and conversions here and not there."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from support import ROOT
from support.workbench_acts import add, choose, opened_form, operators, picture, saved, settle, steps, until

from surgery.model.graph import text

pytestmark = pytest.mark.slow
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

LAYERS = 12
BRANCH = """g (float[1, 2, 4, 4] x) => (float[1, 3] y, float[1, 2, 4, 4] z)
<float[2, 2, 1, 1] k = {1, 2, 3, 4}, float[32, 3] w, float[2, 2, 1, 1] j = {1, 0, 0, 1}> {
    [conv] c = Conv(x, k)
    [flat] f = Flatten(c)
    [head] y = MatMul(f, w)
    [other] z = Conv(x, j)
}"""


@pytest.fixture
def opened(serve: Callable[..., str], open_page: Callable[..., Any]) -> Callable[..., Any]:
    return lambda model, **options: open_page(serve(model), **options)


def test_a_node_is_chosen_in_all_twelve_layers_by_one_click(opened: Any, tmp_path: Path) -> None:
    model = tmp_path / "bert.onnx"
    model.write_bytes((ROOT / "models" / "bert-tiny.onnx").read_bytes())
    softmaxes = [node.name for node in onnx.load(model).graph.node if node.op_type == "Softmax"]
    assert len(softmaxes) == LAYERS
    page = opened(model)
    choose(page, softmaxes[4])
    page.get_by_role("button", name=f"The same in all {LAYERS} instances").first.click()
    until(page, f"workbench.selection.chosen.size === {LAYERS}")
    assert sorted(page.evaluate("[...workbench.selection.chosen.keys()]")) == sorted(softmaxes)
    page.wait_for_selector("#wb-offers details[data-pass]")
    picture(page)
    add(page, "replace-op", op="Hardmax", keeps="nothing")
    assert steps(page) == ["replace-op"] and f"{LAYERS} altered" in page.locator("#wb-steps").inner_text()
    found = operators(saved(page, model))
    assert found.count("Hardmax") == LAYERS and "Softmax" not in found


def test_what_is_in_no_repeated_block_has_no_other_instances(opened: Any, tmp_path: Path) -> None:
    onnx.save(text.parse("g (float[2] x) => (float[2] y) { [abs] a = Abs(x) [neg] y = Neg(a) }"), tmp_path / "m.onnx")
    page = opened(tmp_path / "m.onnx")
    choose(page, "abs")
    assert page.get_by_role("button", name=re.compile("The same in all")).count() == 0


def branch(folder: Path) -> Path:
    model = text.parse(BRANCH.replace("float[32, 3] w", "float[32, 3] w = {" + ", ".join(["0.5"] * 96) + "}"))
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


def test_a_conversion_is_made_here_and_not_there(opened: Any, tmp_path: Path) -> None:
    model = branch(tmp_path)
    page = opened(model)
    choose(page, "other")
    form = opened_form(page, "to-float16")
    form.locator("[data-where]").select_option("not")
    picture(page)
    form.get_by_role("button", name="Add to-float16").click()
    settle(page)
    assert "to-float16: {keep: other}" in page.get_by_label("The recipe as YAML").input_value()
    types = {one.name: one.data_type for one in saved(page, model).graph.initializer}
    assert types["j"] == onnx.TensorProto.FLOAT and onnx.TensorProto.FLOAT16 in types.values()
    page.get_by_role("button", name="Undo").click()
    settle(page)
    choose(page, "head")
    form = opened_form(page, "correct-bias")
    where = form.locator("[data-where]")
    nodes = form.locator("[name=nodes]")
    assert where.input_value() == "here" and nodes.input_value() == "head"
    where.select_option("not")
    assert nodes.input_value() == "" and form.locator("[name=exclude]").input_value() == "head"
    where.select_option("all")
    assert form.locator("[name=exclude]").input_value() == ""
    where.select_option("here")
    assert nodes.input_value() == "head"


def test_layout_and_processing_are_offered_at_inputs_and_outputs(opened: Any, tmp_path: Path) -> None:
    page = opened(branch(tmp_path))
    choose(page, "x")
    form = opened_form(page, "set-layout")
    assert form.locator("[name=inputs]").input_value() == "x" and form.is_visible()
    assert opened_form(page, "embed-preprocessing").locator("[name=input]").input_value() == "x"
    choose(page, "y")
    assert opened_form(page, "embed-postprocessing").locator("[name=output]").input_value() == "y"
    picture(page)
    choose(page, "x")
    add(page, "set-layout", layout="NHWC")
    assert steps(page) == ["set-layout"]
    made = saved(page, tmp_path / "model.onnx")
    assert [dim.dim_value for dim in made.graph.input[0].type.tensor_type.shape.dim] == [1, 4, 4, 2]
