"""The original restricted to the inputs and outputs of a changed model."""

from types import SimpleNamespace
from typing import Any

import onnx
import pytest

from surgery.model.graph import text
from surgery.model.proto.signature import signature
from surgery.verification.comparing.details import Status
from surgery.verification.comparing.output_judge import NOT_RUN
from surgery.verification.comparing.ports import PortMatch, by_name
from surgery.verification.inputs.spec import InputsSpec, VerifySpec
from surgery.verification.signature import grafting, terms
from surgery.verification.signature.lifting import lift
from surgery.verification.signature.relating import Behind, Settled
from surgery.verification.signature.terms import SignatureView, see

TWO = "g (float[n] x, float[n] w) => (float[n] y, float[n] z) <float[1] w = {1}> { y = Exp(x) z = Mul(y, w) }"


def test_the_same_inputs_and_outputs_leave_the_original_as_it_is() -> None:
    # Nodes without effect stay, too.
    for model in (text.parse(TWO), text.parse(TWO.replace("z =", "dead = Neg(x) z ="))):
        assert see(model, model, by_name(model, model)) == model


@pytest.mark.parametrize(
    ("before", "after", "dims"),
    [
        ("4, n", "m, n", [4, "n"]), ("4, n", "m, 5", [4, 5]), ("4, n", "m, k", [4, "k"]),
        ("4, 5", "m, m", [5, 5]), ("4, n", ",", [4, None]), ("n, m", ",", [None, None]), ("4", "m, 5", [4, 5]),
        ("4, 6", "8, n", [8, 6]),
    ],
)  # fmt: skip
def test_dims_of_inputs_are_those_of_the_changed_model(before: str, after: str, dims: list[int | str | None]) -> None:
    original, changed = (
        text.parse(f"g (float[{shape}] x) => (float y) {{ y = Neg(x) }}") for shape in (before, "a, b")
    )
    del changed.graph.input[0].type.tensor_type.shape.dim[:]
    for dim in after.split(","):
        added = changed.graph.input[0].type.tensor_type.shape.dim.add()
        if dim.strip().isdigit():
            added.dim_value = int(dim)
        elif dim.strip():
            added.dim_param = dim.strip()
    (port,) = see(original, changed, by_name(original, changed)).graph.input
    found = [dim.dim_value or dim.dim_param or None for dim in port.type.tensor_type.shape.dim]
    assert found == dims


def test_the_remaining_output_keeps_its_type() -> None:
    model, shorter = text.parse(TWO), text.parse(TWO)
    del shorter.graph.output[0]
    (output,) = see(model, shorter, by_name(model, shorter)).graph.output
    assert output == model.graph.output[1]


def view(
    original: onnx.ModelProto, changed: onnx.ModelProto, match: PortMatch | None = None, **more: Any
) -> SignatureView:
    verifier: Any = SimpleNamespace(original=SimpleNamespace(given=()), spec=VerifySpec())
    found = match or by_name(original, changed)
    return SignatureView(signature(changed), original.SerializeToString(), found, InputsSpec(), verifier, **more)


def lines(data: bytes) -> list[str]:
    graph = onnx.load_model_from_string(data).graph
    made = [f"{', '.join(node.output)} = {node.op_type}({', '.join(node.input)})" for node in graph.node]
    return [*made, ", ".join(output.name for output in graph.output)]


def test_a_changed_model_gets_the_form_of_the_original() -> None:
    model = text.parse(TWO)
    assert view(model, model).align(model, b"as it is") == b"as it is"
    nodes = ["y = Exp(x)", "z = Mul(y, w)"]
    # Other outputs, in another order, and other names.
    more = text.parse(TWO.replace("(float[n] y, float[n] z)", "(float[n] z, float[n] new, float[n] y)"))
    more.graph.node.add(op_type="Neg", input=["x"], output=["new"])
    assert lines(view(model, more).align(more, b"")) == [*nodes, "new = Neg(x)", "y, z"]
    assert view(model, more).incomparable == ["new"]
    named = text.parse(TWO.replace("x", "image").replace("Eimagep", "Exp"))
    match = PortMatch((("x", "image"), ("w", "w")), (("y", "y"), ("z", "z")))
    assert lines(view(model, named, match).align(named, b"")) == [*nodes, "y, z"]
    # Inputs of another element type are converted where that is so.
    half = text.parse(TWO.replace("float[", "float16["))
    assert view(model, half).align(half, b"as it is") == b"as it is"
    assert sum("Cast" in line for line in lines(view(model, half, retyped=True).align(half, b""))) == 4


def test_a_changed_model_that_needs_values_inside_the_original(monkeypatch: pytest.MonkeyPatch) -> None:
    model = text.parse(TWO)
    piece = text.parse("g (float[n] y, float[n] w) => (float[n] z) { z = Mul(y, w) }")
    match = PortMatch((("w", "w"),), (("z", "z"),), (("y", "y"),))
    asked: list[list[str]] = []

    def counted(above: Any, names: list[str], *others: Any) -> Any:
        asked.append(names)
        return lift(above, names, *others)

    monkeypatch.setattr(terms, "lift", counted)
    found = view(model, piece, match)
    assert found.problem(piece) is None
    assert lines(found.align(piece, b"")) == ["y = Exp(x)", "z = Mul(y, w)", "z"]
    assert asked == [["y"]]
    monkeypatch.setattr(terms, "lift", lambda *_: "it has a function")
    verdict = view(model, piece, match).problem(piece)
    assert verdict is not None and (verdict.status, verdict.reason) == (Status.UNVERIFIED, NOT_RUN)
    assert verdict.message == "the original cannot compute input 'y': it has a function"
    monkeypatch.setattr(grafting, "obstacle", lambda *_: "it has another form")
    verdict = view(model, piece, match).problem(piece)
    assert verdict is not None and verdict.message == "it has another form"


def test_a_model_none_of_whose_outputs_the_original_has() -> None:
    model, other = text.parse(TWO), text.parse("g (float[n] x) => (float[n] new) { new = Exp(x) }")
    verdict = view(model, other).problem(other)
    assert verdict is not None and verdict.message == "the original has no outputs to compare"
    assert view(model, model).problem(model) is None
    del other.graph.output[:]
    assert view(model, other).problem(other) is None


@pytest.mark.parametrize(("around", "opset", "hinted"), [(True, 17, True), (True, 18, False), (False, 17, False)])
def test_relations_at_another_opset(around: bool, opset: int, hinted: bool) -> None:
    model, changed = text.parse(TWO, opset=18), text.parse(TWO, opset=opset)
    settled = Settled(wraps=[Behind((), "v")] if around else [])
    hint = view(model, changed, settled=settled).hint(changed)
    assert hint.startswith("the relations of this step are in ai.onnx 17, and the original imports 18: ") == hinted
    assert bool(hint) == hinted
