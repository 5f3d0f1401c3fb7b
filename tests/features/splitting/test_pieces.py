"""Models cut at every third layer: the pieces, run one after the other in plain ONNX Runtime, agree with the whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from support import ROOT, short_models

from surgery.engine import recipe
from surgery.engine.pipeline import runner
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.proto.dataflow import Flow

pytestmark = pytest.mark.slow

MODELS = ROOT / "models"
NESTED = """<ir_version: 8, opset_import: ["" : 17, "acme" : 1]>
g (float[n, 4] x, float[n, 4] mask, bool c, float[4] s) => (float[n, 4] y)
<float[4] w = {1, -2, 3, 4}, float[4] s = {1, 1, 2, 1}, int64 k = {3}, bool t = {1}> {
    a = Mul(x, w)
    b = acme.twice(a)
    e = If (c) <
        then_branch = p () => (float[n, 4] u) { i = Neg(b) j = acme.twice(i) u = Add(j, mask) },
        else_branch = q () => (float[n, 4] v) { v = Mul(x, s) }
    >
    d = Add(e, b)
    f = Loop (k, t, d) <
        body = l (int64 i, bool r, float[n, 4] h) => (bool o, float[n, 4] m) {
            o = Identity(r) z = Mul(h, b) m = Add(z, e)
        }
    >
    h = acme.twice(f)
    y = Sum(h, a, mask)
}
<domain: "acme", opset_import: ["" : 17]>
twice (v) => (r) { r = Add(v, v) }
<domain: "acme", opset_import: ["" : 17]>
unused (v) => (r) { r = Neg(v) }"""


def frontiers(graph: onnx.GraphProto, op: str, every: int) -> list[list[str]]:
    """List what is known after each such operator and is read further on: what a piece that begins there is given."""
    flow = Flow(graph)
    varying = {value.name for value in graph.input}
    for number in range(len(flow.nodes)):
        if varying.intersection(flow.reads[number]):
            varying.update(flow.makes(number))
    last = {name: max(numbers) for name, numbers in flow.readers.items()}
    last |= {value.name: len(flow.nodes) for value in graph.output}
    places = [number for number, node in enumerate(flow.nodes) if node.op_type == op]
    found = []
    for place in places[every - 1 :: every]:
        made = [value.name for value in graph.input] + [name for n in range(place + 1) for name in flow.makes(n)]
        found.append([name for name in made if name in varying and last.get(name, -1) > place])
    return found


def pieces(model: onnx.ModelProto, op: str, every: int) -> Iterator[onnx.ModelProto]:
    """Extract what is between one frontier and the next, verified each time."""
    defaults = {tensor.name for tensor in model.graph.initializer}
    before = [value.name for value in model.graph.input]
    for after in [*frontiers(model.graph, op, every), [value.name for value in model.graph.output]]:
        outputs = [name for name in after if name not in before]
        above = Flow(model.graph)
        read = {name for number in above.above(outputs, before) for name in above.reads[number]}
        inputs = [name for name in before if name in read and name not in defaults]
        step = recipe.single_step("extract", {"inputs": inputs, "outputs": outputs})
        result = runner.apply(model, step)
        assert result.ok, result.steps[0].message
        assert result.steps[0].verdict is not None and result.steps[0].verdict.status == "equal"
        piece = storage.resolve(result.proto)
        needed = [value.name for value in piece.graph.input if value.name not in defaults]
        assert (needed, [value.name for value in piece.graph.output]) == (inputs, outputs)
        yield piece
        before = after


def run(model: onnx.ModelProto, values: dict[str, Any]) -> dict[str, Any]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options)
    names = [port.name for port in session.get_outputs()]
    given = {port.name: values[port.name] for port in session.get_inputs()}
    return dict(zip(names, session.run(names, given)))


def agree(model: onnx.ModelProto, op: str, every: int, inputs: dict[str, Any]) -> int:
    """Compare the pieces with the whole by bits, and count them."""
    values = dict(inputs)
    count = 0
    for piece in pieces(model, op, every):
        values |= run(piece, values)
        count += 1
    for name, expected in run(model, inputs).items():
        assert np.array_equal(values[name], expected, equal_nan=True)
        assert np.ptp(expected) > 0
    return count


@pytest.mark.parametrize(
    ("name", "op", "every", "count"),
    [
        ("bert-tiny", "LayerNormalization", 6, 3),
        ("gpt2-tiny", "LayerNormalization", 6, 3),
        ("resnet-tiny", "Add", 3, 6),
    ],
)
def test_pieces_of_every_third_layer_agree_with_the_whole(name: str, op: str, every: int, count: int) -> None:
    model = onnx.load(MODELS / f"{name}.onnx") if name == "resnet-tiny" else short_models.shortened(name, layers=6)
    draw = np.random.default_rng(0)
    inputs: dict[str, Any]
    if name == "resnet-tiny":
        shape = [d.dim_value or 2 for d in model.graph.input[0].type.tensor_type.shape.dim]
        inputs = {"pixel_values": draw.standard_normal(shape).astype(np.float32)}
    else:
        inputs = {"input_ids": draw.integers(0, 50, (2, 9)), "attention_mask": np.ones((2, 9), np.int64)}
    assert agree(model, op, every, inputs) == count


@pytest.mark.parametrize("condition", [True, False])
def test_pieces_of_a_model_with_subgraphs_and_functions_agree_with_the_whole(condition: bool) -> None:
    model = text.parse(NESTED)
    draw = np.random.default_rng(1)
    inputs = {
        "x": draw.standard_normal((3, 4)).astype(np.float32),
        "mask": draw.standard_normal((3, 4)).astype(np.float32),
        "c": np.array(condition),
        "s": np.array([1, 2, 3, 4], np.float32),
    }
    assert agree(model, "twice", 1, inputs) == 3
    assert agree(model, "If", 1, inputs) == 2
    assert agree(model, "Loop", 1, inputs) == 2
