"""Fixed dims of inputs made free: dependent dims are followed, and old sizes hard-coded in nodes are adapted."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np

from surgery import Graph, Node, Refusal, UsageError, Value

from ._following import Follower, Stuck
from ._old_sizes import Meets, Sizes
from ._ports import Dim
from ._sizes import RULES, pinned
from ._wishes import Freed, Wish

_PIECES = 2
"""Number of pieces into which a batch of any size is cut for verification."""
_MOST_NODES = 3
_MOST_REASONS = 9
"""Numbers of nodes for each reason, and of reasons, in an error."""


@dataclass(frozen=True)
class Outcome:
    """The dims to declare when all nodes are adapted, and the names that represent numbers until then."""

    declared: Mapping[Value, Sequence[Dim]] = field(default_factory=dict)
    names: Mapping[str, Wish] = field(default_factory=dict)
    symbols: Mapping[Freed, str] = field(default_factory=dict)

    def pieces(self, outputs: Sequence[Value]) -> tuple[dict[str, int], dict[str, int], int] | None:
        """Return the batch axes of inputs and outputs, and the number of pieces to cut it into; None if impossible."""
        if len(set(self.symbols.values())) != 1:
            return None
        one, symbol = next(iter(self.symbols.items()))
        count = _PIECES if isinstance(one.wish, str) else one.wish // one.size
        if count < 2 or (isinstance(one.wish, int) and one.wish % one.size):
            return None
        axes: dict[str, int] = {}
        for value in (value for value in outputs if value in self.declared):
            held = [axis for axis, dim in enumerate(self.declared[value]) if symbol in str(dim).split("*")]
            if len(held) != 1:
                return None
            axes[value.name] = held[0]
        return {freed.port.name: freed.axis for freed in self.symbols}, axes, count


def free(graph: Graph, freed: Sequence[Freed]) -> Outcome:
    """Name dims of inputs, and adapt each node with the old size; UsageError with all that cannot be adapted."""
    if not freed:
        return Outcome()
    symbols, sizes = _symbols(graph, freed)
    ports = list(dict.fromkeys(one.port for one in freed))
    values = [*graph.values(), *(value for node in graph.nodes() for value in node.outputs)]
    was = Sizes(sizes, {value: value.shape for value in values})
    with graph.site() as new:
        for port in ports:
            dims = list(port.declared_dims or ())
            for one in freed:
                if one.port == port:
                    dims[one.axis] = symbols[one]
            new.set_port(port, dims=dims)
    places = {symbols[one]: (one.port, one.axis) for one in reversed(freed)}
    before = _Adapted(graph, was, Follower(graph, was, places)).run(ports)
    return Outcome(
        {value: _dims(graph, value) for value in before if value.shape is not None},
        {symbols[one]: one.wish for one in freed if isinstance(one.wish, int)},
        symbols,
    )


@dataclass
class _Adapted:
    """Adapts the nodes downstream of freed dims, in order, and again those downstream of what is followed."""

    graph: Graph
    was: Sizes
    follower: Follower
    failures: dict[str, list[Node]] = field(default_factory=dict)
    unknown: set[Value] = field(default_factory=set)
    originals: set[Node] = field(init=False)

    def __post_init__(self) -> None:
        self.originals = set(self.graph.nodes())

    def run(self, ports: Sequence[Value]) -> list[Value]:
        """Adapt all nodes; return the values that had declared dims, which were removed."""
        nodes = deque(self.graph.below(ports))
        before = self._undeclare(nodes)
        waiting = set(nodes)
        while nodes:
            touched = self._adapt_with_bodies(nodes[0])
            if not touched:
                waiting.discard(nodes.popleft())
                continue
            again = self._until(waiting, touched)
            if again is not None:
                before += self._undeclare(again)
                nodes.extendleft(reversed(again))
            else:
                further = self.graph.below([value for node in touched for value in node.outputs])
                before += self._undeclare([*touched, *further])
                wanted = {*touched, *further, *nodes}
                nodes = deque(node for node in self.graph.main_nodes() if node in wanted)
            self.graph.facts.settle(node.ir for node in touched)
            waiting.update(nodes if again is None else again)
        self._check_left()
        self._report()
        self._remark()
        return list(dict.fromkeys(before))

    def _until(self, waiting: Set[Node], touched: Sequence[Node]) -> list[Node] | None:
        """List, in order, the nodes from `touched` downstream to those that are waiting, without these.

        A walk over the whole graph for each constant that is followed would take quadratic time. None where only that
        gives the order: in subgraphs, and where one of these nodes reads the result of a waiting one.
        """
        main, found = self.graph.main, dict[Node, None]()
        pending = [*touched]
        while pending:
            node = pending.pop()
            if node in waiting or node in found:
                continue
            if node.scope is not main or node.subgraphs:
                return None
            found[node] = None
            pending += (reader for value in node.outputs for reader in value.consumers)
        above = {node: [value.producer for value in node.inputs if value is not None] for node in found}
        if any(one in waiting for producers in above.values() for one in producers):
            return None
        ordered: dict[Node, None] = {}
        pending = [*reversed(found)]
        while pending:
            left = [one for one in above[pending[-1]] if one in found and one not in ordered]
            if left:
                pending += left
            else:
                ordered[pending.pop()] = None
        return list(ordered)

    def _check_left(self) -> None:
        """Record masks that follow along one of their two dims only, and lookups that may or may not mean all."""
        for mask in self.follower.counter.masks:
            if mask.is_used and mask.producer is not None and mask.producer.required_input(1).is_constant:
                reader = mask.consumers[0]
                while reader not in self.originals:
                    reader = reader.outputs[0].consumers[0]
                self._fail(reader, "it reads a triangular mask over a dim that keeps its size")
        for node in self.graph.nodes("Gather"):
            data, indices = node.required_input(0), node.required_input(1)
            axis, positions = int(node.attr("axis", 0)) % len(data.shape or (0,)), indices.constant
            if axis in self.was.axes(data) and positions is not None and positions.size > 1:
                size = self.was.sizes.get(str((data.shape or ())[axis]))
                if positions.size == size and np.array_equal(positions.reshape(-1), np.arange(size)):
                    self._fail(
                        node, f"it takes the positions up to {size - 1}, which may or may not mean the whole dim"
                    )

    def _undeclare(self, nodes: Sequence[Node]) -> list[Value]:
        inner = _inside(self.graph, nodes) if any(node.subgraphs for node in nodes) else []
        values = [value for node in [*nodes, *inner] for value in node.outputs if value.name]
        found = [value for value in values if value.declared_dims is not None or value.is_output]
        with self.graph.site() as new:
            for value in found:
                new.declare(value, value.type, None)
        return found

    def _adapt_with_bodies(self, node: Node) -> list[Node]:
        """Adapt a node after those in its subgraphs; return nodes with new inputs, from which to begin again."""
        inner = _inside(self.graph, [node]) if node.subgraphs else []
        for held in inner:
            touched = self._adapt(held)
            if touched:
                self.graph.facts.settle(one.ir for one in touched)
                return [*touched, node]
        if inner:
            self.graph.facts.settle([node.ir])
        return self._adapt(node)

    def _adapt(self, node: Node) -> list[Node]:
        """Adapt one node whose operands are already adapted, and check that its results match their old shapes."""
        if any(value in self.unknown for value in node.inputs):
            self.unknown.update(node.outputs)
            return []
        if not any(self.was.axes(value) for value in node.inputs if value is not None):
            return []
        met, reason = self._rule(node)
        if met is not None:
            return self._follow(node, met)
        self.graph.remarks += filter(None, [pinned(node, self.was)])
        wrong = [f"{value.name} would be {text}" for value in node.outputs if (text := self.was.contradiction(value))]
        if reason or wrong:
            self._fail(node, reason or wrong[0])
            self.unknown.update(node.outputs)
        return []

    def _rule(self, node: Node) -> tuple[Meets | None, str]:
        """Adapt a node by the rule for its operator; return what is to be followed, or the reason of a refusal."""
        rule = RULES.get("broadcast" if node.is_broadcasting else node.op)
        met, reason = None, ""
        if rule is not None:
            with self.graph.site(node) as new:
                try:
                    rule(node, self.was, new)
                except Refusal as refusal:
                    reason = refusal.reason
                except Meets as found:
                    met = found
            self.graph.facts.settle(dict.fromkeys(reader.ir for value in node.outputs for reader in value.consumers))
        return met, reason

    def _follow(self, node: Node, met: Meets) -> list[Node]:
        try:
            return self.follower.follow(node, met)
        except Stuck as stuck:
            self._fail(stuck.node, str(stuck))
            touched = self.follower.stand_in(node, met)
            if not touched:
                self.unknown.update(node.outputs)
            return touched

    def _fail(self, node: Node, reason: str) -> None:
        nodes = self.failures.setdefault(reason, [])
        if node not in nodes:
            nodes.append(node)

    def _remark(self) -> None:
        """Name the constants that are counted on: no run of the original shows how they go on."""
        names = self.follower.counter.extended
        if names:
            found = _first((f"{kind} in '{name}'" for name, kind in names.items()), _MOST_NODES)
            what = f"continued beyond {self.was.listed}: {found}"
            self.graph.remarks.append(f"{what}; compare other sizes with the source of the model")

    def _report(self) -> None:
        """Raise UsageError if nodes could not be adapted, with each reason and its nodes."""
        if not self.failures:
            return
        (first, nodes), *others = self.failures.items()
        reasons = [f"a size of {self.was.listed} is hard-coded: {first}"]
        reasons += [f"{_named(affected)}: {reason}" for reason, affected in others]
        what, where = _first(reasons, _MOST_REASONS, ";"), _named(nodes)
        todo = "export with this dim dynamic, replace the nodes that need it, or keep the dim"
        raise UsageError(what, where=where, todo=todo)


def _named(nodes: Sequence[Node]) -> str:
    """Name the first nodes."""
    names = _first((f"'{node.label}' ({node.op})" for node in nodes), _MOST_NODES)
    return f"node{'s' if len(nodes) > 1 else ''} {names}"


def _first(items: Iterable[str], most: int, mark: str = ",") -> str:
    """List the first items, and the number of further ones."""
    texts = list(items)
    more = f"{'' if mark == ',' else mark} and {len(texts) - most} more" if len(texts) > most else ""
    return f"{mark} ".join(texts[:most]) + more


def _inside(graph: Graph, nodes: Sequence[Node]) -> list[Node]:
    """List the nodes in the subgraphs of these nodes, at any depth."""
    holders, held = graph.holders(), set(nodes)
    found: list[Node] = []
    for node in graph.nodes():
        place: Node | None = node
        while place is not None and place not in held:
            place = holders.get(place.scope)
        if place is not None and place != node:
            found.append(node)
    return found


def _symbols(graph: Graph, freed: Sequence[Freed]) -> tuple[dict[Freed, str], dict[str, int]]:
    """Name each dim, even one that finally becomes another number; return the names, and the old size of each."""
    symbols: dict[Freed, str] = {}
    sizes: dict[str, int] = {}
    for one in freed:
        symbol = one.wish if isinstance(one.wish, str) else graph.fresh(f"size_{one.size}_to_{one.wish}")
        if isinstance(one.wish, int):
            alike = (symbols[other] for other in symbols if (other.size, other.wish) == (one.size, one.wish))
            symbol = next(alike, symbol)
        symbols[one] = symbol
        if sizes.setdefault(symbol, one.size) != one.size:
            what = f"'{symbol}' would stand for a dim of {sizes[symbol]} and for one of {one.size}"
            raise UsageError(what, where=f"input '{one.port.name}'", todo="give them two names")
    return symbols, sizes


def _dims(graph: Graph, value: Value) -> list[Dim]:
    """Return the present dims of a value, with None for a dim whose name was invented by inference."""
    made_up = graph.facts.is_made_up
    return [None if isinstance(dim, str) and made_up(dim) else dim for dim in value.shape or ()]
