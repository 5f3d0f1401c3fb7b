"""Which comparison decides on a change: its regions, the whole model, or a later model."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from surgery.base.promises import Parity
from surgery.model.graph import text
from surgery.model.runtime.engine import RunOutcome
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.output_judge import NOT_RUN, OutputJudge
from surgery.verification.comparing.reference_run import ReferenceRun
from surgery.verification.comparing.vacuity import Run
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.inputs.spec import InputsSpec, VerifySpec
from surgery.verification.regions.regional_verdict import ComparedRegions
from surgery.verification.regions.time_budget import COSTLY
from surgery.verification.verdict import change_verifier
from surgery.verification.verdict.change_verifier import ChangeVerifier
from surgery.verification.verdict.whole_models import WholeModels

ORIGINAL, CHANGED, LATER = (
    text.parse(f"g (float[N] x) => (float[N] y) {{ y = {op}(x) }}").SerializeToString() for op in ("Neg", "Abs", "Exp")
)
EQUAL, DIFFERENT = Verdict(Status.EQUAL, message="equal"), Verdict(Status.DIFFERENT, message="far")
UNVERIFIED, OPEN = (Verdict(Status.UNVERIFIED, reason, message="nothing") for reason in ("vacuous", "region"))
ONE = np.ones(2, np.float32)


def _changes(*regions: ComparedRegions, whole: Any = None, **original: Any) -> tuple[ChangeVerifier, list[Any]]:
    """Changes whose regions, and whole models by their bytes, have prepared verdicts; and what is asked."""
    asked: list[Any] = []
    plan = SimpleNamespace(nodes=10)
    usual: dict[str, Any] = {
        "skeleton": ORIGINAL,
        "problem": None,
        "random": frozenset(),
        "runs": [1],
        "is_postponed": False,
    }
    usual |= {"inputs": SimpleNamespace(plan=plan), "cost_of_all": lambda left: 100.0, "engine": "onnxruntime"}
    usual |= {"prepare": lambda: None, "run_large": lambda: asked.append("large")}
    accuracy: Any = SimpleNamespace(judge=lambda candidate: asked.append("loss") or EQUAL)
    found = ChangeVerifier(SimpleNamespace(**{**usual, **original}), None, accuracy, VerifySpec(), None, "")  # type: ignore[arg-type]
    left = [*regions]

    def compare(before: bytes, candidate: bytes, promise: Parity, afford: float) -> ComparedRegions:
        asked.append(("region", afford))
        return left.pop(0)

    def verify(candidate: bytes, promise: Parity) -> Verdict:
        asked.append(("whole", candidate))
        return (whole or {})[candidate]

    found._regional = SimpleNamespace(compare=compare, rest=lambda: None, close=lambda: asked.append("closed"))  # type: ignore[assignment]
    found.whole = SimpleNamespace(  # type: ignore[assignment]
        verify=verify,
        forget=lambda: asked.append("forgotten"),
        run=lambda candidate, engine: (
            RunOutcome(invalid="no kernel") if candidate == CHANGED else RunOutcome(runs=[{}])
        ),
    )
    return found, asked


def _steps(asked: list[Any]) -> list[str]:
    return [one if isinstance(one, str) else one[0] for one in asked]


def test_the_region_decides_where_it_agrees() -> None:
    changes, asked = _changes(ComparedRegions(EQUAL))
    assert changes.verify(ORIGINAL, Parity.EXACT, None, None).message == "the same bytes" and not asked
    assert changes.verify(CHANGED, Parity.CLOSE, ORIGINAL, None) is EQUAL and _steps(asked) == ["region"]
    # With other opsets, the runtime has to take the model, if anything runs.
    changes, _ = _changes(ComparedRegions(EQUAL, changed_opsets=True))
    found = changes.verify(CHANGED, Parity.CLOSE, ORIGINAL, None)
    assert found.status is Status.DIFFERENT and "no kernel" in found.message
    changes, _ = _changes(ComparedRegions(EQUAL, changed_opsets=True), runs=[])
    assert changes.verify(CHANGED, Parity.CLOSE, ORIGINAL, None) is EQUAL
    changes, _ = _changes(ComparedRegions(EQUAL, changed_opsets=True))
    assert changes.verify(LATER, Parity.CLOSE, ORIGINAL, None) is EQUAL


def test_the_whole_model_decides_elsewhere() -> None:
    whole = {CHANGED: EQUAL}
    changes, asked = _changes(whole=whole)
    assert changes.verify(CHANGED, Parity.EXACT, None, None) is EQUAL and _steps(asked) == ["whole"]
    changes, asked = _changes(whole=whole)
    assert changes.verify(CHANGED, Parity.LOSSY, ORIGINAL, None) is EQUAL and _steps(asked) == ["large", "loss"]
    changes, asked = _changes(ComparedRegions(OPEN), whole=whole)
    assert changes.verify(CHANGED, Parity.CLOSE, ORIGINAL, None) is EQUAL and _steps(asked) == [
        "region",
        "large",
        "whole",
    ]
    changes, _ = _changes(ComparedRegions(OPEN), whole={CHANGED: DIFFERENT})
    assert changes.verify(CHANGED, Parity.CLOSE, ORIGINAL, None) is DIFFERENT
    # What neither shows is said of both, unless the region did not run.
    changes, _ = _changes(ComparedRegions(OPEN), whole={CHANGED: UNVERIFIED})
    assert changes.verify(CHANGED, Parity.CLOSE, ORIGINAL, None).message == "nothing; nothing"
    not_run = Verdict(Status.UNVERIFIED, NOT_RUN, message="it did not run")
    changes, _ = _changes(ComparedRegions(not_run), whole={CHANGED: UNVERIFIED})
    assert changes.verify(CHANGED, Parity.CLOSE, ORIGINAL, None) is UNVERIFIED


def test_a_later_model_decides_where_it_holds() -> None:
    for promise, status in ((Parity.CLOSE, Status.CLOSE), (Parity.EXACT, Status.EQUAL)):
        changes, asked = _changes(ComparedRegions(OPEN), whole={LATER: EQUAL})
        found = changes.verify(CHANGED, promise, ORIGINAL, (3, LATER))
        assert (found.status, found.together) == (status, 3) and asked[-1] == ("whole", LATER)
    changes, asked = _changes(ComparedRegions(OPEN), whole={LATER: DIFFERENT, CHANGED: EQUAL})
    assert changes.verify(CHANGED, Parity.CLOSE, ORIGINAL, (3, LATER)) is EQUAL and asked[-1] == ("whole", CHANGED)


def test_costly_regions_are_compared_only_if_the_whole_model_shows_nothing() -> None:
    costly = ComparedRegions(Verdict(Status.UNVERIFIED, COSTLY, message="too long"))
    changes, asked = _changes(costly, whole={CHANGED: EQUAL})
    assert changes.verify(CHANGED, Parity.CLOSE, ORIGINAL, None) is EQUAL and _steps(asked).count("region") == 1
    changes, asked = _changes(costly, ComparedRegions(EQUAL), whole={CHANGED: UNVERIFIED})
    assert changes.verify(CHANGED, Parity.CLOSE, ORIGINAL, None) is EQUAL
    assert [one[1] for one in asked if one[0] == "region"] == [pytest.approx(asked[0][1]), math.inf]
    changes, _ = _changes(costly, ComparedRegions(OPEN), whole={CHANGED: UNVERIFIED})
    assert changes.verify(CHANGED, Parity.CLOSE, ORIGINAL, None).message == "nothing; nothing"
    # A model that the runtime does not take needs no region, before and after.
    refused = ComparedRegions(costly.verdict, changed_opsets=True)
    changes, asked = _changes(refused, whole={CHANGED: UNVERIFIED})
    assert changes.verify(CHANGED, Parity.CLOSE, ORIGINAL, None).is_different
    changes, _ = _changes(costly, ComparedRegions(EQUAL, changed_opsets=True), whole={CHANGED: UNVERIFIED})
    assert changes.verify(CHANGED, Parity.CLOSE, ORIGINAL, None).is_different


def test_regions_may_take_some_of_the_time_of_the_whole_model() -> None:
    changes, asked = _changes(ComparedRegions(EQUAL), ComparedRegions(EQUAL))
    assert changes.compare_ahead(ORIGINAL, CHANGED, Parity.CLOSE)
    # What was compared ahead is not compared again.
    assert changes.verify(CHANGED, Parity.CLOSE, ORIGINAL, None) is EQUAL and len(asked) == 1
    assert changes.verify(CHANGED, Parity.CLOSE, ORIGINAL, None) is EQUAL and len(asked) == 2
    assert asked[0][1] == pytest.approx(change_verifier._WORTH * 100)
    cheap, asked = _changes(ComparedRegions(OPEN), cost_of_all=lambda left: 0.0)
    assert not cheap.compare_ahead(ORIGINAL, CHANGED, Parity.CLOSE) and asked[0][1] == change_verifier._CHEAP_REGION
    # The share of the nodes of a smaller model, and a model that does not run.
    shares: list[float] = []
    small, _ = _changes(ComparedRegions(EQUAL), cost_of_all=lambda left: shares.append(left) or 1.0)  # type: ignore[func-returns-value]
    small.compare_ahead(ORIGINAL[: len(ORIGINAL) // 2], CHANGED, Parity.CLOSE)
    assert shares == [pytest.approx(0.5, abs=0.02)]
    broken, asked = _changes(ComparedRegions(EQUAL), problem="it does not run")
    assert broken.compare_ahead(ORIGINAL, CHANGED, Parity.CLOSE) and asked[0][1] == math.inf
    # Searching for regions alone may take too long.
    many = SimpleNamespace(plan=SimpleNamespace(nodes=10**9))
    long, asked = _changes(inputs=many)
    assert not long.compare_ahead(ORIGINAL, CHANGED, Parity.CLOSE) and not asked


def test_a_region_confirms_the_verdict_on_outputs() -> None:
    changes, asked = _changes()
    assert changes.confirm(CHANGED, DIFFERENT, Parity.CLOSE) is DIFFERENT
    assert changes.confirm(ORIGINAL, EQUAL, Parity.CLOSE) is EQUAL
    assert changes.confirm(CHANGED, EQUAL, Parity.LOSSY) is EQUAL and not asked
    assert _changes(ComparedRegions(EQUAL))[0].confirm(CHANGED, EQUAL, Parity.CLOSE) is EQUAL
    found = _changes(ComparedRegions(EQUAL))[0].confirm(CHANGED, UNVERIFIED, Parity.CLOSE)
    assert found.passed and found.message == "equal; nothing"
    found = _changes(ComparedRegions(OPEN))[0].confirm(CHANGED, UNVERIFIED, Parity.CLOSE)
    assert found.message == "nothing; nothing" and found.is_unverified
    assert _changes(ComparedRegions(OPEN))[0].confirm(CHANGED, EQUAL, Parity.CLOSE) is EQUAL
    changes, asked = _changes(ComparedRegions(OPEN), whole={CHANGED: EQUAL}, is_postponed=True)
    assert changes.confirm(CHANGED, UNVERIFIED, Parity.CLOSE) is EQUAL and _steps(asked) == ["region", "large", "whole"]
    changes.close()
    assert _steps(asked)[-2:] == ["forgotten", "closed"]


def test_a_region_is_looked_into() -> None:
    changes, _ = _changes(ComparedRegions(Verdict(Status.CLOSE, message="near", region=3)))
    found = changes.look_inside(ORIGINAL, CHANGED, Parity.CLOSE, UNVERIFIED)
    assert (found.status, found.message, found.region) == (Status.CLOSE, "near; nothing", None)
    found = _changes(ComparedRegions(OPEN))[0].look_inside(ORIGINAL, CHANGED, Parity.CLOSE, UNVERIFIED)
    assert found.is_unverified and found.message == "nothing; nothing" and found.reason == "vacuous"


def test_differences_that_outputs_hide(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "a value differs"
    monkeypatch.setattr("surgery.verification.regions.hidden_differences.hidden_differences", lambda *_: said)
    hidden = ComparedRegions(OPEN, ("a",))
    found = _changes(hidden, whole={CHANGED: EQUAL})[0].verify(CHANGED, Parity.CLOSE, ORIGINAL, None)
    assert (found.status, found.reason, found.message) == (Status.UNVERIFIED, "vacuous", "equal; but a value differs")
    for more in ({"random": frozenset("y")}, {}):
        regions = hidden if more else ComparedRegions(OPEN)
        assert (
            _changes(regions, whole={CHANGED: EQUAL}, **more)[0].verify(CHANGED, Parity.CLOSE, ORIGINAL, None) is EQUAL
        )
    assert _changes(hidden, whole={CHANGED: DIFFERENT})[0].verify(CHANGED, Parity.CLOSE, ORIGINAL, None) is DIFFERENT
    said = ""
    assert _changes(hidden, whole={CHANGED: EQUAL})[0].verify(CHANGED, Parity.CLOSE, ORIGINAL, None) is EQUAL


# Whole models


def _whole(*outcomes: Any, overriding: Any = None, note: str = "", **original: Any) -> tuple[WholeModels, list[str]]:
    """Whole models whose runs have prepared outcomes, and the engines that ran them."""
    run = ReferenceRun(ORIGINAL, InputsSpec(), VerifySpec())
    run.runs = [Run(Binding({"N": 2}), {"x": ONE}, {"y": ONE})]
    run._controlled = True
    run.vacuous = {promise: {} for promise in Parity}
    run._inputs = SimpleNamespace(given_dims={}, cost=lambda binding: 1.0)  # type: ignore[assignment]
    run.prepare = lambda: None  # type: ignore[method-assign]
    for name, value in original.items():
        setattr(run, name, value)
    left, asked = [*outcomes], list[str]()

    def engine_for(name: str) -> Any:
        asked.append(name)
        return SimpleNamespace(run=lambda skeleton, feeds: left.pop(0), close=lambda: None)

    run.engine_for = engine_for  # type: ignore[assignment, method-assign]
    judge = OutputJudge(run, lambda: RunOutcome(unsupported="no float64"))
    return WholeModels(run, judge, VerifySpec(), overriding, lambda: None, note), asked


def _ran(y: Any) -> RunOutcome:
    return RunOutcome(runs=[y if isinstance(y, str) else {"y": y}], seconds=[1.0])


NEAR = ONE + np.float32(1e-6)


def test_a_verdict_that_passed_is_known() -> None:
    found, asked = _whole(_ran(ONE), _ran(NEAR), _ran(ONE * 2), _ran(ONE * 2))
    assert found.verify(CHANGED, Parity.EXACT).status is Status.EQUAL
    assert found.verify(CHANGED, Parity.CLOSE).status is Status.EQUAL and len(asked) == 1
    assert found.verify(LATER, Parity.CLOSE).status is Status.CLOSE
    # One that failed is not, and neither is one after all is forgotten.
    for _ in range(2):
        assert found.verify(LATER + b"", Parity.CLOSE).status is Status.CLOSE and len(asked) == 2
    other = text.parse("g (float[N] x) => (float[N] y) { y = Sin(x) }").SerializeToString()
    for count in (3, 4):
        assert found.verify(other, Parity.CLOSE).is_different and len(asked) == count
    assert _whole(_ran(NEAR))[0].verify(CHANGED, Parity.EXACT).is_different


def test_exact_changes_keep_the_bits_of_what_was_accepted() -> None:
    for accepted, changed, status in (
        (NEAR, NEAR, Status.CLOSE),
        (NEAR, ONE, Status.DIFFERENT),
        (ONE, ONE, Status.EQUAL),
    ):
        found, asked = _whole(_ran(changed), _ran(accepted))
        found.accepted = LATER
        assert found.verify(CHANGED, Parity.EXACT).status is status and len(asked) == 2
    # A model that kept the bits of the original need not keep those of a model that was accepted since.
    found, asked = _whole(_ran(ONE), _ran(ONE), _ran(NEAR))
    assert found.verify(CHANGED, Parity.EXACT).status is Status.EQUAL and len(asked) == 1
    found.accepted = LATER
    assert found.verify(CHANGED, Parity.EXACT).is_different and len(asked) == 3
    # Not if the model is far from the original, or rounding depends on the layout in memory.
    found, asked = _whole(_ran(ONE * 2), _ran(ONE * 2))
    found.accepted = LATER
    assert found.verify(CHANGED, Parity.EXACT).is_different and len(asked) == 1
    found, asked = _whole(_ran(NEAR), engine="reference", gap="no kernel")
    found.accepted = LATER
    found._original.inputs.evaluated = []  # type: ignore[misc]
    assert found.verify(CHANGED, Parity.EXACT).status is Status.CLOSE and asked == ["reference"]


def test_what_does_not_run() -> None:
    found = _whole(problem="it has no inputs")[0].verify(CHANGED, Parity.CLOSE)
    assert (found.status, found.reason, found.message) == (Status.UNVERIFIED, NOT_RUN, "it has no inputs")
    found = _whole(RunOutcome(invalid="no kernel"))[0].verify(CHANGED, Parity.CLOSE)
    assert found.is_different and "no kernel" in found.message
    # The original may have operators that only the evaluator has, and the changed model ones that it lacks.
    lacking = RunOutcome(unsupported="no definition")
    whole, asked = _whole(lacking, _ran(ONE), engine="reference", gap="no kernel")
    whole._original.inputs.evaluated = []  # type: ignore[misc]
    assert whole.verify(CHANGED, Parity.CLOSE).passed and asked == ["reference", "onnxruntime"]
    whole, asked = _whole(lacking, RunOutcome(invalid="worse"), engine="reference", gap="no kernel")
    assert "no definition" in whole.verify(CHANGED, Parity.CLOSE).message and len(asked) == 2
    whole, asked = _whole(lacking)
    assert not whole.verify(CHANGED, Parity.CLOSE).passed and asked == ["onnxruntime"]


def test_runs_of_the_caller_are_judged() -> None:
    whole, asked = _whole()
    found = whole.judge(lambda runs, engine: engine() and _ran(ONE), Parity.CLOSE)
    assert found.status is Status.EQUAL and asked == ["onnxruntime"]
    assert whole.judge(lambda runs, engine: _ran("bad"), Parity.CLOSE).is_different
    assert _whole(problem="none")[0].judge(lambda runs, engine: _ran(ONE), Parity.CLOSE).is_unverified


def test_explicit_values_for_defaults() -> None:
    asked: list[Any] = []

    def overriding(verdict: Verdict) -> Any:
        return lambda candidate, promise: asked.append(promise) or verdict

    found = _whole(_ran(ONE), overriding=overriding(DIFFERENT))[0].verify(CHANGED, Parity.EXACT)
    assert found.is_different and asked == [Parity.EXACT]
    assert found.message == "with explicit values for inputs that have a default: far"
    for verdict in (EQUAL, UNVERIFIED):
        assert _whole(_ran(ONE), overriding=overriding(verdict))[0].verify(CHANGED, Parity.EXACT).status is Status.EQUAL
    asked.clear()
    assert (
        _whole(_ran(ONE * 2), overriding=overriding(EQUAL))[0].verify(CHANGED, Parity.EXACT).is_different and not asked
    )


def test_random_outputs_are_compared_by_distribution() -> None:
    noted = _whole(_ran(ONE), note="; drawn alike")[0].verify(CHANGED, Parity.CLOSE)
    assert noted.message.endswith("; drawn alike")
    assert not _whole(_ran(ONE * 2), note="; drawn alike")[0].verify(CHANGED, Parity.CLOSE).message.endswith("alike")
    drawn: dict[str, Any] = {"random": frozenset("y"), "operators": frozenset({"RandomNormal"})}
    for difference, status, words in (
        ("", Status.EQUAL, "'y' by shape, type and distribution, because they are random (RandomNormal)"),
        (None, Status.EQUAL, "'y' by shape and type only, because they are random (RandomNormal)"),
        ("the mean differs", Status.DIFFERENT, "the mean differs"),
    ):
        whole, _ = _whole(_ran(ONE), **drawn)
        whole._moments.difference = lambda candidate, difference=difference: difference  # type: ignore[method-assign, misc]
        found = whole.verify(CHANGED, Parity.CLOSE)
        assert found.status is status and found.message.endswith(words)
