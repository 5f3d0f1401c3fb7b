"""Producers and consumers of each value of a main graph, and traversal upstream and downstream.

A node with subgraphs also reads the values that these capture. Only values of the main graph are covered: values of a
subgraph exist once per execution of the subgraph.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from surgery.base.operators.subgraphs import initializer_names, subgraphs

if TYPE_CHECKING:
    import onnx


Ends = tuple[list[str], list[str]]
"""The values that a node reads, each once, and those that it produces."""


class Flow:
    """The nodes of a main graph by number, in the order of the file."""

    def __init__(self, graph: onnx.GraphProto, ends: Sequence[Ends] | None = None) -> None:
        self.nodes: Sequence[onnx.NodeProto] = list(graph.node)
        self.ends = [ends_of(node) for node in self.nodes] if ends is None else ends
        self.constants = initializer_names(graph)
        self.inputs = [value.name for value in graph.input]
        self.outputs = [value.name for value in graph.output]
        self.reads = [read for read, _ in self.ends]
        self.producers: dict[str, int] = {}
        self.readers: dict[str, list[int]] = defaultdict(list)
        for number, (read, made) in enumerate(self.ends):
            for name in made:
                self.producers[name] = number
            for name in read:
                self.readers[name].append(number)

    def __contains__(self, name: str) -> bool:
        """Return whether the main graph has a value of this name."""
        return name in self.producers or name in self.constants or name in self.inputs

    def makes(self, number: int) -> list[str]:
        """List the values that a node produces."""
        return self.ends[number][1]

    def above(self, names: Iterable[str], stop: Container[str] = ()) -> set[int]:
        """Find the nodes upstream of values, without going beyond the values in `stop`."""
        return _reach(
            names,
            lambda name: [self.producers[name]] if name in self.producers and name not in stop else [],
            self.reads.__getitem__,
        )

    def below(self, names: Iterable[str], stop: Container[str] = ()) -> set[int]:
        """Find the nodes downstream of values, without going beyond the values in `stop`."""
        return _reach(names, lambda name: [] if name in stop else self.readers.get(name, []), self.makes)


def _reach(
    names: Iterable[str], nodes_of: Callable[[str], list[int]], names_of: Callable[[int], list[str]]
) -> set[int]:
    found: set[int] = set()
    pending = list(names)
    while pending:
        for number in nodes_of(pending.pop()):
            if number not in found:
                found.add(number)
                pending.extend(names_of(number))
    return found


def ends_of(node: onnx.NodeProto) -> Ends:
    """Return the values that a node reads, each once, and those that it produces."""
    read = reads(node) if node.attribute else (name for name in node.input if name)
    return list(dict.fromkeys(read)), [name for name in node.output if name]


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that a node reads: its inputs, and the values that its subgraphs capture."""
    yield from (name for name in node.input if name)
    for body in subgraphs(node):
        yield from captures(body)


def captures(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names that a subgraph captures from enclosing graphs."""
    own = {value.name for value in graph.input} | initializer_names(graph)
    for node in graph.node:
        yield from (name for name in reads(node) if name not in own)
        own.update(node.output)
    yield from (output.name for output in graph.output if output.name not in own)
