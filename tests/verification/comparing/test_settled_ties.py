"""Differences after a choice among nearly equal values, evaluated by onnx: explained by the choice, or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from surgery.base.errors import WorkerError
from surgery.model.graph import text
from surgery.model.runtime.engine import RunOutcome
from surgery.verification.comparing.details import Details, Status, Verdict
from surgery.verification.comparing.reference_run import ReferenceRun
from surgery.verification.comparing.run_feeds import feeds_for
from surgery.verification.comparing.ties import settled
from surgery.verification.comparing.vacuity import Run
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.inputs.spec import InputsSpec, VerifySpec

HEAD = "g (float[1, 4] x, float[4] w) => (int64[1] y, float[1, 4] z)"
# The last bits decide between the first two; the changed model prefers the other one.
BODY = "s = Add(x, w) y = ArgMax<axis = 1, keepdims = 0>(s) z = Neg(s)"
NUDGED = f"e = Constant<value = float[4] {{0.0, 0.0000008, 0.0, 0.0}}>() {BODY}".replace(
    "s = Add(x, w)", "r = Add(x, w) s = Add(r, e)"
)
DIFFERENT = Verdict(Status.DIFFERENT, message="output 'y' differs", details=Details())


class _Engine:
    """An engine that is onnx's evaluator; `fails` says at which of its runs it fails."""

    def __init__(self, fails: int = -1) -> None:
        self.fails, self.ran, self.closed = fails, 0, 0

    def run(self, skeleton: bytes, feeds: Sequence[Mapping[str, Any]]) -> RunOutcome:
        self.ran += 1
        if self.ran == self.fails:
            return RunOutcome(crash=WorkerError("it died", stage="run"))
        model = onnx.load_model_from_string(skeleton)
        names = [port.name for port in model.graph.output]
        evaluator = ReferenceEvaluator(model)
        found = [dict(zip(names, evaluator.run(None, dict(feed)))) for feed in feeds]  # type: ignore[arg-type]
        return RunOutcome(runs=[*found], seconds=[0.0] * len(found))

    def close(self) -> None:
        self.closed += 1


def _original(engine: _Engine) -> Any:
    model = text.parse(f"{HEAD} {{ {BODY} }}", opset=18)
    original: Any = ReferenceRun(model.SerializeToString(), InputsSpec(), VerifySpec())
    original.engine_for = lambda _: engine
    original._inputs = SimpleNamespace(cost=lambda binding: 0.0)
    feeds = [{"x": np.float32([[2, 2, seed - 3, -seed]]), "w": np.float32([0.5, 0.5, 0.25, seed])} for seed in range(3)]
    made: list[Any] = _Engine().run(original.skeleton, feeds).runs
    original.runs = [Run(Binding({}, seed=seed), feed, made[seed]) for seed, feed in enumerate(feeds)]
    return original


def _settled(body: str, fails: int = -1) -> tuple[Verdict, _Engine]:
    engine = _Engine(fails)
    candidate = text.parse(f"{HEAD} {{ {body} }}", opset=18).SerializeToString()
    return settled(_original(engine), candidate, DIFFERENT), engine


def test_a_choice_between_nearly_equal_values_explains_a_difference() -> None:
    found, engine = _settled(NUDGED)
    assert found.status is Status.CLOSE and found.is_tied
    start = "near ties of nearly equal values: output 'y' differs; with the original's choices, "
    assert found.message.startswith(start) and len(found.message) > len(start)
    assert engine.closed == engine.ran >= 3


@pytest.mark.parametrize(
    "body",
    [
        BODY.replace("s = Add(x, w)", "s = Sub(x, w)"),
        NUDGED.replace("0.0000008", "0.1"),
        NUDGED.replace("z = Neg(s)", "z = Abs(s)"),
        NUDGED.replace("ArgMax", "ArgMin"),
    ],
)
def test_other_differences_remain(body: str) -> None:
    assert _settled(body)[0] is DIFFERENT


@pytest.mark.parametrize("fails", [1, 2, 3])
def test_nothing_is_explained_where_a_run_fails(fails: int) -> None:
    found, engine = _settled(NUDGED, fails)
    assert found is DIFFERENT and engine.ran == fails


def test_a_changed_model_may_be_run_elsewhere() -> None:
    engine, elsewhere = _Engine(), _Engine()
    candidate = text.parse(f"{HEAD} {{ {NUDGED} }}", opset=18).SerializeToString()
    asked: list[int] = []

    def run(model: bytes, runs: Sequence[Run]) -> RunOutcome:
        asked.append(len(runs))
        return elsewhere.run(model, feeds_for(model, runs))

    assert settled(_original(engine), candidate, DIFFERENT, run).is_tied and asked == [3]
    assert settled(_original(engine), candidate, DIFFERENT, lambda *_: RunOutcome(runs=["it failed"] * 3)) is DIFFERENT
