"""Chains that rearrange rows, replaced with one list of rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from surgery import RESHAPES, Builder, Graph, Node, Parity, Value, graph_pass

from ._axes import Extent, extents
from ._gather import FEWEST, MOST
from ._layout import spec
from ._shared import constant_ints, has_parameters, is_known_movement
from ._slices import slice_inputs

LONGEST = 16
LARGEST = 1 << 22
"""Maximum number of elements, of one batch item, that are followed."""

CHOICES = ("Gather", "Slice", "Concat")
ENDS = (*RESHAPES, "Transpose", *CHOICES)

Array = np.ndarray[Any, Any]


@graph_pass("moves-to-gather", parity=Parity.EXACT)
def moves_to_gather(graph: Graph) -> None:
    """Turn a chain of Reshape, Transpose, Gather, Slice and Concat of Slices into one Gather of rows.

    Right because each of them only passes elements on, and the destination of each element is found by applying the
    chain to the numbers of the elements. If they come out in runs, the chain moves rows, and a Gather of these rows
    does the same. At most the first dim may be symbolic, or a multiple of a symbol: it is the batch, which every step
    leaves outermost, so one batch item is enough. This is how a shifted window is cut out of an image, or neighboring
    patches are merged. Chains that do not select elements are left to merge-layouts. Rows of few elements stay, because
    many small moves are slow, and so do chains for which no node would be saved.

    Example:
        g (float[N,4,4,16] x) => (float[N,2,2,2,2,16] y)
        <int64[4] roll = {1, 2, 3, 0}, int64[6] windows = {0, 2, 2, 2, 2, 16}>
        {
            a = Gather<axis = 1>(x, roll)
            b = Gather<axis = 2>(a, roll)
            c = Reshape(b, windows)
            d = Transpose<perm = [0, 1, 3, 2, 4, 5]>(c)
            y = Relu(d)
        }
    """
    todo = deque(graph.nodes(*ENDS))
    while todo:
        last = todo.popleft()
        if last.is_removed or not _moves(last) or _goes_on(last):
            continue
        with graph.site(last) as new:
            best = max(_plans(last), key=lambda plan: plan.saved, default=None)
            if best is not None and best.saved > 0:
                new.replace(last.outputs[0], best.build(new))


@dataclass(frozen=True)
class Rows:
    """Rows of one batch item of a value, by number, and the shapes before and after."""

    source: Value
    start: tuple[Extent, ...]
    end: tuple[Extent, ...]
    positions: Array
    length: int
    leaving: int

    @property
    def _trailing(self) -> tuple[Extent, ...]:
        """The dims of a row: those of the source if it already is a stack of such rows."""
        count, first = Extent(self._count), self.start[0]
        return self.start[2:] if first.number == 1 and self.start[1:2] == (count,) else (Extent(self.length),)

    @property
    def _count(self) -> int:
        total = int(np.prod([size.number for size in self.start], dtype=np.int64))
        return total // self.length

    @property
    def _batch(self) -> Extent:
        return Extent(1, self.start[0].symbols)

    @property
    def _before(self) -> tuple[Extent, ...]:
        return (self._batch, Extent(self._count), *self._trailing)

    @property
    def _after(self) -> tuple[Extent, ...]:
        return (self._batch, Extent(len(self.positions)), *self._trailing)

    @property
    def saved(self) -> int:
        """The number of nodes saved."""
        return self.leaving - 1 - (self._before != self.start) - (self._after != self.end)

    def build(self, new: Builder) -> Value:
        """Build the nodes, and return the last result."""
        value = self.source
        if self._before != self.start:
            shape = [-1, *(size.number for size in self._before[1:])]
            value = new.node("Reshape", value, new.constant(np.array(shape, np.int64), "shape"))
        value = new.node("Gather", value, new.constant(self.positions.astype(np.int64), "rows"), axis=1)
        if self._after != self.end:
            value = new.node("Reshape", value, new.constant(np.array(spec(self.end, self._after), np.int64), "shape"))
        return value


def _goes_on(last: Node) -> bool:
    """Return whether the chain continues after a node."""
    value = last.outputs[0]
    readers = value.consumers
    if value.is_output or len(readers) != 1 or readers[0].scope is not last.scope:
        return False
    return _moves(readers[0]) and (readers[0].op == "Concat" or readers[0].input(0) == value)


def _moves(node: Node) -> bool:
    """Return whether a node passes on elements of its input, selected by constants."""
    if node.op in CHOICES and has_parameters(node):
        return False
    match node.op:
        case "Gather":
            indices = node.input(1)
            return indices is not None and indices.rank == 1 and bool(constant_ints(indices))
        case "Slice":
            return slice_inputs(node) is not None
        case "Concat":
            makers = [None if value is None else value.producer for value in node.inputs]
            cut = {maker.input(0) if maker is not None and maker.op == "Slice" else None for maker in makers}
            return len(cut) == 1 and None not in cut
    return is_known_movement(node)


def _plans(last: Node) -> Iterator[Rows]:
    """Yield the rows equivalent to the chain that ends here, for each value at which it may begin."""
    end = _batched(last.outputs[0])
    path: list[Node] = []
    leaving, chooses, node = 0, False, last
    while end is not None and len(path) < LONGEST and _moves(node):
        slices = [value.producer for value in node.inputs if value is not None] if node.op == "Concat" else []
        lowest = next((maker for maker in slices if maker is not None), node)
        if any(maker is None or not _is_read_by(maker.outputs[0], [node]) or not _moves(maker) for maker in slices):
            return
        source = lowest.required_input(0)
        path.append(node)
        leaving += 1 + len(set(slices))
        chooses = chooses or node.op in CHOICES
        rows = _rows(source, path, end, leaving) if chooses else None
        if rows is not None:
            yield rows
        producer = source.producer
        readers = [maker for maker in set(slices) if maker is not None] or [node]
        if producer is None or producer.scope is not last.scope or not _is_read_by(source, readers):
            return
        node = producer


def _is_read_by(value: Value, readers: list[Node]) -> bool:
    """Return whether only these nodes read a value."""
    return not value.is_output and all(reader in readers for reader in value.consumers)


def _batched(value: Value) -> tuple[Extent, ...] | None:
    """Read a shape with at most its first dim symbolic; None for other shapes."""
    sizes = extents(value.shape)
    return sizes if sizes and not any(size.symbols for size in sizes[1:]) else None


def _rows(source: Value, path: list[Node], end: tuple[Extent, ...], leaving: int) -> Rows | None:
    """Apply the chain to the numbers of the elements, and find the runs in which they come out."""
    start = _batched(source)
    total = 0 if start is None else int(np.prod([size.number for size in start], dtype=np.int64))
    if start is None or start[0].symbols != end[0].symbols or not 0 < total <= LARGEST:
        return None
    numbers: Array | None = np.arange(total, dtype=np.int32).reshape([size.number for size in start])
    for node in reversed(path):
        numbers = None if numbers is None else _sent(numbers, node, start[0].symbols)
    if numbers is None:
        return None
    flat = numbers.reshape(-1)
    breaks = np.flatnonzero(np.diff(flat) != 1) + 1
    begins = flat[np.concatenate([[0], breaks])]
    length = gcd(total, flat.size, *map(int, breaks), *map(int, begins))
    if length < FEWEST or flat.size // length > MOST:
        return None
    return Rows(source, start, end, flat[::length] // length, length, leaving)


def _sent(numbers: Array, node: Node, batch: tuple[str, ...]) -> Array | None:
    """Apply a node to the numbers of one batch item; return None if it affects the batch dim."""
    if node.op == "Concat":
        parts = [None if v is None or v.producer is None else _sent(numbers, v.producer, batch) for v in node.inputs]
        arrays = [part for part in parts if part is not None]
        axis = node.attr("axis", 1)
        fits = len(arrays) == len(parts) and axis % numbers.ndim > 0
        return np.concatenate(arrays, axis) if fits else None
    if node.op == "Transpose":
        perm = node.attr("perm") or list(range(numbers.ndim))[::-1]
        return numbers.transpose(perm) if perm[0] == 0 else None
    if node.op == "Gather":
        axis, wanted = node.attr("axis", 0) % numbers.ndim, np.array(constant_ints(node.input(1)) or ())
        exist = axis > 0 and bool((abs(wanted + 0.5) < numbers.shape[axis]).all())
        return numbers.take(wanted, axis) if exist else None
    if node.op == "Slice":
        starts, ends, axes, steps = slice_inputs(node) or ((), (), (), ())
        cuts = {axis % numbers.ndim: slice(*cut) for *cut, axis in zip(starts, ends, steps, axes)}
        return None if 0 in cuts else numbers[tuple(cuts.get(axis, slice(None)) for axis in range(numbers.ndim))]
    shape = _batched(node.outputs[0])
    fits = shape is not None and shape[0].symbols == batch
    return numbers.reshape([size.number for size in shape]) if fits and shape is not None else None
