"""Details: the information shown for a selected node."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from typing import Any

from surgery.engine.registry.catalog import catalog
from surgery.interface.drawing.history import History
from surgery.interface.drawing.inferred_values import Facts
from surgery.interface.drawing.node_data import ConstantData
from surgery.interface.drawing.tracked_nodes import TrackedNode, TrackedNodes

Intern = Callable[[str], int]

_ORIGINS = 32
"""Maximum number of original nodes listed for one node."""


class NodeDetails:
    """Returns the details of the rows of a history; texts are converted by `intern`."""

    def __init__(self, history: History, intern: Intern, first: Facts | None = None) -> None:
        assert history.first is not None and history.last is not None
        self.found, self._times = history.rows, history.times
        self.intern = intern
        self.facts = [first or Facts(history.first)]
        if history.last is not history.first:
            self.facts.append(Facts(history.last))
        self._functions = [_function(self.found, scope) for scope in range(len(self.found.scopes))]
        self._labels = _originals(self.found)
        self._constants = self._made_constants()

    def of(self, row: int) -> dict[str, Any] | None:
        """Return the details of a row, without empty ones; None if all are empty."""
        one = self.found.rows[row]
        node = one.node
        lineage = node.lineage
        told: dict[str, Any] = {
            "inputs": [self._operand(one, name) for name in node.inputs],
            "outputs": [[self.intern(name), self.intern(self.type_of(one, name))] for name in node.outputs],
            "attributes": dict(node.attributes),
            "packed": self.intern(base64.b64encode(node.packed or b"").decode()),
            "partial": node.packed is None and not one.is_port,
            "was": self.intern(one.first.label if one.first.label != node.label else ""),
            "fate": self.intern(one.fate),
            "doc": self.intern(node.doc),
            "source": self.intern("; ".join(filter(None, (node.source, ".".join(node.path or ()))))),
            "passes": [self.intern(name) for name in (lineage.passes if lineage is not None else ())],
            "origins": self._origins(row),
            "macs": self._macs(one),
            "seconds": self._seconds(one),
            "error": self._error(one),
            "rule": self.intern(
                _rule(one.maker or one.killer or (lineage.passes[-1] if lineage is not None and lineage.passes else ""))
            ),
        }
        return {key: value for key, value in told.items() if value} or None

    def type_of(self, row: TrackedNode, name: str) -> str:
        """Return the type of a value that a row produces or reads, in its last state if known."""
        facts = self.facts if row.died != -1 else self.facts[::-1]
        function = self._functions[row.scope]
        return next(filter(None, (known.type_of(function, name) for known in facts)), "")

    def _operand(self, row: TrackedNode, name: str) -> list[Any]:
        constant = self._constant(row, name) if name else None
        kind = self.type_of(row, name) if constant is None else _typed(constant)
        return [self.intern(name), self.intern(kind), constant.to_json() if constant is not None else None]

    def _constant(self, row: TrackedNode, name: str) -> ConstantData | None:
        scope = row.scope
        while scope != -1:
            known = self.found.scopes[scope].constant(name, row.last) or self._constants.get((scope, name))
            if known is not None:
                return known
            scope = self.found.scopes[scope].around
        return None

    def _made_constants(self) -> dict[tuple[int, str], ConstantData]:
        """Return the results of the Constant nodes."""
        return {
            (row.scope, row.node.outputs[0]): row.node.constant
            for row in self.found.rows
            if row.node.constant is not None and row.node.outputs
        }

    def _macs(self, row: TrackedNode) -> int | str | None:
        function = self._functions[row.scope]
        names = row.node.outputs[:1]
        facts = self.facts[:1] if row.died != -1 else self.facts[::-1]
        return next((macs for name in names for known in facts if (macs := known.macs_of(function, name))), None)

    def _seconds(self, row: TrackedNode) -> float | None:
        """Return the measured time of a node of the main graph, if it exists in the last state."""
        is_main = self.found.scopes[row.scope].around == -1 and not self._functions[row.scope]
        return self._times.get(row.node.name) if is_main and row.died == -1 else None

    def _error(self, row: TrackedNode) -> dict[str, Any] | None:
        """Return the fraction of the tolerance needed by the step that made a node, unless it is bit-identical."""
        made = self.found.states[row.born] if row.born > 0 else None
        if made is None or not made.needed:
            return None
        return {"needed": made.needed, "where": self.intern(made.by or made.label)}

    def _origins(self, row: int) -> list[int | str]:
        """Return the original nodes of a row that passes made or edited, as rows if known, else as names."""
        lineage = self.found.rows[row].node.lineage
        if lineage is None:
            return []
        found: list[int | str] = []
        for name in lineage.origins[:_ORIGINS]:
            rows = [known for known in self._labels.get(name, ()) if known != row]
            if rows or row not in self._labels.get(name, ()):
                found.append(rows[0] if rows else name)
        more = lineage.more + max(0, len(lineage.origins) - _ORIGINS)
        return [*found, f"and at least {more} more"] if more else found


def _function(found: TrackedNodes, scope: int) -> str:
    """Return the full name of the function that contains a scope; empty for the main graph."""
    while found.scopes[scope].around != -1:
        scope = found.scopes[scope].around
    return found.scopes[scope].name


def _originals(found: TrackedNodes) -> dict[str, list[int]]:
    labels: dict[str, list[int]] = defaultdict(list)
    for row, one in enumerate(found.rows):
        if one.born == 0 and not one.is_port:
            labels[one.first.label].append(row)
    return labels


def _typed(constant: ConstantData) -> str:
    return f"{constant.type}[{','.join(map(str, constant.dims))}]" if constant.dims else constant.type


@cache
def _rule(name: str) -> str:
    """Return the summary of a pass, and its patterns as text; empty if there is no such pass."""
    declared = catalog.get(name) if name else None
    if declared is None:
        return ""
    return "\n\n".join([declared.summary, *(pattern.strip() for pattern in declared.match)])
