"""The steps of a run: a line for each step with an effect, with its sites below; the others are folded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from surgery.interface.pages import charts, marks, page_text
from surgery.interface.pages.page import render
from surgery.interface.pages.run_verdict import share

_LOW, _HIGH = -6, 1
"""The ends of the tolerance bars, as powers of ten of the allowed tolerance."""


@dataclass(frozen=True)
class StepRow:
    """One step: its number from 1, its fields in the JSON report, and the additional values shown.

    `state` is the number of the graph state after the step, None if the graph view has none. `line` is the id of its
    line in the recipe, and `place` the name of that line.
    """

    number: int
    step: Mapping[str, Any]
    mark: marks.Mark
    state: int | None
    line: str
    place: str

    @property
    def tolerance(self) -> Markup:
        """The bar for the tolerance needed, on a logarithmic scale."""
        factor = self.factor
        if factor is None:
            return Markup("")
        filled = 0.0 if factor == 0 else (math.log10(factor) - _LOW) / (_HIGH - _LOW)
        # Beyond the tolerance, a step may still pass: as close to float64 as the original, or lossy within its budget.
        kind = "good" if factor <= 1 else "poor" if self.step["status"] == "committed" else "wrong"
        return charts.bar(max(filled, 0.02) if factor else 0.0, kind, limit=-_LOW / (_HIGH - _LOW), width=90)

    @property
    def factor(self) -> float | None:
        """The needed tolerance, as a multiple of the allowed one."""
        found = (self.step.get("needed") or {}).get("factor")
        return float(found) if isinstance(found, int | float) and math.isfinite(found) else None

    @property
    def used(self) -> str:
        """The used share of the tolerance as text."""
        return "" if self.factor is None else share(self.factor)

    @property
    def delta(self) -> int:
        """The change of the number of nodes."""
        return int(self.step["nodes_after"]) - int(self.step["nodes_before"])

    @property
    def tone(self) -> str:
        """The tone of the line."""
        if self.step["status"] == "failed":
            return "bad"
        if self.step.get("defects"):
            return "bad"
        return "warn" if self.step["status"] == "rolled_back" or self.step.get("refused_sites") else ""

    @property
    def has_more(self) -> bool:
        """Whether there are details below the line."""
        step = self.step
        return any(
            step.get(key) for key in ("message", "applied", "refused_sites", "kept", "declined", "details", "why")
        )


def steps(run: Mapping[str, Any], lines: Mapping[str, str], states: Mapping[int, int]) -> Markup:
    """Return the body of the section on steps.

    `lines` has the ids of the lines of the recipes by place, such as "fast.yaml:12"; `states` has the states of the
    graph view by the number of the step, from 0.
    """
    rows = [_row(number, step, lines, states) for number, step in enumerate(run["steps"])]
    shown = [row for row in rows if row.step["status"] not in ("unchanged", "skipped") or row.step.get("refused_sites")]
    quiet = [row for row in rows if row not in shown]
    return render("run/steps.html.jinja", rows=shown, quiet=quiet, longest=_longest(shown), charts=charts, marks=marks)


def _longest(rows: Sequence[StepRow]) -> float:
    return max((float(row.step["seconds"]) for row in rows), default=0.0)


def _row(number: int, step: Mapping[str, Any], lines: Mapping[str, str], states: Mapping[int, int]) -> StepRow:
    held = step["status"] == "committed" and step.get("verdict")
    mark = marks.verdict(step["verdict"]) if held else marks.status(step["status"])
    where = step.get("where") or ""
    file, _, line = where.rpartition(":")
    place = f"{file.rpartition('/')[2]}:{line}" if file else ""
    return StepRow(number + 1, step, mark, states.get(number), lines.get(where, ""), page_text.clip(place, 60))
