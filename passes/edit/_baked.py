"""Fixed dims of inputs made free: dependent dims are followed, and old sizes hard-coded in nodes are adapted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from surgery import Graph, Node, Refusal, UsageError, Value

from ._ports import Dim, declared
from ._sizes import RULES, BakedIn, Sizes, pinned
from ._wishes import Freed, Wish

_PIECES = 2
"""Number of pieces into which a batch of any size is cut for verification."""


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
    """Name dims of inputs, and adapt each node with the old size; UsageError at the first that cannot be adapted."""
    if not freed:
        return Outcome()
    symbols, sizes = _symbols(graph, freed)
    ports = list(dict.fromkeys(one.port for one in freed))
    nodes = graph.below(ports)
    values = [value for node in [*nodes, *_inside(graph, nodes)] for value in node.outputs if value.name]
    before = [value for value in values if value.declared_shape is not None or value.is_output]
    was = Sizes(sizes, {value: value.shape for value in [*ports, *values]})
    with graph.site() as new:
        for port in ports:
            dims = declared(port) or []
            for one in freed:
                if one.port == port:
                    dims[one.axis] = symbols[one]
            new.set_port(port, dims=dims)
        for value in before:
            new.declare(value, value.type, None)
    for node in nodes:
        inner = _inside(graph, [node]) if node.subgraphs else []
        for held in inner:
            _adapt(graph, held, was)
        if inner:
            graph.facts.settle([node.ir])
        _adapt(graph, node, was)
    return Outcome(
        {value: _dims(graph, value) for value in before if value.shape is not None},
        {symbols[one]: one.wish for one in freed if isinstance(one.wish, int)},
        symbols,
    )


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


def _adapt(graph: Graph, node: Node, was: Sizes) -> None:
    """Adapt one node whose operands are already adapted, and check that its results match their old shapes."""
    if not any(was.axes(value) for value in node.inputs if value is not None):
        return
    rule = RULES.get("broadcast" if node.is_broadcasting else node.op)
    if rule is not None:
        with graph.site(node) as new:
            try:
                rule(node, was, new)
            except Refusal as refusal:
                raise _baked_in(node, was, refusal.reason) from None
            except BakedIn as found:
                raise _baked_in(found.node, was, str(found)) from None
        graph.facts.settle(dict.fromkeys(reader.ir for value in node.outputs for reader in value.consumers))
    graph.remarks += filter(None, [pinned(node, was)])
    for value in node.outputs:
        wrong = was.contradiction(value)
        if wrong:
            raise _baked_in(node, was, f"{value.name} would be {wrong}")


def _baked_in(node: Node, was: Sizes, reason: str) -> UsageError:
    what = f"a size of {was.told} is hard-coded: {reason}"
    return UsageError(
        what, where=f"node '{node.label}' ({node.op})", todo="replace the nodes that need it, or keep the dim"
    )


def _dims(graph: Graph, value: Value) -> list[Dim]:
    """Return the present dims of a value, with None for a dim whose name was invented by inference."""
    made_up = graph.facts.is_made_up
    return [None if isinstance(dim, str) and made_up(dim) else dim for dim in value.shape or ()]
