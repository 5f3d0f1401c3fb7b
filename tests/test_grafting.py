"""A piece of a model is compared with the whole: nodes of the original compute what the piece is given."""

import onnx
import onnx.utils
import pytest

from surgery import text
from surgery.parity import CHANGES, Parity
from surgery.recipe.schema import InputsSpec, VerifySpec
from surgery.verify import Verdict
from surgery.verify.contract import Contract

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
    contract = Contract(first, InputsSpec(), VerifySpec())
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
def test_a_wrong_piece_is_found_out(value: str, op: str) -> None:
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


def test_an_input_that_the_original_has_nothing_for_cannot_be_fed() -> None:
    changed = piece(["s"], ["y"])
    changed.graph.input[0].name = "other"
    changed.graph.node[0].input[0] = "other"
    found = verdict(changed)
    assert (found.status, found.reason) == ("unverified", "not-run")
    assert found.message.startswith("input 'other' is new, and the original has no value of that name")


def test_a_piece_of_another_opset_cannot_be_fed() -> None:
    changed = piece(["s"], ["y"])
    next(item for item in changed.opset_import if not item.domain).version = 18
    found = verdict(changed)
    assert (found.status, found.reason) == ("unverified", "not-run")
    assert "imports ai.onnx 18, and the original 17" in found.message
