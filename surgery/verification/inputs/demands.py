"""The demands of the operators of a graph on extents, in terms of the symbols of shape inference.

A window must fit into its input, a reflection into the axis that it reflects, and an index into the axis that it
indexes; a Reshape keeps the number of elements; operands of arithmetic agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from surgery.base.operators import traits
from surgery.model.shapes.declarations import Extent
from surgery.model.storage.ir_scopes import subgraphs
from surgery.verification.inputs.factors import constant, factors, integers, product, stored, text

if TYPE_CHECKING:
    import onnx_ir as ir

_STRICT = {*traits.RECURRENT, "Concat", "Conv", "Reshape"}
"""Operators that require equal extents: none of their operands is broadcast."""

_MOST_INDICES = 1 << 20
"""Constants with more indices than this are not read."""

Shapes = Callable[["ir.Value | None"], "list[Extent] | None"]
Agreeing = Callable[["ir.Node"], Iterable[tuple[Extent, Extent]]]


@dataclass(frozen=True)
class Demand:
    """A demand of a node on its operands: `left` is `right`, or at least `right`, or may be broadcast to it."""

    left: Extent
    right: Extent
    least: bool = False
    broadcast: bool = False


def demands(graph: ir.Graph, shape: Shapes, elements: Shapes, agreeing: Agreeing) -> dict[Demand, str]:
    """Return all demands of a graph, each with the name of the first node that makes it.

    Those of the main graph come before those of branches and loops, not all of which run. `shape` returns the shape of
    a value, `elements` the elements of a small integer tensor; `agreeing` yields the pairs of extents that an operator
    requires to agree.
    """
    found: dict[Demand, str] = {}
    for node in every_node(graph):
        for demand in _of(node, shape, elements, agreeing):
            found.setdefault(demand, f"{node.op_type} '{node.name or node.outputs[0].name}'")
    for value in graph.outputs:
        for extent in shape(value) or ():
            # An empty output proves nothing.
            if isinstance(extent, str):
                found.setdefault(Demand(extent, 1, least=True), f"output '{value.name}'")
    return found


def every_node(graph: ir.Graph) -> Iterator[ir.Node]:
    """Yield the nodes of a graph, then those of its subgraphs."""
    yield from graph
    for node in graph:
        for inner in subgraphs(node):
            yield from every_node(inner)


def _of(node: ir.Node, shape: Shapes, elements: Shapes, agreeing: Agreeing) -> Iterator[Demand]:
    """Yield the demands of a node."""
    op = node.op_type
    data = shape(node.inputs[0]) if node.inputs else None
    if op == "Conv" or not traits.slides(op):
        loose = op not in _STRICT
        pairs = (pair for pair in agreeing(node) if not loose or 1 not in pair)
        yield from (Demand(first, second, broadcast=loose) for first, second in pairs)
    if traits.slides(op) or op in ("Slice", "STFT"):
        yield from (Demand(extent, 1, least=True) for extent in shape(node.outputs[0]) or () if isinstance(extent, str))
    elif data is not None and op in _OF_DATA:
        yield from _OF_DATA[op](node, data, elements)


def _reflected(node: ir.Node, data: list[Extent], elements: Shapes) -> Iterator[Demand]:
    """Yield the demands of a reflection, which must be shorter than the axis that it reflects."""
    if text(node, "mode") != "reflect":
        return
    pads: list[Extent] | list[int] | None = integers(node, "pads") or integers(node, "paddings")
    if pads is None and len(node.inputs) > 1:
        pads = elements(node.inputs[1])
    axes: list[Extent] | None = list(range(len(data)))
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        axes = elements(node.inputs[3])
    if pads is None or axes is None or len(pads) != 2 * len(axes):
        return
    for place, axis in enumerate(axes):
        sides = [pad for pad in (pads[place], pads[place + len(axes)]) if isinstance(pad, int)]
        if isinstance(axis, int) and -len(data) <= axis < len(data) and max(sides, default=0) > 0:
            yield Demand(data[axis], max(sides) + 1, least=True)


def _reshaped(node: ir.Node, data: list[Extent], elements: Shapes) -> Iterator[Demand]:
    """Yield the demand for the same number of elements, or for a multiple of the given ones."""
    target = elements(node.inputs[1])
    sides = None if target is None else factors(data, target)
    if sides is None or target is None:
        return
    left, right = sides
    if -1 not in target:
        yield Demand(product(left), product(right))
    elif right != [1] and (any(isinstance(one, str) for one in right) or constant(left) % constant(right)):
        yield Demand(f"Mod({product(left)}, {product(right)})", 0)


def _indexed(node: ir.Node, data: list[Extent], elements: Shapes) -> Iterator[Demand]:
    """Yield the demand that constant indices lie within the axis."""
    constant = stored(node.inputs[1])
    axis = (integers(node, "axis") or [0])[0]
    if constant is None or not 0 < constant.size <= _MOST_INDICES or not -len(data) <= axis < len(data):
        return
    indices = np.asarray(constant.numpy())
    yield Demand(data[axis], max(int(indices.max()) + 1, -int(indices.min())), least=True)


def _split(node: ir.Node, data: list[Extent], elements: Shapes) -> Iterator[Demand]:
    """Yield the demand that constant parts add up to the extent."""
    parts: list[Extent] | list[int] | None = integers(node, "split")
    if parts is None and len(node.inputs) > 1:
        parts = elements(node.inputs[1])
    axis = (integers(node, "axis") or [0])[0]
    if parts and -len(data) <= axis < len(data) and all(isinstance(part, int) for part in parts):
        yield Demand(data[axis], sum(part for part in parts if isinstance(part, int)))


def _blocks(node: ir.Node, data: list[Extent], elements: Shapes) -> Iterator[Demand]:
    """Yield the demand that blocks fill the image."""
    size = (integers(node, "blocksize") or [1])[0]
    yield from (Demand(f"Mod({extent}, {size})", 0) for extent in data[2:])


def _largest(node: ir.Node, data: list[Extent], elements: Shapes) -> Iterator[Demand]:
    """Yield the demand that there are as many elements as are selected."""
    count = elements(node.inputs[1]) if len(node.inputs) > 1 else integers(node, "k")
    axis = (integers(node, "axis") or [-1])[0]
    if count and -len(data) <= axis < len(data):
        yield Demand(data[axis], count[0], least=True)


_OF_DATA: dict[str, Callable[[ir.Node, list[Extent], Shapes], Iterator[Demand]]] = {
    "Gather": _indexed,
    "GatherElements": _indexed,
    "Pad": _reflected,
    "Reshape": _reshaped,
    "SpaceToDepth": _blocks,
    "Split": _split,
    "TopK": _largest,
}
"""The demands on the first operand, by operator; none of them allows broadcasting."""
