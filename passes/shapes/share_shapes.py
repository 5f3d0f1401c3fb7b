"""Shapes that are computed repeatedly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np

from surgery import Builder, Graph, Node, Parity, Refusal, Value, graph_pass

from ._sources import Run, find_sources
from ._targets import COPY, Extent, expand_target, reshape_target

Piece = Run | tuple[int, ...]
"""A part of a vector: extents of one tensor, or numbers."""


@dataclass(frozen=True)
class Demand:
    """An input that reads a known shape, and the pieces of that shape; or an equal value that it can read instead.

    `place` is the place of the reader, or of the node that contains it, in the main graph.
    """

    node: Node
    index: int
    place: int
    pieces: tuple[Piece, ...] = ()
    is_scalar: bool = False
    value: Value | None = None


@graph_pass("share-shapes", parity=Parity.EXACT)
def share_shapes(graph: Graph) -> None:
    """Compute each shape and dim once, from the graph inputs if possible, with the fewest nodes.

    Right because two extents of the same name, or the same expression in such names, are equal in every run. Computed
    shapes are rebuilt: by one Shape for adjacent extents of one tensor, joined by a Concat with constants; a Reshape or
    an Expand reads 0, -1 or 1 for dims that need no computation. The rewrite is applied as a whole, and only if it
    needs fewer nodes. Function bodies stay, because their inputs differ.

    Example:
        g (float[batch,seq] x, float[n] v) => (float[batch,seq] y, float[batch,n] z)
        <int64 first = {0}, int64 second = {1}, int64[1] axis = {0}, int64[1] one = {1}, float[1] zero = {0}>
        {
            s = Shape(x)
            b = Gather(s, first)
            t = Gather(s, second)
            b1 = Unsqueeze(b, axis)
            t1 = Unsqueeze(t, axis)
            u = Concat<axis = 0>(b1, t1)
            y = Expand(zero, u)
            w = Concat<axis = 0>(b1, one)
            z = Expand(v, w)
        }
    """
    if not graph.nodes("Shape", "Size"):
        return
    sharing = _Sharing(graph)
    if not sharing.demands:
        return
    with graph.site(sharing.demands[0].node) as new:
        maker = _Maker(new, sharing)
        for demand in sharing.demands:
            maker.meet(demand)
        gain = len(sharing.computing) - len(sharing.kept) - len(maker.made)
        new.require(gain > 0, "the shapes are already computed by the fewest nodes")


class _Sharing:
    """The readers of shapes in the main graph, and the nodes that compute shapes at present."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = graph.main_nodes()
        self.places = {node: place for place, node in enumerate(self.nodes)}
        self.sources = find_sources(graph, self.places)
        self.computing = {node: None for node in self.nodes if _only_computes(node)}
        self.computing = self._in_use()
        self.kept: set[Node] = set()
        self.first: dict[tuple[object, ...], Value] = {}
        for value in (value for node in self.computing for value in node.outputs):
            self.first.setdefault(_key(value), value)
        self.demands = sorted(self._demands(), key=lambda demand: demand.place)

    def _in_use(self) -> dict[Node, None]:
        """Return the computing nodes that a reader needs; this pass does not remove dead nodes or their inputs."""
        found: set[Node] = set()
        pending = [node for node, _ in self._readers()]
        while pending:
            producers = {value.producer for value in pending.pop().inputs if value is not None}
            new = [node for node in producers if node in self.computing and node not in found]
            found.update(new)
            pending += new
        return {node: None for node in self.computing if node in found}

    def _demands(self) -> Iterator[Demand]:
        """Yield the inputs of nodes other than the computing ones, and of computing nodes that must stay."""
        pending = self._readers()
        while pending:
            node, place = pending.pop()
            for index, value in enumerate(node.inputs):
                if value is None or value.producer not in self.computing:
                    continue
                pieces = self._pieces(_wanted(node, index, value), place) if _is_plain(value) else None
                if pieces is not None:
                    yield Demand(node, index, place, pieces, value.rank == 0)
                    continue
                same = self.first[_key(value)]
                yield Demand(node, index, place, value=same)
                producer = same.producer
                if producer is not None and producer not in self.kept:
                    self.kept.add(producer)
                    pending.append((producer, self.places[producer]))

    def _readers(self) -> list[tuple[Node, int]]:
        """List the nodes other than the computing ones, including those in subgraphs, with their places."""
        found = [(node, place) for node, place in self.places.items() if node not in self.computing]
        holders = self.graph.holders()
        for node in self.graph.nodes() if holders else ():
            if node in self.places or self.graph.in_function(node):
                continue
            outer = node
            while outer not in self.places:
                outer = holders[outer.scope]
            found.append((node, self.places[outer]))
        return found

    def _pieces(self, wanted: tuple[Extent, ...], place: int) -> tuple[Piece, ...] | None:
        """Divide a vector into pieces that are as long as possible; None if no tensor has one of the extents."""
        pieces: list[Piece] = []
        while wanted:
            numbers = tuple(takewhile(lambda item: isinstance(item, int), wanted))
            if numbers:
                pieces.append(tuple(item for item in numbers if isinstance(item, int)))
                wanted = wanted[len(numbers) :]
                continue
            run = self.sources.longest(wanted, place)
            if run is None:
                return None
            length = run.length
            while length < len(wanted) and isinstance(wanted[length - 1], int):
                length -= 1
            pieces.append(Run(run.source, run.start, length))
            wanted = wanted[length:]
        return tuple(pieces)


def _only_computes(node: Node) -> bool:
    """Return whether all results of a node are known shapes that are computed."""
    return all(not value.is_output and not value.is_constant and value.elements is not None for value in node.outputs)


def _key(value: Value) -> tuple[object, ...]:
    return value.dtype, value.shape, value.elements


def _is_plain(value: Value) -> bool:
    """Return whether a value has the form of a result of Shape, or of one element of it."""
    return value.dtype is not None and value.dtype.name == "INT64" and value.rank in (0, 1)


def _wanted(node: Node, index: int, value: Value) -> tuple[Extent, ...]:
    """Return the elements that an input must have, in their simplest form."""
    try:
        if index == 1 and node.op == "Reshape" and node.opset >= 5:
            return tuple(reshape_target(node))
        if index == 1 and node.op == "Expand":
            return tuple(expand_target(node))
    except Refusal:
        pass
    return value.elements or ()


class _Maker:
    """Creates the nodes that satisfy the demands, each once, before the first node that needs it."""

    def __init__(self, new: Builder, sharing: _Sharing) -> None:
        self.new = new
        self.sharing = sharing
        self.opset = sharing.graph.opset
        self.made: dict[tuple[object, ...], Value] = {}
        self.constants: dict[tuple[object, ...], Value] = {}
        scalars = {piece for demand in sharing.demands if demand.is_scalar for piece in demand.pieces}
        self.scalars = Counter(piece.source for piece in scalars if isinstance(piece, Run))

    def meet(self, demand: Demand) -> None:
        """Make an input read the value that it demands."""
        new = self.new.at(self.sharing.nodes[demand.place])
        old = demand.node.required_input(demand.index)
        value = demand.value or self._vector(new, demand)
        if value != old:
            new.set_input(demand.node, demand.index, value)
        numbers = [item for piece in demand.pieces if isinstance(piece, tuple) for item in piece]
        if COPY in numbers and demand.node.has_attr("allowzero") and COPY not in (old.elements or ()):
            new.set_attribute(demand.node, "allowzero", None)

    def _vector(self, new: Builder, demand: Demand) -> Value:
        if demand.is_scalar and isinstance(demand.pieces[0], Run):
            return self._scalar(new, demand.pieces[0])
        parts = [
            self._run(new, piece) if isinstance(piece, Run) else self._constant(new, piece, demand.is_scalar)
            for piece in demand.pieces
        ]
        if not parts:
            return self._constant(new, (), False)
        return parts[0] if len(parts) == 1 else self._node(new, "Concat", *parts, axis=0)

    def _scalar(self, new: Builder, run: Run) -> Value:
        if self.opset >= 15 and self.scalars[run.source] == 1:
            return self._node(new, "Squeeze", self._run(new, run))
        return self._node(new, "Gather", self._whole(new, run), self._constant(new, (run.start,), True))

    def _run(self, new: Builder, run: Run) -> Value:
        rank, end = len(self.sharing.sources.extents[run.source]), run.start + run.length
        if run.length == rank:
            return self._whole(new, run)
        if self.opset >= 15:
            return self._node(new, "Shape", run.source, start=run.start or None, end=None if end == rank else end)
        return self._node(
            new, "Gather", self._whole(new, run), self._constant(new, tuple(range(run.start, end)), False)
        )

    def _whole(self, new: Builder, run: Run) -> Value:
        return self._node(new, "Shape", run.source)

    def _constant(self, new: Builder, numbers: tuple[int, ...], is_scalar: bool) -> Value:
        key = (numbers, is_scalar)
        if key not in self.constants:
            array = np.array(numbers, dtype=np.int64)
            self.constants[key] = new.constant(array.reshape(()) if is_scalar else array, name="extents")
        return self.constants[key]

    def _node(self, new: Builder, op: str, *inputs: Value, **attributes: Any) -> Value:
        key = (op, inputs, tuple(attributes.items()))
        if key not in self.made:
            self.made[key] = new.node(op, *inputs, attributes=attributes)
        return self.made[key]
