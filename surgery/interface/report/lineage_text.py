"""The lineage of nodes as rich tables."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from surgery.features.inspection.pass_counts import Descent
from surgery.model.proto.lineage import Lineage
from surgery.model.proto.lineage_entries import LineageEntry

_FEW = 3


def descent(found: Descent, origin: str | None = None, *, most: int = _FEW) -> RenderableType:
    """Return the report of `inspect --lineage`, with `most` origins of each node; `origin` is the requested one."""
    if not found.found:
        return Text(_nothing(found, origin), style="yellow")
    parts: list[RenderableType] = []
    if found.passes:
        parts += [_passes(found), Text("")]
    parts.append(_entries(found.found, most))
    attributed = sum(entry.lineage is not None for entry in found.entries if entry.node is not None)
    parts += [Text(""), Text(f"{attributed} of {found.nodes} nodes were made or edited by passes", style="dim")]
    return Group(*parts)


def _nothing(found: Descent, origin: str | None) -> str:
    if origin is None:
        return "no node of this model has a lineage: no pass made any, or it was stripped"
    text = f"no node is known to come from '{origin}'"
    if found.cut:
        text += f" ({found.cut} lists of origins are cut short)"
    return (
        f"{text}: it was removed, it only computed an operand, or it never existed; run 'surgery diff' with the "
        f"original"
    )


def _passes(found: Descent) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("pass", no_wrap=True)
    table.add_column("nodes", justify="right")
    table.add_column("constants", justify="right")
    for count in found.passes:
        table.add_row(count.name, str(count.nodes), str(count.constants or ""))
    return table


def _entries(entries: tuple[LineageEntry, ...], most: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("operator", no_wrap=True)
    for title in ("name", "made by", "from"):
        table.add_column(title, overflow="fold")
    for entry in entries:
        name = Text(entry.name)
        if entry.scope:
            name.append(f" in {entry.scope}", style="dim")
        table.add_row(Text(entry.op), name, *_cells(entry.lineage, most))
    return table


def _cells(known: Lineage | None, most: int) -> tuple[Text, Text]:
    if known is None:
        return Text(""), Text("from the original", style="dim")
    return Text(", ".join(known.passes)), Text(origins(known, most))


def origins(known: Lineage, most: int) -> str:
    """Return at most `most` origins, with the number of the others."""
    more = max(0, len(known.origins) - most) + known.more
    certain = "at least " if known.more else ""
    return ", ".join([*known.origins[:most], *([f"{certain}{more} more"] if more else [])])
