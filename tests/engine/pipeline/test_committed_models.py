"""The committed model: when its graph is rebuilt, and which steps need not run or be judged again."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from surgery.base.errors import ModelFileError
from surgery.base.promises import Parity
from surgery.engine.bridges.run_pass import PassResult
from surgery.engine.pipeline.candidate import Candidate, State
from surgery.engine.pipeline.committed import CommittedModel
from surgery.engine.recipe.schema import PassStep
from surgery.engine.registry.passes import Pass
from surgery.model import storage
from surgery.model.graph import text

HEAD = '<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[n] y)'


def proto(op: str = "Relu") -> onnx.ModelProto:
    return text.parse(f"{HEAD} {{ a = {op}(x) y = Neg(a) }}")


def committed(op: str = "Relu") -> CommittedModel:
    return CommittedModel(storage.from_proto(proto(op)))


def declared(name: str = "p", *, standard: bool = True) -> Pass:
    function: Any = lambda graph: None  # noqa: E731
    function.__module__ = "surgery.passes.x" if standard else "elsewhere"
    return Pass(name, Parity.EXACT, "graph", function)


def made(model: onnx.ModelProto | None, *, live: bool = True, **more: Any) -> PassResult:
    return PassResult(model, (), (), live, **more)


STEP = PassStep("p")


def test_a_model_begins_as_it_was_read() -> None:
    model = committed()
    assert model.nodes == 2 and model.proto is model.stored.proto and model.state.ops == {"Relu": 1, "Neg": 1}
    other = proto("Abs")
    model.enter(State.of(other, other.SerializeToString(deterministic=True)), live=False)
    assert model.proto is other and model.nodes == 2


def test_a_model_with_a_ring_is_refused() -> None:
    ring = text.parse(f"{HEAD} {{ [one] a = Add(x, b) [two] b = Relu(a) y = Neg(b) }}")
    with pytest.raises(ModelFileError, match=r"the graph has a cycle: .*; no runtime can run it") as error:
        CommittedModel(storage.from_proto(ring))
    assert error.value.where == "the model in memory"


def test_the_graph_is_rebuilt_after_a_pass_that_did_not_end_in_it() -> None:
    model = committed()
    first = model.graph
    assert model.editable() is first
    # Nobody said what became of it.
    second = model.editable()
    assert second is not first
    model.candidate(STEP, declared(), frozenset(), made(None))
    assert model.editable() is second
    # The pass changed the graph, and the change is committed or refused.
    found = model.candidate(STEP, declared(), frozenset(), made(proto("Abs")))
    assert found.changed and found.live and found.proto is not None
    model.enter(State.of(found.proto, found.data), live=True)
    assert model.editable() is second
    model.candidate(STEP, declared(), frozenset(), made(proto("Exp")))
    assert model.editable() is not second
    third = model.graph
    model.candidate(STEP, declared(), frozenset(), made(proto("Exp"), live=False))
    assert model.editable() is third
    model.candidate(STEP, declared(), frozenset(), made(None))
    model.read_anew()
    assert model.editable() is not third


def test_a_candidate_has_what_the_pass_made() -> None:
    model = committed()
    found = model.candidate(STEP, declared(), frozenset(), made(proto("Abs"), renamed={"y": "z"}, remarks=("r",)))
    assert (found.changed, found.renamed, found.remarks) == (True, {"y": "z"}, ("r",))
    assert found.data == found.proto.SerializeToString(deterministic=True) != model.state.data  # type: ignore[union-attr]
    same = model.candidate(STEP, declared(), frozenset(), made(proto(), remarks=("r",)))
    assert not same.changed and same.proto is model.state.proto and same.data is model.state.data
    assert same.remarks == ("r",)


def test_a_standard_pass_that_changed_nothing_need_not_run_again() -> None:
    model = committed()
    ours, other = declared(), declared(standard=False)
    assert ours.is_standard and not other.is_standard
    assert model.known(STEP, ours, frozenset()) is None
    found = model.candidate(STEP, ours, frozenset(), made(None))
    assert model.known(STEP, ours, frozenset()) is found
    assert model.known(STEP, ours, frozenset({1})) is None is model.known(STEP, declared(), frozenset())
    model.candidate(STEP, other, frozenset(), made(None))
    assert model.known(STEP, other, frozenset()) is None
    # On another model it may find something, and also once more is known of this one.
    state = model.state
    changed = proto("Abs")
    model.enter(State.of(changed, changed.SerializeToString(deterministic=True)), live=False)
    assert model.known(STEP, ours, frozenset()) is None
    model.enter(state, live=False)
    assert model.known(STEP, ours, frozenset()) is found
    model.read_anew()
    assert model.known(STEP, ours, frozenset()) is None


def test_a_step_that_was_refused_is_not_judged_again_on_the_same_model() -> None:
    model = committed()
    ours = declared()
    step = PassStep("p", declared=ours)
    model.refuse(Candidate(step, proto("Abs"), b"data", changed=True, live=True, complaint="wrong"))
    found = model.known(step, ours, frozenset())
    assert found is not None and (found.complaint, found.final, found.live, found.shapes) == ("wrong", True, False, {})
    assert model.known(step, ours, frozenset({1})) is None
    model.read_anew()
    assert model.known(step, ours, frozenset()) is not None
    model.doubt({"a": frozenset({0})})  # type: ignore[dict-item]
    assert model.known(step, ours, frozenset()) is None and model.doubts == {"a": frozenset({0})}
    assert model.editable().facts is not None
    model.doubt({"b": frozenset({1})})  # type: ignore[dict-item]
    assert sorted(model.doubts) == ["a", "b"]


def test_what_passes_remember_is_of_one_model() -> None:
    model = committed()
    model.editable().memory["key"] = 1
    assert model.editable().memory == {"key": 1}
    changed = proto("Abs")
    model.enter(State.of(changed, changed.SerializeToString(deterministic=True)), live=False)
    assert model.editable().memory == {}
