"""The report of a run as an HTML file: collecting its data during the run, and writing the file."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from surgery.base.errors import internal
from surgery.interface.command_line import _output, _places

if TYPE_CHECKING:
    from surgery.base.workers.process_memory import MemoryTimeline
    from surgery.engine.pipeline.records import Observer, Result, StepRecord
    from surgery.interface.drawing import History
    from surgery.model.storage import StoredModel


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add the flag for the report."""
    parser.add_argument(
        "--report",
        "--html",
        metavar="FILE",
        type=_places.page,
        help="write a report of the run to FILE: one .html file that needs no network; also if the run fails or "
        "is interrupted",
    )


def add_page_argument(parser: argparse.ArgumentParser) -> None:
    """Add the flags for showing a measurement as a page."""
    parser.add_argument(
        "--html", metavar="FILE", type=_places.page, help="write the results, with charts, to one .html file"
    )
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")


def check_page(arguments: argparse.Namespace) -> None:
    """Raise OutputError if the page of a measurement cannot be written, before measuring."""
    if arguments.html is not None:
        from surgery.model import storage

        storage.check_target(arguments.html, force=arguments.force)


def write_page(arguments: argparse.Namespace, page: str) -> None:
    """Write the page of a measurement atomically."""
    from surgery.model import storage

    storage.write_texts({Path(arguments.html): page})
    _output.messages().print(f"wrote {arguments.html}", soft_wrap=True)


class RunReport:
    """Collects the data of a requested report during a run; a context manager around the run."""

    def __init__(self, arguments: argparse.Namespace, recipe: str) -> None:
        self._file = Path(arguments.report) if arguments.report is not None else None
        self._arguments = arguments
        self._recipe = recipe
        self._started = time.perf_counter()
        self._records: list[StepRecord] = []
        self._memory: MemoryTimeline | None = None
        self.history: History | None = None
        """The recorder of the states of the graph, if there will be a page to draw them on."""

    def __enter__(self) -> Self:
        if self._file is not None:
            from surgery.interface.drawing import History
            from surgery.model import storage

            storage.check_target(self._file, force=self._arguments.force)
            self.history = History()
        if self._file is not None or self._arguments.format == "json":
            from surgery.base.workers.process_memory import MemoryTimeline

            self._memory = MemoryTimeline()
            self._memory.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._memory is not None:
            self._memory.__exit__(kind, value, trace)
        if value is not None and self._file is not None:
            # The user sees the error that ended the run, even if the report fails.
            with suppress(Exception):
                self._write_ended(value)

    def observed(self, observer: Observer) -> Observer:
        """Return an observer that also records when steps end."""
        if self._memory is None:
            return observer
        return cast("Observer", _Noting(observer, self._memory, self._records))

    def evidence(self, result: Result) -> dict[str, Any]:
        """Return the additional keys of the JSON report."""
        if self._memory is None:
            return {}
        from surgery.features.inspection.report_data import circumstances, contents

        places = [step.where for step in result.steps]
        found = {**circumstances(["surgery", *self._arguments.given], places), "memory": self._memory.to_json()}
        found["open"] = self._opens(result.stored)
        if self._file is not None:
            after = replace(result.stored, proto=result.proto)
            found |= contents(result.stored, after, result.bindings)
        return found

    def write(self, result: Result, more: Mapping[str, Any]) -> None:
        """Write the report, if requested: the JSON report of the result, with `more` keys."""
        if self._file is not None:
            if self.history is not None and result.output.path is not None:
                self.history.written(result.output.path)
            drawing, note = drawn(self.history)
            write(self._file, {**result.to_json(), **more}, drawing, note)

    def _write_ended(self, error: BaseException) -> None:
        """Write the report of a run that an error or an interrupt ended, with the steps committed until then."""
        from surgery.engine.pipeline.records import Result
        from surgery.features.inspection.report_data import circumstances
        from surgery.model.storage.summary import data_files, summarize

        if self.history is None or self.history.first is None or self.history.last is None:
            return
        first, last = self.history.first, self.history.last
        files = data_files(first)
        result = Result(
            recipe=self._recipe,
            input=summarize(first.proto, files),
            output=summarize(last.proto),
            steps=tuple(self._records),
            expectations=(),
            bindings=(),
            seconds=time.perf_counter() - self._started,
            proto=last.proto,
            stored=first,
        )
        interrupted = isinstance(error, KeyboardInterrupt)
        why = internal(error) if isinstance(error, Exception) else ""
        ended = {"ok": False, "ended": {"interrupted": interrupted, "why": why}}
        places = [step.where for step in result.steps]
        more = {**circumstances(["surgery", *self._arguments.given], places), "open": self._opens(first)}
        self.write(result, {**more, **ended})

    def _opens(self, original: StoredModel) -> list[str]:
        """Return the command that opens the model with the recipe, or the plan, in the browser; empty if there is none.

        A stream cannot be read again.
        """
        given = self._arguments
        recipe, plan = getattr(given, "recipe", None), getattr(given, "plan", None)
        if _places.STREAM in (recipe, plan) or original.path is None or str(original.path).endswith(_places.STDIN):
            return []
        flags = [*(["--trust"] if given.trust else []), *(word for name in given.plugin for word in ("--plugin", name))]
        if plan is not None:
            return ["surgery", "open", plan, *flags]
        return ["surgery", "open", str(original.path), *(["--recipe", recipe] if recipe is not None else []), *flags]


class _Noting:
    """An observer that records the end and the record of each step, and forwards all events."""

    def __init__(self, observer: Observer, memory: MemoryTimeline, records: list[StepRecord]) -> None:
        self._observer, self._memory, self._records = observer, memory, records

    def __getattr__(self, name: str) -> Any:
        return getattr(self._observer, name)

    def done(self, record: StepRecord) -> None:
        """Record the end of a step."""
        self._memory.note(record.name)
        if record.name.startswith("(") and record.status == "rolled_back":
            # If the result is wrong as a whole, the run restarts, and this record is its first.
            self._records.clear()
        self._records.append(record)
        self._observer.done(record)


def drawn(history: History | None) -> tuple[dict[str, Any] | None, str]:
    """Return the drawing of a history, or None and the reason."""
    from surgery.interface.drawing import document

    if history is None or history.first is None:
        return None, ""
    try:
        return document(history), ""
    except Exception as error:
        # A report without the graph is better than no report.
        return None, f"the graph cannot be drawn: {internal(error)}"


def write(file: Path, run: Mapping[str, Any], drawing: Mapping[str, Any] | None, note: str) -> None:
    """Write the report of a run, whose JSON report is `run`, atomically."""
    from surgery.interface.pages.run_report import report
    from surgery.model import storage

    storage.write_texts({file: report(run, drawing, note)})
    _output.messages().print(f"wrote {file}", soft_wrap=True)


def graph_of(run: Mapping[str, Any]) -> tuple[StoredModel | None, StoredModel | None, str]:
    """Return the models of a JSON report whose files exist unchanged, and the reasons for missing ones."""
    before, why_before = _model(run.get("input") or {}, "original")
    after, why_after = _model(run.get("output") or {}, "result")
    return before, after, "; ".join(filter(None, (why_before, why_after)))


def _model(side: Mapping[str, Any], name: str) -> tuple[StoredModel | None, str]:
    from surgery.base.errors import SurgeryError
    from surgery.model import storage
    from surgery.model.storage.summary import summarize

    path = side.get("path")
    if not path or not side.get("sha256"):
        return None, "" if name == "result" else f"the report does not name the file of the {name}"
    try:
        stored = storage.load(Path(path))
        found = summarize(stored.proto, [Path(path)]).sha256
    except (SurgeryError, OSError) as error:
        return None, f"the {name} cannot be read: {error}"
    if found != side["sha256"]:
        return None, f"the {name}, {path}, has changed since the run"
    return stored, ""
