"""The verdicts on the targets of a region from runs that are seen group by group, without any run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from surgery.base.promises import Parity
from surgery.model.graph import text
from surgery.model.runtime.engine import RunOutcome
from surgery.verification.comparing.details import Status
from surgery.verification.comparing.output_judge import OutputJudge
from surgery.verification.comparing.reference_run import ReferenceRun
from surgery.verification.comparing.vacuity import Run
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.inputs.spec import InputsSpec, VerifySpec
from surgery.verification.regions import tally as module
from surgery.verification.regions.regions import Region
from surgery.verification.regions.tally import Tally, _Constants, _digest

PIECE = text.parse("g (float[N] x) => (float[N] y, float[N] z) { y = Neg(x) z = Exp(x) }")
REGION = Region(("t", "u"), ("y", "z"), ("x",), PIECE, PIECE, 2)
EPS = np.float32(2.0**-23)


@pytest.fixture(autouse=True)
def no_arbiter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The values of these runs are none that the pieces compute, so that float64 decides nothing."""
    nothing = RunOutcome(unsupported="no float64")
    monkeypatch.setattr(module, "OutputJudge", lambda original: OutputJudge(original, lambda: nothing))


def original_of(model: onnx.ModelProto) -> ReferenceRun:
    made = ReferenceRun(model.SerializeToString(), InputsSpec(), VerifySpec())
    made._inputs = SimpleNamespace(cost=lambda binding: 1.0)  # type: ignore[assignment]
    return made


class Made:
    """A tally of a region with two targets."""

    def __init__(self, promise: Parity = Parity.CLOSE, *, few: bool = False) -> None:
        self.asked = self.runs = 0
        engine: Any = SimpleNamespace(analyse=self.analyse)
        self.tally = Tally(REGION, original_of(PIECE), VerifySpec(), engine, promise, few=few)

    def analyse(self, function: Any, skeleton: bytes) -> Any:
        self.asked += 1
        return {}

    def add(self, *runs: tuple[Any, Any, Any, Any], n: int = 2) -> Made:
        """Add a group of runs: y and z of the original, and of the changed piece."""
        made, results = [], []
        for number, (y, z, other_y, other_z) in enumerate(runs, self.runs):
            feed = {"x": np.full(n, number, np.float32)}
            made.append(Run(Binding({"N": n}, seed=number), feed, {"y": array(y, n), "z": array(z, n)}))
            results.append({"y": array(other_y, n), "z": array(other_z, n)})
        self.runs += len(runs)
        self.tally.add(made, results)
        return self

    def status(self) -> tuple[Status, Status]:
        found = self.tally.verdicts()
        assert [*found] == ["t", "u"]
        return found["t"].status, found["u"].status


def array(value: Any, n: int) -> Any:
    return np.full(n, value, np.float32) if np.isscalar(value) else np.asarray(value, np.float32)


EQUAL, CLOSE, DIFFERENT = Status.EQUAL, Status.CLOSE, Status.DIFFERENT


@pytest.mark.parametrize(
    ("promise", "few", "groups", "expected"),
    [
        (Parity.CLOSE, False, [[(1, 2, 1, 2)]], (EQUAL, EQUAL)),
        (Parity.CLOSE, True, [[(1, 2, 1, 2)]], (EQUAL, EQUAL)),
        (Parity.CLOSE, False, [[(1, 2, 1 + EPS, 2)]], (CLOSE, EQUAL)),
        (Parity.CLOSE, True, [[(1, 2, 1 + EPS, 2)]], (CLOSE, EQUAL)),
        (Parity.CLOSE, False, [[(1, 2, 1, 3)]], (EQUAL, DIFFERENT)),
        (Parity.CLOSE, True, [[(1, 2, 1, 3)]], (EQUAL, DIFFERENT)),
        (Parity.EXACT, False, [[(1, 2, 1 + EPS, 2)]], (DIFFERENT, EQUAL)),
        (Parity.EXACT, True, [[(1, 2, 1 + EPS, 2)]], (DIFFERENT, EQUAL)),
        # In a later run, and in a later group.
        (Parity.CLOSE, False, [[(1, 2, 1, 2), (3, 4, 3, 5)]], (EQUAL, DIFFERENT)),
        (Parity.CLOSE, False, [[(1, 2, 1, 2)], [(3, 4, 3, 5)]], (EQUAL, DIFFERENT)),
        (Parity.CLOSE, False, [[(1, 2, 9, 2)], [(3, 4, 3, 4)]], (DIFFERENT, EQUAL)),
        (Parity.CLOSE, True, [[(1, 2, 1 + EPS, 2)], [(3, 4, 9, 4)]], (DIFFERENT, EQUAL)),
        (Parity.CLOSE, True, [[(1, 2, 1 + EPS, 2)], [(3, 4, 3, 4)]], (CLOSE, EQUAL)),
        # A shape that differs.
        (Parity.CLOSE, False, [[(1, 2, [1, 1, 1], 2)]], (DIFFERENT, EQUAL)),
    ],
)
def test_verdicts_on_targets(promise: Parity, few: bool, groups: Any, expected: tuple[Status, Status]) -> None:
    made = Made(promise, few=few)
    for group in groups:
        made.add(*group)
    assert made.status() == expected


def test_a_verdict_says_how_many_elements_were_compared() -> None:
    found = Made().add((1, 2, 1 + EPS, 2)).add((1, 2, 1, 2)).tally.verdicts()
    details = found["t"].details
    assert details is not None and (details.elements, details.differing) == (4, 2)
    assert found["u"].message == "bit-identical" and found["u"].details is None
    # Few runs of one of many regions: the needed tolerance without an arbiter.
    rough = Made(few=True).add((1, 2, 1 + EPS, 2)).tally.verdicts()["t"]
    assert rough.needed is not None and 0.0 < rough.needed["factor"] < 1.0 and rough.details is not None


def test_types_of_elements_are_asked_for_once_and_only_if_there_may_be_narrower_ones() -> None:
    made = Made().add((1, 2, 1, 2)).add((1, 2, 1, 2))
    assert made.asked == 0
    narrow = text.parse("g (float[N] x) => (float[N] y) { h = Cast<to = 10>(x) y = Cast<to = 1>(h) }")
    asked: list[Any] = []
    engine: Any = SimpleNamespace(analyse=lambda function, skeleton: asked.append(function.__name__))
    original = ReferenceRun(narrow.SerializeToString(), InputsSpec(), VerifySpec())
    tally = Tally(
        Region(("y",), ("y",), ("x",), narrow, narrow, 2), original, VerifySpec(), engine, Parity.CLOSE, few=False
    )
    for _ in range(2):
        tally.add([Run(Binding(), {"x": array(1, 2)}, {"y": array(1, 2)})], [{"y": array(1, 2)}])
    assert asked == ["element_types"]


@pytest.mark.parametrize(
    ("groups", "vacuous", "constant"),
    [
        ([[(1, 2, 1, 2), (3, 2, 3, 2)]], ["z"], ["z"]),
        ([[(1, 2, 1, 2)], [(3, 2, 3, 2)]], ["z"], ["z"]),
        # The changed piece moves, within rounding.
        ([[(1, 2, 1, 2), (3, 2, 3, 2 + 2 * EPS)]], ["z"], []),
        ([[(1, 2, 1, 2), (3, 4, 3, 4)]], [], []),
    ],
)
def test_targets_that_show_nothing(groups: Any, vacuous: list[str], constant: list[str]) -> None:
    made = Made()
    for group in groups:
        made.add(*group)
    assert sorted(made.tally.vacuous(Parity.CLOSE)) == vacuous == sorted(made.tally.vacuous(Parity.EXACT))
    assert [output for output in "yz" if made.tally.is_constant(output)] == constant


def test_one_run_alone_shows_nothing_about_constants() -> None:
    made = Made().add((1, 2, 1, 2))
    assert not made.tally.is_constant("z")
    made.add((1, 3, 1, 3), n=3)
    assert not made.tally.is_constant("z")
    made.add((1, 2, 1, 2))
    assert made.tally.is_constant("z") and made.tally.is_constant("y")
    exact = Made(Parity.EXACT).add((1, 2, 1, 2), (1, 2, 1, 2))
    assert not exact.tally.is_constant("z")


def run(n: int, value: Any) -> Run:
    return Run(Binding({"N": n}), {}, {"y": value})


def test_constant_outputs_are_found_by_digests() -> None:
    made = _Constants(["y"])
    one, zero = array(1, 2), array(0, 2)
    made.add(run(2, one), {"y": one}, ["y"])
    made.add(run(2, one), {"y": one.copy()}, ["y"])
    assert made.holds("y") and made.firsts
    made.add(run(2, one), {"y": zero}, ["y"])
    assert not made.holds("y") and all("y" not in known for known in made.firsts.values())
    made.add(run(2, one), {"y": one}, ["y"])
    assert not made.holds("y")
    # What is known to move elsewhere needs no digest.
    made = _Constants(["y"])
    for _ in range(2):
        made.add(run(2, one), {"y": one}, [])
    assert not made.holds("y")


def test_values_with_equal_elements_have_one_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surgery.verification.regions.tally.BLOCK", 2)
    base = np.float32([0.0, 1.0, 2.0])
    assert _digest(base) == _digest(np.float32([-0.0, 1.0, 2.0])) == _digest(base[::1].copy())
    different = [base[:2], base.reshape(3, 1), base.astype(np.float64), np.float32([0, 1, 3]), [base, base]]
    assert len({_digest(base), *map(_digest, different)}) == len(different) + 1
    texts = np.array(["a", "b", "\udcff"], object)
    assert _digest(texts) == _digest(texts.copy()) != _digest(texts[::-1])
    nan = np.float32([np.nan, 1.0])
    assert _digest(nan) == _digest(nan.copy()) and _digest([base]) == _digest(base)
