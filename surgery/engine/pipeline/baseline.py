"""Compare the figures of a run with those of an earlier one: nodes, bytes, needed tolerance, speed.

The earlier run is read from its JSON report, or from the results of a batch, one line of JSON for each model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from surgery.base.errors import UsageError
from surgery.engine.pipeline.expectations import speed
from surgery.engine.pipeline.records import Expectation, Figures
from surgery.model import storage

if TYPE_CHECKING:
    from surgery.engine.pipeline.records import Result
    from surgery.engine.recipe.schema import Baseline, Recipe

_LINES: Final = (".jsonl", ".ndjson")
_AGAIN: Final = "make one: surgery apply RECIPE MODEL --no-baseline --format json"
_HOW: Final = {
    "speed": "let the recipe of that run expect a speed, such as 'expect: {speed: 0}', and keep its report",
    "tolerance": "make it again with verification",
}


def read(baseline: Baseline, model: Path | None) -> Figures:
    """Return the figures of the earlier run on a model.

    Raises UsageError if there is no report, or if it lacks a figure that the baseline compares.
    """
    found = _figures(baseline.report, model)
    for name, bound in baseline.bounds().items():
        if bound is not None and getattr(found, name) is None:
            raise UsageError(
                f"the report has no '{name}', which the baseline compares",
                where=str(baseline.report),
                todo=_HOW.get(name, _AGAIN),
            )
    return found


def _figures(path: Path, model: Path | None) -> Figures:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"the baseline cannot be read: {reason}", where=str(path), todo=_AGAIN) from error
    try:
        if path.suffix.lower() in _LINES:
            return _of_row(_row([json.loads(line) for line in text.splitlines() if line.strip()], model, path))
        found = json.loads(text)
    except ValueError as error:
        raise UsageError(f"the baseline is not JSON: {error}", where=str(path), todo=_AGAIN) from error
    try:
        return _of_row(found) if "nodes_after" in found else _of_report(found)
    except (KeyError, TypeError, AttributeError) as error:
        what = "the baseline is neither a report of surgery apply nor a result of a batch"
        raise UsageError(what, where=str(path), todo=_AGAIN) from error


def _row(rows: list[Any], model: Path | None, path: Path) -> Mapping[str, Any]:
    """Return the only row of a batch's results that is about a model with this file name."""
    name = model.name if model is not None else ""
    found = [row for row in rows if isinstance(row, dict) and Path(str(row.get("model", ""))).name == name]
    if len(found) != 1:
        what = f"{len(found) or 'no'} rows are about a model '{name}'"
        raise UsageError(what, where=str(path), todo="name a file with one row for it")
    return found[0]


def _of_row(row: Mapping[str, Any]) -> Figures:
    return Figures(row["nodes_after"], row.get("bytes_after"), row.get("tolerance"))


def _of_report(report: Mapping[str, Any]) -> Figures:
    """Return the figures of a report; for a report without figures, derive those that are possible."""
    if "figures" in report:
        return Figures(**{field.name: report["figures"].get(field.name) for field in fields(Figures)})
    needed = [one["needed"]["factor"] for one in (*report["steps"], report["end"] or {"needed": {"factor": None}})]
    known = [factor for factor in needed if factor is not None]
    return Figures(report["output"]["nodes"], report["output"]["bytes"], max(known, default=None))


def held(result: Result, recipe: Recipe, last: Figures) -> Result:
    """Return a result with an expectation for each bound of the baseline of its recipe, and the speed if measured."""
    baseline = recipe.baseline
    if baseline is None or result.failure is not None:
        return result
    now, found = result.figures, [*result.expectations]
    for what, ok in compared(baseline, last, now):
        found.append(Expectation(what, ok, baseline.where(what)))
    if baseline.speed is not None and last.speed is not None:
        models = storage.without_alias(result.stored.proto), result.proto
        least = baseline.speed.factor * last.speed
        measured = speed(least, result.stored, models, recipe.inputs, recipe.verify)
        now = replace(now, speed=measured.ratio)
        what = f"speed: {baseline.speed} of the last, {last.speed:.3f} ({measured.found})"
        found.append(Expectation(f"{_PREFIX}{what}", measured.ok, baseline.where(f"{_PREFIX}{what}")))
    return replace(result, expectations=tuple(found), figures=now)


_PREFIX: Final = "baseline "


def compared(baseline: Baseline, last: Figures, now: Figures) -> Iterator[tuple[str, bool]]:
    """Yield each bound except that of the speed as text, with both figures, and whether it holds."""
    for name, bound in baseline.bounds().items():
        before, after = getattr(last, name), getattr(now, name)
        if bound is None or name == "speed" or before is None:
            continue
        if after is None:
            yield f"{_PREFIX}{name}: {bound} of the last, {_shown(before)} (nothing was compared)", False
            continue
        ratio = f", {after / before:.3g}x" if before else ""
        yield (
            f"{_PREFIX}{name}: {bound} of the last, {_shown(before)} (found {_shown(after)}{ratio})",
            bound.holds(after, before),
        )


def _shown(figure: float) -> str:
    return f"{figure:,}" if isinstance(figure, int) else f"{figure:.3g}"
