"""Format the rows, the means and the goals as tables: for a terminal, as Markdown, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict

from rich import box
from rich.console import Console
from rich.table import Table

from suite.goals import Comparison, Goal
from suite.records import ORIGINAL, Record

HEADER = (
    "model",
    "tool",
    "nodes",
    "outside ai.onnx",
    "MB",
    "seconds",
    "seconds cpu",
    "private MiB",
    "latency min",
    "latency median",
    "parity",
    "signature",
    "notes",
)
_PLAIN_WIDTH = 120
_STATES = {True: "pass", False: "FAIL", None: "-"}


def cells(record: Record, best: Record | None) -> tuple[str, ...]:
    """Return the cells of a row; a star marks the best valid peer."""
    star = "*" if record is best else " "
    original = record.tool == ORIGINAL
    return (
        record.model,
        record.tool,
        "" if record.nodes is None else f"{record.nodes}{star}",
        "" if record.nodes is None else str(record.outside),
        "" if record.bytes is None else f"{record.bytes / 1e6:.1f}",
        "" if record.seconds is None else f"{record.seconds:.2f}",
        "" if record.cpu is None else f"{record.cpu:.2f}",
        "" if record.private is None else f"{record.private / 2**20:.0f}",
        *(f"{record.latency[key]:.3f}" if key in record.latency else "" for key in ("minimum", "median")),
        "" if original or record.failure else "wrong" if record.wrong else f"{record.error:.0e}",
        "" if original else record.signature,
        record.notes,
    )


def rows(comparison: Comparison) -> Iterable[tuple[str, ...]]:
    """Yield the cells of every row, model by model."""
    for model in comparison.models:
        best = comparison.best(model)
        for (name, _), record in comparison.rows.items():
            if name == model:
                yield cells(record, best)


def terminal(comparison: Comparison, missing: Iterable[str]) -> None:
    """Print the table with a section for each model, then the notes, the means and the goals."""
    console = Console(emoji=False, highlight=False, markup=False)
    if not console.is_terminal:
        console.width = _PLAIN_WIDTH
    table = Table("", *(title.replace(" ", "\n", 1) for title in HEADER[2:-1]), box=box.SIMPLE, padding=(0, 1, 0, 0))
    for column in table.columns[1:9]:
        column.justify = "right"
    notes = []
    for model, tool, *figures, note in rows(comparison):
        if tool == ORIGINAL:
            table.add_section()
        table.add_row(model if tool == ORIGINAL else f"  {tool}", *figures)
        if note:
            notes.append(f"{model}, {tool}: {note}")
    console.print(table)
    for line in notes + [f"{name}: not installed" for name in missing]:
        console.print(line, soft_wrap=True)
    console.print(_plain(("geometric mean", "value", "models"), _means(comparison)))
    console.print(_plain(("goal", "", "detail"), map(_goal, comparison.goals())))


def _plain(header: tuple[str, ...], lines: Iterable[tuple[str, ...]]) -> Table:
    table = Table(*header, box=box.SIMPLE, padding=(0, 1, 0, 0))
    for line in lines:
        table.add_row(*line)
    return table


def markdown(comparison: Comparison, missing: Iterable[str]) -> str:
    """Format all tables as Markdown."""
    parts = [_markdown(HEADER, rows(comparison))]
    parts.append(_markdown(("geometric mean", "value", "models"), _means(comparison)))
    parts.append(_markdown(("goal", "", "detail"), map(_goal, comparison.goals())))
    parts += [f"{name}: not installed\n" for name in missing]
    return "\n".join(parts)


def _means(comparison: Comparison) -> list[tuple[str, ...]]:
    return [(f.what, f"{f.value:.3f}", str(f.models)) for f in comparison.figures() if f.value is not None]


def _goal(goal: Goal) -> tuple[str, ...]:
    return goal.what, _STATES[goal.met], goal.detail


def _markdown(header: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    head = tuple(header)
    table = [head, tuple("---" for _ in head), *lines]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in table)


def to_json(comparison: Comparison, missing: Iterable[str]) -> str:
    """Format everything as JSON."""
    return json.dumps(
        {
            "rows": [asdict(record) for record in comparison.rows.values()],
            "means": [asdict(figure) for figure in comparison.figures()],
            "goals": [asdict(goal) for goal in comparison.goals()],
            "missing": list(missing),
        },
        indent=1,
    )
