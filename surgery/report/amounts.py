"""Formatting of numbers and names in reports: sizes, differences, tolerances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from surgery.errors import first_few
from surgery.verification.comparing.details import Status

if TYPE_CHECKING:
    from surgery.verification.verdict.verifier import Verdict

_UNITS = ("B", "kB", "MB", "GB", "TB")


def size(count: int | None) -> str:
    """Format a number of bytes in decimal units."""
    if count is None:
        return "?"
    value, unit = float(count), 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{count} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def needed(verdict: Verdict | None) -> str:
    """Format the tolerance that a comparison needed."""
    if verdict is None or verdict.is_unverified or not verdict.needed:
        return ""
    if verdict.status is Status.EQUAL:
        return "0"
    return f"{verdict.needed['rtol']:.1e}"


def change(difference: int) -> Text:
    """Format a difference with its sign; a decrease is green."""
    if difference == 0:
        return Text("")
    return Text(f"{difference:+d}", style="green" if difference < 0 else "yellow")


def quoted_names(names: Sequence[str], most: int) -> str:
    """Return the first few names in quotes, with the number of the others."""
    return first_few((f"'{name}'" for name in names), most)
