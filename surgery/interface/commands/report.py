"""Write the report of a run as one HTML file, from the JSON report of the run.

The JSON report is what 'surgery apply RECIPE MODEL --format json' prints. The page includes the graph, weights and
costs if the model files that it names still exist unchanged. 'surgery apply --report' writes the same page right after
the run, with the graph after each step.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.base.errors import UsageError
from surgery.interface.command_line import _output, _places, _report_file

if TYPE_CHECKING:
    from surgery.model.storage import StoredModel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `report`."""
    parser.add_argument("run", metavar="RUN.json", help="the JSON report of a run; - reads it from standard input")
    parser.add_argument("-o", "--output", metavar="FILE", type=_places.page, help="write to FILE (default: RUN.html)")
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")


def main(arguments: argparse.Namespace) -> int:
    """Write the report."""
    from surgery.model import storage

    target = _target(arguments)
    storage.check_target(target, force=arguments.force)
    run = _read(arguments.run)
    before, after, note = _report_file.graph_of(run)
    if before is not None and after is not None and not run.get("weights"):
        from surgery.features.inspection.report_data import contents

        run |= contents(before, after, run.get("bindings") or ())
    drawing, problem = _drawn(before, after)
    _report_file.write(target, run, drawing, note or problem)
    if arguments.format == "json":
        _output.write_json({"report": str(target), "graph": drawing is not None, "note": note or problem or None})
    return 0


def _target(arguments: argparse.Namespace) -> Path:
    if arguments.output is not None:
        return Path(arguments.output)
    if arguments.run == "-":
        raise UsageError("for a report from standard input, the page has no default name", todo="pass -o FILE")
    return Path(arguments.run).with_suffix(".html")


def _read(given: str) -> dict[str, Any]:
    """Read the JSON report of a run."""
    try:
        data = sys.stdin.buffer.read() if given == "-" else Path(given).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read '{given}': {error.strerror or error}") from error
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"'{given}' is not valid JSON: {error}", todo="write it with surgery apply --format json"
        ) from error
    if not isinstance(found, dict):
        raise UsageError(f"'{given}' is not the report of a run", todo="write it with surgery apply --format json")
    return found


def _drawn(before: StoredModel | None, after: StoredModel | None) -> tuple[dict[str, Any] | None, str]:
    """Return the drawing of both models, or of the one that exists."""
    from surgery.interface.drawing import History

    only = before or after
    if only is None or only.path is None:
        return None, ""
    if before is None or after is None or before.path is None or after.path is None:
        return _report_file.drawn(History.of(only.path))
    from surgery.features.differences.diff import diff

    return _report_file.drawn(History.between(diff(before.path, after.path), before.path, after.path))
