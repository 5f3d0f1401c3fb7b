"""The report of a run as a page: the steps of the run, and the graph after each of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.base.errors import internal
from surgery.base.views import view as shown
from surgery.features.inspection.report_data import circumstances, contents
from surgery.interface.drawing.assembling import document
from surgery.interface.drawing.history import History

if TYPE_CHECKING:
    from surgery.engine.pipeline.records import Result


class RunPage:
    """Makes the page that `surgery apply --report` writes; `recorder` receives the models of the run."""

    def __init__(self) -> None:
        self.recorder = History()

    def html(self, result: Result, recipe: Path) -> str:
        """Return the page of a run with the recipe in a file, whose result was written."""
        source, written = str(result.input.path), str(result.output.path)
        command = ["surgery", "apply", str(recipe), source, "-o", written]
        run: dict[str, Any] = {
            **result.to_json(),
            **circumstances(command, [step.where for step in result.steps]),
            **contents(result.stored, replace(result.stored, proto=result.proto), result.bindings),
            "open": ["surgery", "open", source, "--recipe", str(recipe)],
        }
        drawing, note = self._drawn(Path(written))
        return shown("report")(run, drawing, note)

    def _drawn(self, written: Path) -> tuple[dict[str, Any] | None, str]:
        """Return the drawing, or None and the reason: a report without the graph is better than no report."""
        try:
            self.recorder.written(written)
            return document(self.recorder), ""
        except Exception as error:
            return None, f"the graph cannot be drawn: {internal(error)}"
