"""The training mode of old opsets, which is told by outputs that nothing reads, or by an attribute."""

import onnx
import pytest

import surgery
from surgery.engine import recipe
from surgery.model.graph import text

BEFORE = """<ir_version: 8, opset_import: ["" : %d]>
g (float[2,1,3] x) => (float[2,1,3] y)
<float[1] s = {2}, float[1] b = {1}, float[1] m = {0.5}, float[1] v = {3}> { %s y = Relu(n) }"""


def infer(opset: int, node: str) -> onnx.NodeProto:
    result = surgery.apply(
        text.parse(BEFORE % (opset, node)),
        recipe.parse("verify: {unverified: accept}\nsteps: [remove-training-mode]"),
    )
    assert result.ok
    return result.proto.graph.node[0]


def test_training_outputs_are_removed() -> None:
    node = infer(9, "n, rm, rv, sm, sv = BatchNormalization<epsilon=0.5>(x, s, b, m, v)")
    assert len([name for name in node.output if name]) == 1
    assert onnx.helper.get_node_attr_value(node, "epsilon") == 0.5


@pytest.mark.parametrize("call", ["BatchNormalization(x, s, b, m, v)", "Dropout(x)"])
def test_is_test_is_set(call: str) -> None:
    assert onnx.helper.get_node_attr_value(infer(6, f"n = {call}"), "is_test") == 1
