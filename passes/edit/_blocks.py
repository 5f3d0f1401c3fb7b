"""Blocks of nodes that are alike, found by name or by structure, and their inputs and outputs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from surgery import Graph, Node, Value

_PERIODS = 64
"""Number of distances between like nodes that are tried; those of blocks are among the most frequent."""
_WIDTH = 4
"""Cost of a value that crosses the border between two blocks, in nodes that are not outlined."""


@dataclass(frozen=True)
class Family:
    """Blocks that are alike node by node, with their `inputs` and `outputs` in the same order for each block.

    `reads` holds the number of the input for each value that the nodes of a block read from outside, in order.
    """

    blocks: tuple[tuple[Node, ...], ...]
    reads: tuple[int, ...]
    inputs: tuple[tuple[Value, ...], ...]
    outputs: tuple[tuple[Value, ...], ...]


def named(graph: Graph, pattern: str) -> list[list[Node]]:
    """Group the main-graph nodes by the start of their names; `*` matches characters except a slash or a dot."""
    head, _, tail = pattern.partition("*")
    groups: dict[str, list[Node]] = defaultdict(list)
    for node in _main(graph):
        rest = node.name.removeprefix(head)
        letters = rest[: next((place for place, letter in enumerate(rest) if letter in "/."), len(rest))]
        ending = rest.removeprefix(letters)
        if node.name.startswith(head) and letters and ending.startswith(tail) and ending.removeprefix(tail)[:1] in "/.":
            groups[letters].append(node)
    return list(groups.values())


def repeated(graph: Graph, least: int) -> Iterator[list[list[Node]]]:
    """Yield runs of consecutive like blocks of at least `least` nodes in file order, the best run first."""
    nodes = _main(graph)
    kinds: dict[Hashable, int] = {}
    tokens = np.array([kinds.setdefault(_kind(node), len(kinds)) for node in nodes], dtype=np.int64)
    crossing = _crossing(nodes)
    while (run := _best_run(tokens, crossing, least)) is not None:
        start, period, count = run
        yield [nodes[start + period * i : start + period * (i + 1)] for i in range(count)]
        # Nodes of this run match no other nodes from now on.
        stop = start + period * count
        tokens[start:stop] = -1 - np.arange(start, stop)


def families(graph: Graph, blocks: Sequence[Sequence[Node]]) -> list[Family]:
    """Group blocks that are alike, the largest family first; a block that is unlike all others is left out."""
    alike: dict[Hashable, list[tuple[Node, ...]]] = defaultdict(list)
    for block in blocks:
        alike[_key(block)].append(tuple(block))
    found = [_family(graph, group) for group in alike.values() if len(group) > 1]
    return sorted((family for family in found if family.outputs[0]), key=lambda family: -len(family.blocks))


def between(graph: Graph, block: Sequence[Node]) -> Node | None:
    """Find a node outside a block that depends on it and on which it depends, directly or not; else None."""
    inside = {node.ir for node in block}
    order = {node: place for place, node in enumerate(graph.main)}
    first, last = min(order[node] for node in inside), max(order[node] for node in inside)
    below: set[Any] = set()
    for node in list(graph.main)[first : last + 1]:
        above = {value.producer() for value in node.inputs if value is not None}
        if node not in inside and not above.isdisjoint(inside | below):
            below.add(node)
        elif node in inside and not above.isdisjoint(below):
            return next(Node(graph, other) for other in graph.main if other in above & below)
    return None


def _main(graph: Graph) -> list[Node]:
    return graph.main_nodes()


def _kind(node: Node) -> Hashable:
    """Return a key of a node without the sources of its inputs; a node with subgraphs is unlike all others."""
    if node.has_subgraphs:
        return id(node.ir)
    attributes = tuple(sorted((name, _content(attribute)) for name, attribute in node.attributes.items()))
    given = tuple(value is not None for value in node.ir.inputs)
    return node.identifier, attributes, given, tuple(bool(value.name) for value in node.ir.outputs)


def _content(attribute: Any) -> str:
    if attribute.type.name != "TENSOR":
        # As text, 0.0 and -0.0 differ.
        return f"{attribute.type.name} {attribute.value!r}"
    tensor = attribute.value
    return f"{tensor.dtype.name} {list(tensor.shape)} {tensor.tobytes().hex() if tensor.nbytes < 1024 else id(tensor)}"


def _crossing(nodes: Sequence[Node]) -> np.ndarray[Any, Any]:
    """Count the values that are computed before and read after each place between two nodes."""
    order = {node.ir: place for place, node in enumerate(nodes)}
    ends: dict[Any, int] = {}
    for node in nodes:
        for value in node.ir.inputs:
            ends[value] = order[node.ir]
    change = np.zeros(len(nodes) + 2, dtype=np.int64)
    for value, end in ends.items():
        producer = None if value is None else value.producer()
        if producer in order:
            change[order[producer] + 1] += 1
            change[end + 1] -= 1
    return np.cumsum(change)


def _best_run(tokens: np.ndarray[Any, Any], crossing: np.ndarray[Any, Any], least: int) -> tuple[int, int, int] | None:
    """Find the run of like blocks that saves the most nodes; return its start, block length and block count."""
    best: tuple[int, tuple[int, int, int]] | None = None
    for period in _periods(tokens, least):
        for start, stop in _runs(tokens, period):
            for begin in range(start, min(start + period, stop - 2 * period + 1)):
                count = (stop - begin) // period
                saved = (count - 1) * period - _WIDTH * int(crossing[begin])
                if best is None or saved > best[0]:
                    best = saved, (begin, period, count)
    return None if best is None else best[1]


def _periods(tokens: np.ndarray[Any, Any], least: int) -> list[int]:
    """List the most frequent distances between a node and the next one like it."""
    order = np.argsort(tokens, kind="stable")
    same = tokens[order][1:] == tokens[order][:-1]
    distances = np.diff(order)[same]
    return [period for period, _ in Counter(d for d in distances.tolist() if d >= least).most_common(_PERIODS)]


def _runs(tokens: np.ndarray[Any, Any], period: int) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each range with at least two consecutive like blocks of this length."""
    equal = np.concatenate([[False], tokens[period:] == tokens[:-period], [False]]).astype(np.int8)
    edges = np.diff(equal)
    for start, stop in zip(np.flatnonzero(edges == 1).tolist(), np.flatnonzero(edges == -1).tolist()):
        if stop - start >= period:
            yield start, stop + period


def _key(block: Sequence[Node]) -> Hashable:
    """Return a key of the structure of a block: its nodes, and the node output that each input is."""
    places: dict[Any, tuple[int, int]] = {
        value: (place, number) for place, node in enumerate(block) for number, value in enumerate(node.ir.outputs)
    }
    return tuple((_kind(node), tuple(places.get(value) for value in node.ir.inputs)) for node in block)


def _family(graph: Graph, blocks: list[tuple[Node, ...]]) -> Family:
    inputs = list(zip(*(_read_from_outside(block) for block in blocks)))
    # Reads of the same value in every block are one input.
    slots = {slot: number for number, slot in enumerate(dict.fromkeys(inputs))}
    used = [
        any(_is_read_outside(block[place].ir.outputs[number], block) for block in blocks)
        for place, node in enumerate(blocks[0])
        for number in range(len(node.ir.outputs))
    ]
    made = [[value for node in block for value in node.ir.outputs] for block in blocks]
    return Family(
        tuple(blocks),
        tuple(slots[slot] for slot in inputs),
        tuple(tuple(Value(graph, slot[i]) for slot in slots) for i in range(len(blocks))),
        tuple(tuple(Value(graph, value) for value, wanted in zip(values, used) if wanted) for values in made),
    )


def _read_from_outside(block: Sequence[Node]) -> list[Any]:
    inside = {value for node in block for value in node.ir.outputs}
    return [value for node in block for value in node.ir.inputs if value is not None and value not in inside]


def _is_read_outside(value: Any, block: Sequence[Node]) -> bool:
    nodes = {node.ir for node in block}
    return value.is_graph_output() or any(use.node not in nodes for use in value.uses())
