"""What values inside two models show, and in which words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from surgery.model.graph import text
from surgery.model.proto.dataflow import Flow
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.vacuity import Run
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.inputs.input_sets import TRIVIAL
from surgery.verification.regions import inner_values, intermediate
from surgery.verification.regions.inner_values import Inside, _few, _is_subnormal, form, is_moved, nudge
from surgery.verification.regions.intermediate import InnerEvidence, _downstream, _label, _largest, _some, _spread


def _f32(*values: float) -> Any:
    return np.array(values, np.float32)


def test_floats_are_nudged_up_and_down() -> None:
    found = nudge(_f32(1, -2, 0, 4).reshape(2, 2))
    size = inner_values.NUDGE
    expected = np.float32([[1 - size, -2 * (1 + size)], [0, 4 * (1 + size)]])
    assert found.dtype == np.float32 and found.tolist() == expected.tolist() and size > 0
    for value in (np.array([1, 2]), np.array([True]), _f32(), [_f32(1)], None):
        assert nudge(value) is value


@pytest.mark.parametrize(
    ("first", "second", "moved"),
    [
        ([_f32(1)], [_f32(1)], False),
        ([_f32(1)], [_f32(1.00001)], False),
        ([_f32(1)], [_f32(1.1)], True),
        ([_f32(1), _f32(1)], [_f32(1), _f32(1.1)], True),
        ([np.array([1])], [np.array([2])], False),
        ([[_f32(1), np.array([1])]], [[_f32(2), np.array([2])]], False),
        ([[_f32(1), _f32(1)]], [[_f32(1), _f32(2)]], True),
    ],
)
def test_floats_that_move_beyond_the_tolerance(first: list[Any], second: list[Any], moved: bool) -> None:
    assert is_moved("y", [{"y": one} for one in first], [{"y": one} for one in second]) is moved


@pytest.mark.parametrize(
    ("value", "subnormal"),
    [
        (_f32(1e-39, -1e-38), True),
        (_f32(1e-39, 2e-38), False),
        (_f32(0, 0), True),
        (_f32(np.nan, 1e-39), True),
        (_f32(), False),
        ([_f32(1e-39), _f32()], True),
        ([_f32(1e-39), _f32(1)], False),
        ([_f32(1e-39), np.array([0])], False),
        (np.array([0]), False),
        (np.array([2e-308, 0.0]), True),
        (np.float16([1e-6]), True),
        (np.float16([1e-1]), False),
    ],
)
def test_floats_with_fewer_bits(value: Any, subnormal: bool) -> None:
    assert _is_subnormal(value) is subnormal


def _run(n: int, kind: str = "normal") -> Run:
    return Run(Binding({"n": n}, kind), {"x": np.ones(n)}, {})


def test_a_few_runs_most_of_them_with_the_same_dims() -> None:
    most = inner_values._RUNS
    runs = [_run(2), *(_run(3, str(number)) for number in range(most + 2)), _run(4)]
    found = _few(runs)
    assert [run.binding.dims["n"] for run in found] == [3] * (most - 1) + [2]
    assert [run.binding.character for run in _few(runs[1:-1])] == [str(number) for number in range(most)]
    assert [run.binding.dims["n"] for run in _few([_run(2), _run(3), _run(4)])] == [2, 3]


def test_the_form_of_a_value() -> None:
    assert form([_f32(1), np.ones((2, 3))]) == [(np.dtype("f4"), (1,)), (np.dtype("f8"), (2, 3))] and form(None) == []


def test_values_are_compared_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inner_values, "TOGETHER", 100)
    monkeypatch.setattr(inner_values, "_UNKNOWN", 20)
    asked: list[Any] = []
    runs = [_run(2), _run(3)]

    def inside(cost: float, **sizes: int) -> Inside:
        found = Inside.__new__(Inside)
        found.sizes, found.runs = sizes, runs[:1]
        inputs = SimpleNamespace(cost=lambda binding: cost)
        found.setting = SimpleNamespace(runs=runs, original=SimpleNamespace(inputs=inputs))  # type: ignore[assignment]
        found._compare = lambda names, those: asked.append(([*names], len(those))) or {}  # type: ignore[method-assign, func-returns-value]
        return found

    for cost, sizes, expected in (
        (TRIVIAL, {"a": 10, "b": 20}, [(["a", "b", "c"], 2)]),
        (TRIVIAL * 1.01, {"a": 10, "b": 20}, [(["a", "b", "c"], 1)]),
        # Too much for all runs, and for one batch.
        (TRIVIAL, {"a": 10, "b": 21}, [(["a", "b", "c"], 1)]),
        (TRIVIAL, {"a": 50, "b": 50, "c": 1}, [(["a", "b"], 1), (["c"], 1)]),
        (TRIVIAL, {"a": 200, "b": 50, "c": 51}, [(["a"], 1), (["b"], 1), (["c"], 1)]),
    ):
        asked.clear()
        inside(cost, **sizes).compare(["a", "b", "c"])
        assert asked == expected


# In words

NEEDED = {"rtol": 1.0, "atol": 2.0, "factor": 0.5}
EQUAL = Verdict(Status.EQUAL, message="bit-identical", needed={"rtol": 0.0, "atol": 3.0, "factor": 0.0})


def test_evidence_amends_the_verdict_on_outputs() -> None:
    found = InnerEvidence("'y' is always zero", agreeing=("a",)).amend(EQUAL)
    assert found.status is Status.EQUAL and found.needed == EQUAL.needed
    nothing = "bit-identical; the outputs prove nothing ('y' is always zero)"
    assert found.message == f"{nothing}; 1 intermediate value at the changed nodes agrees"
    found = InnerEvidence("zero", agreeing=("a", "b"), drawn=("y",), needed=NEEDED).amend(EQUAL)
    assert found.status is Status.CLOSE and found.needed == {"rtol": 1.0, "atol": 3.0, "factor": 0.5}
    assert found.message.endswith(
        "; 2 intermediate values at the changed nodes agree and 'y' agrees for other values before the change"
    )
    found = InnerEvidence("zero", drawn=("y", "z")).amend(EQUAL)
    assert found.message.endswith("(zero); 'y', 'z' agree for other values before the change")
    found = InnerEvidence("zero", changed=False).amend(EQUAL)
    assert found.message.endswith("(zero); they do not depend on changed nodes")


def test_evidence_against_a_change() -> None:
    differing = Verdict(Status.DIFFERENT, message="the intermediate value 'a' is 2", reason=None)
    found = InnerEvidence("zero", differing=differing, open=("n",))
    assert not found.agrees and found.amend(EQUAL).status is Status.DIFFERENT
    assert found.amend(EQUAL).message == "the outputs prove nothing (zero), but the intermediate value 'a' is 2"
    found = InnerEvidence("zero", open=("Add 'a'", "b", "c", "d", "e"))
    unverified = found.amend(EQUAL)
    assert not found.agrees and (unverified.status, unverified.reason) == (Status.UNVERIFIED, "vacuous")
    assert unverified.needed is None
    assert unverified.message == "the outputs do not depend on Add 'a', b, c and 2 more: zero"
    assert InnerEvidence("zero").agrees and _some(["a", "b", "c"]) == "a, b, c"


def test_values_downstream_the_nearest_first() -> None:
    graph = "g (float x) => (float y) { a = Neg(x) b = Abs(a) c = Exp(a) d = Add(b, c) y = Mul(d, a) }"
    flow = Flow(text.parse(graph).graph)
    everything = {"a", "b", "c", "d", "y"}
    assert _downstream(flow, [0], everything, 9) == ["a", "b", "c", "y", "d"]
    assert _downstream(flow, [0], {"d", "y"}, 1) == ["y"] and _downstream(flow, [1, 2], everything, 2) == ["b", "c"]
    assert _downstream(flow, [0], everything, 0) == []
    nodes = flow.nodes
    nodes[1].name, nodes[2].domain = "n", "d"
    assert [_label(flow, number) for number in range(3)] == ["Neg 'a'", "'n' (Abs)", "d::Exp 'c'"]


def test_the_tolerance_that_covers_several() -> None:
    other = {"rtol": 4.0, "atol": 0.0, "factor": 0.5}
    assert _largest([None, NEEDED, other]) == {"rtol": 4.0, "atol": 2.0, "factor": 0.5}
    assert _largest([]) is None is _largest([None])


def test_a_long_list_is_thinned_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intermediate, "MOST", 4)
    assert _spread([*range(4)]) == [0, 1, 2, 3]
    assert _spread([*range(5)]) == [0, 1, 3, 4] and _spread([*range(10)]) == [0, 3, 6, 9]
