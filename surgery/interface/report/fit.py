"""The nodes that a target does not run, on the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from surgery.features.inspection.fit import Fit, UnfitNodes


def fit(found: Fit, *, verbose: bool = False) -> RenderableType:
    """Return whether a model fits a target, and the misfits; `verbose` adds the source of the target profile."""
    parts: list[RenderableType] = [Text(headline(found), style="bold")]
    if verbose:
        parts += [Text(line, style="dim") for line in (found.target.about, found.target.source) if line]
    if found.rows:
        parts += [Text(""), _table(found)]
        parts += [Text(line) for line in _steps(found)]
    return Group(*parts)


def headline(found: Fit) -> str:
    """Return in one line whether a model fits a target."""
    name = found.target.name
    if found.fits:
        return f"{name} runs all {found.nodes} nodes"
    if found.off:
        return f"{name} does not run {found.off} of {found.nodes} nodes"
    return f"{name} does not run this model as it is"


def _table(found: Fit) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("nodes", justify="right")
    table.add_column("reason")
    table.add_column("helps")
    for row in found.rows:
        count = str(row.misfit.count) if row.misfit.reason.op else ""
        table.add_row(count, _reason(row), row.help.split(":")[0] or "-")
    return table


def _reason(row: UnfitNodes) -> RenderableType:
    names = "\n".join(row.misfit.first)
    more = row.misfit.count - len(row.misfit.first)
    rest = f"\nand {more} more" if more > 0 else ""
    words = Text(row.misfit.reason.words)
    return Group(words, Padding(Text(f"{names}{rest}", style="dim"), (0, 0, 0, 2))) if names else words


def _steps(found: Fit) -> Iterator[str]:
    if not found.steps:
        return
    yield ""
    yield "steps of a recipe that would help:"
    yield from (f"  - {step}" for step in found.steps)
