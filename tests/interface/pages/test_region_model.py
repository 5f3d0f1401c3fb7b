"""A region of the drawing, saved as an ONNX model by the page alone."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from support import drawings

from surgery.engine import recipe
from surgery.engine.pipeline import runner
from surgery.engine.pipeline.run_options import RunOptions
from surgery.interface import drawing
from surgery.model.proto.extract import only

MODELS = Path(__file__).parents[3] / "models"
BRANCH = """<ir_version: 10, opset_import: ["": 21]>
g (float[N,4] x, bool up, seq(float[N,4]) rest) => (float[N,4] y, int64 count) {
    a = Relu(x)
    w = Constant<value = int64[4096] {WEIGHTS}>()
    y = If(up) <
        then_branch = one () => (float[N,4] t) { t = Neg(a) },
        else_branch = two () => (float[N,4] e) { e = Exp(a) }
    >
    count = SequenceLength(rest)
}"""


def document(history: drawing.History) -> Any:
    return json.loads(json.dumps(drawing.document(history)))


def saved(page: Any, folder: Path) -> onnx.ModelProto:
    """Save the selected region in the page and load the file."""
    with page.expect_download() as event:
        page.get_by_role("button", name="Save as ONNX").click()
    assert event.value.suggested_filename.endswith(".onnx")
    event.value.save_as(folder / "region.onnx")
    model = onnx.load(folder / "region.onnx")
    onnx.checker.check_model(model, full_check=True)
    return model


def select(page: Any, name: str) -> None:
    page.evaluate(
        "(name) => view.go([...Array(view.model.n + view.model.g).keys()].find((item) =>"
        " view.model.rawLabel(item) === name || view.model.strings[view.model.name[item]] === name))",
        name,
    )


def values(model: onnx.ModelProto, names: list[str]) -> dict[str, Any]:
    """Run a model on random data; return its inputs, and its inner values of these names."""
    session = onnxruntime.InferenceSession(only(model, names).SerializeToString())
    random = np.random.default_rng(0)
    feed = {}
    for port in session.get_inputs():
        shape = [dim if isinstance(dim, int) else 2 for dim in port.shape]
        drawn = random.standard_normal(shape) if port.type == "tensor(float)" else random.integers(1, 5, shape)
        feed[port.name] = drawn.astype("float32" if port.type == "tensor(float)" else "int64")
    return {**feed, **dict(zip(names, session.run(names, feed)))}


@pytest.mark.parametrize("file", ["vit-tiny.onnx", pytest.param("bert-tiny.dy.onnx", marks=pytest.mark.slow)])
def test_a_saved_region_computes_what_it_does_in_the_model(open_viewer: Any, tmp_path: Path, file: str) -> None:
    model = onnx.load(MODELS / file)
    page = open_viewer(document(drawing.History.of(MODELS / file)))
    group = page.evaluate(
        "Array.from({ length: view.model.g }, (_, g) => [surgeryViewer.nodesOf(view.model, g).length, g])"
        ".filter(([count]) => count > 20 && count < 200).sort(([a], [b]) => b - a)[0][1] + view.model.n"
    )
    page.evaluate(f"view.go({group})")
    region = saved(page, tmp_path)
    assert len(region.graph.node) > 20
    assert [one.version for one in region.opset_import] == [one.version for one in model.opset_import]
    assert region.ir_version == model.ir_version
    initializers = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    inputs = [port.name for port in region.graph.input]
    outputs = [port.name for port in region.graph.output]
    made = {name for node in model.graph.node for name in node.output}
    known = initializers | values(model, [name for name in (*inputs, *outputs) if name in made])
    session = onnxruntime.InferenceSession(region.SerializeToString())
    for name, found in zip(outputs, session.run(outputs, {name: known[name] for name in inputs})):
        np.testing.assert_allclose(found, known[name], rtol=1e-4, atol=1e-5)


def test_a_region_is_saved_as_it_is_after_a_step(open_viewer: Any, tmp_path: Path) -> None:
    history = drawing.History()
    runner.apply(MODELS / "resnet-tiny.onnx", recipe.load("default"), options=RunOptions(history=history))
    drawn = document(history)
    page = open_viewer(drawn)
    last = len(drawn["states"]) - 1
    for state, count in ((0, 2), (last, 3)):
        page.evaluate(f"view.setState({state}), view.setAll(true)")
        conv = page.evaluate(
            "Array.from(view.scene.leaves).find((item) => view.model.strings[view.model.op[item]] === 'Conv'"
            " && [1, 2, 3].includes(view.scene.status[item]))"
        )
        page.evaluate(f"view.go({conv})")
        (node,) = saved(page, tmp_path).graph.node
        assert node.op_type == "Conv" and len(node.input) == count, "with a bias once BatchNormalization is fused"
        assert {"kernel_shape", "strides"} <= {attribute.name for attribute in node.attribute}


def test_a_page_says_what_it_cannot_save(open_viewer: Any) -> None:
    model = onnx.parser.parse_model(BRANCH.replace("WEIGHTS", ", ".join(["1"] * 4096)))
    page = open_viewer(document(drawing.History.of(model)))
    said = page.locator("[role=status]")
    for item, text in (("If", "has a subgraph"), ("SequenceLength", "not that of a tensor"), ("Constant", "no nodes")):
        select(page, item)
        page.get_by_role("button", name="Save as ONNX").click()
        said.filter(has_text=text).wait_for(state="attached")


def test_a_node_that_a_later_step_changes_is_not_saved_as_it_became(open_viewer: Any) -> None:
    drawn = drawings.changed()
    for state in drawn["states"]:
        state |= {"ir_version": 10, "opsets": {"": 20}}
    altered = drawn["altered"]["node"][0]
    drawn["details"][altered] = {"outputs": [[1, 0]]}
    page = open_viewer(drawn)
    page.evaluate(f"view.setState(0), view.go({altered})")
    page.get_by_role("button", name="Save as ONNX").click()
    page.locator("[role=status]", has_text="changed by a later step").wait_for(state="attached")


def test_the_element_types_are_those_of_onnx(open_viewer: Any) -> None:
    names = open_viewer(drawings.changed()).evaluate("surgeryViewer.ELEMENT_TYPES")
    known = {name.lower(): number for name, number in onnx.TensorProto.DataType.items() if number < len(names)}
    assert {name: names.index(name) for name in known} == known
