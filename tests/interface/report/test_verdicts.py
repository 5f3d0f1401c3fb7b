"""How a verdict is shown."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from surgery.interface.report import step_table, terminal
from surgery.verification.comparing.details import Arbitration, Details, Status, Verdict
from surgery.verification.verdict.pair import Pair

NEEDED = {"rtol": 1.2e-5, "atol": 1.5e-6}


@pytest.mark.parametrize(
    ("details", "text"),
    [
        (Details(ulp=12.0), "needed rtol 1.2e-05 and atol 1.5e-06; at most 12 ulp"),
        (
            Details(ulp=12.0, float64=Arbitration(0.5, 0.75)),
            "needed rtol 1.2e-05 and atol 1.5e-06; at most 12 ulp; 0.75 tolerances from float64 (original: 0.5)",
        ),
    ],
)
def test_a_close_verdict_shows_the_distance(details, text):
    verdict = Verdict(Status.CLOSE, None, NEEDED, "", details)
    assert step_table.distance(verdict) == text
    assert step_table.distance(replace(verdict, needed=None)).startswith("no tolerance is large enough; at most")


def test_a_pair_is_shown_with_its_distance():
    console = Console(file=io.StringIO(), width=200)
    verdict = Verdict(Status.CLOSE, None, NEEDED, "output 'y'[0]: 1 instead of 2", Details(ulp=3.0))
    found = Pair(verdict, (), ({"dims": {}, "character": "normal", "seed": 0},))
    console.print(terminal.pair(found, every=True))
    text = console.file.getvalue()
    assert "close on 1 input set, needed rtol 1.2e-05 and atol 1.5e-06; at most 3 ulp" in text
    assert "output 'y'[0]: 1 instead of 2" in text


def test_a_verdict_on_other_choices_says_that_they_are_ties():
    message = "near ties of nearly equal values: output 'labels'[3]: 7 instead of 5"
    verdict = Verdict(Status.CLOSE, None, NEEDED, message, Details(ulp=3.0, tied=True))
    assert verdict.is_tied and step_table.distance(verdict).endswith("; other choices between near ties")
    assert verdict.to_json()["details"]["tied"] is True
    other = replace(verdict, details=Details(ulp=3.0))  # whatever its message says
    assert not other.is_tied and "ties" not in step_table.distance(other)
    assert not replace(verdict, status=Status.DIFFERENT).is_tied
