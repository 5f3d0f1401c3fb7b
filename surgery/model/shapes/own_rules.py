"""Our own shape rules, where the package's rule is slow or finds less than the operands allow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from surgery.model.shapes.context import constant_of
from surgery.model.shapes.linear import product_in_minimum
from surgery.model.shapes.symbols import Element, Number, combine, element, number, windows

if TYPE_CHECKING:
    from surgery.model.shapes.context import Context

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


def _elements(numbers: Sequence[Number | None]) -> list[Element] | None:
    """Return numbers as elements; None if one of them is unknown."""
    found = [element(item) for item in numbers if item is not None]
    return found if len(found) == len(numbers) else None


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
        if bound == 0:
            return 0
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
    if axes < 1 or len(weight.shape) != axes + 2:
        return None
    kernel = attributes["kernel_shape"].as_ints() if "kernel_shape" in attributes else weight.shape[2:]
    places = _places(context, node, data.shape[2:], kernel)
    return None if places is None else [context.normal(data.shape[0]), weight.shape[0], *places]


def _pool(context: Context, node: ir.Node) -> list[Element] | None:
    """Count the positions of the window along each axis, unless they are rounded up."""
    data, attributes = node.inputs[0], node.attributes
    if data is None or data.shape is None or len(node.outputs) > 1 or "kernel_shape" not in attributes:
        return None
    if "ceil_mode" in attributes and attributes["ceil_mode"].as_int() != 0:
        return None
    places = _places(context, node, data.shape[2:], attributes["kernel_shape"].as_ints())
    return None if places is None else [*map(context.normal, data.shape[:2]), *places]


def _places(
    context: Context, node: ir.Node, extents: Sequence[Element], kernel: Sequence[Element]
) -> list[Element] | None:
    """Count the positions of a window with strides, dilations and pads along each axis."""
    attributes, axes = node.attributes, len(extents)
    if "auto_pad" in attributes and attributes["auto_pad"].as_string() != "NOTSET":
        return None
    strides = attributes["strides"].as_ints() if "strides" in attributes else [1] * axes
    dilations = attributes["dilations"].as_ints() if "dilations" in attributes else [1] * axes
    pads = attributes["pads"].as_ints() if "pads" in attributes else [0] * axes * 2
    if (len(kernel), len(strides), len(dilations), len(pads)) != (axes, axes, axes, axes * 2):
        return None
    found: list[Element] = []
    for extent, size, stride, dilation, low, high in zip(extents, kernel, strides, dilations, pads, pads[axes:]):
        if not isinstance(size, int) or stride < 1 or dilation < 1:
            return None
        room = low + high - dilation * (size - 1) - 1
        places = windows(number(context.normal(extent)), room, stride)
        if places is None:
            return None
        found.append(element(places))
    return found


def _resize(context: Context, node: ir.Node) -> list[Element] | None:
    """Multiply the extents by scales that are whole numbers."""
    data, scales = node.inputs[0], node.inputs[2] if len(node.inputs) == 3 else None
    tensor = None if scales is None else constant_of(scales)
    if data is None or data.shape is None or tensor is None or "axes" in node.attributes:
        return None
    mode = node.attributes.get("coordinate_transformation_mode")
    if mode is not None and mode.as_string() == "tf_crop_and_resize":
        return None
    factors = tensor.numpy().tolist()
    if len(factors) != len(data.shape) or not all(factor >= 1 and float(factor).is_integer() for factor in factors):
        return None
    dims = [_product([number(context.normal(dim)), int(factor)]) for dim, factor in zip(data.shape, factors)]
    return _elements(dims)


def _tile(context: Context, node: ir.Node) -> list[Element] | None:
    """Multiply each extent by its number of repetitions."""
    data, repeats = node.inputs[0], _bounds(context, node, 1)
    if data is None or data.shape is None or not repeats or len(node.inputs) != 2 or len(repeats) != len(data.shape):
        return None
    dims: list[Element] = []
    for extent, count in zip(map(context.normal, data.shape), repeats):
        # Nothing else is known about a number that may be negative.
        product = number(count) if extent == 1 else _product([number(extent), number(count)])
        if product is None or (extent != 1 and context.is_wild(count)):
            return None
        dims.append(element(product))
    return dims


def _range(context: Context, node: ir.Node) -> list[Element] | None:
    """Return the length of a range from 0 by 1, which nearly all exporters use."""
    start, limit, delta = (_bounds(context, node, index) for index in range(3))
    if start != [0] or delta != [1] or not limit or len(limit) > 1 or context.is_wild(limit[0]):
        return None
    length = combine("Max", number(context.normal(limit[0])), 0)
    return None if length is None else [element(length)]


def _elementwise(context: Context, node: ir.Node) -> list[Element] | None:
    """Broadcast the operands; before opset 7, an attribute says along which axes."""
    shapes = None if "axis" in node.attributes else _shapes_without_contents(context, node.inputs)
    return None if shapes is None else _broadcast_shapes(context, shapes)


def _comparison(context: Context, node: ir.Node) -> list[Element] | None:
    """Broadcast the operands; the result is a condition."""
    dims = _elementwise(context, node)
    if dims is not None:
        node.outputs[0].type = ir.TensorType(ir.DataType.BOOL)
    return dims


def _where(context: Context, node: ir.Node) -> list[Element] | None:
    """Broadcast the condition and both operands."""
    condition, shapes = node.inputs[0], _shapes_without_contents(context, node.inputs[1:])
    if condition is None or condition.shape is None or shapes is None:
        return None
    node.outputs[0].type = None if node.inputs[1] is None else node.inputs[1].type
    return _broadcast_shapes(context, [condition.shape.dims, *shapes])


def _expand(context: Context, node: ir.Node) -> list[Element] | None:
    """Broadcast to known extents."""
    data, target = node.inputs
    extents = None if target is None else context.get_symbolic_value(target)
    if data is None or data.shape is None or extents is None or any(map(context.is_wild, extents)):
        return None
    return _broadcast_shapes(context, [data.shape.dims, extents])


def _flatten(context: Context, node: ir.Node) -> list[Element] | None:
    """Multiply the extents before the axis, and the others."""
    data = node.inputs[0]
    if data is None or data.shape is None:
        return None
    axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 1
    extents = [number(context.normal(extent)) for extent in data.shape]
    if not -len(extents) <= axis <= len(extents):
        return None
    halves = _product(extents[:axis]), _product(extents[axis:])
    return _elements(halves)


def _matmul(context: Context, node: ir.Node) -> list[Element] | None:
    """Broadcast the batches of matrices."""
    shapes = _shapes_without_contents(context, node.inputs)
    if shapes is None or any(len(shape) < 2 for shape in shapes):
        return None
    inner = shapes[0][-1], shapes[1][-2]
    if all(isinstance(extent, int) for extent in inner) and inner[0] != inner[1]:
        return None
    batch = _broadcast_shapes(context, [shape[:-2] for shape in shapes])
    return None if batch is None else [*batch, shapes[0][-2], shapes[1][-1]]


def _shapes_without_contents(context: Context, values: Sequence[ir.Value | None]) -> list[Sequence[Element]] | None:
    """Return the shapes of all operands; None for rows of known integers, whose contents the package's rules follow."""
    shapes: list[Sequence[Element]] = []
    for value in values:
        if value is None or value.shape is None or value.dtype is None:
            return None
        shapes.append(value.shape.dims)
    integers = [value for value in values if value is not None and value.dtype is not None and value.dtype.is_integer()]
    has_contents = bool(integers) and all(len(shape) < 2 for shape in shapes)
    return None if has_contents and all(context.content(value) is not None for value in integers) else shapes


def _broadcast_shapes(context: Context, shapes: Sequence[Sequence[Element]]) -> list[Element] | None:
    rank = max(map(len, shapes))
    padded: list[list[Element]] = [[*([1] * (rank - len(shape))), *shape] for shape in shapes]
    dims: list[Element] = []
    for column in reversed(list(zip(*padded))):
        dim: Element | None = column[0]
        for other in column[1:]:
            dim = None if dim is None else _broadcast(context, dim, other)
        if dim is None:
            return None
        dims.append(dim)
    return dims[::-1]


def _broadcast(context: Context, one: Element, other: Element) -> Element | None:
    """Return the extent of the result; a new symbol for different ones, since each may be 1. None if there is none.

    Min(5, n) with n gives n, which is 1 only if both are.
    """
    if one == 1 or other == 1:
        return one if other == 1 else other
    if isinstance(one, int) and isinstance(other, int):
        return one if one == other else None
    if isinstance(one, int) or isinstance(other, int):
        return one if isinstance(one, int) else other
    for dim, least in ((one, other), (other, one)):
        if dim.value is not None and (dim.value == least.value or dim.value == product_in_minimum(least.value or "")):
            return dim
    return None if one.value is None or other.value is None else context.new_symbolic_dim()


def _pad(context: Context, node: ir.Node) -> list[Element] | None:
    """Add the padding to the extents; most stay as they are."""
    data = node.inputs[0]
    pads = _bounds(context, node, 1, "pads")
    axes = _bounds(context, node, 3)
    if data is None or data.shape is None or not pads or axes is None:
        return None
    dims, axes = list(data.shape), axes or list(range(len(data.shape)))
    if len(pads) != 2 * len(axes):
        return None
    for axis, low, high in zip(axes, pads, pads[len(axes) :]):
        if not (isinstance(axis, int) and isinstance(low, int) and isinstance(high, int)):
            return None
        if not -len(dims) <= axis < len(dims):
            return None
        if low or high:
            padded = combine("Add", number(context.normal(dims[axis])), low + high)
            dims[axis] = context.new_symbolic_dim() if padded is None else element(padded)
    return dims


_RULES: dict[str, Callable[[Context, ir.Node], list[Element] | None]] = {
    "Add": _elementwise,
    "And": _elementwise,
    "AveragePool": _pool,
    "Concat": _concat,
    "Conv": _conv,
    "Div": _elementwise,
    "Equal": _comparison,
    "Expand": _expand,
    "Flatten": _flatten,
    "Greater": _comparison,
    "GreaterOrEqual": _comparison,
    "Less": _comparison,
    "LessOrEqual": _comparison,
    "LpPool": _pool,
    "MatMul": _matmul,
    "Max": _elementwise,
    "MaxPool": _pool,
    "Min": _elementwise,
    "Mul": _elementwise,
    "Or": _elementwise,
    "Pad": _pad,
    "Pow": _elementwise,
    "Range": _range,
    "Reshape": _reshape,
    "Resize": _resize,
    "Slice": _slice,
    "Sub": _elementwise,
    "Tile": _tile,
    "Where": _where,
}
