"""A short summary in Markdown, for pull requests and the job summary of GitHub Actions.

Text from models or messages is in code spans, in which Markdown, HTML, links, mentions and issue references have no
effect.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from surgery.interface.report.formats.outcome import Check, Outcome, Root, SummaryTable
from surgery.interface.report.formats.visible import one_line

_MOST_FINDINGS = 30
_MOST_ROWS = 200
_LONGEST = 500
"""Maximum number of characters of a message, because services refuse large summaries."""

_PLAIN = re.compile(r"[a-z]{0,12}|[-+0-9.,e%> ]{0,20}[kMGT]?B?")
_MARKS = {"broken": "❌", "failed": "❌", "undone": "⚠️", "remark": "⚠️"}


def markdown(outcome: Outcome, root: Root | None = None) -> str:
    """Return the summary: the verdict, the tables, and the findings."""
    root = root or Root()
    found = list(outcome.notable())
    mark = "✅" if outcome.ok and not found else "⚠️" if outcome.ok else "❌"
    parts = [f"### {mark} surgery {outcome.command}: {code(outcome.subject)}", code(outcome.headline, _LONGEST)]
    parts += [_table(table) for table in outcome.tables if table.rows and not table.is_folded]
    parts += ["\n".join(_findings(found, root))] if found else []
    parts += [_folded(table) for table in outcome.tables if table.rows and table.is_folded]
    return "\n\n".join(parts) + "\n"


def code(text: str, most: int = 200) -> str:
    """Return text as a code span that it cannot escape from; empty for empty text."""
    shown = one_line(text)
    shown = shown if len(shown) <= most else f"{shown[: most - 3]}..."
    if not shown:
        return ""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    # In a table, only the escaped form does not end the cell; only there, GitHub shows it without the backslash.
    blank = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{blank}{shown}{blank}{fence}"


def _cell(text: str) -> str:
    """Return a table cell: plain if it is a number or a word without markup, else a code span."""
    return text if _PLAIN.fullmatch(text) else code(text).replace("|", "\\|")


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _table(table: SummaryTable) -> str:
    lines = [_row(table.columns), _row("---" if not number else "---:" for number, _ in enumerate(table.columns))]
    lines += [_row(map(_cell, row)) for row in table.rows[:_MOST_ROWS]]
    more = len(table.rows) - _MOST_ROWS
    return "\n".join([*lines, *(["", f"and {more} more"] if more > 0 else [])])


def _folded(table: SummaryTable) -> str:
    return f"<details><summary>{table.title}</summary>\n\n{_table(table)}\n\n</details>"


def _findings(found: list[Check], root: Root) -> Iterator[str]:
    for check in found[:_MOST_FINDINGS]:
        path = (root.relative(check.path) or check.path) if check.path else ""
        place = f" ({code(f'{path}:{check.line}' if check.line else path)})" if path else ""
        yield f"- {_MARKS[check.level]} {code(check.name)}{place}: {code(check.message, _LONGEST)}"
    if len(found) > _MOST_FINDINGS:
        yield f"- and {len(found) - _MOST_FINDINGS} more"
