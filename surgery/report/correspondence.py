"""Which nodes became which, as rich tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from surgery.correspondence import Correspondence
from surgery.entries import Entry

_FEW = 12
"""Kinds of groups, of removed nodes and of added ones that are shown unless each change is asked for."""
_FEW_NODES = 4
"""Nodes of either side of a group that are named unless each change is asked for."""


class _Change(NamedTuple):
    """One change: what happened to which operators, by what means, and to which nodes."""

    what: str
    by: str
    which: str


def nodes(found: Correspondence, *, every: bool = False) -> Iterator[RenderableType]:
    """Show how the nodes of two models belong together: the kinds of changes, or with `every` each change."""
    yield Text("nodes", style="bold")
    yield Text(f"  {_matched(found)}")
    table = Table(box=None, padding=(0, 1, 0, 1), header_style="bold")
    table.add_column("count", justify="right", no_wrap=True)
    for title in ("change", "by", "which" if every else "such as"):
        table.add_column(title, overflow="fold")
    left = 0
    for changes in (_became(found, None if every else _FEW_NODES), _removed(found), _added(found)):
        kinds = _kinds(changes, every=every)
        shown = kinds if every else kinds[:_FEW]
        left += len(kinds) - len(shown)
        for same in shown:
            table.add_row(str(len(same)), *(Text(part) for part in same[0]))
    if table.row_count:
        yield table
    if left:
        yield Text(f"  {left} more kinds of changes; -v lists each change", style="dim")


def _kinds(changes: Iterator[_Change], *, every: bool) -> list[list[_Change]]:
    """Put changes of one kind together, the most frequent kinds first; with `every`, each change is a kind."""
    kinds: dict[tuple[str, str, str], list[_Change]] = defaultdict(list)
    for change in changes:
        kinds[change.what, change.by, change.which if every else ""].append(change)
    return sorted(kinds.values(), key=lambda same: -len(same))


def _matched(found: Correspondence) -> str:
    """Count what was matched, and how."""
    ways = ", ".join(f"{count} by {how}" for how, count in found.matched.items())
    parts = [f"{sum(found.matched.values())} are in both{f' ({ways})' if ways else ''}"]
    if found.groups:
        became = sum(len(group.before) for group in found.groups)
        parts.append(f"{became} became {sum(len(group.after) for group in found.groups)} new")
    return ", ".join([*parts, f"{len(found.removed)} removed", f"{len(found.added)} added"])


def _became(found: Correspondence, most: int | None) -> Iterator[_Change]:
    for group in found.groups:
        which = f"{_side(group.before, most)} -> {_side(group.after, most)}"
        yield _Change(group.kind, ", ".join(group.passes) or f"matched by {group.how}", which)


def _removed(found: Correspondence) -> Iterator[_Change]:
    for removed in found.removed:
        now = f"; read now: {removed.now}" if removed.now else ""
        yield _Change(f"{removed.entry.op} removed", "", f"{removed.entry}{now}")


def _added(found: Correspondence) -> Iterator[_Change]:
    for entry in found.added:
        passes = ", ".join(entry.lineage.passes) if entry.lineage is not None else ""
        yield _Change(f"{entry.op} added", passes, str(entry))


def _side(entries: Sequence[Entry], most: int | None) -> str:
    more = 0 if most is None else max(0, len(entries) - most)
    return " + ".join([*map(str, entries[:most]), *([f"{more} more"] if more else [])])
