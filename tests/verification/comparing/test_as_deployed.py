"""What is said of a changed model as deployed, next to the original as deployed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from surgery.base.errors import UsageError, WorkerError
from surgery.model.graph import text
from surgery.model.runtime.engine import RunOutcome
from surgery.model.runtime.executed import Executed
from surgery.verification.comparing import deployment
from surgery.verification.comparing.deployment import Deployed, DeploymentCheck, _problem
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.output_judge import OutputJudge
from surgery.verification.comparing.reference_run import ReferenceRun
from surgery.verification.comparing.vacuity import Run
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.inputs.spec import InputsSpec, VerifySpec

GRAPH = "g (float[N] x) => (float[N] y) {{ y = {}(x) }}"
ORIGINAL, CHANGED = (text.parse(GRAPH.format(op)).SerializeToString() for op in ("Neg", "Abs"))
ONE = np.ones(4, np.float32)
HOW = deployment._HOW


def _ran(*outputs: Any, **more: Any) -> RunOutcome:
    runs = [one if isinstance(one, str) else {"y": one} for one in outputs]
    return RunOutcome(runs=runs, seconds=[1.0] * len(runs), **more)


def _check(own: RunOutcome, made: RunOutcome, *runs: Run, target: str = "", cost: float = 0.01) -> DeploymentCheck:
    """A check in which the original gives `own` as deployed, and a changed model `made`."""
    original = ReferenceRun(ORIGINAL, InputsSpec(), VerifySpec())
    plan = SimpleNamespace(opening=0.0, listing=0.0, nodes=1)
    original._inputs = SimpleNamespace(cost=lambda binding: cost, plan=plan)  # type: ignore[assignment]
    original.runs = [*runs] or [_run(2), _run(3)]
    original._controlled = True
    original.vacuous = {promise: {} for promise in deployment.Parity}

    def run(skeleton: bytes, feeds: Any) -> RunOutcome:
        found = own if skeleton == ORIGINAL else made
        return found if found.failure is not None else RunOutcome(**{**vars(found), "runs": found.runs[: len(feeds)]})

    def engine_for(name: str, *, deployed: bool, providers: tuple[str, ...] = ()) -> Any:
        if providers == ("NoneExecutionProvider",):
            raise UsageError("it is not installed", todo="install it")
        return SimpleNamespace(run=run, close=lambda: None, title="ONNX Runtime")

    original.engine_for = engine_for  # type: ignore[assignment, method-assign]
    return DeploymentCheck(original, OutputJudge(original, lambda: RunOutcome(unsupported="no float64")), target)


def _run(n: int, y: Any = ONE) -> Run:
    return Run(Binding({"N": n}), {"x": np.ones(n, np.float32)}, {"y": y})


def test_a_model_that_is_right_as_deployed() -> None:
    executed = Executed.__new__(Executed)
    found = _check(_ran(ONE, ONE), _ran(ONE, ONE, executed=executed)).check(CHANGED)
    assert found.ok and found.verdict.status is Status.EQUAL and found.executed is executed
    assert not found.is_elsewhere and found.note == "" and found.original is None
    assert Deployed(found.verdict, runtime="OpenVINO 2026").is_elsewhere
    assert not Deployed(Verdict(Status.DIFFERENT)).ok


def test_a_model_that_fails_as_deployed() -> None:
    found = _check(_ran(ONE, ONE), RunOutcome(invalid="no kernel.")).check(CHANGED)
    assert not found.ok and found.verdict.message == f"right as written, but it fails {HOW}: no kernel"
    found = _check(_ran(ONE, ONE), _ran(ONE, "too small")).check(CHANGED)
    assert found.verdict.message == f"right as written, but it fails {HOW}: too small (N=3, normal data)"
    # What fails for the original, too, shows nothing.
    found = _check(RunOutcome(invalid="no kernel"), RunOutcome(invalid="no kernel.")).check(CHANGED)
    same = f"the original fails {HOW}: no kernel, and the result in the same way"
    assert (found.verdict.status, found.verdict.message) == (Status.UNVERIFIED, same)
    found = _check(RunOutcome(invalid="no kernel"), RunOutcome(invalid="other")).check(CHANGED)
    assert found.verdict.message == f"the original fails {HOW}: no kernel; the result, too: other"


def test_runs_on_which_the_original_fails_are_left_out() -> None:
    found = _check(_ran(ONE, "too small"), _ran(ONE, "too small")).check(CHANGED)
    assert found.ok and found.verdict.message.endswith(
        f"without 1 of 2 input sets, on which the original fails {HOW}: too small (N=3, normal data)"
    )
    # Also for the nodes that the original executes; but not if all fail.
    check = _check(_ran("bad", ONE), _ran(ONE, ONE))
    assert check.original == "ONNX Runtime lists none" and len(check._runs) == 1
    assert _check(_ran("bad", "bad"), _ran(ONE, ONE)).original == "bad (N=2, normal data)"
    assert _check(RunOutcome(invalid="no kernel"), _ran(ONE, ONE)).original == "no kernel"


def test_a_difference_that_the_original_shows_as_well() -> None:
    far = ONE * 2
    found = _check(_ran(ONE, ONE), _ran(far, ONE)).check(CHANGED)
    assert not found.ok and found.verdict.message.startswith(f"right as written, but wrong {HOW}: output 'y'[0]: 2")
    found = _check(_ran(far, ONE), _ran(far, ONE)).check(CHANGED)
    assert found.ok and found.verdict.message == f"{HOW}, the original differs from itself in the same way"
    # About as far, in another way.
    other = ONE * np.float32(2.5)
    found = _check(_ran(far, ONE), _ran(other, ONE)).check(CHANGED)
    assert found.ok and found.verdict.message == f"{HOW}, the original is about as far from itself"
    much = ONE * np.float32(1.5 + deployment._FARTHER)
    assert not _check(_ran(far, ONE), _ran(much, ONE)).check(CHANGED).ok
    found = _check(RunOutcome(invalid="no kernel"), _ran(far, ONE)).check(CHANGED)
    assert found.verdict.status is Status.UNVERIFIED
    assert found.verdict.message.startswith(f"it differs {HOW}, where the original fails: no kernel; output 'y'[0]")


def test_a_target_that_does_not_start_is_replaced() -> None:
    check = _check(_ran(ONE, ONE), _ran(ONE, ONE), target="NoneExecutionProvider")
    found = check.check(CHANGED)
    assert found.ok and found.note == check.note == "it is not installed; install it"
    check = _check(_ran(ONE, ONE), _ran(ONE, ONE), target="OtherExecutionProvider")
    assert check.check(CHANGED).note == ""
    # With a target, nothing runs ahead.
    check.begin()
    assert check._listing._thread is None
    there = _check(_ran(ONE, ONE), _ran(ONE, ONE, title="OpenVINO 2026"))
    assert there.check(CHANGED).runtime == "OpenVINO 2026" and there._how == "in OpenVINO 2026"


def test_the_nodes_of_the_original_are_added() -> None:
    executed = Executed.__new__(Executed)
    check = _check(_ran(ONE, ONE, executed=executed), _ran(ONE, ONE))
    check.begin()
    assert check.with_original(check.check(CHANGED)).original is executed
    assert check.original is executed and check.with_original(Deployed(Verdict(Status.EQUAL))).original is executed
    check.close()


@pytest.mark.parametrize(
    ("cost", "numbers"),
    [
        # All while time is left, then one of each number of dims.
        (0.01, [0, 1, 2, 3]),
        (deployment._SECONDS / 3 * 1.01, [0, 1, 2]),
        (deployment._SECONDS * 2, [0, 2]),
    ],
)
def test_few_runs_of_an_expensive_model(cost: float, numbers: list[int]) -> None:
    runs = [_run(2), _run(2), _run(3), _run(3)]
    assert [*_check(_ran(*[ONE] * 4), _ran(*[ONE] * 4), *runs, cost=cost)._numbers] == numbers


def test_few_runs_with_large_outputs_and_few_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment, "_BYTES", 40)
    runs = [_run(2), _run(2), _run(2), _run(3)]
    assert [*_check(_ran(ONE), _ran(ONE), *runs)._numbers] == [0, 1, 3]
    monkeypatch.setattr(deployment, "_MOST_SIZES", 2)
    runs = [_run(n, y=np.ones(40, np.float32)) for n in (2, 3, 4)]
    assert [*_check(_ran(ONE), _ran(ONE), *runs)._numbers] == [0, 1]


def test_why_a_model_did_not_run() -> None:
    runs = [_run(2), _run(3)]
    crash = RunOutcome(crash=WorkerError("it died.", stage="run"))
    assert _problem(crash, runs) == "it died" and _problem(_ran(ONE, ONE), runs) == ""
    assert _problem(_ran("a", "b"), runs) == "a (N=2, normal data)"
