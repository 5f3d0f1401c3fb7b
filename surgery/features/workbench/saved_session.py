"""The files that a session writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from surgery.model import storage

if TYPE_CHECKING:
    from surgery.engine.pipeline.records import Result


@dataclass(frozen=True)
class SavedSession:
    """The files that a session wrote, and the result of the run that they come from."""

    result: Result
    model: Path
    recipe: Path
    report: Path
    provenance: Path
    page: Path | None = None
    """The report as an HTML page, if one was asked for."""


class ReportPage(Protocol):
    """What makes the page of a run."""

    @property
    def recorder(self) -> Any:
        """What receives the models of the run, as `RunOptions.history` does."""

    def html(self, result: Result, recipe: Path) -> str:
        """Return the page of a run with the recipe in a file, whose result was written."""


def places(place: Path, source: Path | None) -> tuple[Path, Path, Path]:
    """Return the paths of the model, recipe and report for a folder or the path of the model; make the folder."""
    name = source.name if source is not None else "model.onnx"
    model = place if place.suffix == ".onnx" else place / Path(name).with_suffix(".onnx")
    with storage.output_errors(model.parent):
        model.parent.mkdir(parents=True, exist_ok=True)
    return model, model.with_suffix(".yaml"), model.with_suffix(".report.json")


def why_not_ok(result: Result) -> str:
    """Return why a result is not accepted."""
    if result.failure is not None:
        return f"step '{result.failure.name}' is refused: {result.failure.message}"
    missed = [one.what for one in result.expectations if not one.ok]
    return f"the recipe expects {', '.join(missed)}" if missed else result.unverifiable or "the result is not accepted"


def restore(path: Path, content: bytes | None) -> None:
    """Put back what a file held, or remove it."""
    if content is None:
        path.unlink(missing_ok=True)
    else:
        storage.write_texts({path: content.decode("utf-8", "replace")})
