"""Chains of Reshape, Unsqueeze and Squeeze, for any shapes."""

from collections import deque

import numpy as np

from surgery import RESHAPES, Builder, Graph, Node, Parity, Value, graph_pass

from ._shared import axes_of, has_parameters


@graph_pass("merge-reshapes", parity=Parity.EXACT)
def merge_reshapes(graph: Graph) -> None:
    """Merge a Reshape, Flatten, Squeeze or Unsqueeze into the Reshape that reads it; merge identical ones.

    Right because none of them moves an element, so only the last shape matters if it is self-contained: constant, and
    without copied dims (0). Two Unsqueezes are one that names the axes of both, counted in the last result, and so are
    two Squeezes, counted in the first value. An Unsqueeze and a Squeeze of the same axes cancel. No shapes need to be
    known. A node with other consumers stays; merge-layouts also uses shapes.

    Example:
        g (float[N,2,3] x) => (float[6,M] y) <int64[2] s = {6, -1}> {
            a = Flatten<axis = 2>(x)
            y = Reshape(a, s)
        }
    """
    todo = deque(graph.nodes(*RESHAPES))
    while todo:
        first = todo.popleft()
        readers = first.outputs[0].consumers
        if first.is_removed or not readers or any(reader.op not in RESHAPES for reader in readers):
            continue
        before = len(graph.changed_nodes)
        source = first.input(0)
        with graph.site(first) as new:
            _merge(first, readers, new)
        changed = [Node(graph, node) for node in graph.changed_nodes[before:]]
        todo += [node for node in changed if node.op in RESHAPES]
        # The source that is now read instead may have only such readers.
        if changed and source is not None and source.producer is not None and source.producer.op in RESHAPES:
            todo.append(source.producer)


def _merge(first: Node, readers: list[Node], new: Builder) -> None:
    if first.outputs[0].is_output or any(has_parameters(node) or node.opset < 5 for node in (first, *readers)):
        return
    merged = [_merged(first, reader, new.at(reader)) for reader in readers]
    for reader, value in zip(readers, merged):
        new.require(value is not None, "the shapes must be known to merge the two")
        assert value is not None
        new.replace(reader.outputs[0], value)


def _merged(first: Node, second: Node, new: Builder) -> Value | None:
    """Merge two nodes; return None if too little is known, or if the second node reads the first as its shape."""
    source, shape = first.required_input(0), axes_of(second)
    if second.required_input(0) != first.outputs[0] or second.input(1) == first.outputs[0]:
        return None
    if second.op == "Reshape":
        copies = shape is None or (0 in shape and not second.attr("allowzero"))
        return None if copies else new.node("Reshape", source, second.input(1), attributes=second.attributes)
    inner = axes_of(first)
    if second.op == "Flatten" or not inner or not shape or min(*inner, *shape) < 0:
        return None
    if (first.op, second.op) == ("Unsqueeze", "Squeeze"):
        return source if sorted(inner) == sorted(shape) else None
    if first.op != second.op:
        return None
    joined = _both_added(inner, shape) if first.op == "Unsqueeze" else _both_dropped(inner, shape)
    if second.opset < 13:
        return new.node(first.op, source, axes=joined)
    return new.node(first.op, source, new.constant(np.array(joined, np.int64), "axes"))


def _both_added(inner: tuple[int, ...], outer: tuple[int, ...]) -> list[int]:
    """Return the axes that two Unsqueezes add, counted in the last result."""
    total = len(inner) + len(outer) + max(*inner, *outer) + 1
    kept = [axis for axis in range(total) if axis not in outer]
    return sorted([*outer, *(kept[axis] for axis in inner)])


def _both_dropped(inner: tuple[int, ...], outer: tuple[int, ...]) -> list[int]:
    """Return the axes that two Squeezes remove, counted in the first value."""
    total = len(inner) + len(outer) + max(*inner, *outer) + 1
    kept = [axis for axis in range(total) if axis not in inner]
    return sorted([*inner, *(kept[axis] for axis in outer)])
