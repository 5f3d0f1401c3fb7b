"""The verdict that follows from what was found on all runs, and from what float64 says about it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from surgery.base.promises import Parity
from surgery.verification.comparing.arbiter import Ruling
from surgery.verification.comparing.compare import ComparisonRules, OutputDistances, compare
from surgery.verification.comparing.details import Arbitration, Status
from surgery.verification.comparing.output_judge import VACUOUS, Findings, describe
from surgery.verification.comparing.vacuity import Run
from surgery.verification.inputs.feed_plan import Binding

RUN = Run(Binding(seed=0, dims={"N": 2, "M": 3}), {"x": np.zeros(2)}, {"y": np.zeros(2)})
MINE = np.float32([1.0, 2.0])
OTHERS = {
    "equal": MINE,
    "near": MINE + np.float32(1e-6),
    "far": MINE * np.float32(1.5),
    "of another shape": np.float32([1.0]),
}


def findings(what: str, promise: Parity, kind: Any = None) -> Findings:
    total = OutputDistances(spreads={})
    compare({"y": MINE}, {"y": OTHERS[what]}, ComparisonRules(promise), total)
    ruling = None if kind is None else Ruling(kind, f"float64 says {kind}", Arbitration(1.0, 2.0), run=RUN)
    return Findings(promise, total, 1, RUN, ruling)


@pytest.mark.parametrize(
    ("what", "promise", "kind", "status", "words"),
    [
        ("equal", Parity.EXACT, None, None, ""),
        ("near", Parity.EXACT, None, Status.DIFFERENT, "declared bit-identical, but output 'y'[0]"),
        ("far", Parity.EXACT, None, Status.DIFFERENT, "output 'y'[1]"),
        ("of another shape", Parity.EXACT, None, Status.DIFFERENT, "output 'y'"),
        ("near", Parity.CLOSE, None, None, ""),
        ("far", Parity.CLOSE, None, Status.DIFFERENT, "output 'y'[1]: 3 instead of 2 (N=2, M=3, normal data)"),
        ("far", Parity.CLOSE, "right", None, ""),
        ("far", Parity.CLOSE, "wrong", Status.DIFFERENT, "float64 says wrong (N=2, M=3, normal data)"),
        ("near", Parity.CLOSE, "wrong", Status.DIFFERENT, "float64 says wrong"),
        ("far", Parity.CLOSE, "noise", Status.UNVERIFIED, "nothing is proven: float64 says noise"),
        ("near", Parity.CLOSE, "unknown", None, ""),
        ("far", Parity.CLOSE, "unknown", Status.DIFFERENT, "(not judged in float64: float64 says unknown)"),
        ("of another shape", Parity.CLOSE, "right", Status.DIFFERENT, "output 'y'"),
        ("of another shape", Parity.CLOSE, "noise", Status.DIFFERENT, "output 'y'"),
    ],
)
def test_findings_speak_against_a_model(
    what: str, promise: Parity, kind: Any, status: Status | None, words: str
) -> None:
    found = findings(what, promise, kind)
    verdict = found.negative()
    assert (verdict and verdict.status) == status
    if verdict is not None:
        assert words in verdict.message
        assert verdict.reason == (VACUOUS if status is Status.UNVERIFIED else None)
        assert (verdict.needed is None) is (what == "of another shape" or status is Status.UNVERIFIED)


@pytest.mark.parametrize(
    ("what", "kind", "words"),
    [
        ("near", None, "output 'y'[0]"),
        ("near", "right", "output 'y'[0]"),
        ("far", "right", "beyond the tolerance, but as close to float64 as the original: output 'y'[1]"),
        (
            "near",
            "unknown",
            "small next to the rest of the output (not judged in float64: float64 says unknown): output",
        ),
    ],
)
def test_findings_say_why_a_model_is_close_enough(what: str, kind: Any, words: str) -> None:
    assert findings(what, Parity.CLOSE, kind).tell().startswith(words)


@pytest.mark.parametrize(
    ("kinds", "counts"),
    [
        (["right", "noise"], "right"),
        (["noise", "right"], "right"),
        (["right", "unknown", "noise"], "unknown"),
        (["wrong", "right"], "wrong"),
        (["unknown", "wrong"], "wrong"),
    ],
)
def test_the_worst_of_several_rulings_counts(kinds: list[Any], counts: str) -> None:
    found = Findings(Parity.CLOSE)
    for number, kind in enumerate(kinds):
        found.settle(Ruling(kind, kind, Arbitration(float(number), None, (f"n{number}",)), run=RUN))
    assert found.ruling is not None and found.ruling.kind == counts
    assert found.ruling.run is not None and not found.ruling.run.feed and not found.ruling.run.outputs
    joined = found.ruling.arbitration
    assert (joined.original, joined.changed) == (len(kinds) - 1.0, None)
    assert joined.narrow == tuple(f"n{number}" for number in range(len(kinds)))


def test_a_run_is_named_by_its_inputs() -> None:
    assert describe(RUN) == " (N=2, M=3, normal data)" and describe(None) == ""
    assert describe(Run(Binding(seed=0, dims={}), {}, {})) == " (normal data)"
