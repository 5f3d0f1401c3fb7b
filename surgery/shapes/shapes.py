"""Our own shape rules, where the package's rule is slow or finds less than the operands allow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from surgery.shapes.symbols import Element, Number, combine, element, number, windows

if TYPE_CHECKING:
    from surgery.shapes.context import Context

_TO_THE_END = 2**31 - 1


def tell(context: Context, node: ir.Node) -> bool:
    """Write the shape and the type of a node's output, in place of the package's rule; return False if unknown."""
    rule = None if node.domain else _RULES.get(node.op_type)
    dims = None if rule is None else rule(context, node)
    data, output = node.inputs[0] if node.inputs else None, node.outputs[0]
    if dims is None or data is None:
        return False
    output.shape = ir.Shape(dims)
    if output.type is None:
        output.type = data.type
    return True


def _reshape(context: Context, node: ir.Node) -> list[Element] | None:
    """Take the extents from the target, except unknown elements: these may be 0 or -1, which are not extents."""
    data, target = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    wanted = None if target is None else context.get_symbolic_value(target)
    if data is None or data.shape is None or wanted is None:
        return None
    extents = [context.normal(extent) for extent in data.shape]
    keeps_zeros = "allowzero" in node.attributes and node.attributes["allowzero"].as_int() != 0
    dims: list[Element | None] = []
    for index, item in enumerate(wanted):
        if item == 0 and not keeps_zeros:
            dims.append(extents[index])
        else:
            dims.append(None if item == -1 or _may_be_negative(context, item) else item)
    if dims.count(None) == 1 and wanted[dims.index(None)] == -1:
        dims[dims.index(None)] = _left_over(extents, [dim for dim in dims if dim is not None])
    return [context.new_symbolic_dim() if dim is None else dim for dim in dims]


def _may_be_negative(context: Context, item: Element) -> bool:
    if isinstance(item, int):
        return False
    return context.is_wild(item) or combine("Less", number(item), 0) != 0


def _left_over(extents: Sequence[Element], others: Sequence[Element]) -> Element | None:
    """Divide the number of elements by the known extents; extents on both sides cancel."""
    rest, divisors = [number(extent) for extent in extents], []
    for other in map(number, others):
        if other in rest and other != 0:
            rest.remove(other)
        else:
            divisors.append(other)
    whole, part = _product(rest), _product(divisors)
    quotient = None if whole is None or part is None or part == 0 else combine("Div", whole, part)
    return None if quotient is None else element(quotient)


def _product(numbers: Sequence[Number]) -> Number | None:
    product: Number | None = 1
    for item in numbers:
        product = None if product is None else combine("Mul", product, item)
    return product


def _slice(context: Context, node: ir.Node) -> list[Element] | None:
    """Count the positions between the bounds; a number past the end means the end."""
    data = node.inputs[0]
    if data is None or data.shape is None:
        return None
    names = ("starts", "ends", "axes", "steps")
    starts, ends, axes, steps = (_bounds(context, node, index, name) for index, name in enumerate(names, 1))
    if starts is None or ends is None or axes is None or steps is None or any(step != 1 for step in steps):
        return None
    dims = [context.normal(extent) for extent in data.shape]
    for start, end, axis in zip(starts, ends, axes or range(len(starts))):
        if not isinstance(axis, int):
            return None
        length = _length(context, dims[axis], start, end)
        dims[axis] = context.new_symbolic_dim() if length is None else element(length)
    return dims


def _bounds(context: Context, node: ir.Node, index: int, name: str = "") -> list[Element] | None:
    """Return the elements of an operand, once an attribute called `name`; an empty list if it is absent."""
    if name in node.attributes:
        return list(node.attributes[name].as_ints())
    value = node.inputs[index] if index < len(node.inputs) else None
    return [] if value is None else context.get_symbolic_value(value)


def _length(context: Context, extent: Element, start: Element, end: Element) -> Number | None:
    whole = number(extent)
    first, last = _place(context, whole, start), _place(context, whole, end)
    if first is None or last is None:
        return None
    length = combine("Sub", last, first)
    if length is None or first == 0 or last == whole or combine("Less", length, 0) == 0:
        return length
    return 0 if isinstance(length, int) else None


def _place(context: Context, whole: Number, bound: Element) -> Number | None:
    """Return the position of a bound, from 0 to the extent; None if it is unknown."""
    if isinstance(bound, int):
        if bound >= _TO_THE_END:
            return whole
        least = combine("Min", whole, abs(bound))
        return least if bound >= 0 or least is None else combine("Sub", whole, least)
    if context.is_wild(bound) or combine("Less", number(bound), 0) != 0:
        return None
    return combine("Min", whole, number(bound))


def _concat(context: Context, node: ir.Node) -> list[Element] | None:
    """Add the extents along the axis; the others are equal, so a number among them applies to all inputs."""
    shapes = [None if value is None or value.shape is None else list(value.shape) for value in node.inputs]
    known = [[context.normal(extent) for extent in shape] for shape in shapes if shape is not None]
    if len(known) < len(shapes) or len({len(shape) for shape in known}) != 1:
        return None
    axis = node.attributes["axis"].as_int() % len(known[0])
    dims = [next((dim for dim in column if isinstance(dim, int)), column[0]) for column in zip(*known)]
    total: Number | None = 0
    for shape in known:
        total = None if total is None else combine("Add", total, number(shape[axis]))
    dims[axis] = context.new_symbolic_dim() if total is None else element(total)
    return dims


def _conv(context: Context, node: ir.Node) -> list[Element] | None:
    """Count the positions of the window along each axis; the layers of a network share the same few extents."""
    data, weight = node.inputs[:2]
    if data is None or weight is None or data.shape is None or weight.shape is None:
        return None
    attributes, axes = node.attributes, len(data.shape) - 2
    if axes < 1 or len(weight.shape) != axes + 2 or "auto_pad" in attributes:
        return None
    kernel = attributes["kernel_shape"].as_ints() if "kernel_shape" in attributes else weight.shape[2:]
    strides = attributes["strides"].as_ints() if "strides" in attributes else [1] * axes
    dilations = attributes["dilations"].as_ints() if "dilations" in attributes else [1] * axes
    pads = attributes["pads"].as_ints() if "pads" in attributes else [0] * axes * 2
    if (len(kernel), len(strides), len(dilations), len(pads)) != (axes, axes, axes, axes * 2):
        return None
    dims: list[Element] = [context.normal(data.shape[0]), weight.shape[0]]
    for extent, size, stride, dilation, low, high in zip(data.shape[2:], kernel, strides, dilations, pads, pads[axes:]):
        if not isinstance(size, int) or stride < 1 or dilation < 1:
            return None
        room = low + high - dilation * (size - 1) - 1
        places = windows(number(context.normal(extent)), room, stride)
        if places is None:
            return None
        dims.append(element(places))
    return dims


def _range(context: Context, node: ir.Node) -> list[Element] | None:
    """Return the length of a range from 0 by 1, which nearly all exporters use."""
    start, limit, delta = (_bounds(context, node, index) for index in range(3))
    if start != [0] or delta != [1] or not limit or len(limit) > 1 or context.is_wild(limit[0]):
        return None
    length = combine("Max", number(context.normal(limit[0])), 0)
    return None if length is None else [element(length)]


def _elementwise(context: Context, node: ir.Node) -> list[Element] | None:
    """Broadcast float tensors whose dims are numbers, or the same symbols."""
    shapes = _float_shapes(node)
    return None if shapes is None else _broadcast_shapes(shapes)


def _matmul(context: Context, node: ir.Node) -> list[Element] | None:
    """Broadcast the batches of float matrices."""
    shapes = _float_shapes(node)
    if shapes is None or any(len(shape) < 2 for shape in shapes):
        return None
    inner = shapes[0][-1], shapes[1][-2]
    if all(isinstance(extent, int) for extent in inner) and inner[0] != inner[1]:
        return None
    batch = _broadcast_shapes([shape[:-2] for shape in shapes])
    return None if batch is None else [*batch, shapes[0][-2], shapes[1][-1]]


def _float_shapes(node: ir.Node) -> list[Sequence[Element]] | None:
    """Return the shapes of all operands; None for integers, since the package's rules follow their contents."""
    operands = [value for value in node.inputs if value is not None]
    if any(value.dtype is None or not value.dtype.is_floating_point() for value in operands):
        return None
    shapes: list[Sequence[Element]] = [value.shape.dims for value in operands if value.shape is not None]
    return shapes if len(shapes) == len(node.inputs) else None


def _broadcast_shapes(shapes: Sequence[Sequence[Element]]) -> list[Element] | None:
    rank = max(map(len, shapes))
    padded: list[list[Element]] = [[*([1] * (rank - len(shape))), *shape] for shape in shapes]
    dims: list[Element] = []
    for column in zip(*padded):
        dim: Element | None = column[0]
        for other in column[1:]:
            dim = None if dim is None else _broadcast(dim, other)
        if dim is None:
            return None
        dims.append(dim)
    return dims


def _broadcast(one: Element, other: Element) -> Element | None:
    if one == 1 or other == 1:
        return one if other == 1 else other
    if isinstance(one, int) and isinstance(other, int):
        return one if one == other else None
    if isinstance(one, int) or isinstance(other, int):
        return one if isinstance(one, int) else other
    return one if one.value is not None and one.value == other.value else None


def _pad(context: Context, node: ir.Node) -> list[Element] | None:
    """Add the padding to the extents; most stay as they are."""
    data = node.inputs[0]
    pads = _bounds(context, node, 1, "pads")
    axes = _bounds(context, node, 3)
    if data is None or data.shape is None or not pads or axes is None:
        return None
    dims = list(data.shape)
    for place, axis in enumerate(axes or range(len(dims))):
        low, high = pads[place], pads[place + len(pads) // 2]
        if not (isinstance(axis, int) and isinstance(low, int) and isinstance(high, int)):
            return None
        if low or high:
            padded = combine("Add", number(context.normal(dims[axis])), low + high)
            dims[axis] = context.new_symbolic_dim() if padded is None else element(padded)
    return dims


_RULES: dict[str, Callable[[Context, ir.Node], list[Element] | None]] = {
    "Add": _elementwise,
    "Concat": _concat,
    "Conv": _conv,
    "Div": _elementwise,
    "MatMul": _matmul,
    "Max": _elementwise,
    "Min": _elementwise,
    "Mul": _elementwise,
    "Pad": _pad,
    "Pow": _elementwise,
    "Range": _range,
    "Reshape": _reshape,
    "Slice": _slice,
    "Sub": _elementwise,
}
