"""The comparison of two batch runs, on the terminal and in Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from surgery.interface.report.batch import models
from surgery.interface.report.formats import outcome as outcomes
from surgery.interface.report.formatting import size

if TYPE_CHECKING:
    from surgery.engine.batching.corpus_comparison import CorpusComparison, ModelChange, What

_MOST = 40
_MOST_DIGITS = 18
_ORDER = ("broken", "missing", "new", "fixed", "verdict", "nodes", "bytes", "tolerance", "seconds", "contents")


def ordered(found: CorpusComparison) -> list[ModelChange]:
    """Return the changes; those for the worse come first."""
    return sorted(found.changes, key=lambda change: (not change.is_worse, _ORDER.index(change.what), change.name))


def comparison(found: CorpusComparison, *, every: bool = False) -> RenderableType:
    """Return the report: a line for each change, and the line with the result."""
    changes = ordered(found)
    shown = changes if every else changes[:_MOST]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("model", "what", "before", "after"):
        table.add_column(name, overflow="fold")
    for change in shown:
        row = [change.name, change.what, *sides(change)]
        table.add_row(*(Text(cell, style="red" if change.is_worse else "") for cell in row))
        if change.note:
            table.add_row("", "", Text(""), Text(change.note, style="dim"))
    parts: list[RenderableType] = [table] if shown else []
    if len(shown) < len(changes):
        parts.append(Text(f"and {len(changes) - len(shown)} more; -v lists all", style="dim"))
    if shown:
        parts.append(Text(""))
    return Group(*parts, Text(headline(found), style="red" if found.worse else "green"))


def headline(found: CorpusComparison) -> str:
    """Return the result in one line."""
    totals = found.totals
    changed = len({change.name for change in found.changes})
    worse = len({change.name for change in found.worse})
    sums = (
        f"{totals.nodes[0]} -> {totals.nodes[1]} nodes, {size(totals.bytes[0])} -> {size(totals.bytes[1])}, "
        f"{totals.seconds[0]:.1f} -> {totals.seconds[1]:.1f} s in the "
        f"{'model' if totals.models == 1 else models(totals.models)} that both have done"
    )
    if not changed:
        return f"no change in {models(found.after)}; {sums}"
    verdict = f", {worse} of them got worse" if changed > 1 else " and got worse" if worse else ", not for the worse"
    same = f"{found.same} {'is' if found.same == 1 else 'are'} the same"
    return f"{models(changed)} changed{verdict}, {same}; {sums}"


def sides(change: ModelChange) -> tuple[str, str]:
    """Return both sides of a change as texts, with as many digits as it takes to tell them apart."""
    found = "", ""
    for digits in range(1, _MOST_DIGITS):
        found = _value(change.what, change.before, digits), _value(change.what, change.after, digits)
        if found[0] != found[1]:
            break
    return found


def _value(what: What, given: Any, digits: int) -> str:
    if given is None:
        return "unchanged" if what == "verdict" else ""
    match what:
        case "bytes":
            return size(given) if digits == 1 else f"{given:,} B"
        case "seconds":
            return f"{given:.{digits}f} s"
        case "tolerance":
            return f"{given:.{digits}%}"
        case "contents":
            return str(given)[:12]
        case _:
            return str(given)


def outcome(found: CorpusComparison, subject: str, exit_code: int) -> outcomes.Outcome:
    """Return the comparison as an outcome, from which formats of other tools are written."""
    changes = ordered(found)
    rows = tuple((change.name, change.what, *sides(change), change.note) for change in changes)
    checks = tuple(
        outcomes.Check(
            f"corpus-{change.what}",
            change.name,
            "failed" if change.is_worse else "remark",
            f"{change.what}: {' -> '.join(side or 'none' for side in sides(change))}",
        )
        for change in changes
        if change.is_worse
    )
    tables = (outcomes.SummaryTable("Changes", ("Model", "What", "Before", "After", "Note"), rows, len(rows) > _MOST),)
    return outcomes.Outcome("corpus", subject, headline(found), exit_code, checks, tables if rows else ())
