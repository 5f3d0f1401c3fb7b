"""The shapes of values in runs of a model: which runs are looked at, and what is read from them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from surgery.base.errors import WorkerError
from surgery.model.graph import text
from surgery.model.runtime.engine import RunOutcome
from surgery.verification.comparing.observed_shapes import _LONG, Seen, _separate, _unlike, seen
from surgery.verification.comparing.vacuity import Run
from surgery.verification.inputs.feed_plan import Binding

BODY = "k = Constant<value_int = 1>() a = Neg(x) b = Transpose<perm = [1, 0]>(a) s = Size(b) y = Abs(b)"
MODEL = text.parse(f"g (float[N, M] x) => (float[M, N] y) {{ {BODY} }}", opset=18).SerializeToString()
TYPES = {"k": 7, "a": 1, "b": 1, "s": 7, "y": 1}


def _run(*shape: int, **more: Any) -> Run:
    return Run(Binding({}), {"x": np.ones(shape, np.float32), **more}, {})


class _Engine:
    """An engine that is onnx's evaluator."""

    def __init__(self, outcome: RunOutcome | None = None, rejects: int = -1) -> None:
        self.outcome, self.rejects, self.runs = outcome, rejects, 0

    def run(self, skeleton: bytes, feeds: Any) -> RunOutcome:
        self.runs += len(feeds)
        if self.outcome is not None:
            return self.outcome
        model = onnx.load_model_from_string(skeleton)
        (name,) = (port.name for port in model.graph.output)
        evaluator = ReferenceEvaluator(model)
        return RunOutcome(
            runs=[
                "rejected" if number == self.rejects else {name: evaluator.run(None, feed)[0]}
                for number, feed in enumerate(feeds)
            ]
        )


def _original(*runs: Run, types: Any = None, cost: float = 0.0, **more: Any) -> Any:
    declared = {name: (dtype, []) for name, dtype in (types or TYPES).items()}
    inputs = SimpleNamespace(cost=lambda binding: cost, inferred=lambda binding: declared)
    usual: dict[str, Any] = {"skeleton": MODEL, "problem": None, "engine": "onnxruntime", "prepare": lambda: None}
    return SimpleNamespace(runs=runs, inputs=inputs, **{**usual, **more})


def _seen(n: int, m: int) -> Seen:
    return Seen({"x": (n, m), "a": (n, m), "b": (m, n), "s": (), "y": (m, n)}, frozenset({"x"}))


def test_the_shapes_of_computed_values_are_seen_in_runs_of_different_sizes() -> None:
    engine = _Engine()
    original = _original(_run(2, 3), _run(2, 3), _run(4, 1), others=["no tensor"])
    assert seen(original, lambda: engine) == [_seen(2, 3), _seen(4, 1)] and engine.runs == 2


def test_values_of_types_that_the_runtime_cannot_measure_are_left_out() -> None:
    for dtype, kept in ((1, True), (13, True), (16, True), (14, False), (17, False), (0, False)):
        types = {"a": dtype, "b": 1}
        (found,) = seen(_original(_run(2, 3), types=types), _Engine)
        assert found.shapes == {"x": (2, 3), "b": (3, 2)} | ({"a": (2, 3)} if kept else {})
    (found,) = seen(_original(_run(2, 3), types={"none": 1}), _Engine)
    assert found.shapes == {"x": (2, 3)}


def test_some_values_of_a_changed_model_are_seen_in_two_runs() -> None:
    changed = text.parse("g (float[N, M] x) => (float[M, N] y) { c = Flatten<axis = 0>(x) y = Transpose(c) }", opset=18)
    engine = _Engine()
    original = _original(*(_run(n, 2) for n in (1, 2, 3)))
    found = seen(original, lambda: engine, changed.SerializeToString(), ["c"])
    assert [one.shapes for one in found] == [{"x": (1, 2), "c": (1, 2)}, {"x": (2, 2), "c": (1, 4)}]
    assert engine.runs == 2


@pytest.mark.parametrize(
    ("more", "looks"),
    [
        ({}, True),
        ({"problem": "it fails"}, False),
        ({"engine": "reference"}, False),
        ({"cost": _LONG}, True),
        ({"cost": _LONG * 1.01}, False),
    ],
)
def test_a_run_must_be_cheap_and_possible(more: dict[str, Any], looks: bool) -> None:
    engine = _Engine()
    found = seen(_original(_run(2, 3), **more), lambda: engine)
    assert (len(found), engine.runs) == ((1, 1) if looks else (0, 0))
    assert seen(_original(**more), lambda: engine) == []


def test_runs_that_fail_are_left_out() -> None:
    runs = [_run(2, 3), _run(4, 5), _run(6, 7)]
    rejecting: Any = _Engine(rejects=1)
    assert seen(_original(*runs), lambda: rejecting) == [_seen(2, 3), _seen(6, 7)]
    failing: Any = _Engine(RunOutcome(runs=[{}], crash=WorkerError("it died", stage="run")))
    assert seen(_original(*runs), lambda: failing) == []


def test_few_runs_without_empty_inputs_are_looked_at() -> None:
    runs = [_run(0, 2), _run(1, 2), _run(1, 2), _run(2, 2), _run(3, 0), _run(3, 2), _run(4, 2), _run(5, 2)]
    assert [run.feed["x"].shape for run in _unlike(runs)] == [(1, 2), (2, 2), (3, 2), (4, 2)]
    with_other = [_run(1, z=[np.ones(2)]), _run(1, z=[np.ones(3)]), _run(1, z=np.ones(3))]
    assert [*_unlike(with_other)] == [with_other[0], with_other[2]]


@pytest.mark.parametrize(
    ("numbers", "shapes"), [([], []), ([-1], [()]), ([2, 3, -1, -1, 4, -1], [(2, 3), (), (4,)]), ([2, 3], [])]
)
def test_shapes_are_separated(numbers: list[int], shapes: list[tuple[int, ...]]) -> None:
    assert [*_separate(numbers)] == shapes
