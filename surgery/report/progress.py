"""The step that is running, shown on the terminal while it runs."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.status import Status

from surgery.engine.records import StepRecord
from surgery.report.terminal import needed


class Progress:
    """An observer that shows a spinner for the running step and, on request, a line for each finished one."""

    def __init__(self, console: Console, *, verbose: bool = False) -> None:
        self._console = console
        self._verbose = verbose
        self._status: Status | None = console.status("loading") if console.is_terminal else None
        self._finished = 0

    def __enter__(self) -> Progress:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def stage(self, step: str, stage: str) -> None:
        """Show what is being done."""
        if self._status is not None:
            self._status.update(f"step {self._finished + 1}: {step}: {stage}")

    def said(self, step: str, text: str) -> None:
        """Show what a pass has printed."""
        self._console.out(text.rstrip("\n"), highlight=False)

    def done(self, record: StepRecord) -> None:
        """Count the step, and print a line for it when asked to."""
        self._finished += 1
        if self._verbose:
            verdict = f", {record.verdict.status} {needed(record.verdict)}" if record.verdict is not None else ""
            sites = f", {record.sites} sites" if record.sites else ""
            nodes = f"{record.nodes_before} -> {record.nodes_after} nodes"
            self._console.print(
                f"{record.name}: {record.status}, {nodes}{sites}{verdict.rstrip()}, {record.seconds:.2f} s",
                style="dim",
                highlight=False,
            )
