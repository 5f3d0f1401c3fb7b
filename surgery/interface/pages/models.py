"""The sections of a page on one model, or on the difference of two models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from surgery.interface.pages import marks, run_evidence
from surgery.interface.pages.page import PageSection, page, render

_MOST_KINDS = 200
"""Maximum number of kinds of changes that are listed."""

_SIZES = ("weight bytes", "file bytes")
"""The sizes that are in bytes."""


def model_sections(found: Mapping[str, Any]) -> list[PageSection]:
    """Return the sections on a model; `found` is the JSON report of `surgery inspect`, without the analysis.

    It may also have `costs`, as in the report of a run, for this model only, and `provenance`, the summary of the
    statement that the model carries.
    """
    operators = sorted(found["ops"].items(), key=lambda item: (-item[1], item[0]))
    costs = run_evidence.costs(found, {"before": "The model"})
    return [
        PageSection("summary", "Summary", render("models/summary.html.jinja", found=found)),
        PageSection("operators", "Operators", render("models/operators.html.jinja", operators=operators)),
        *([PageSection("costs", "Cost by operator", costs)] if costs else []),
        *_provenance(found.get("provenance"), found.get("path")),
    ]


def _provenance(stated: Mapping[str, Any] | None, path: str | None) -> list[PageSection]:
    """Return the section on how a model was made, as its statement says."""
    if not stated:
        return []
    rows = [(str(step["pass"]), marks.verdict(step["verdict"]), step["status"]) for step in stated["steps"]]
    end = marks.verdict(stated["end"]) if stated["end"] else None
    body = render("models/provenance.html.jinja", stated=stated, rows=rows, end=end, path=path or "FILE")
    return [PageSection("provenance", "Provenance", body)]


def model_page(title: str, found: Mapping[str, Any], drawing: Mapping[str, Any]) -> str:
    """Return the page of a model with its sections and its drawing."""
    opens = ["surgery", "open", str(found["path"])] if found.get("path") else []
    return page(title, model_sections(found), drawing, kind="Model", opens=opens)


def difference_sections(found: Mapping[str, Any]) -> list[PageSection]:
    """Return the sections on the difference of two models; `found` is the JSON report of `surgery diff`."""
    nodes = found["nodes"]
    changes = [change for key in ("signature", "opsets", "functions", "metadata") for change in found[key]]
    mark, headline, remarks = _verdict(found.get("parity"))
    summary = render(
        "models/difference.html.jinja",
        found=found,
        nodes=nodes,
        changes=changes,
        matched=sum(nodes["matched"].values()),
        sizes=_SIZES,
        mark=mark,
        headline=headline,
        remarks=remarks,
    )
    made = [
        PageSection("summary", "Summary", summary),
        PageSection("operators", "Operators", run_evidence.operators(_as_run(found))),
    ]
    if nodes["kinds"]:
        listed, more = nodes["kinds"][:_MOST_KINDS], max(0, len(nodes["kinds"]) - _MOST_KINDS)
        body = render("models/kinds.html.jinja", kinds=listed, more=more)
        made.insert(1, PageSection("changes", "What changed", body))
    return made


def _verdict(parity: Mapping[str, Any] | None) -> tuple[marks.Mark, str, list[str]]:
    """Return the mark, the headline and the remarks of a comparison of outputs, as in `surgery verify`."""
    if parity is None:
        return marks.verdict(None), "", []
    name = parity["verdict"]
    complaints = [*parity["narrowed"], *parity["findings"]]
    remarks = [*complaints, parity["message"] or parity["reason"] or "", *parity["signature"]]
    if complaints and name in ("equal", "close"):
        what = "accepts less than the first" if parity["narrowed"] else "is not valid, unlike the first"
        return marks.VERDICTS["different"], f"The outputs agree, but the second model {what}.", remarks
    mark = marks.verdict(name)
    return mark, mark.outputs, remarks


def _as_run(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the operators of both models in the format of the report of a run."""
    return {
        side: {"ops": {count["op"]: count[key] for count in found["operators"] if count[key]}}
        for side, key in (("input", "before"), ("output", "after"))
    }
