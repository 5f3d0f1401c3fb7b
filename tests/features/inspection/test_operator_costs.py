"""What each operator costs: operations and bytes moved, by its formulas."""

from __future__ import annotations

import onnx

from surgery.features.inspection.analysis import analyse
from surgery.features.inspection.operator_costs import operator_costs
from surgery.model import storage

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, 8] x) => (float[batch, 4] y) <int64[2] s = {-1, 4}> {
  a = MatMul(x, w)
  b = Relu(a)
  y = Reshape(b, s)
}"""


def model() -> storage.StoredModel:
    made = onnx.parser.parse_model(TEXT)
    made.graph.initializer.add(name="w", data_type=1, dims=[8, 4], raw_data=bytes(128))
    return storage.from_proto(made)


def test_operators_by_operations() -> None:
    found = operator_costs(model(), {"batch": 3, "nobody": 7})
    matmul, relu, reshape = found["by_op"]
    assert (matmul["op"], matmul["nodes"], matmul["macs"], matmul["flops"]) == ("MatMul", 1, 3 * 8 * 4, 2 * 3 * 8 * 4)
    assert matmul["bytes"] == 4 * (3 * 8 + 8 * 4 + 3 * 4)
    assert (relu["op"], relu["macs"], relu["bytes"]) == ("Relu", 0, 4 * 2 * 3 * 4)
    assert (reshape["op"], reshape["bytes"]) == ("Reshape", 0)  # it only looks at its operand in another shape
    assert found["bytes"] == matmul["bytes"] + relu["bytes"] and found["uncounted"] == {}


def test_dims_may_stay_names() -> None:
    found = operator_costs(model())
    assert found["macs"] == "32*batch" and "batch" in found["by_op"][0]["bytes"]


def test_totals_equal_those_of_the_analysis() -> None:
    stored = model()
    costs = analyse(stored, {"batch": 5}).costs
    found = operator_costs(stored, {"batch": 5})
    assert (found["macs"], found["flops"]) == (costs.macs.to_json(), costs.flops.to_json())


def test_unknown_operators_are_named() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "nobody" : 1]>
    g (float[4] x) => (float[4] y) { a = nobody.Knows(x)  y = Relu(a) }"""
    found = operator_costs(storage.from_proto(onnx.parser.parse_model(text)))
    assert "Knows" in " ".join(found["uncounted"])
