"""Changed models that are run by themselves, and nodes of the original that compute inputs of a piece."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from surgery.base.errors import WorkerError
from surgery.model.graph import text
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.ports import PortMatch
from surgery.verification.comparing.vacuity import Run
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.inputs.spec import InputsSpec, VerifySpec
from surgery.verification.signature import grafting, lifting
from surgery.verification.signature.composition import compose, obstacle
from surgery.verification.signature.grafting import above, graft
from surgery.verification.signature.intended import examine, runs_elsewhere
from surgery.verification.signature.lifting import _is_same, _model, lift, run_converter
from surgery.verification.signature.terms import Freed

NAN, INF = np.nan, np.inf
EQUAL, DIFFERENT = Verdict(Status.EQUAL), Verdict(Status.DIFFERENT, message="y differs")
SAME = PortMatch((("x", "x"),), (("y", "y"),))


def _run(y: Any, kind: str = "normal", n: int = 2) -> Run:
    return Run(Binding({"n": n}, kind), {"x": np.ones(n)}, {"y": np.array(y)})


def _changed(*runs: Run, **more: Any) -> Any:
    usual = {"problem": None, "gap": False, "bindings": []}
    return SimpleNamespace(**{**usual, "runs": [*runs], "prepare": lambda: None, **more})


def _before(*outputs: Any, problem: str | None = None, asked: list[Any] | None = None) -> Any:
    def run(feeds: Any) -> Any:
        if asked is not None:
            asked.extend(feeds)
        return [one if isinstance(one, str) else {"y": np.array(one)} for one in outputs]

    return SimpleNamespace(original=SimpleNamespace(problem=problem, prepare=lambda: None), run=run)


def test_a_changed_model_that_runs_with_finite_outputs_is_intended() -> None:
    for runs, words in (([_run(1.0)], "1 set of inputs"), ([_run(1.0), _run([2, 3])], "2 sets of inputs")):
        found = examine(_changed(*runs), _before(), SAME)
        assert found.status is Status.INTENDED
        assert found.message == f"intended change: not compared; it runs on {words}, and its outputs are finite"


@pytest.mark.parametrize(
    ("before", "gap", "status", "message"),
    [
        (None, False, Status.DIFFERENT, "the changed model does not run: the changed model is empty"),
        ("it is wrong, too", False, Status.UNVERIFIED, "the changed model is empty"),
        (None, True, Status.UNVERIFIED, "the changed model is empty"),
    ],
)
def test_a_changed_model_that_does_not_run(before: str | None, gap: bool, status: Status, message: str) -> None:
    changed = _changed(problem="the original is empty", gap=gap)
    found = examine(changed, _before(problem=before), SAME)
    assert (found.status, found.message) == (status, message)


@pytest.mark.parametrize(
    ("runs", "before", "match", "message"),
    [
        ([_run([1, NAN])], [1.0], SAME, "output 'y' is not finite, unlike in the previous model"),
        ([_run(1.0), _run(INF)], [1.0, 2.0], SAME, "output 'y' is not finite, unlike in the previous model"),
        # The previous model is not finite either, or has no such output and is finite for one set, or fails.
        ([_run(NAN)], [NAN], SAME, ""),
        ([_run(1.0), _run(NAN)], [NAN, NAN], SAME, ""),
        ([_run(NAN)], [1.0], PortMatch((("x", "x"),), ()), "output 'y' is not finite in any run"),
        ([_run(NAN), _run(1.0)], [1.0, 1.0], PortMatch((("x", "x"),), ()), ""),
        ([_run(NAN)], ["failed"], SAME, "output 'y' is not finite in any run"),
        ([_run(NAN), _run(NAN)], ["failed", NAN], SAME, ""),
        # Data that is meant to reach the limits of a type.
        *(([_run(NAN, kind), _run(1.0)], [1.0], SAME, "") for kind in ("edges", "wide", "special")),
        ([_run(NAN, "near")], [1.0], SAME, "output 'y' is not finite, unlike in the previous model"),
        # Elements that are no floats are finite.
        ([_run([1, 2])], [1.0], SAME, ""),
    ],
)
def test_outputs_that_are_not_finite(runs: list[Run], before: list[Any], match: PortMatch, message: str) -> None:
    found = examine(_changed(*runs), _before(*before), match)
    assert found.status is (Status.DIFFERENT if message else Status.INTENDED)
    assert found.message.startswith(message)


def test_the_previous_model_runs_on_the_inputs_that_both_have() -> None:
    asked: list[Any] = []
    examine(_changed(_run(NAN)), _before(1.0, asked=asked), PortMatch((("old", "x"), ("gone", "none")), (("y", "y"),)))
    assert [[*feed] for feed in asked] == [["old"]]


def test_a_dim_that_is_dynamic_now_has_other_extents() -> None:
    freed = [Freed("none", 0, 2), Freed("x", 0, 2)]
    assert runs_elsewhere(_changed(_run(1.0), _run(1.0, n=3)), freed) is None
    assert runs_elsewhere(_changed(_run(1.0, n=3)), freed) is None
    found = runs_elsewhere(_changed(_run(1.0)), freed)
    what = "dim 0 of input 'x' is now dynamic, but the model only runs at 2"
    assert found is not None and (found.status, found.message) == (Status.DIFFERENT, what)
    refused = [{"dims": {}}, {"refused": "3 is odd"}, {"refused": "later"}]
    found = runs_elsewhere(_changed(_run(1.0), bindings=refused), freed)
    assert found is not None and found.message == f"{what}: 3 is odd"
    found = runs_elsewhere(_changed(problem="the original is empty"), freed)
    assert found is not None and found.message.endswith("not run at other dims: the changed model is empty")


# Other opsets, and other models


@pytest.mark.parametrize(
    ("body", "before", "after", "same"),
    [
        ("y = Neg(x)", 13, 18, True),
        ("y = Neg(x)", 12, 18, False),
        ("y = d.Anything(x)", 12, 18, True),
        ("y = Neg(x) z = Nothing(x)", 13, 18, False),
        ("y = Neg(x) y, z = Split(x)", 13, 18, False),
        ("y = If(c) <then_branch = t () => (float[2] p) { p = Neg(x) }>", 13, 18, False),
        ("y = If(c) <then_branch = t () => (float[2] p) { p = Neg(x) }>", 16, 18, True),
        ("y = If(c) <then_branch = t () => (float[2] p) { p = Resize(x, x) }>", 16, 18, False),
    ],
)
def test_operators_that_are_the_same_at_two_opsets(body: str, before: int, after: int, same: bool) -> None:
    assert _is_same(onnx.GraphProto(node=text.parse_nodes(body)), before, after) is same


PIECE = "g (float[2] x, float[2] w) => (float[2] y) { a = Neg(x) y = Exp(a) }"


def test_nodes_of_the_original_at_another_opset() -> None:
    original = text.parse(PIECE, opset=17)
    stem = onnx.GraphProto(node=original.graph.node[:1])
    for version in (17, 18):
        assert lift(stem, ["a"], original, version, InputsSpec(), VerifySpec()) is stem
    older = text.parse(PIECE, opset=12)
    older.functions.add(name="f")
    found = lift(stem, ["a"], older, 13, InputsSpec(), VerifySpec())
    assert found == "the model imports ai.onnx 13, and the original 12, whose functions cannot be converted"
    given = _model(stem, ["a"], older)
    assert [port.name for port in given.graph.input] == ["x"] and [port.name for port in given.graph.output] == ["a"]
    assert given.graph.name == "g" and given.opset_import == older.opset_import
    converted = onnx.load_model_from_string(run_converter(given.SerializeToString(), 13)["model"])
    assert converted.opset_import[0].version == 13
    given.graph.node[0].op_type = "Nothing"
    assert "Nothing" in run_converter(given.SerializeToString(), 13)["reason"]
    older.graph.name = ""
    assert _model(stem, ["a"], older).graph.name == "stem"
    unknown = onnx.GraphProto(node=text.parse_nodes("a = Nothing(x)"))
    assert lift(unknown, ["a"], original, 17, InputsSpec(), VerifySpec()) is unknown


WEIGHTED = "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { a = Mul(x, w) y = Exp(a) }"


@pytest.mark.parametrize(
    ("answer", "verdict", "reason"),
    [
        (WorkerError("it crashed", stage="convert"), "", "which cannot be converted: it crashed"),
        ({"reason": "it is odd"}, "", "which cannot be converted: it is odd"),
        (None, DIFFERENT, "and onnx's converter changes its results: y differs"),
        (None, EQUAL, ""),
    ],
)
def test_conversions_of_nodes_of_the_original(
    answer: Any, verdict: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Any] = []

    class Worker:
        def __init__(self, **_: Any) -> None:
            pass

        def call(self, name: str, **given: Any) -> Any:
            if isinstance(answer, WorkerError):
                raise answer
            return answer or run_converter(**given)

        def close(self) -> None:
            closed.append(self)

    class Verifier(Worker):
        def __init__(self, *_: Any) -> None:
            pass

        def verify(self, *_: Any) -> Any:
            return verdict

    monkeypatch.setattr(lifting, "Worker", Worker)
    monkeypatch.setattr(lifting, "Verifier", Verifier)
    original = text.parse(WEIGHTED, opset=12)
    stem = onnx.GraphProto(node=original.graph.node[:1], initializer=original.graph.initializer)
    found = lift(stem, ["a"], original, 13, InputsSpec(), VerifySpec())
    assert len(closed) == (2 if answer is None else 1)
    if reason:
        assert found == f"the model imports ai.onnx 13, and the original 12, {reason}"
    else:
        assert isinstance(found, onnx.GraphProto) and [node.op_type for node in found.node] == ["Mul"]
        # A constant without data elsewhere is converted with the nodes.
        assert [tensor.name for tensor in found.initializer] == ["w"] and [port.name for port in found.input] == ["x"]


def _with_sparse(source: str, name: str) -> onnx.ModelProto:
    model = text.parse(source, opset=18)
    model.graph.sparse_initializer.add().values.name = name
    return model


def test_nodes_upstream_of_inputs_of_a_piece_are_added_to_it() -> None:
    original = _with_sparse("g (float[2] x, float[2] u) => (float[2] y) { s = Add(x, sp) m = Neg(s) y = Exp(m) }", "sp")
    original.graph.initializer.extend(numpy_helper.from_array(np.ones(2), name) for name in ("u", "x"))
    for number, node in enumerate(original.graph.node):
        node.name = f"n{number}" if number else ""
    original.opset_import.add(domain="d", version=2)
    piece = text.parse("g (float[2] m, float[2] z) => (float[2] y) { x = Abs(m) s = Mul(x, z) y = Exp(s) }", opset=18)
    stem = above(original, ["m"])
    assert [node.op_type for node in stem.node] == ["Add", "Neg"] and [item.name for item in stem.initializer] == ["x"]
    found = graft(piece, original, ["m"], stem)
    assert [(node.op_type, *node.input, *node.output) for node in found.graph.node] == [
        ("Add", "x", "original_0/sp", "original_0/s"), ("Neg", "original_0/s", "m"),
        ("Abs", "m", "value_0"), ("Mul", "value_0", "z", "s"), ("Exp", "s", "y"),
    ]  # fmt: skip
    assert [port.name for port in found.graph.input] == ["z", "x"]
    assert [node.name for node in found.graph.node][:2] == ["", "original_0/n1"]
    assert found.graph.sparse_initializer[0].values.name == "original_0/sp"
    assert [tensor.name for tensor in found.graph.initializer] == ["x"]
    assert {item.domain: item.version for item in found.opset_import} == {"": 18, "d": 2}
    # An input that the piece has as well is one.
    shared = text.parse("g (float[2] m, float[2] x) => (float[2] y) { y = Mul(m, x) b = Neg(x) }", opset=18)
    shared.graph.node[1].output[0] = "original_0/b"
    found = graft(shared, original, ["m"], stem)
    assert [port.name for port in found.graph.input] == ["x"] and not found.graph.initializer
    assert found.graph.node[0].output[0] == "original_1/s" and len(piece.graph.node) == 3


def test_what_the_original_cannot_compute() -> None:
    original, piece = text.parse(PIECE, opset=17), text.parse(PIECE, opset=18)
    assert grafting.obstacle(piece, original, ["a"]) == ""
    assert (
        grafting.obstacle(piece, original, ["a", "b"]) == "input 'b' is new, but the original has no value of that name"
    )
    original.opset_import.add(domain="d", version=1)
    assert grafting.obstacle(piece, original, ["a"]) == ""
    piece.opset_import.add(domain="d", version=2)
    what = "the original cannot compute input 'a': the model imports d 2, and the original 1"
    assert grafting.obstacle(piece, original, ["a"]) == what


def test_models_that_cannot_be_composed() -> None:
    first, second = (text.parse(PIECE, opset=18) for _ in range(2))
    assert obstacle(first, second, {"x": "y"}, "p/") == ""
    assert obstacle(first, second, {"x": "a", "w": "y"}, "p/") == ""
    assert obstacle(first, second, {}, "") == "both have a value 'a'; give the other one a prefix"
    assert obstacle(first, second, {"z": "y"}, "p/") == "the other model has no input 'z'"
    half = text.parse(PIECE.replace("float[2] x", "float16[2] x"), opset=18)
    assert obstacle(first, half, {"x": "y"}, "p/") == "input 'x' is tensor(float16), and 'y' is tensor(float)"
    second.opset_import[0].version = 17
    both = "one imports ai.onnx 18, the other 17; convert the older one first, as 'surgery merge' does"
    assert obstacle(first, second, {}, "p/") == both
    second.opset_import[0].version = 18
    second.opset_import.add(domain="d", version=1)
    assert obstacle(first, second, {}, "p/") == ""


def test_what_the_other_model_has_is_added() -> None:
    first, other = text.parse(PIECE, opset=18), _with_sparse("g (float[2] x) => (float[2] y) { y = Add(x, sp) }", "sp")
    first.graph.node[0].name = "p/n"
    other.graph.node[0].name = "n"
    other.graph.quantization_annotation.add(tensor_name="y")
    for model, domain, version in ((first, "d", 1), (other, "d", 1), (other, "e", 2)):
        model.opset_import.add(domain=domain, version=version)
    other.ir_version = first.ir_version + 1
    found = compose(first, other, {"x": "y"}, "p/")
    # A name that is taken is dropped.
    assert [node.name for node in found.graph.node] == ["p/n", "", "", ""]
    assert found.graph.sparse_initializer[0].values.name == "p/sp" and found.ir_version == other.ir_version
    assert found.graph.quantization_annotation[0].tensor_name == "p/y"
    assert [(item.domain, item.version) for item in found.opset_import] == [("", 18), ("d", 1), ("e", 2)]
    first.graph.node[0].name = ""
    assert compose(first, other, {"x": "y"}, "p/").graph.node[-1].name == "p/n"
