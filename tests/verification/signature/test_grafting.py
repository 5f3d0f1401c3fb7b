"""A piece of a model is compared with the whole: nodes of the original compute what the piece is given."""

import numpy as np
import onnx
import onnx.utils
import pytest
from onnx import numpy_helper

from surgery.base.promises import CHANGES, Parity
from surgery.model import storage
from surgery.model.graph import text
from surgery.verification.comparing.details import Verdict
from surgery.verification.inputs.spec import InputsSpec, VerifySpec
from surgery.verification.signature import lifting
from surgery.verification.signature.tracker import SignatureTracker

WHOLE = """<ir_version: 8, opset_import: ["" : 17, "d" : 1]>
g (float[n, 4] x, float[n, 4] mask) => (float[n, 4] y) <float[4] w = {1, -2, 3, 4}, float one = {1}> {
    a = Mul(x, w)
    b = d.twice(a)
    s = Sum(b, mask)
    c = Where_(s, w)
    y = Add(c, one)
}
<domain: "d", opset_import: ["" : 17]>
twice (v) => (r) { r = Add(v, v) }"""


def whole(body: str = "c = Mul(s, w)") -> onnx.ModelProto:
    return text.parse(WHOLE.replace("c = Where_(s, w)", body))


def piece(inputs: list[str], outputs: list[str], **changes: str) -> onnx.ModelProto:
    """Cut a piece out, with the operator that makes a value exchanged for another."""
    result = onnx.utils.Extractor(onnx.shape_inference.infer_shapes(whole(), data_prop=True)).extract_model(
        inputs, outputs
    )
    for node in result.graph.node:
        node.op_type = changes.get(node.output[0], node.op_type)
    return result


def verdict(changed: onnx.ModelProto, original: onnx.ModelProto | None = None) -> Verdict:
    first = (original or whole()).SerializeToString(deterministic=True)
    contract = SignatureTracker(first, InputsSpec(), VerifySpec())
    try:
        assert list(contract.complaints(changed, CHANGES, {})) == []
        return contract.verify(changed, changed.SerializeToString(deterministic=True), Parity.EXACT, {})
    finally:
        contract.close()


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [(["a"], ["b"]), (["s"], ["y"]), (["b", "mask"], ["c"]), (["a", "mask"], ["s", "b"]), (["c"], ["y"])],
)
def test_a_piece_agrees_with_the_whole(inputs: list[str], outputs: list[str]) -> None:
    found = verdict(piece(inputs, outputs))
    assert found.status == "equal", found.message


@pytest.mark.parametrize(("value", "op"), [("s", "Max"), ("c", "Div"), ("y", "Sub")])
def test_a_wrong_piece_is_found(value: str, op: str) -> None:
    found = verdict(piece(["b", "mask"], ["y"], **{value: op}))
    assert found.status == "different", found.message


def test_the_original_is_not_taken_from_the_piece() -> None:
    # The piece has a constant and a value of names that the original has too, with other contents.
    changed = piece(["s"], ["y"])
    for tensor in changed.graph.initializer:
        if tensor.name == "w":
            tensor.CopyFrom(onnx.helper.make_tensor("w", 1, [4], [9.0, 9.0, 9.0, 9.0]))
    assert verdict(changed).status == "different"
    renamed = piece(["s"], ["y"])
    for node in renamed.graph.node:
        node.input[:] = ["a" if name == "c" else name for name in node.input]
        node.output[:] = ["a" if name == "c" else name for name in node.output]
    assert verdict(renamed).status == "equal"


def test_an_input_without_a_value_in_the_original_cannot_be_fed() -> None:
    changed = piece(["s"], ["y"])
    changed.graph.input[0].name = "other"
    changed.graph.node[0].input[0] = "other"
    found = verdict(changed)
    assert (found.status, found.reason) == ("unverified", "not-run")
    assert found.message.startswith("input 'other' is new, but the original has no value of that name")


def at(opset: int, changed: onnx.ModelProto) -> onnx.ModelProto:
    for imports in (changed.opset_import, *(function.opset_import for function in changed.functions)):
        next(item for item in imports if not item.domain).version = opset
    return changed


def test_a_piece_of_an_opset_without_revisions_is_not_converted() -> None:
    assert verdict(at(18, piece(["s"], ["y"]))).status == "equal"
    assert verdict(at(18, piece(["s"], ["y"], y="Sub"))).status == "different"


REVISED = """<ir_version: 8, opset_import: ["" : 12]>
g (float[2, 3, 4] x) => (float[2, 3, 4] y) { p = Softmax<axis = 1>(x) s = OP(p) y = Neg(s) }"""


def lifted(op: str, version: int = 13, result: str = "y = Neg(s)") -> Verdict:
    changed = text.parse(
        f'<ir_version: 8, opset_import: ["" : {version}]>g (float[2, 3, 4] s) => (float[2, 3, 4] y) {{ {result} }}'
    )
    return verdict(changed, text.parse(REVISED.replace("OP", op)))


def test_revised_operators_above_a_piece_are_converted() -> None:
    assert lifted("Exp").status == "equal"
    assert lifted("Exp", result="y = Abs(s)").status == "different"


def test_a_piece_with_a_large_weight_is_converted() -> None:
    model = text.parse("""<ir_version: 8, opset_import: ["" : 13]>
        g (float[n,64] x) => (float[n,1] y) { a = MatMul(x, w) y = ReduceMean<axes = [1]>(a) }""")
    model.graph.initializer.append(numpy_helper.from_array(np.ones((64, 64), np.float32), "w"))
    stored = storage.from_proto(model)
    assert storage.is_external(stored.proto.graph.initializer[0])
    converted = lifting._converted(stored.proto, 18, VerifySpec())
    assert isinstance(converted, onnx.ModelProto), converted
    assert [port.name for port in converted.graph.input] == ["x"]
    assert stored.proto.graph.initializer[0] in converted.graph.initializer
    assert len(converted.graph.node[-1].input) == 2


def test_a_wrong_conversion_is_not_used() -> None:
    # onnx turns Hardmax-11 into Hardmax-13 without a look at its axis.
    found = lifted("Hardmax<axis = 1>")
    if found.status != "equal":
        assert (found.status, found.reason) == ("unverified", "not-run")
        assert "the model imports ai.onnx 13, and the original 12" in found.message


def test_a_function_above_a_piece_is_not_converted() -> None:
    revised = text.parse(WHOLE.replace("c = Where_(s, w)", "c = Mul(s, w)").replace("17", "12"))
    found = verdict(at(13, piece(["s"], ["y"])), revised)
    assert (found.status, found.reason) == ("unverified", "not-run")
    assert "whose functions cannot be converted" in found.message


def test_an_overridable_initializer_missing_from_the_piece_is_kept() -> None:
    source = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[n, 4] x, float[4] w) => (float[n, 4] y) <float[4] w = {1, -2, 3, 4}> { a = Mul(x, w) y = Exp(a) }"""
    changed = text.parse('<ir_version: 8, opset_import: ["" : 17]> g (float[n, 4] a) => (float[n, 4] y) { y = Exp(a) }')
    assert verdict(changed, text.parse(source)).status == "equal"
    changed.graph.node[0].op_type = "Sinh"
    assert verdict(changed, text.parse(source)).status == "different"


def test_a_value_named_like_an_original_input_is_renamed() -> None:
    source = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[n, 4] x) => (float[n, 4] y) { a = Tanh(x) b = Exp(a) y = Neg(b) }"""
    changed = text.parse(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[n, 4] a) => (float[n, 4] y) { x = Exp(a) y = Neg(x) }'
    )
    assert verdict(changed, text.parse(source)).status == "equal"
    changed.graph.node[1].op_type = "Abs"
    assert verdict(changed, text.parse(source)).status == "different"


def test_a_node_can_be_above_a_piece_and_part_of_it() -> None:
    source = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[n, 4] x) => (float[n, 4] y) {
        [shared] a = Tanh(x)
        b = Exp(a)
        y = Add(a, b)
    }"""
    changed = text.parse(source.replace("(float[n, 4] x)", "(float[n, 4] x, float[n, 4] b)").replace("b = Exp(a)", ""))
    assert verdict(changed, text.parse(source)).status == "equal"
