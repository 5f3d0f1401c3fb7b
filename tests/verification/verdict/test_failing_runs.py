"""Runs that fail, take too much memory, or come with expected outputs; tables that differ; stale shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from surgery.base.errors import UsageError, WorkerError
from surgery.base.promises import Parity
from surgery.base.workers import OUT_OF_MEMORY
from surgery.model.graph import text
from surgery.model.runtime.engine import RunOutcome
from surgery.verification.comparing.compare import ComparisonRules
from surgery.verification.comparing.details import REPRODUCED, Status
from surgery.verification.comparing.given_outputs import held
from surgery.verification.comparing.vacuity import Run
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.inputs.given import GivenBinding
from surgery.verification.regions.definitions import Definitions
from surgery.verification.regions.tables import differing_tables
from surgery.verification.running.sizes_given import require_room
from surgery.verification.running.stale_shapes import stale_shapes
from surgery.verification.verdict.failing_models import failure_of

RUNS = [Run(Binding({"N": n}), {}, {}) for n in (2, 3)]
CRASH = WorkerError("it died", stage="run")


@pytest.mark.parametrize(
    ("outcome", "status", "message"),
    [
        (RunOutcome(crash=CRASH), Status.DIFFERENT, "the changed model fails where the original runs: it died"),
        (RunOutcome(unsupported="no kernel"), Status.UNVERIFIED, "no kernel"),
        (RunOutcome(invalid="broken"), Status.DIFFERENT, "the runtime rejects the changed model: broken"),
        (RunOutcome(["bad", {}]), Status.DIFFERENT,
         "the changed model fails where the original runs: bad (N=2, normal data)"),
        (RunOutcome([{}, "bad"]), Status.DIFFERENT,
         "the changed model fails where the original runs: bad (N=3, normal data)"),
        (RunOutcome([{}, {}]), None, ""),
    ],
)  # fmt: skip
def test_a_changed_model_that_fails(outcome: RunOutcome, status: Status | None, message: str) -> None:
    found = failure_of(outcome, RUNS)
    assert (found is None) is (status is None)
    assert found is None or (found.status, found.message) == (status, message)
    assert found is None or found.reason == ("not-run" if status is Status.UNVERIFIED else None)


LACKING = RunOutcome(crash=WorkerError("gone", stage="run", signal=OUT_OF_MEMORY))


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ({"N": (2, 3)}, "N=3"),
        ({"N": (2, 3), "other": 5}, "N=3"),
        ({"other": 5}, "these sizes"),
    ],
)
def test_sizes_that_take_too_much_memory(given: Any, sizes: str) -> None:
    bindings = [run.binding for run in RUNS]
    with pytest.raises(
        UsageError, match=f"^--dims: a run of the model with {sizes} takes too much memory; pass smaller"
    ):
        require_room(LACKING, bindings, given)
    require_room(LACKING, bindings, {})
    require_room(RunOutcome(crash=CRASH), bindings, given)
    many = Binding({f"d{number}": number for number in range(9)})
    with pytest.raises(UsageError, match=r"with d0=0, d1=1, d2=2, d3=3, d4=4, d5=5 .*takes too much"):
        require_room(LACKING, [many], {f"d{number}": 1 for number in range(9)})


def test_outputs_that_came_with_sets() -> None:
    rules = ComparisonRules(Parity.CLOSE)
    ones = np.ones(2, np.float32)

    def outcome(expected: dict[str, Any], drawn: frozenset[str] = frozenset()) -> Any:
        binding = GivenBinding(character="a.npz", expected=expected)
        (run,) = held([Run(binding, {}, {"y": ones, "z": ones})], rules, drawn)
        assert isinstance(run.binding, GivenBinding)
        assert run.binding.expected == ({} if run.binding.outcome is not None else expected)
        return run.binding.outcome

    assert outcome({"y": ones}) == REPRODUCED and outcome({}) is None is outcome({"other": ones})
    assert outcome({"y": ones * np.float32(1 + 1e-6), "z": ones}) == REPRODUCED
    assert "output 'z'" in outcome({"y": ones, "z": ones * 2})
    assert (
        outcome({"z": ones * 2}, frozenset("z")) is None and outcome({"y": ones, "z": 2}, frozenset("z")) == REPRODUCED
    )
    plain = Run(Binding(), {}, {"y": ones})
    assert held([plain], rules, frozenset()) == [plain]


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({}, ""),
        ({"a": [2]}, ""),
        ({"a": [3]}, "1 declared shape contradicts what the nodes compute: that of 'a'"),
        ({"a": [3], "b": [4]}, "2 declared shapes contradict what the nodes compute: that of 'a', that of 'b'"),
    ],
)
def test_declared_shapes_that_are_stale(declared: dict[str, list[int]], words: str) -> None:
    model = text.parse("g (float[2] x) => (float[2] y) { a = Neg(x) b = Neg(x) y = Add(a, b) }", opset=18)
    model.graph.value_info.extend(helper.make_tensor_value_info(name, 1, shape) for name, shape in declared.items())
    assert stale_shapes(ir.from_proto(model)) == words


# Tables

LEAVES = {"nodes_values": [1.0, 2.0], "class_weights": [3.0], "nodes_modes": [1]}


def tree(reads: str = "x", domain: str = "ai.onnx.ml", op: str = "TreeEnsembleClassifier", **more: Any) -> Definitions:
    attributes = {**LEAVES, **more}
    node = helper.make_node(op, [reads], ["y"], domain=domain, **{k: v for k, v in attributes.items() if v is not None})
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["a"]), node], "g", [], [])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)])
    return Definitions(model.SerializeToString())


def values(*numbers: float) -> onnx.TensorProto:
    return helper.make_tensor("", 1, [len(numbers)], numbers)


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({}, ""),
        ({"nodes_values": [1.0, 3.0]}, "nodes_values"),
        ({"nodes_values": [1.0, 3.0], "class_weights": [4.0]}, "class_weights, nodes_values"),
        # Another structure, another node, and other attributes.
        ({"nodes_values": [1.0, 3.0], "nodes_modes": [2]}, ""),
        ({"nodes_modes": [2]}, ""),
        ({"nodes_values": [1.0, 3.0], "extra": 1}, ""),
        ({"nodes_values": [1.0, 3.0], "class_weights": None}, ""),
        ({"nodes_values": [1.0, 3.0], "reads": "a"}, ""),
        ({"nodes_values": [1.0, 3.0], "op": "TreeEnsembleRegressor"}, ""),
        ({"nodes_values": [1.0, 3.0], "domain": "acme"}, ""),
    ],
)
def test_stored_lists_that_differ(more: dict[str, Any], found: str) -> None:
    assert differing_tables(tree(), tree(**more), {"y"}) == ({"y": found} if found else {})
    assert differing_tables(tree(), tree(**more), set()) == {}


def test_stored_tensors_that_differ() -> None:
    before = tree(nodes_values=None, nodes_values_as_tensor=values(1, 2))
    assert differing_tables(before, tree(nodes_values=None, nodes_values_as_tensor=values(1, 3)), {"y"}) == {
        "y": "nodes_values_as_tensor"
    }
    renamed = values(1, 2)
    renamed.name = "other"
    assert differing_tables(before, tree(nodes_values=None, nodes_values_as_tensor=renamed), {"y"}) == {}
    plain = Definitions(text.parse("g (float[2] x) => (float[2] y) { y = Neg(x) }").SerializeToString())
    other = Definitions(text.parse("g (float[2] x) => (float[2] z) { z = Abs(x) }").SerializeToString())
    assert differing_tables(plain, other, {"y", "z"}) == {} == differing_tables(other, plain, {"y", "z"})
