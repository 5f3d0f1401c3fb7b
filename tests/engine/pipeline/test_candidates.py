"""What follows from the facts of a candidate."""

from __future__ import annotations

from typing import Any

import pytest

from surgery.engine.pipeline.candidate import Candidate
from surgery.engine.recipe.schema import PassStep
from surgery.model.graph.state import Site
from surgery.verification.comparing.details import Details, Status, Verdict
from surgery.verification.comparing.output_judge import NOT_RUN, VACUOUS

STEP = PassStep("quantize")
TWO = (Site(1, "a", (), ()), Site(2, "b", (), ()), Site(3, "c", (), (), skipped=True))
EQUAL, CLOSE, LOSSY, INTENDED = map(Verdict, (Status.EQUAL, Status.CLOSE, Status.LOSSY, Status.INTENDED))
FAILS, DIFFERS = Verdict(Status.DIFFERENT), Verdict(Status.DIFFERENT, details=Details(elements=1))
PROVES_NOTHING, WAS_NOT_RUN = (Verdict(Status.UNVERIFIED, reason) for reason in (VACUOUS, NOT_RUN))


def candidate(verdict: Verdict | None, complaint: str = "", **more: Any) -> Candidate:
    return Candidate(
        **{"step": STEP, "verdict": verdict, "complaint": complaint, "changed": True, "sites": TWO, **more}
    )


@pytest.mark.parametrize(
    ("made", "holds"),
    [
        (candidate(None), "ok keeps is_certain"),
        (candidate(EQUAL), "ok keeps is_certain"),
        (candidate(CLOSE), "ok keeps is_certain"),
        (candidate(LOSSY), "ok keeps is_certain"),
        (candidate(INTENDED), "ok keeps is_certain"),
        (candidate(WAS_NOT_RUN), "ok keeps is_unverified"),
        (candidate(DIFFERS, "wrong"), "is_wrong is_over_budget is_certain"),
        (candidate(DIFFERS, "wrong", final=True), "is_wrong is_certain"),
        (candidate(DIFFERS, "wrong", sites=TWO[1:]), "is_wrong is_certain"),
        (candidate(DIFFERS, "wrong", changed=False), "is_certain"),
        (candidate(FAILS, "wrong"), "is_wrong is_over_budget"),
        (candidate(None, "the checker says"), "is_wrong"),
        (candidate(PROVES_NOTHING, "nothing shown"), "is_certain is_unverified"),
        (candidate(WAS_NOT_RUN, "no kernel"), "is_unverified"),
        (candidate(WAS_NOT_RUN, "no kernel", changed=False), ""),
        (
            candidate(DIFFERS, "wrong", step=PassStep("quantize", on_failure="keep")),
            "keeps is_wrong is_over_budget is_certain",
        ),
        (
            candidate(DIFFERS, "wrong", step=PassStep("quantize", on_failure="keep"), is_outdated=True),
            "is_wrong is_over_budget is_certain",
        ),
        (
            candidate(DIFFERS, "wrong", step=PassStep("quantize", on_failure="bisect")),
            "is_wrong is_over_budget is_certain",
        ),
    ],
)
def test_a_candidate_is_what_its_facts_say(made: Candidate, holds: str) -> None:
    names = ("ok", "keeps", "is_wrong", "is_over_budget", "is_certain", "is_unverified")
    assert [name for name in names if getattr(made, name)] == holds.split()
    assert [site.anchor for site in made.applied] == [site.anchor for site in made.sites if site.number < 3]


@pytest.mark.parametrize(
    ("status", "holds"),
    [
        (Status.EQUAL, "passed accepted"),
        (Status.CLOSE, "passed accepted"),
        (Status.DIFFERENT, "is_different"),
        (Status.UNVERIFIED, "is_unverified"),
        (Status.LOSSY, "accepted"),
        (Status.INTENDED, "accepted"),
    ],
)
def test_a_verdict_is_what_its_status_says(status: Status, holds: str) -> None:
    verdict = Verdict(status)
    found = {"passed": verdict.passed, "accepted": status.accepted}
    found |= {name: getattr(verdict, name) for name in ("leaves_open", "is_different", "is_tied", "is_unverified")}
    assert [name for name, value in found.items() if value] == holds.split()
    assert Verdict(status, region=0).leaves_open and Verdict(status, together=0).leaves_open
    assert Verdict(status, details=Details(tied=True)).is_tied is verdict.passed
    assert not Verdict(status, details=Details()).is_tied
