"""The page of a batch: finished models, failures by cause, and the result of each model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from surgery.interface.pages import charts, marks, page_text
from surgery.interface.pages.page import PageSection, page, render
from surgery.interface.pages.run_verdict import KeyFigure, RunVerdict

_MOST_ROWS = 5000
_MOST_POINTS = 2000
_STATES = {
    "done": marks.Mark("\u2713", "done", "ok"),
    "failed": marks.Mark("\u2715", "failed", "bad"),
    "skipped": marks.Mark("\u00b7", "skipped", "none"),
    "running": marks.Mark("\u00b7", "running", "info"),
    "queued": marks.Mark("\u00b7", "queued", "info"),
}


def report(found: Mapping[str, Any], title: str) -> str:
    """Return the page of a batch; `found` is the output of `surgery batch --format json`."""
    models: Sequence[Mapping[str, Any]] = found["models"]
    failures = found["failures"]
    done = [one for one in models if one["state"] == "done"]
    sections = [
        PageSection(
            "result",
            "Result",
            render(
                "batches/result.html.jinja",
                outcome=_outcome(found),
                facts=_facts(found, done),
                picture=_picture(done),
            ),
        )
    ]
    if failures:
        body = render(
            "batches/failures.html.jinja", failures=failures, most=max(len(one["models"]) for one in failures)
        )
        sections.append(PageSection("failures", "Failures by cause", body, "Failures"))
    rows = sorted(models, key=lambda one: (one["state"] != "failed", _gain(one), one["name"]))
    most = max((one["nodes_before"] or 0 for one in done), default=0)
    shown = [
        (
            one,
            _STATES[one["state"]],
            _verdict(one),
            charts.pair(one["nodes_before"] or 0, one["nodes_after"] or 0, most),
        )
        for one in rows[:_MOST_ROWS]
    ]
    body = render("batches/models.html.jinja", rows=shown, more=len(rows) - len(shown))
    sections.append(PageSection("models", "Models", body))
    return page(title, sections, kind="Report of a batch")


def _outcome(found: Mapping[str, Any]) -> RunVerdict:
    counts = found["counts"]
    failed, left = counts.get("failed", 0), counts.get("queued", 0) + counts.get("running", 0)
    if failed:
        return RunVerdict(
            "bad", f"{page_text.plural(failed, 'model')} of {page_text.integer(len(found['models']))} failed."
        )
    unmet = sum(one["state"] == "done" and bool(one["kind"]) for one in found["models"])
    if unmet:
        return RunVerdict("bad", f"{page_text.plural(unmet, 'model does', 'models do')} not meet the purpose.")
    if left:
        return RunVerdict(
            "warn", f"{page_text.plural(left, 'model')} of {page_text.integer(len(found['models']))} did not run."
        )
    return RunVerdict("ok", "All models are done.")


def _facts(found: Mapping[str, Any], done: Sequence[Mapping[str, Any]]) -> list[KeyFigure]:
    """Return the numbers of a batch."""
    totals = found["totals"]
    verdicts: dict[str, int] = {}
    for one in done:
        name = one["verdict"] or "unchanged"
        verdicts[name] = verdicts.get(name, 0) + 1
    listed = ", ".join(f"{page_text.integer(count)} {name}" for name, count in sorted(verdicts.items()))
    states = ", ".join(f"{page_text.integer(count)} {state}" for state, count in found["counts"].items())
    return [
        KeyFigure("Models", page_text.integer(len(found["models"])), states),
        KeyFigure(
            "Nodes", page_text.integer(totals["nodes_after"]), f"from {page_text.integer(totals['nodes_before'])}"
        ),
        KeyFigure(
            "File sizes", page_text.size(totals["bytes_after"]), f"from {page_text.size(totals['bytes_before'])}"
        ),
        KeyFigure("Verdicts", page_text.integer(len(done)), listed),
        KeyFigure("Time", page_text.seconds(found["seconds"]), "of the last call"),
    ]


def _picture(done: Sequence[Mapping[str, Any]]) -> Markup:
    """Return a chart of the nodes after against the nodes before, for the finished models."""
    known = [one for one in done if one["nodes_before"] and one["nodes_after"]][:_MOST_POINTS]
    if len(known) < 2:
        return Markup("")
    points = [
        charts.ChartPoint(one["name"], float(one["nodes_before"]), float(one["nodes_after"]), 3.0) for one in known
    ]
    ends = [min(min(one.x, one.y) for one in points), max(max(one.x, one.y) for one in points)]
    x, y = (charts.around(ends, f"nodes {side}, logarithmic", page_text.amount) for side in ("before", "after"))
    same = charts.Series("as many", [(ends[0], ends[0]), (ends[1], ends[1])])
    rows = [
        (one["name"], page_text.integer(one["nodes_before"]), page_text.integer(one["nodes_after"])) for one in known
    ]
    table = charts.ChartTable("Nodes of each model", ("model", "before", "after"), rows)
    return charts.scatter("batch-nodes", "Nodes of each model, before and after", points, x, y, table, [same])


def _gain(one: Mapping[str, Any]) -> float:
    """Return the ratio of nodes after to nodes before; models with the largest reduction come first."""
    return (one["nodes_after"] or 0) / one["nodes_before"] if one["nodes_before"] else 2.0


def _verdict(one: Mapping[str, Any]) -> marks.Mark | None:
    return marks.verdict(one["verdict"]) if one["verdict"] else None
