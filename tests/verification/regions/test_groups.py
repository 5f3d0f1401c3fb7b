"""Regions that are run and judged in groups of sets: only one group is in memory, and the verdicts stay the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from surgery.base.promises import Parity
from surgery.model.graph import text
from surgery.model.proto.randomness import origins
from surgery.model.runtime.engine import Engine, RunOutcome
from surgery.verification.comparing.compare import ComparisonRules
from surgery.verification.comparing.details import Verdict
from surgery.verification.comparing.output_judge import Findings, OutputJudge
from surgery.verification.comparing.reference_run import ReferenceRun
from surgery.verification.comparing.vacuity import Evidence, Run, vacuous
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.inputs.spec import InputsSpec, VerifySpec
from surgery.verification.regions import run_groups
from surgery.verification.verdict.verifier import Verifier

HEAD = """g (float[N,4] x) => (float[N,4] y) <float zero = {0}, float one = {1}, float two = {2},
    float l = {0.6931471805599453}, float n = {-2.5}>"""

CHANGES = {
    "equal": ("a = Mul(x, two) y = Neg(a)", "a = Add(x, x) y = Neg(a)", "equal"),
    "rounded otherwise": ("a = Exp(x) y = Div(a, two)", "h = Sub(x, l) y = Exp(h)", "close"),
    "constant": ("a = Mul(x, zero) y = Add(a, one)", "a = Mul(zero, x) y = Add(a, one)", "equal"),
    "other": ("a = Mul(x, two) y = Neg(a)", "a = Mul(x, one) y = Neg(a)", "unverified"),
    "other where x is large": ("a = Clip(x) y = Neg(a)", "a = Clip(x, n) y = Neg(a)", "unverified"),
}


def models(change: str) -> tuple[bytes, bytes]:
    before, after = (text.parse(f"{HEAD} {{ {body} }}").SerializeToString() for body in CHANGES[change][:2])
    return before, after


def compared(change: str, promise: Parity) -> Verdict:
    before, after = models(change)
    verifier = Verifier(before, None, VerifySpec())
    try:
        return verifier.changes.compare_regions(before, after, promise).verdict
    finally:
        verifier.close()


@pytest.mark.parametrize("change", CHANGES)
def test_verdicts_do_not_depend_on_the_size_of_a_group(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    promise = Parity.CLOSE if CHANGES[change][2] == "close" else Parity.EXACT
    whole = compared(change, promise)
    assert whole.status == CHANGES[change][2], whole.message
    monkeypatch.setattr(run_groups, "_ROOM", 1)
    assert compared(change, promise) == whole


def test_a_group_ends_with_the_set_that_fills_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_groups, "_ROOM", 1)
    seen: list[int] = []
    run_each = Engine.run_each

    def noted(self: Engine, skeletons: Sequence[bytes], feeds: Any, **how: Any) -> list[RunOutcome]:
        found = run_each(self, skeletons, feeds, **how)
        seen.extend(len(outcome.runs) for outcome in found)
        return found

    monkeypatch.setattr(Engine, "run_each", noted)
    assert compared("equal", Parity.EXACT).status == "equal"
    assert len(seen) > 4 and set(seen) == {1}


MODEL = text.parse("g (float[N] x, float[N] z) => (float[N] y) { y = Mul(x, z) }")


def runs(*values: float, dims: Sequence[int] = ()) -> list[Run]:
    extents = list(dims) or [2] * len(values)
    return [
        Run(
            Binding({"N": extent}, "normal", number),
            {"x": np.full(extent, number, np.float32), "z": np.ones(extent, np.float32)},
            {"y": np.full(extent, value, np.float32)},
        )
        for number, (value, extent) in enumerate(zip(values, extents))
    ]


@pytest.mark.parametrize(
    ("values", "dims", "reason"),
    [
        ((0, 0, 1), (2, 2, 2), None),
        ((1, 1, 1), (2, 2, 2), "does not change with the inputs"),
        ((0, 0, 0), (2, 2, 2), "is always zero"),
        ((np.nan, np.nan), (2, 2), "is never finite"),
        ((1, 2), (0, 0), None),
        ((1, 2, 1, 3), (2, 3, 2, 3), None),
        ((1, 2, 1, 2), (2, 3, 2, 3), "does not change with the inputs"),
        ((1, 2, 3), (2, 3, 4), None),
    ],
)
def test_what_runs_show_does_not_depend_on_when_they_are_seen(values: Any, dims: Any, reason: str | None) -> None:
    found = vacuous(MODEL, runs(*values, dims=dims), origins(MODEL), ComparisonRules(Parity.EXACT))
    assert found.get("y") == reason


def test_outputs_that_have_changed_are_not_held() -> None:
    evidence = Evidence(MODEL, origins(MODEL), ComparisonRules(Parity.EXACT))
    *first, last = runs(1, 1, 3)
    for run in first:
        evidence.add(run)
    assert [list(run.outputs) for run in evidence._firsts.values()] == [["y"]]
    evidence.add(last)
    assert not evidence._firsts and not evidence.vacuous()


def test_findings_on_groups_are_those_on_all_runs() -> None:
    """Counts, the worst element and its set of inputs, by hand: 3 of 8 elements differ, the last by the most."""
    original = ReferenceRun(MODEL.SerializeToString(), InputsSpec(), VerifySpec()).inner(b"", [])
    expected = runs(1, 2, 3, 4)
    results = [{"y": run.outputs["y"].copy()} for run in expected]
    results[0]["y"][0] += np.float32(2.0**-23)
    results[2]["y"][0] -= np.float32(2.0**-22)
    results[3]["y"][1] += np.float32(2.0**-21)
    found = Findings(Parity.EXACT)
    for number in range(4):
        OutputJudge(original).find(expected[number : number + 1], results[number : number + 1], found)
    details = found.details()
    assert (found.runs, details.elements, details.differing, details.ulp) == (4, 8, 3, 1.0)
    assert details.worst is not None and details.worst.binding is not None
    assert found.worst is not None and not found.worst.outputs


def test_an_exact_promise_holds_for_each_of_many_similar_regions() -> None:
    constants = "float half = {0.5}, float two = {2}, float third = {0.333333343}, float three = {3}"
    before, after = (
        text.parse(f"g (float[8] x) => (float[8] y, float[8] z) <{constants}> {{ {body} }}").SerializeToString()
        for body in ("y = Mul(x, half) z = Mul(x, third)", "y = Div(x, two) z = Div(x, three)")
    )
    verifier = Verifier(before, None, VerifySpec())
    try:
        assert verifier.changes.compare_regions(before, after, Parity.CLOSE).verdict.status == "close"
        assert not verifier.changes.compare_regions(before, after, Parity.EXACT).verdict.passed
    finally:
        verifier.close()


CLOSE = {
    "y": ("y = Mul(x, third)", "y = Div(x, three)"),
    "z": ("a = Exp(x) z = Div(a, two)", "h = Sub(x, l) z = Exp(h)"),
}


def needed(*outputs: str) -> float:
    constants = "float two = {2}, float third = {0.333333343}, float three = {3}, float l = {0.6931471805599453}"
    ports = ", ".join(f"float[8] {name}" for name in outputs)
    before, after = (
        text.parse(f"g (float[8] x) => ({ports}) <{constants}> {{ {body} }}").SerializeToString()
        for body in (" ".join(CLOSE[name][side] for name in outputs) for side in (0, 1))
    )
    verifier = Verifier(before, None, VerifySpec())
    try:
        verdict = verifier.changes.compare_regions(before, after, Parity.CLOSE).verdict
        assert verdict.status == "close" and verdict.needed is not None
        return float(verdict.needed["rtol"] or 0.0)
    finally:
        verifier.close()


def test_the_tolerance_that_a_change_needs_is_the_largest_of_its_regions() -> None:
    assert needed("y") < needed("z") == needed("y", "z") == needed("z", "y")
