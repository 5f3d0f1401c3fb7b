"""Sources of symbolic extents: the graph inputs, and the tensors whose Shape the model already computes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from surgery import Graph, Node, Value

from ._targets import Extent


@dataclass(frozen=True)
class Run:
    """Adjacent extents in the shape of one tensor."""

    source: Value
    start: int
    length: int


@dataclass
class Sources:
    """Tensors of known shape; earlier ones are preferred."""

    extents: dict[Value, tuple[Extent | None, ...]] = field(default_factory=dict)
    places: dict[Value, int] = field(default_factory=dict)
    holders: dict[Extent, list[tuple[Value, int]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, value: Value, extents: tuple[Extent | None, ...], place: int) -> None:
        """Record a tensor, which is available after a place in the graph."""
        if value in self.extents:
            return
        self.extents[value], self.places[value] = extents, place
        for axis, extent in enumerate(extents):
            if isinstance(extent, str):
                self.holders[extent].append((value, axis))

    def longest(self, wanted: Sequence[Extent], place: int) -> Run | None:
        """Find the tensor, available before a place, with the most of the first wanted extents adjacent."""
        runs = (
            Run(source, axis, len(list(takewhile(lambda pair: pair[0] == pair[1], zip(wanted, extents[axis:])))))
            for source, axis in self.holders.get(wanted[0], ())
            for extents in [self.extents[source]]
            if self.places[source] < place
        )
        return max(runs, key=lambda run: run.length, default=None)


def find_sources(graph: Graph, places: Mapping[Node, int]) -> Sources:
    """List the graph inputs, then, in node order, the tensors with a Shape node."""
    found = Sources()
    for value in (Value(graph, item) for item in graph.main.inputs):
        shape = value.shape
        if shape is not None and not value.is_initializer:
            found.add(value, shape, -1)
    for node in sorted((node for node in graph.nodes("Shape") if node in places), key=places.__getitem__):
        data, elements = node.input(0), node.outputs[0].elements
        place = places.get(data.producer) if data is not None and data.producer is not None else None
        partial = node.has_attr("start") or node.has_attr("end")
        if data is not None and elements is not None and place is not None and not partial:
            found.add(data, elements, place)
    return found
