"""Chains of Slice."""

from collections import deque
from collections.abc import Sequence

import numpy as np

from surgery import Builder, Graph, Node, Parity, graph_pass

from ._slices import slice_inputs

TO_THE_END = 2**31 - 1
"""Minimum end that means "to the end"."""

Cut = tuple[int, int, int]
"""Start, end and step along one axis."""


@graph_pass("merge-slices", parity=Parity.EXACT)
def merge_slices(graph: Graph) -> None:
    """Merge a Slice into the Slices that read it.

    Right because axes are sliced independently, so one Slice can name them all. Along the same axis, the second Slice
    is relative to the start of the first, if both have steps of 1 and count from the front; if the extent is known, any
    bounds can be merged. All bounds must be constant. A first Slice with other consumers stays, and so do those after
    it.

    Example:
        g (float[M,N] x) => (float[K,L] y)
        <int64[1] one = {1}, int64[1] two = {2}, int64[1] nine = {9}, int64[1] rows = {0}, int64[1] columns = {1}>
        {
            a = Slice(x, one, nine, rows)
            y = Slice(a, two, nine, columns)
        }
    """
    todo = deque(graph.nodes("Slice"))
    while todo:
        first = todo.popleft()
        readers = first.outputs[0].consumers
        if first.is_removed or first.outputs[0].is_output or not readers:
            continue
        before = len(graph.changed_nodes)
        if all(reader.op == "Slice" for reader in readers):
            with graph.site(first) as new:
                _merge(first, readers, new)
        todo.extend(Node(graph, node) for node in graph.changed_nodes[before:] if node.op_type == "Slice")


def _merge(first: Node, readers: Sequence[Node], new: Builder) -> None:
    source = first.required_input(0)
    inner = _cuts(first)
    new.require(inner is not None, "the first Slice has bounds that are not constant")
    assert inner is not None
    for reader in readers:
        outer = None if reader.input(0) != first.outputs[0] else _cuts(reader)
        new.require(outer is not None, "the second Slice has bounds that are not constant")
        assert outer is not None
        cuts = dict(inner)
        for axis, cut in outer.items():
            whole = (source.shape or {axis: None})[axis]
            both = _both(cuts[axis], cut, whole if isinstance(whole, int) else None) if axis in cuts else cut
            new.require(both is not None, "along the same axis, the result of the second Slice depends on the extent")
            assert both is not None
            cuts[axis] = both
        _replace(reader, first, cuts, new.at(reader))


def _cuts(node: Node) -> dict[int, Cut] | None:
    """Return the cut of a Slice along each axis, counted from the front; None if it is not known."""
    found, rank = slice_inputs(node), node.outputs[0].rank
    if found is None or (rank is None and min(found[2], default=0) < 0):
        return None
    starts, ends, axes, steps = found
    cuts = {axis if rank is None else axis % rank: cut for *cut, axis in zip(starts, ends, steps, axes)}
    return {axis: (start, end, step) for axis, (start, end, step) in cuts.items()} if len(cuts) == len(axes) else None


def _both(inner: Cut, outer: Cut, whole: int | None) -> Cut | None:
    """Combine two cuts along the same axis; None if the result is unknown or empty."""
    if whole is not None:
        left = range(whole)[slice(*inner)][slice(*outer)]
        if not left or left.step < 0:
            return None
        return left.start, left.stop, left.step
    (start, end, step), (again, until, stride) = inner, outer
    if step != 1 or stride != 1 or min(start, end, again, until) < 0:
        return None
    bound = until if until >= TO_THE_END else min(start + until, 2**63 - 1)
    return start + again, min(end, bound), 1


def _replace(reader: Node, first: Node, cuts: dict[int, Cut], new: Builder) -> None:
    axes = sorted(cuts)
    starts, ends, steps = ([cuts[axis][part] for axis in axes] for part in range(3))
    source = first.required_input(0)
    if reader.opset < 10:
        new.replace(reader.outputs[0], new.node("Slice", source, starts=starts, ends=ends, axes=axes))
        return
    given = [starts, ends, axes] + ([steps] if set(steps) != {1} else [])
    names = ("starts", "ends", "axes", "steps")
    inputs = [new.constant(np.array(ints, np.int64), name) for ints, name in zip(given, names)]
    new.replace(reader.outputs[0], new.node("Slice", source, *inputs))
