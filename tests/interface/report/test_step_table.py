"""The report of a run on terminals of all sizes."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from surgery.engine import recipe as recipes
from surgery.engine.pipeline import runner
from surgery.engine.pipeline.records import Result, StepRecord
from surgery.interface.report import terminal
from surgery.model.graph import text
from surgery.verification.comparing.details import Status, Verdict

EQUAL = Verdict(Status.EQUAL, None, {"rtol": 0.0, "atol": 0.0}, "", None, region=686)
LONG = "output 'last_hidden_state'[0, 1, 20]: 0.543096066 instead of 0.810079634; " * 9


@pytest.fixture(scope="module")
def ran() -> Result:
    model = text.parse("g (float[n] x) => (float[n] y) { i = Identity(x) y = Relu(i) }")
    return runner.apply(model, recipes.parse("steps: [drop-identity]\nexpect: {nodes: 1}"))


def many(ran: Result, *more: StepRecord) -> Result:
    """A run of 170 steps, 20 of which changed something."""
    changed = [
        StepRecord(f"common-subexpressions{n}", "committed", 2000 - n, 1990 - n, 400, EQUAL, 3.0) for n in range(20)
    ]
    idle = [StepRecord("fuse-gelu", "unchanged", 9, 9)] * 150
    ops = {f"Operator{n}": n + 1 for n in range(40)}
    before, after = replace(ran.input, ops=ops), replace(ran.output, ops={**ops, "Operator3": 0})
    return replace(ran, input=before, output=after, steps=(*changed, *more, *idle))


def lines(result: Result, width: int, height: int | None = None, *, every: bool = False) -> list[str]:
    console = Console(width=width, file=io.StringIO(), highlight=False, markup=False)
    console.print(terminal.result(result, every=every, height=height))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("width", "height"), [(40, 14), (40, 22), *((width, height) for width in (80, 120, 200) for height in (10, 22, 40))]
)
def test_the_steps_and_the_verdict_fit(ran: Result, width: int, height: int) -> None:
    shown = lines(many(ran), width, height)
    assert max(map(len, shown)) <= width
    begin = next(number for number, line in enumerate(shown) if line.startswith("step "))
    assert len(shown) - begin <= height
    assert any(line.startswith("ok: ") for line in shown[begin:])
    header = shown[begin].split()
    assert header[:2] == ["step", "nodes"] if width == 40 else header[:3] == ["step", "status", "nodes"]
    # What the longest verdict leaves room for at 80 columns differs.
    assert width == 80 or ("seconds" in header) == (width > 80)
    assert "needed" not in header
    every = next(line for line in lines(many(ran), width, height, every=True) if line.startswith("step "))
    assert ("needed" in every) == (width > 40) and ("seconds" in every) == (width > 80)


def test_failed_steps_are_shown_on_a_short_terminal(ran: Result) -> None:
    wrong = StepRecord("wrong", "rolled_back", 1990, 1990, message=LONG)
    shown = "\n".join(lines(many(ran, wrong), 80, 22))
    assert "\nwrong" in shown and "rolled back" in shown and "  wrong: output 'last_hidden_state'" in shown
    assert "..." in shown and "with -" in shown and "150 steps that changed nothing (-v)" in shown


def test_messages_that_do_not_fit_are_counted(ran: Result) -> None:
    wrong = [StepRecord(f"wrong{n}", "rolled_back", 9, 9, message=f"{n}{LONG}") for n in range(12)]
    shown = lines(many(ran, *wrong), 80, 22)
    assert any("more messages (-v)" in line for line in shown)
    begin = next(number for number, line in enumerate(shown) if line.startswith("step "))
    assert len(shown) - begin <= 22


def test_everything_is_shown_on_request_and_in_logs(ran: Result) -> None:
    wrong = StepRecord("wrong", "rolled_back", 1990, 1990, message=LONG)
    log = "\n".join(lines(many(ran, wrong), 160))
    assert log.count("common-subexpressions") == 20 and "150 other steps changed nothing (-v lists them)" in log
    assert " ".join(LONG.split()) in " ".join(log.split())
    every = "\n".join(lines(many(ran, wrong), 160, 22, every=True))
    assert every.count("fuse-gelu") == 150 and "unchanged" in every and "Operator7" in every
    assert "39 operators unchanged" in log and "Operator7 " not in log


def test_a_single_unchanged_operator_is_named(ran: Result) -> None:
    shown = lines(ran, 80)
    assert any(line.startswith("Relu") for line in shown)
    assert not any("operators unchanged" in line for line in shown)


def test_a_refused_site_counts_as_a_failure(ran: Result) -> None:
    from surgery.engine.pipeline.records import RefusedSite

    partly = StepRecord("partly", "committed", 9, 8, 1, EQUAL, refused_sites=(RefusedSite(2, "n", "wrong"),))
    assert any(line.startswith("partly") for line in lines(many(ran, partly), 80, 12))
