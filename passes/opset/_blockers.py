"""Report of all blockers of a conversion at once: a model is converted to another opset as a whole or not at all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NoReturn

from surgery import BlockedError, Graph, Node

_NAMED = 3
"""Maximum number of nodes named for each reason."""


def refuse(graph: Graph, blockers: Sequence[tuple[Node | None, str]], to: int) -> NoReturn:
    """Record each blocker, and raise BlockedError with a line for each reason."""
    groups: dict[str, list[str]] = defaultdict(list)
    for node, reason in blockers:
        with graph.site(node) as new:
            new.require(False, reason)
        groups[reason].append("" if node is None else node.label)
    lines = [f"\n  {_line(reason, labels)}" for reason, labels in groups.items()]
    raise BlockedError(f"the model cannot go to opset {to}:{''.join(lines)}")


def _line(reason: str, labels: Sequence[str]) -> str:
    named = ", ".join(f"'{label}'" for label in labels[:_NAMED] if label)
    more = f" and {len(labels) - _NAMED} more" if len(labels) > _NAMED else ""
    return f"{reason} (at {named}{more})" if named else reason
