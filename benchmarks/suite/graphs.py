"""Graphs to draw: node kinds and edges, some like those of models and some unlike any model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass
class Graph:
    """Nodes with a kind each, and edges between them."""

    kinds: list[int] = field(default_factory=list)
    edges: list[tuple[int, int, int, int]] = field(default_factory=list)

    def add(self, kind: int, *inputs: int) -> int:
        """Add a node that reads others, and return its number."""
        node = len(self.kinds)
        self.kinds.append(kind)
        self.edges += [(one, node, 0, slot) for slot, one in enumerate(inputs)]
        return node

    def chain(self, value: int, *kinds: int) -> int:
        """Add a chain of nodes that begins with a reader of `value`; return the last one."""
        for kind in kinds:
            value = self.add(kind, value)
        return value

    @property
    def pairs(self) -> Ints:
        """The edges as rows (from, to)."""
        return np.array(self.edges, np.int64).reshape(-1, 4)[:, :2]


def transformer(nodes: int) -> Graph:
    """Build layers of attention as exporters write it, with shape computations and one mask for all."""
    graph = Graph()
    value, mask = graph.add(1), graph.chain(graph.add(2), 3, 4)
    while len(graph.kinds) < nodes:
        query, key, weight = (_projected(graph, _normalized(graph, value)) for _ in range(3))
        scores = graph.add(13, graph.add(12, graph.add(10, query, key)), mask)
        mixed = graph.chain(graph.add(10, graph.add(14, scores), weight), 15, 16, 10, 11)
        value = graph.add(11, value, mixed)
        inner = graph.chain(_normalized(graph, value), 10, 11)
        inner = graph.add(19, inner, graph.chain(inner, 17, 18, 11))
        value = graph.add(11, value, graph.chain(inner, 10, 11))
    return graph


def _normalized(graph: Graph, value: int) -> int:
    centred = graph.add(21, value, graph.add(20, value))
    return graph.chain(graph.add(25, centred, graph.chain(centred, 22, 20, 23, 24)), 19, 11)


def _projected(graph: Graph, value: int) -> int:
    linear = graph.chain(value, 10, 11)
    sizes = [graph.chain(linear, 30, 31, 32) for _ in range(2)]
    return graph.add(15, graph.add(16, linear, graph.add(33, *sizes)))


def resnet(nodes: int) -> Graph:
    """Build residual blocks of three convolutions, every fourth with a projection."""
    graph = Graph()
    value = graph.add(1)
    block = 0
    while len(graph.kinds) < nodes:
        skip = graph.chain(value, 2, 3) if block % 4 == 0 else value
        value = graph.chain(graph.add(5, graph.chain(value, 2, 3, 4, 2, 3, 4, 2, 3), skip), 4)
        block += 1
    return graph


def local(nodes: int) -> Graph:
    """Build nodes that read one or two nodes shortly before them: wider and more tangled than any model."""
    rng = np.random.default_rng(nodes)
    graph = Graph([0])
    for node in range(1, nodes):
        inputs = {max(0, node - int(far)) for far in (rng.integers(1, 40), *rng.integers(1, 150, node % 2))}
        graph.add(int(rng.integers(1, 20)), *sorted(inputs))
    return graph


def tangle(nodes: int) -> Graph:
    """Build edges between random nodes, three for every two nodes."""
    rng = np.random.default_rng(nodes)
    ends = np.sort(rng.integers(0, nodes, (nodes * 3 // 2, 2)), axis=1)
    edges = [(int(one), int(other), 0, slot) for slot, (one, other) in enumerate(ends) if one != other]
    return Graph(rng.integers(1, 20, nodes).tolist(), edges)


def chain(nodes: int) -> Graph:
    """Build a chain of nodes."""
    graph = Graph()
    graph.chain(graph.add(1), *(2 + at % 3 for at in range(nodes - 1)))
    return graph


def wide(nodes: int) -> Graph:
    """Build a first node that all middle nodes read, and a last node that reads all of these."""
    graph = Graph()
    first = graph.add(1)
    graph.add(3, *[graph.add(2, first) for _ in range(nodes - 2)])
    return graph


SHAPES: dict[str, Callable[[int], Graph]] = {
    "transformer": transformer,
    "resnet": resnet,
    "local": local,
    "tangle": tangle,
    "chain": chain,
    "wide": wide,
}
