"""Failures grouped by cause: messages without names, numbers and paths."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from surgery.base.json_record import Record
from surgery.engine.batching.ledger import LedgerRow

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
_PATH = re.compile(r"(?<![\w.])(?:~|\.{1,2})?/[^\s,;:]+")
_HEX = re.compile(r"\b0x[0-9a-fA-F]+\b")
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\w)")
_NUMBERED = re.compile(r"(?<![\w.])[A-Za-z]\w*_\d+(?!\w)")
_NODE = re.compile(r"\b(node|name|Name|input|output|tensor|value)(\s*[:=]\s*)[^\s,;:'\"()]+")
_SHAPE = re.compile(r"[\[{](?:[\s,]|N|\w+)*[\]}]|\((?:\s*\w+\s*,)+\s*\w*\s*\)")
_RUN = re.compile(r"(…)(?:[\s,]+(?:and\s+)?…)+")


@dataclass(frozen=True)
class FailureGroup(Record):
    """Models that failed for the same cause. `cause` is the message without particulars, `example` one full message."""

    kind: str
    cause: str
    example: str
    models: tuple[str, ...]


def groups(rows: Iterable[LedgerRow]) -> tuple[FailureGroup, ...]:
    """Group the rows that failed, or do not meet their purpose, by cause, largest group first."""
    found: dict[tuple[str, str], list[LedgerRow]] = {}
    for row in rows:
        if row.is_negative:
            found.setdefault((row.kind, cause(row.reason)), []).append(row)
    made = (
        FailureGroup(kind, text, some[0].reason, tuple(row.name for row in some))
        for (kind, text), some in found.items()
    )
    return tuple(sorted(made, key=lambda group: (-len(group.models), group.kind, group.cause)))


def cause(reason: str) -> str:
    """Return a reason with "…" instead of quoted names, paths and addresses, and N instead of numbers."""
    text = _QUOTED.sub("…", " ".join(reason.split()))
    text = _PATH.sub("…", text)
    text = _NUMBERED.sub("…", _NODE.sub(r"\1\2…", text))
    text = _NUMBER.sub("N", _HEX.sub("…", text))
    text = _SHAPE.sub("[…]", text)
    return _RUN.sub(r"\1", text)
