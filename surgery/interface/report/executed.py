"""The nodes that a runtime executes as a rich table."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from surgery.verification.verdict.executed_nodes import ExecutedNodes


def headline(found: ExecutedNodes) -> str:
    """Return the number of executed nodes in one line."""
    return f"{found.executed}, {found.nodes} in the model"


def executed(found: ExecutedNodes) -> RenderableType:
    """Return a row for each operator: how often the model has it, and how often each provider executes it."""
    providers = sorted({provider for _, provider in found.executed.nodes})
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("operator", no_wrap=True)
    for title in ("model", *providers):
        table.add_column(title, justify="right")
    counts = found.executed.nodes
    for op in sorted({*found.model, *(op for op, _ in counts)}):
        table.add_row(
            op, *(str(count or "") for count in (found.model.get(op), *(counts.get((op, one)) for one in providers)))
        )
    return Group(table, Text(""), Text(headline(found), style="bold"))
