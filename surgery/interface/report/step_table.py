"""The steps of a run as a table and messages, shortened to fit a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from surgery.interface.report.formatting import change, needed
from surgery.verification.comparing.details import Status

if TYPE_CHECKING:
    from surgery.engine.pipeline.records import StepRecord
    from surgery.verification.comparing.details import Verdict

STATUS_STYLES = {"committed": "green", "unchanged": "dim", "rolled_back": "yellow", "skipped": "dim", "failed": "red"}
_FEW = 20
"""Maximum number of steps of a recipe that are shown even if they changed nothing."""
_LEAST_ROWS = 1
"""Minimum number of steps shown, regardless of the height of the terminal."""
_LINES = 2
"""Maximum number of lines of a shortened message."""
_GAP = 2

_COLUMNS = ("step", "status", "nodes", "", "sites", "verdict", "region", "needed", "seconds")
_LEFT = ("step", "status", "verdict")
_DROPPED = ("seconds", "region", "needed", "sites", "status", "", "verdict")
"""The columns that are left out on a narrow terminal, in this order."""


@dataclass(frozen=True)
class StepTable:
    """A table with one row per step and as many columns as fit; the needed tolerance is one if `every` is set."""

    steps: Sequence[StepRecord]
    every: bool = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Leave out columns until the table fits; as a last resort, the names of steps are wrapped."""
        rows = [_cells(step) for step in self.steps]
        columns = [name for name in _COLUMNS if self.every or name != "needed"]
        unusual = any(step.status != "committed" for step in self.steps)
        # The status is more important than the verdict if not all steps are committed.
        dropped = [name for name in _DROPPED if not (unusual and name == "status")]
        for name in dropped:
            if _width(columns, rows) <= options.max_width:
                break
            columns = [one for one in columns if one != name]
        yield _table(columns, rows)


def _width(columns: Sequence[str], rows: Sequence[dict[str, Text]]) -> int:
    """Return the width of a table."""
    shown = _joined(columns, rows)
    return sum(max(len(name), *(row[name].cell_len for row in shown)) + _GAP for name in shown[0]) - _GAP


def _joined(columns: Sequence[str], rows: Sequence[dict[str, Text]]) -> list[dict[str, Text]]:
    """Return the cells of the columns; the size of a region is shown with its verdict."""
    found = []
    for row in rows:
        verdict = {"verdict": row["verdict"] + row["region"]} if "region" in columns else {}
        found.append({name: (row | verdict)[name] for name in columns if name != "region"})
    return found


def _table(columns: Sequence[str], rows: Sequence[dict[str, Text]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    shown = _joined(columns, rows)
    for name in shown[0]:
        # Only names may be wrapped, not numbers.
        table.add_column(
            name,
            justify="left" if name in _LEFT else "right",
            no_wrap=name != "step",
            overflow="fold" if name == "step" else "ellipsis",
        )
    for row in shown:
        table.add_row(*row.values())
    return table


def _cells(step: StepRecord) -> dict[str, Text]:
    verdict = step.verdict
    region = f" ({verdict.region} nodes)" if verdict is not None and verdict.region is not None else ""
    return {
        "step": Text(step.name),
        "status": Text(step.status.replace("_", " "), style=STATUS_STYLES[step.status]),
        "nodes": Text(str(step.nodes_after)),
        "": change(step.nodes_after - step.nodes_before),
        "sites": Text(str(step.sites) if step.sites else ""),
        "verdict": Text(str(verdict.status), style=verdict.status.style) if verdict is not None else Text(""),
        "region": Text(region, style="dim"),
        "needed": Text(needed(verdict)),
        "seconds": Text("cached" if step.cached else f"{step.seconds:.2f}", style="dim"),
    }


def steps_shown(steps: Sequence[StepRecord], rows: int | None = None, *, every: bool = False) -> RenderableType:
    """Return the steps in at most `rows` rows: all of a short recipe, else those that changed something.

    With `every`, all are listed. The last line counts the steps that are not listed.
    """
    shown = [step for step in steps if every or len(steps) <= _FEW or not _is_idle(step)]
    if rows is not None and not every:
        shown = _most_telling(shown, rows, others=len(shown) < len(steps))
    left = _left_out(steps, shown)
    return Group(*([StepTable(shown, every=every)] if shown else []), *([Text(left, style="dim")] if left else []))


def _most_telling(steps: list[StepRecord], rows: int, *, others: bool) -> list[StepRecord]:
    """Return the most important steps, in order, that fit the number of rows including the header."""
    room = max(rows - 1 - int(others), _LEAST_ROWS)
    if len(steps) <= room:
        return steps
    # Reserve one row for the line that counts the others.
    room = max(rows - 2, _LEAST_ROWS)
    ranked = sorted(range(len(steps)), key=lambda number: (_weight(steps[number]), -number), reverse=True)
    return [steps[number] for number in sorted(ranked[:room])]


def _weight(step: StepRecord) -> tuple[bool, bool, int, int]:
    """Return the importance of a step: failed steps first, then those with the largest changes."""
    failed = step.status in ("failed", "rolled_back") or bool(step.refused_sites or step.defects)
    return failed, not _is_idle(step), abs(step.nodes_after - step.nodes_before), step.sites


def _left_out(steps: Sequence[StepRecord], shown: Sequence[StepRecord]) -> str:
    """Return a line that counts the steps not shown, separately for those that changed something."""
    there = set(map(id, shown))
    left = [step for step in steps if id(step) not in there]
    if not left:
        return ""
    made = [step for step in left if not _is_idle(step)]
    idle = len(left) - len(made)
    parts = []
    if made:
        difference = sum(step.nodes_after - step.nodes_before for step in made)
        parts.append(f"{len(made)} {'step' if len(made) == 1 else 'steps'} with {difference:+d} nodes")
    if idle:
        parts.append(f"{idle} {'step' if idle == 1 else 'steps'} that changed nothing")
    if made:
        return f"not shown: {', '.join(parts)} (-v)"
    other, them = " other" if shown else "", "it" if idle == 1 else "them"
    return f"{idle}{other} {'step' if idle == 1 else 'steps'} changed nothing (-v lists {them})"


def _is_idle(step: StepRecord) -> bool:
    """Return whether a step had no effect: its condition was not met, or it found nothing to change."""
    return step.status == "skipped" or (step.status == "unchanged" and not step.message)


def messages(steps: Sequence[StepRecord]) -> Iterator[tuple[StepRecord, Text]]:
    """Yield the messages of steps, without repetitions; distances of outputs are dim."""
    known = None
    said: set[tuple[str, str, str]] = set()
    for step in steps:
        same = step.name, step.where, step.message
        if step.message and step.status != "skipped":
            if same in said:  # in the previous round
                continue
            said.add(same)
            place = f"{step.place}: " if step.where else ""
            yield step, Text.assemble((f"{step.name}: ", STATUS_STYLES[step.status]), f"{place}{step.message}")
        # An exact step after one that changes rounding has the same distance from the original as that one.
        elif step.verdict is not None and step.verdict.status is Status.CLOSE and step.verdict.details != known:
            known = step.verdict.details
            if known is not None and not known.differing:
                continue
            yield step, Text.assemble((f"{step.name}: ", STATUS_STYLES[step.status]), (distance(step.verdict), "dim"))


def messages_shown(
    steps: Sequence[StepRecord], lines: int | None = None, *, every: bool = True
) -> Iterator[RenderableType]:
    """Yield the messages indented; in at most `lines` lines, the worst ones are kept, shortened.

    The distances of outputs are among them if `every` is set and there is room for all.
    """
    found = list(messages(steps))
    if lines is not None or not every:
        found = [(step, text) for step, text in found if step.message]
    if lines is None:
        yield from (Padding(text, (0, 0, 0, 2)) for _, text in found)
        return
    room = max(lines // _LINES, 1)
    if len(found) > room:
        kept = sorted(sorted(range(len(found)), key=lambda at: (not _weight(found[at][0])[0], at))[:room])
    else:
        kept = list(range(len(found)))
    yield from (_Cut(found[at][1]) for at in kept)
    left = len(found) - len(kept)
    if left:
        yield Text(f"  {left} more {'message' if left == 1 else 'messages'} (-v)", style="dim")


@dataclass(frozen=True)
class _Cut:
    """A message on at most two indented lines; omitted text is marked."""

    text: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(options.max_width - 2, 10)
        lines = list(self.text.wrap(console, width))
        if len(lines) > _LINES:
            lines = lines[:_LINES]
            lines[-1].truncate(width - 3)
            lines[-1].append("...")
        for line in lines:
            yield Padding(line, (0, 0, 0, 2))


def distance(verdict: Verdict) -> str:
    """Format the distance of close outputs: the tolerance needed, and the distances from float64."""
    parts, details = ["no tolerance is large enough"], verdict.details
    if verdict.needed is not None:
        parts = [f"needed rtol {verdict.needed['rtol']:.1e} and atol {verdict.needed['atol']:.1e}"]
    if details is not None:
        parts.append(f"at most {details.ulp:.4g} ulp")
        if details.float64 is not None and details.float64.original is not None:
            far, near = details.float64.changed, details.float64.original
            parts.append(f"{far:.2g} tolerances from float64 (original: {near:.2g})")
    if verdict.is_tied:
        parts.append("other choices between near ties")
    return "; ".join(parts)
