"""The cost of single nodes, counted by hand, and that of all nodes as `surgery inspect` counts it."""

import onnx

from surgery.features.inspection.node_costs import node_costs
from surgery.features.inspection.operator_costs import operator_costs
from surgery.model import storage
from surgery.model.graph import text

MODEL = """g (float[n, 3] x, bool c) => (float[n, 2] y)
<float[3, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, int64[2] s = {-1, 2}> {
    [matmul] m = MatMul(x, w)
    [shape] r = Reshape(m, s)
    [odd] o = other.Thing(r)
    [pick] y = If(c) <
        then_branch = yes () => (float[n, 2] a) { a = Neg(r) },
        else_branch = no () => (float[n, 2] b) { b = Identity(r) }
    >
}"""


def model() -> onnx.ModelProto:
    made = text.parse(MODEL)
    made.opset_import.add(domain="other", version=1)
    return made


def test_each_node_has_its_operations_and_bytes() -> None:
    found = node_costs(storage.opened(model()))
    assert found["matmul"].flops == 2 * 1 * 3 * 4
    assert found["matmul"].bytes == 4 * (3 + 12 + 4)  # x, w and m, with n = 1
    assert found["shape"].bytes == 0 and found["odd"].flops is None
    assert found["pick"].flops == 4  # the negation of the four elements of r
    assert list(found) == ["matmul", "shape", "odd", "pick"]


def test_together_they_are_the_costs_of_the_operators() -> None:
    ones = ", ".join("1" * 54)
    plain = text.parse(
        f"""g (float[n, 3, 8, 8] x) => (float[n, 2, 6, 6] y) <float[2, 3, 3, 3] w = {{{ones}}}> {{
            [conv] c = Conv(x, w) [relu] r = Relu(c) [add] y = Add(r, c) }}"""
    )
    stored = storage.opened(plain)
    by_op, found = operator_costs(stored, {"n": 1}), node_costs(stored)
    assert sum(one.flops or 0 for one in found.values()) == by_op["flops"] > 0
    assert sum(one.bytes for one in found.values()) == by_op["bytes"] > 0
