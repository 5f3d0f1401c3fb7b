"""A batch on the terminal: progress and results."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.status import Status
from rich.table import Table
from rich.text import Text

from surgery.base.errors import counted, first_few
from surgery.interface.report.formatting import duration, moved_bytes, moved_nodes, size
from surgery.interface.report.progress import LiveLine, Remaining

if TYPE_CHECKING:
    from surgery.engine.batching.batch import BatchResult
    from surgery.engine.batching.failure_groups import FailureGroup
    from surgery.engine.batching.ledger import LedgerRow

_EVERY = 30.0
"""Interval of progress lines on a non-interactive console, in seconds."""
_MOST_NAMES = 3
_MOST_GROUPS = 12


class BatchProgress(LiveLine):
    """Shows the numbers of models that are done, failed and left, and the remaining time.

    On a terminal, this is one changing line, elsewhere a line every half minute; with `verbose`, a line for each model.
    """

    def __init__(
        self,
        console: Console,
        *,
        verbose: bool = False,
        interactive: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._verbose = verbose
        self._clock = clock
        self._status = Status(self, console=console) if interactive else None
        self._total = self._before = self._ended = self._failed = 0
        self._running: dict[str, str] = {}
        self._left = Remaining()
        self._printed = clock()

    def begin(self, total: int, finished: Sequence[LedgerRow]) -> None:
        """Start with the number of models and the rows that need not run; skipped models are not counted."""
        skipped = sum(row.state == "skipped" for row in finished)
        self._total, self._before = total - skipped, len(finished) - skipped
        self._failed = sum(row.state == "failed" for row in finished)
        self._ended = self._before
        self._left.note(0, self._total - self._before, self._clock())
        if self._verbose and self._before and self._before < self._total:
            self._console.print(f"{self._before} of {models(self._total)} {_was(self._before)}", style="dim")

    def stage(self, name: str, stage: str) -> None:
        """Record the stage of a model."""
        self._running[name] = stage

    def done(self, row: LedgerRow) -> None:
        """Count a finished model, and print a line for it if requested."""
        self._running.pop(row.name, None)
        self._ended += 1
        self._failed += row.state == "failed"
        now = self._clock()
        self._left.note(self._ended - self._before, self._total - self._before, now)
        if self._verbose:
            self._console.print(_line(row), style="red" if row.is_negative else "dim", soft_wrap=True)
        elif self._status is None and now - self._printed >= _EVERY:
            self._printed = now
            self._console.print(self.line(), style="dim", soft_wrap=True)

    def lost(self, name: str, why: str, again: float) -> None:
        """Report that a model is started again."""
        self._running.pop(name, None)
        self._console.print(
            f"{name}: the worker was lost: {why}; retrying in {again:g} s", style="yellow", soft_wrap=True
        )

    def waiting(self, why: str) -> None:
        """Report why nothing runs for now."""
        self._console.print(why, style="yellow", soft_wrap=True)

    def account(self) -> str:
        """Return the numbers of models: "37 done, 3 failed, 60 left"."""
        done, left = self._ended - self._failed, self._total - self._ended
        return f"{done} done, {self._failed} failed, {left} left"

    def line(self, width: int = 200) -> str:
        """Return the line: "37 done, 3 failed, 60 left, about 2 min; resnet.onnx (fold-constants: parity)"."""
        if not self._total:
            return "reading the sources"
        remaining = self._left.text(self._clock()).removesuffix(" left")
        found = ", ".join(filter(None, (self.account(), remaining)))
        running = [f"{name} ({stage})" if stage else name for name, stage in self._running.items()]
        for count in range(len(running), 0, -1):
            whole = f"{found}; {', '.join(running[:count])}"
            if len(whole) <= width:
                return whole
        return found[:width]


def models(count: int) -> str:
    """Return a number of models: "1 model", "2 models"."""
    return counted(count, "model")


def _was(count: int) -> str:
    return f"{'was' if count == 1 else 'were'} finished before"


def _line(row: LedgerRow) -> str:
    if row.state == "failed":
        return f"{row.name}: failed at {row.stage or 'the start'}, {row.kind}: {row.reason}"
    nodes = f"{row.nodes_before} -> {row.nodes_after} nodes"
    verdict = f"{row.verdict or 'unchanged'}{f' ({row.reason})' if row.reason else ''}"
    unmet = f", {row.kind}" if row.kind else ""
    return f"{row.name}: {nodes}, {size(row.bytes_before)} -> {size(row.bytes_after)}{unmet}, {verdict}"


def result(found: BatchResult, *, every: bool = False) -> RenderableType:
    """Return the report: failures by cause, and the line with the result; `every` lists all failed models."""
    return Group(*_groups(found, every), conclusion(found))


def _groups(found: BatchResult, every: bool) -> Iterator[RenderableType]:
    failures = found.failures
    if not failures:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("failed", justify="right")
    table.add_column("kind")
    table.add_column("cause", overflow="fold")
    shown = failures if every else failures[:_MOST_GROUPS]
    for group in shown:
        text = Text(_without_name(group) if len(group.models) == 1 else group.cause)
        listed = first_few(group.models, len(group.models) if every else _MOST_NAMES)
        table.add_row(str(len(group.models)), group.kind, Group(text, Text(listed, style="dim")))
    yield table
    if len(shown) < len(failures):
        rest = sum(len(group.models) for group in failures[len(shown) :])
        yield Padding(Text(f"and {rest} for {len(failures) - len(shown)} other causes; -v lists all", style="dim"), 0)
    yield Text("")


def _without_name(group: FailureGroup) -> str:
    """Return the message on the only model of a group without the path of the model, which stands below it."""
    path, _, message = group.example.partition(": ")
    return message if message and path.replace(os.sep, "/").endswith(group.models[0]) else group.example


def conclusion(found: BatchResult) -> Text:
    """Return the line with the result."""
    counts, totals = found.counts, found.totals
    parts = [f"{counts[state]} {state}" for state in counts]
    again = len(found.rows) - len(found.fresh) - counts.get("skipped", 0)
    sums = ", ".join(
        (
            moved_nodes(totals["nodes_before"], totals["nodes_after"]),
            moved_bytes(totals["bytes_before"], totals["bytes_after"]),
        )
    )
    if counts.get("failed"):
        others = "".join(f", {counts[state]} {state}" for state in counts if state != "failed")
        text = f"failed: {counts['failed']} of {models(len(found.rows))}{others}"
    else:
        text = f"{'ok' if found.ok else 'failed'}: {models(len(found.rows))}: {', '.join(parts)}"
    unmet = sum(row.state == "done" and row.is_negative for row in found.rows)
    text += f", {unmet} of them missed {'its' if unmet == 1 else 'their'} purpose" if unmet else ""
    text += f"; {sums}" if counts.get("done") else ""
    text += f"; {duration(found.seconds)}" if found.fresh else ""
    text += f"; {again} {_was(again)}" if again > 0 else ""
    return Text(text, style="green" if found.ok else "red")
