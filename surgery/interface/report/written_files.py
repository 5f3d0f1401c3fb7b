"""Reports of commands that write several files."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from surgery.base.errors import first_few
from surgery.features.splitting.split import Split
from surgery.interface.report.formatting import size

_MOST_NAMES = 4


def split(found: Split) -> RenderableType:
    """Return the pieces of a model, their connections, and the verdict on them in sequence."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("piece", no_wrap=True)
    for title in ("nodes", "weights"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("takes from earlier ones", overflow="fold")
    for part in found.parts:
        taken = [name for name, maker in part.inputs.items() if maker]
        table.add_row(Text(part.file), str(part.nodes), size(part.weights), Text(first_few(taken, _MOST_NAMES)))
    verdict = found.verdict
    line = Text(f"in sequence: {verdict.status}", style=verdict.status.style)
    remark = verdict.message or verdict.reason
    return Group(table, line, *([Text(f"  {remark}")] if remark else []))
