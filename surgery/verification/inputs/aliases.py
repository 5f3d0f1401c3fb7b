"""Expressions for the symbols to which shape inference knows nothing equal, as they may come out 0 or negative.

That does not matter where sizes are only tried: what is solved with these expressions holds if the model accepts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from surgery.base.operators import traits
from surgery.model.shapes.declarations import Extent
from surgery.model.shapes.linear import names
from surgery.verification.inputs.factors import factors, integers, product, text

if TYPE_CHECKING:
    import onnx_ir as ir

Shapes = Callable[["ir.Value | None"], "list[Extent] | None"]


def aliases(nodes: Iterable[ir.Node], shape: Shapes, elements: Shapes) -> dict[str, Extent]:
    """Return expressions for the symbols that inference made up, by the first node whose result has each of them."""
    found: dict[str, Extent] = {}
    for node in nodes:
        for symbol, extent in _of(node, shape, elements):
            if symbol not in found and not (isinstance(extent, str) and symbol in names(extent)):
                found[symbol] = extent
    return found


def _of(node: ir.Node, shape: Shapes, elements: Shapes) -> Iterator[tuple[str, Extent]]:
    """Yield the output dims to which inference gave a new symbol, with extents that are equal to them.

    These are one of the two dims that are broadcast to each other, the result of a window with the padding "SAME", the
    dim that a Reshape leaves open, and numbers computed from dims that may come out negative.
    """
    if node.op_type in _ARITHMETIC:
        yield from _computed(node, elements)
    result = shape(node.outputs[0]) if node.outputs else None
    if result is None:
        return
    data = shape(node.inputs[0]) if node.inputs else None
    if traits.slides(node.op_type):
        yield from _padded_to_same(node, data, result)
        return
    taken = {extent for value in node.inputs for extent in shape(value) or ()}
    if node.op_type == "Slice":
        yield from _counted(node, data, [None if dim in taken else dim for dim in result], elements)
        return
    if node.op_type == "Reshape":
        yield from _left_open(data, elements(node.inputs[1]), [None if dim in taken else dim for dim in result])
        return
    shapes = [found for found in map(shape, node.inputs) if found is not None]
    for place, fresh in enumerate(reversed(result), 1) if node.op_type in traits.BROADCASTING else ():
        if isinstance(fresh, str) and fresh.isidentifier() and fresh not in taken:
            met = [found[-place] for found in shapes if len(found) >= place and found[-place] != 1]
            yield from ((fresh, extent) for extent in met[:1])


def _padded_to_same(node: ir.Node, data: list[Extent] | None, result: list[Extent]) -> Iterator[tuple[str, Extent]]:
    if data is None or len(data) != len(result) or not text(node, "auto_pad").startswith("SAME"):
        return
    strides = integers(node, "strides") or [1] * (len(data) - 2)
    for extent, fresh, stride in zip(data[2:], result[2:], strides):
        if isinstance(fresh, str) and fresh.isidentifier() and fresh != extent:
            yield fresh, extent if stride == 1 else f"floor(({extent}) / {stride} + {stride - 1}/{stride})"


def _left_open(
    data: list[Extent] | None, target: list[Extent] | None, result: Sequence[Extent | None]
) -> Iterator[tuple[str, Extent]]:
    """Yield the symbol that inference gave to the open dim of a Reshape, as a quotient of the numbers of elements."""
    sides = None if data is None or target is None else factors(data, target)
    if sides is None or target is None or target.count(-1) != 1 or len(result) != len(target):
        return
    fresh = result[target.index(-1)]
    if isinstance(fresh, str) and fresh.isidentifier():
        before, after = map(product, sides)
        yield fresh, before if after == 1 else f"floor({before} / ({after}))"


def _computed(node: ir.Node, elements: Shapes) -> Iterator[tuple[str, Extent]]:
    """Yield the symbols of elements that are computed one by one; a quotient is rounded towards 0."""
    found = elements(node.outputs[0])
    operands = [one for value in node.inputs if (one := elements(value)) is not None]
    # Of a row and a column, the places are not known.
    if found is None or len(operands) < len(node.inputs) or any(len(one) not in (1, len(found)) for one in operands):
        return
    for place, fresh in enumerate(found):
        parts = [f"({one[place if len(one) > 1 else 0]})" for one in operands]
        if isinstance(fresh, str) and fresh.isidentifier() and f"({fresh})" not in parts:
            yield fresh, _ARITHMETIC[node.op_type](parts)


def _counted(
    node: ir.Node, data: list[Extent] | None, result: Sequence[Extent | None], elements: Shapes
) -> Iterator[tuple[str, Extent]]:
    """Yield the symbol of the length of a Slice with the step 1."""
    bounds = [elements(value) for value in node.inputs[1:]]
    starts, ends, axes, steps = (*bounds, None, None, None, None)[:4]  # before opset 10, they are attributes
    if data is None or starts is None or ends is None or any(step != 1 for step in steps or ()):
        return
    for start, end, axis in zip(starts, ends, range(len(starts)) if axes is None else axes):
        fresh = result[axis] if isinstance(axis, int) and -len(result) <= axis < len(result) else None
        if isinstance(fresh, str) and fresh.isidentifier() and isinstance(axis, int):
            first, last = (_position(bound, data[axis]) for bound in (start, end))
            yield fresh, f"Max(0, {last} - {first})"


def _position(bound: Extent, extent: Extent) -> str:
    """Return the position of a bound of a Slice, which counts from the end if it is negative."""
    place = f"({extent}) + {bound}" if isinstance(bound, int) and bound < 0 else f"{bound}"
    return f"Max(0, Min({extent}, {place}))"


_ARITHMETIC: dict[str, Callable[[list[str]], str]] = {
    "Add": " + ".join,
    "Div": lambda parts: f"truncated({' / '.join(parts)})",
    "Max": lambda parts: f"Max({', '.join(parts)})",
    "Min": lambda parts: f"Min({', '.join(parts)})",
    "Mul": "*".join,
    "Sub": " - ".join,
}
"""The text of the result of an operation, from the texts of its operands."""
