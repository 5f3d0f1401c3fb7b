"""The progress of a run: the running step, shown on the terminal."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from rich.console import Console, ConsoleOptions, RenderResult
from rich.status import Status
from rich.text import Text

from surgery.interface.report.formatting import needed

if TYPE_CHECKING:
    from surgery.engine.pipeline.agenda import Agenda
    from surgery.engine.pipeline.records import StepRecord

_USUAL = ("pass", "check", "parity")
"""Stages of every step, which are not shown."""
_PLAIN = {"(end)": "verifying the result", "(expect)": "measuring the result"}
"""Descriptions of stages that are not steps."""
_LOG = logging.getLogger("surgery.run")
# Without a handler, Python would print on stderr what the report says as well.
logging.getLogger("surgery").addHandler(logging.NullHandler())
_LEVELS = {"rolled_back": logging.WARNING, "failed": logging.ERROR}
_SHORT = 12
"""Maximum number of characters of the name of a step on a narrow terminal."""


class LiveLine:
    """A line on the terminal that changes while something runs; the context is the time in which it is shown."""

    _status: Status | None

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._status is not None:
            self._status.stop()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Show the current line."""
        yield Text(self.line(options.max_width), no_wrap=True, overflow="crop")

    def line(self, width: int = 200) -> str:
        """Return the line, shortened if it is too wide."""
        raise NotImplementedError


class Progress(LiveLine):
    """An observer that shows the running step and, on request, a line for each finished one.

    `agenda` counts the steps and allows the remaining time to be estimated. The changing line is shown only if the
    console is `interactive`.
    """

    def __init__(
        self,
        console: Console,
        *,
        verbose: bool = False,
        agenda: Agenda | None = None,
        interactive: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._verbose = verbose
        self._agenda = agenda
        self._clock = clock
        self._began = clock()
        self._finished = 0
        self._step, self._stage = "", ""
        self._left = Remaining()
        shows = console.is_terminal if interactive is None else interactive
        self._status = Status(self, console=console) if shows else None

    def line(self, width: int = 200) -> str:
        """Return the line: "step 37/166, fuse-gelu, 12 s, about 40 s left", shortened if it is too wide."""
        if not self._step:
            return "loading"
        now = self._clock()
        stage = "" if self._stage in _USUAL else f": {self._stage}"
        elapsed = [f"{now - self._began:.0f} s"]
        left = self._left.text(now)
        tail = [*elapsed, *([left] if left else [])]
        for name, end in (
            (f"{self._step}{stage}", tail),
            (self._step, tail),
            (self._step, elapsed),
            (_cut(self._step), elapsed),
            (_cut(self._step), []),
        ):
            found = ", ".join([f"step {self._number()}", name, *end])
            if len(found) <= width:
                return found
        return found[:width]

    def _number(self) -> str:
        if self._agenda is None:
            return str(self._finished + 1)
        total = self._agenda.total
        return f"{min(self._agenda.done + 1, total)}/{total}"

    def stage(self, step: str, stage: str) -> None:
        """Show the current stage."""
        _LOG.debug("%s: %s", _PLAIN.get(step, step), stage, extra={"fields": {"step": step, "stage": stage}})
        self._step, self._stage = _PLAIN.get(step, step), stage

    def said(self, step: str, text: str) -> None:
        """Show the output of a pass."""
        _LOG.info("%s printed: %s", step, text.rstrip(), extra={"fields": {"step": step}})
        self._console.out(text.rstrip("\n"), highlight=False)

    def done(self, record: StepRecord) -> None:
        """Count the step, and print a line for it if requested."""
        self._finished += 1
        if self._agenda is not None:
            self._agenda.note(record.name, record.where)
            self._left.note(self._agenda.done, self._agenda.total, self._clock())
        line = _described(record)
        _log_step(record, line)
        if self._verbose:
            self._console.out(line, style="dim", highlight=False)


def _described(record: StepRecord) -> str:
    """Return the result of a step in one line."""
    verdict = f", {record.verdict.status} {needed(record.verdict)}" if record.verdict is not None else ""
    sites = f", {record.sites} sites" if record.sites else ""
    nodes = f"{record.nodes_before} -> {record.nodes_after} nodes"
    time = "cached" if record.cached else f"{record.seconds:.2f} s"
    return f"{record.name}: {record.status}, {nodes}{sites}{verdict.rstrip()}, {time}"


def _log_step(record: StepRecord, line: str) -> None:
    """Log the result of a step: the line, its message, and each undone site and refused match."""
    level = _LEVELS.get(record.status, logging.INFO)
    if not _LOG.isEnabledFor(level):
        return
    facts = record.to_json()
    keys = ("status", "sites", "verdict", "nodes_before", "nodes_after", "seconds", "where")
    _LOG.log(level, "%s", line, extra={"fields": {"step": record.name, **{key: facts[key] for key in keys}}})
    if record.message:
        _LOG.log(level, "%s: %s", record.name, record.message, extra={"fields": {"step": record.name}})
    for site in record.refused_sites:
        _LOG.warning("%s: %s", record.name, site, extra={"fields": {"step": record.name, **site.to_json()}})
    for declined in facts["declined"]:
        text = f"refused {declined['count']} matches: {declined['reason']}"
        _LOG.debug("%s: %s", record.name, text, extra={"fields": {"step": record.name, **declined}})


def _cut(name: str) -> str:
    return name if len(name) <= _SHORT else f"{name[: _SHORT - 3]}..."


class Remaining:
    """An estimate of the remaining time of a run, from the share of finished steps and their duration.

    Steps differ: the first ones, on the largest graph, take longest. So half of the estimate comes from all steps, and
    half from the recent ones. The estimated end time is smoothed, rather than the remaining time, so that the remaining
    time counts down in between.
    """

    LEAST_SHARE = 0.1
    LEAST_STEPS = 5
    LEAST_SECONDS = 2.0
    RECENT = 0.1
    """The share of the steps that count as recent."""
    WEIGHT = 0.2
    """The weight of a new estimate."""

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None
        self._last = (0, 0.0)
        self._recent: float | None = None
        self._end: float | None = None

    def note(self, done: int, total: int, now: float) -> None:
        """Record that `done` of `total` steps are finished at the time `now`, in seconds."""
        if self._first is None:
            # The time before the first step, such as the run of the original, is not representative of steps.
            self._first = self._last = (done, now)
            return
        steps, seconds = done - self._last[0], now - self._last[1]
        if steps <= 0:
            return
        self._last = (done, now)
        weight = 1 - (1 - 1 / max(total * self.RECENT, 3)) ** steps
        pace = seconds / steps
        self._recent = pace if self._recent is None else self._recent + weight * (pace - self._recent)
        count, elapsed = done - self._first[0], now - self._first[1]
        if count < max(self.LEAST_STEPS, self.LEAST_SHARE * total) or elapsed < self.LEAST_SECONDS:
            return
        end = now + (total - done) * (elapsed / count + self._recent) / 2
        self._end = end if self._end is None else self._end + self.WEIGHT * (end - self._end)

    def seconds(self, now: float) -> float | None:
        """Return the remaining seconds; None while unknown."""
        return None if self._end is None else max(self._end - now, 0.0)

    def text(self, now: float) -> str:
        """Return the remaining time as text, rounded to the accuracy of the estimate; empty if unknown."""
        left = self.seconds(now)
        if left is None or left < 1:
            return ""
        if left < 10:
            return f"about {left:.0f} s left"
        if left < 90:
            return f"about {5 * round(left / 5)} s left"
        return f"about {round(left / 60)} min left"
