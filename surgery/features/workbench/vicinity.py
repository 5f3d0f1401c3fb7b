"""A graph that passes see only around a selection, and in which none of their sites is applied."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import Any

import onnx_ir as ir

from surgery.model.graph.builder import Builder
from surgery.model.graph.commit import Commit
from surgery.model.graph.excepted_edits import touched, with_inner
from surgery.model.graph.graph import Graph
from surgery.model.graph.traversal import reads
from surgery.model.graph.values import Node, Value

_HOPS = 8
"""Maximum number of edges between the selection and a node around it; the longest patterns are as deep."""

_MOST_NODES = 160
"""Maximum number of nodes around a selection."""


class Every(frozenset[int]):
    """The numbers of all sites."""

    def __contains__(self, number: object) -> bool:
        """Return True."""
        return True


class _Asked(frozenset[ir.Node]):
    """A set without nodes, which notes those that it was asked for."""

    nodes: set[ir.Node]

    def __new__(cls) -> _Asked:
        made = super().__new__(cls)
        made.nodes = set()
        return made

    def __contains__(self, node: object) -> bool:
        if isinstance(node, ir.Node):
            self.nodes.add(node)
        return False


class Vicinity(Graph):
    """The nodes around a selection. A pass runs on them as on a whole model, but its sites are only noted.

    Values, readers and shapes are those of the whole model, so that a pass refuses at a boundary as it would there.
    """

    def __init__(self, model: ir.Model, **more: Any) -> None:
        super().__init__(model, **more)
        self.selected: frozenset[ir.Node] = frozenset()
        self.touched: list[frozenset[ir.Node]] = []
        """The nodes that each site of the running pass touches."""
        self._near: list[ir.Node] = []
        self._contradicted: dict[Value, list[int | str | None]] | None = None
        self._uncalled: list[ir.Function] | None = None
        self._by_name = {Node(self, node).label: node for scope in self.scopes for node in scope}
        self._rank = {node: number for number, node in enumerate(node for scope in self.scopes for node in scope)}
        # Inferred once for the model, and not in the first answer.
        first = next((value for node in self.ir.graph for value in node.outputs), None)
        if first is not None:
            self.facts.of(first)

    def node_with(self, label: str) -> ir.Node | None:
        """Return the node with a label, which is its name unless it has none."""
        return self._by_name.get(label)

    def look_around(self, selected: Iterable[ir.Node]) -> None:
        """Restrict what passes see to the nodes around a selection."""
        self.selected = frozenset(selected)
        near = _around(self.selected)
        self._look_at(near | with_inner(near))

    def look_at_all(self) -> None:
        """Let passes see the whole model, with nothing selected."""
        self.selected = frozenset()
        self._look_at(self._rank)

    def _look_at(self, near: Iterable[ir.Node]) -> None:
        self._near = sorted(near, key=lambda node: self._rank[node])
        self.index = defaultdict(dict)
        for node in self._near:
            self.index[node.domain, node.op_type][node] = None

    def begin(self, pass_name: str, skip: frozenset[int] = frozenset()) -> None:
        """Start the records of another pass; the names in use are those of the same model."""
        names = getattr(self, "_names", None)
        super().begin(pass_name, skip)
        self._names = names
        self.touched = []

    def nodes(self, *ops: str) -> list[Node]:
        """List the nodes of these operators around the selection, or all nodes there."""
        return super().nodes(*ops) if ops else [Node(self, node) for node in self._near]

    def main_nodes(self) -> list[Node]:
        """List the nodes of the main graph around the selection."""
        return [Node(self, node) for node in self._near if node.graph is self.ir.graph]

    def constants(self) -> list[Value]:
        """List the initializers that the nodes around the selection read."""
        found = dict.fromkeys(value for node in self._near for value in reads(node) if value.is_initializer())
        return [one for value in found if not (one := Value(self, value)).is_overridable]

    def contradicted(self) -> dict[Value, list[int | str | None]]:
        """Return the values around the selection whose declared shapes are wrong; inferred once for the model."""
        if self._contradicted is None:
            self._contradicted = super().contradicted()
        near = {value for node in self._near for value in node.outputs}
        return {value: dims for value, dims in self._contradicted.items() if value.ir in near}

    def uncalled(self) -> list[ir.Function]:
        """List the model-local functions that are unreachable from the main graph."""
        if self._uncalled is None:
            self._uncalled = super().uncalled()
        return self._uncalled

    def _commit(self, builder: Builder) -> None:
        if not builder.is_idle:
            Commit(self, builder.edits).check()
            anchor = None if builder.anchor is None else builder.anchor.ir
            asked = _Asked()
            touched(asked, builder.edits, anchor)
            self.touched.append(frozenset(asked.nodes))
        super()._commit(builder)


def _around(start: Iterable[ir.Node]) -> set[ir.Node]:
    """Return nodes with those at a few edges from them, nearest first, as far as there are not too many."""
    found = set(start)
    most = len(found) + _MOST_NODES
    pending = deque((node, 0) for node in found)
    while pending:
        node, hops = pending.popleft()
        if hops == _HOPS:
            break
        for other in _adjacent(node):
            if other not in found:
                if len(found) == most:
                    return found
                found.add(other)
                pending.append((other, hops + 1))
    return found


def _adjacent(node: ir.Node) -> Iterator[ir.Node]:
    for value in reads(node):
        maker = value.producer()
        if maker is not None:
            yield maker
    for value in node.outputs:
        yield from value.consumers()
