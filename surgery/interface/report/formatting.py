"""Formatting of numbers and names in reports: sizes, differences, tolerances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from surgery.base.errors import counted, first_few
from surgery.verification.comparing.details import Status

if TYPE_CHECKING:
    from surgery.model.storage.summary import Summary
    from surgery.verification.comparing.details import Verdict

_UNITS = ("B", "kB", "MB", "GB", "TB")


def size(count: int | None) -> str:
    """Format a number of bytes in decimal units."""
    if count is None:
        return "?"
    value, unit = float(count), 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{count} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def shrunk(before: Summary, after: Summary) -> str:
    """Say how the numbers of nodes and bytes changed: "175 -> 122 nodes (-30 %), 191.1 -> 155.8 kB (-18 %)".

    The bytes are left out if the model after it has not been written.
    """
    nodes = moved_nodes(before.nodes, after.nodes)
    return f"{nodes}, {moved_bytes(before.bytes, after.bytes)}" if after.bytes else nodes


def moved_nodes(before: int, after: int) -> str:
    """Say how a number of nodes changed: "175 -> 122 nodes (-30 %)"."""
    return f"{before} -> {after} nodes{_share(before, after)}"


def moved_bytes(before: int | None, after: int) -> str:
    """Say how a size changed: "191.1 -> 155.8 kB (-18 %)"."""
    first, second = size(before), size(after)
    if first.split()[-1] == second.split()[-1]:
        first = first.split()[0]
    return f"{first} -> {second}{_share(before or 0, after)}"


def _share(before: int, after: int) -> str:
    """Return the change in percent; empty if there is none to name."""
    if not before or before == after:
        return ""
    percent = 100 * (after - before) / before
    return f" ({percent:+.0f} %)" if abs(percent) >= 1 else f" ({percent:+.1f} %)"


def value(found: object) -> str:
    """Format a value of a comparison: a dash if there is none, numbers with separators."""
    return "-" if found is None else f"{found:,}" if isinstance(found, int) else str(found)


def duration(seconds: float) -> str:
    """Format a time: 0.24 s, 1.1 s, 35 s, 2 min 5 s."""
    if seconds < 1:
        return f"{seconds:.2f} s"
    if round(seconds) < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{round(seconds) // 60} min {round(seconds) % 60} s"


def needed(verdict: Verdict | None) -> str:
    """Format the tolerance that a comparison needed."""
    if verdict is None or verdict.is_unverified or not verdict.needed:
        return ""
    if verdict.status is Status.EQUAL:
        return "0"
    return f"{verdict.needed['rtol']:.1e}"


def not_met(count: int) -> str:
    """Say how many expectations are not met."""
    return f"{counted(count, 'expectation')} {'is' if count == 1 else 'are'} not met"


def used(verdict: Verdict) -> str:
    """Format the largest share of the tolerance that an element used: "none", "7.4 %", "1.8 times"; empty if unknown.

    It is more than all of it where outputs are as close to float64 as those of the original, or differ.
    """
    factor = (verdict.needed or {}).get("factor")
    if factor is None or verdict.is_unverified:
        return ""
    if factor > 1:
        return f"{factor:.3g} times"
    return f"{100 * factor:.2g} %" if factor else "none"


def change(difference: int) -> Text:
    """Format a difference with its sign; a decrease is green."""
    if difference == 0:
        return Text("")
    return Text(f"{difference:+d}", style="green" if difference < 0 else "yellow")


def quoted_names(names: Sequence[str], most: int) -> str:
    """Return the first few names in quotes, with the number of the others."""
    return first_few((f"'{name}'" for name in names), most)
