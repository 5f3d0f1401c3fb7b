"""What verdicts mean, and the extents of outputs that vary with draws."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from surgery.verification.comparing.details import Details, Status, Verdict
from surgery.verification.comparing.drawn_extents import _few, _free, _joined, drawn_extents
from surgery.verification.comparing.vacuity import Run
from surgery.verification.inputs.feed_plan import Binding


@pytest.mark.parametrize(
    ("status", "passed", "accepted", "style"),
    [
        (Status.EQUAL, True, True, "green"),
        (Status.CLOSE, True, True, "green"),
        (Status.DIFFERENT, False, False, "red"),
        (Status.UNVERIFIED, False, False, "yellow"),
        (Status.LOSSY, False, True, "cyan"),
        (Status.INTENDED, False, True, "cyan"),
    ],
)
def test_what_a_status_means(status: Status, passed: bool, accepted: bool, style: str) -> None:
    assert (status.passed, status.accepted, status.style) == (passed, accepted, style)
    verdict = Verdict(status)
    assert verdict.passed is passed
    assert verdict.is_different is (status is Status.DIFFERENT)
    assert verdict.is_unverified is (status is Status.UNVERIFIED)


def test_a_verdict_on_a_region_or_on_several_steps_leaves_the_model_open() -> None:
    assert [Verdict(Status.EQUAL, region=region, together=together).leaves_open for region, together in (
        (None, None), (0, None), (None, 0), (3, 2),
    )] == [False, True, True, True]  # fmt: skip


def test_only_a_passed_verdict_is_tied() -> None:
    assert Verdict(Status.CLOSE, details=Details(tied=True)).is_tied
    assert not Verdict(Status.CLOSE, details=Details()).is_tied and not Verdict(Status.CLOSE).is_tied
    assert not Verdict(Status.DIFFERENT, details=Details(tied=True)).is_tied


def test_the_needed_tolerance_is_always_written() -> None:
    assert Verdict(Status.EQUAL).to_json()["needed"] == {"rtol": None, "atol": None, "factor": None}
    assert Verdict(Status.DIFFERENT, needed={"rtol": 1.0}).to_json()["needed"] == {"rtol": 1.0}
    assert Verdict(Status.EQUAL, cached=True) == Verdict(Status.EQUAL)
    assert (Details().elements, Details().differing, Details().beyond, Details().ulp) == (0, 0, 0, 0.0)


@pytest.mark.parametrize(
    ("shapes", "free"),
    [
        ([[(2, 3)], [(2, 3)]], frozenset()),
        ([[(2, 3)], [(2, 5)], [(2, 3)]], {1}),
        ([[(2, 3)], [(4, 5)]], {0, 1}),
        ([[(2, 3)], [(2,)]], None),
        # Sequences: each of their tensors.
        ([[(2, 3), (4,)], [(2, 3), (5,)]], {0}),
        ([[(2, 3), (4,)], [(2, 3)]], None),
    ],
)
def test_axes_along_which_shapes_vary(shapes: Any, free: Any) -> None:
    assert _free(shapes) == free


def test_axes_of_several_inputs_are_joined() -> None:
    assert _joined([frozenset({0}), frozenset({2}), frozenset()]) == {0, 2}
    assert _joined([frozenset({0}), None]) is None and _joined([]) == frozenset()


def _run(n: int, length: int = 3) -> Run:
    return Run(Binding({"N": n}), {"x": np.ones(n)}, {"y": np.ones((n, length)), "z": np.ones(n)})


def test_runs_with_different_dims_are_preferred() -> None:
    runs = [_run(2), _run(2), _run(3), _run(4)]
    assert [id(run) for run in _few(runs)] == [id(runs[2]), id(runs[0])]
    assert _few(runs[:2]) == [runs[0]]


@pytest.mark.parametrize("engine", ["onnxruntime", "reference"])
def test_the_original_is_drawn_from_with_four_seeds(engine: str) -> None:
    asked: list[tuple[Any, ...]] = []

    class Engine:
        def draw(self, skeleton: bytes, feed: Any, seeds: Any, repeats: int, seconds: float) -> dict[str, list[Any]]:
            asked.append((skeleton, len(set(seeds)), min(seeds) > 0, max(seeds) < 2**31, repeats, seconds))
            return {"y": [np.ones((len(feed["x"]), 3 + turn)) for turn in range(4)], "z": [np.ones(9)]}

        def run(self, skeleton: bytes, feeds: Any) -> Any:
            asked.append((skeleton, len(feeds)))
            made = [{"y": np.ones((len(one["x"]), 3 + turn)), "z": np.ones(9)} for turn, one in enumerate(feeds)]
            return SimpleNamespace(runs=["failed", *made])

        def close(self) -> None:
            asked.append(("closed",))

    original: Any = SimpleNamespace(
        skeleton=b"model", engine=engine, random=frozenset("y"), seed=5, engine_for=lambda name: Engine()
    )
    assert drawn_extents(original, [_run(2), _run(3)]) == {"y": {1}}
    one = (b"model", 4, True, True, 2, 3.0) if engine == "onnxruntime" else (b"model", 4)
    assert asked == [one, ("closed",)] * 2
