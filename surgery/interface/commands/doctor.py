"""Check the installation: packages, workers, ONNX Runtime, the limits of this machine, plugins.

The exit code is 1 if something is broken. Attach the output to bug reports.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from surgery.base.errors import counted
from surgery.interface.command_line import _output

if TYPE_CHECKING:
    from surgery.interface.command_line._installation import InstallationProblem

_MARKS = {"ok": ("ok", "green"), "note": ("note", "yellow"), "broken": ("broken", "bold red")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `doctor`: it has none."""


def main(arguments: argparse.Namespace) -> int:
    """Run all checks."""
    from surgery.interface.command_line._installation import diagnose

    found = diagnose()
    if arguments.format == "json":
        _output.write_json(found.to_json())
        return 0 if found.ok else 1
    if not arguments.quiet:
        _show(found.findings)
    notes = counted(sum(one.level == "note" for one in found.findings), "note")
    broken = sum(one.level == "broken" for one in found.findings)
    _output.write(f"{broken} broken, {notes}" if broken else f"no problems; {notes}")
    return 0 if found.ok else 1


def _show(findings: tuple[InstallationProblem, ...]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    for one in findings:
        mark, style = _MARKS[one.level]
        table.add_row(Text(mark, style=style), one.check, f"{one.text}; {one.todo}" if one.todo else one.text)
    _output.write(table)
