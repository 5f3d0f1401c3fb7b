"""The contents of small integer tensors, followed through the operators that exporters compute shapes with.

An element is a number or a symbolic expression. The result of an operator is the same in every run of the model; an
unknown element is a symbol of its own, called wild, because it need not even be positive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from surgery.model.shapes import symbols
from surgery.model.shapes.context import MOST_ELEMENTS, Content, as_content, constant_of
from surgery.model.shapes.symbols import Element

if TYPE_CHECKING:
    from surgery.model.shapes.context import Context


_WIDE = {ir.DataType.INT32, ir.DataType.INT64, ir.DataType.UINT32, ir.DataType.UINT64}


class _Unknown(Exception):  # noqa: N818 - not an error: a rule cannot tell
    """The contents are not known."""


def follow(context: Context, node: ir.Node) -> bool:
    """Write type, shape and contents of a node's outputs if all contents are known; else return False."""
    rule = None if node.domain else _RULES.get(node.op_type)
    if rule is None:
        return False
    try:
        found = rule(context, node)
    except (_Unknown, ValueError, IndexError, TypeError):  # operands that the operator does not allow
        return False
    results = found if isinstance(found, list) else [found]
    dtype = _dtype(node)
    if dtype is None or len(results) < len(node.outputs):
        return False
    return all(context.know(value, content, dtype) for value, content in zip(node.outputs, results))


def _dtype(node: ir.Node) -> ir.DataType | None:
    """Return the element type of the outputs."""
    match node.op_type:
        case "Shape" | "Size":
            return ir.DataType.INT64
        case "Equal" | "Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual":
            return ir.DataType.BOOL
        case "Cast":
            return ir.DataType(node.attributes["to"].as_int())
        case "CastLike":
            return None if node.inputs[1] is None else node.inputs[1].dtype
        case "ConstantOfShape":
            return node.attributes["value"].as_tensor().dtype if "value" in node.attributes else None
    source = node.inputs[1 if node.op_type == "Where" else 0]
    return None if source is None else source.dtype


def _content(context: Context, node: ir.Node, index: int) -> Content:
    value = node.inputs[index] if index < len(node.inputs) else None
    found = None if value is None else context.content(value)
    if found is None:
        raise _Unknown
    return found


def _numbers(context: Context, node: ir.Node, index: int) -> list[int]:
    """Return the elements of an operand; raise `_Unknown` unless all are numbers."""
    items = _content(context, node, index).reshape(-1).tolist()
    if not all(isinstance(item, int) for item in items):
        raise _Unknown
    return list(items)


def _is_given(node: ir.Node, index: int) -> bool:
    return index < len(node.inputs) and node.inputs[index] is not None


def _list(context: Context, node: ir.Node, name: str, index: int) -> list[int] | None:
    """Return the numbers in an attribute that later became an input; None if neither is given."""
    if name in node.attributes:
        return list(node.attributes[name].as_ints())
    return _numbers(context, node, index) if _is_given(node, index) else None


def _int(node: ir.Node, name: str, default: int) -> int:
    return node.attributes[name].as_int() if name in node.attributes else default


def _filled(item: Element, shape: Sequence[int]) -> Content:
    if any(extent < 0 for extent in shape) or int(np.prod(shape, dtype=np.int64)) > MOST_ELEMENTS:
        raise _Unknown
    return np.full(tuple(shape), item, dtype=object)


# Where contents come from


def _shape(context: Context, node: ir.Node) -> Content:
    value = node.inputs[0]
    if value is None or value.shape is None:
        raise _Unknown
    end = node.attributes["end"].as_int() if "end" in node.attributes else None
    extents = list(value.shape)[_int(node, "start", 0) : end]
    return as_content([context.normal(extent) for extent in extents], [len(extents)])


def _size(context: Context, node: ir.Node) -> Content:
    value = node.inputs[0]
    if value is None or value.shape is None:
        raise _Unknown
    size: Element = 1
    for extent in value.shape:
        size = _combined(context, "Mul", size, context.normal(extent))
    return as_content([size], [])


def _constant_of_shape(context: Context, node: ir.Node) -> Content:
    if "value" not in node.attributes:
        raise _Unknown
    fill = node.attributes["value"].as_tensor().numpy().reshape(-1)[0]
    if not isinstance(fill, (np.integer, np.bool_)):
        raise _Unknown
    return _filled(int(fill), _numbers(context, node, 0))


def _range(context: Context, node: ir.Node) -> Content:
    start, limit, delta = (_numbers(context, node, index)[0] for index in range(3))
    items = range(start, limit, delta)
    if len(items) > MOST_ELEMENTS:
        raise _Unknown
    return as_content(list(items), [len(items)])


# Where contents move


def _same(context: Context, node: ir.Node) -> Content:
    return _content(context, node, 0)


def _cast(context: Context, node: ir.Node) -> Content:
    target = _dtype(node)
    source = node.inputs[0]
    content = None if source is None else context.content(source)
    if content is None:
        content = _whole(source)
    if target == ir.DataType.BOOL:
        return _mapped(lambda item: _negated(context, _combined(context, "Equal", item, 0)), content)
    symbolic = any(not isinstance(item, int) for item in content.reshape(-1))
    if symbolic and target not in _WIDE:
        raise _Unknown
    return content


def _whole(value: ir.Value | None) -> Content:
    """Return the elements of a small float constant; raise `_Unknown` unless all are whole numbers."""
    tensor = None if value is None else constant_of(value)
    if tensor is None or not tensor.dtype.is_floating_point() or tensor.size > MOST_ELEMENTS:
        raise _Unknown
    array = tensor.numpy().astype(np.float64)
    if not (np.abs(array) < 2**31).all() or (array != np.trunc(array)).any():
        raise _Unknown
    return array.astype(np.int64).astype(object)


def _reshape(context: Context, node: ir.Node) -> Content:
    content = _content(context, node, 0)
    wanted = _list(context, node, "shape", 1) or []
    if not _int(node, "allowzero", 0):
        wanted = [content.shape[index] if item == 0 else item for index, item in enumerate(wanted)]
    return content.reshape(wanted)


def _flatten(context: Context, node: ir.Node) -> Content:
    content = _content(context, node, 0)
    axis = _int(node, "axis", 1)
    rows = int(np.prod(content.shape[:axis], dtype=np.int64))
    return content.reshape(rows, content.size // rows if rows else 0)


def _squeeze(context: Context, node: ir.Node) -> Content:
    content, axes = _content(context, node, 0), _list(context, node, "axes", 1)
    return content.squeeze(None if axes is None else tuple(axes))


def _unsqueeze(context: Context, node: ir.Node) -> Content:
    content, axes = _content(context, node, 0), _list(context, node, "axes", 1)
    return np.expand_dims(content, tuple(axes or ()))


def _transpose(context: Context, node: ir.Node) -> Content:
    order = node.attributes["perm"].as_ints() if "perm" in node.attributes else None
    return _content(context, node, 0).transpose(order)


def _gather(context: Context, node: ir.Node) -> Content:
    indices = np.array(_numbers(context, node, 1), dtype=np.int64).reshape(_content(context, node, 1).shape)
    return np.asarray(np.take(_content(context, node, 0), indices, axis=_int(node, "axis", 0)), dtype=object)


def _slice(context: Context, node: ir.Node) -> Content:
    content = _content(context, node, 0)
    starts, ends = _list(context, node, "starts", 1), _list(context, node, "ends", 2)
    if starts is None or ends is None:
        raise _Unknown
    axes = _list(context, node, "axes", 3)
    steps = _list(context, node, "steps", 4) or [1] * len(starts)
    cut = [slice(None)] * content.ndim
    for axis, start, end, step in zip(range(len(starts)) if axes is None else axes, starts, ends, steps):
        cut[axis] = slice(start, end, step) if step > 0 else _backwards(content.shape[axis], start, end, step)
    return content[tuple(cut)]


def _backwards(extent: int, start: int, end: int, step: int) -> slice:
    """Return a slice with a negative step for numpy, which does not move a start before the first element to it."""
    first = min(max(start + extent if start < 0 else start, 0), extent - 1)
    last = max(end + extent if end < 0 else end, -1)
    return slice(first, None if last < 0 else last, step)


def _split(context: Context, node: ir.Node) -> list[Content]:
    content, axis, parts = _content(context, node, 0), _int(node, "axis", 0), len(node.outputs)
    sizes = _list(context, node, "split", 1)
    extent = content.shape[axis]
    if sizes is None:
        whole = -(-extent // parts)
        sizes = [*[whole] * (parts - 1), extent - whole * (parts - 1)]
    if sum(sizes) != extent or min(sizes) < 0:
        raise _Unknown
    return np.split(content, np.cumsum(sizes)[:-1], axis=axis)


def _concat(context: Context, node: ir.Node) -> Content:
    """Concatenate known contents; an operand of which only the length is known counts as wild elements."""
    operands = [value for value in node.inputs if value is not None]
    contents = [context.content(value) for value in operands]
    if all(content is None for content in contents):
        raise _Unknown
    joined = [_wild(context, operands[index]) if item is None else item for index, item in enumerate(contents)]
    result: Content = np.concatenate(joined, axis=node.attributes["axis"].as_int())
    if result.size > MOST_ELEMENTS:
        raise _Unknown
    return result


def _wild(context: Context, value: ir.Value) -> Content:
    """Make the elements of a small tensor wild symbols."""
    extents = [] if value.shape is None else [extent for extent in value.shape if isinstance(extent, int)]
    if value.shape is None or len(extents) < len(value.shape) or int(np.prod(extents, dtype=np.int64)) > 64:
        raise _Unknown
    items = [context.new_wild() for _ in range(int(np.prod(extents, dtype=np.int64)))]
    content = as_content(items, extents)
    context.know(value, content, value.dtype)
    return content


def _expand(context: Context, node: ir.Node) -> Content:
    content, wanted = _content(context, node, 0), _numbers(context, node, 1)
    shape = np.broadcast_shapes(content.shape, tuple(wanted))
    _filled(0, shape)
    return np.broadcast_to(content, shape)


def _tile(context: Context, node: ir.Node) -> Content:
    content, repeats = _content(context, node, 0), _numbers(context, node, 1)
    _filled(0, [extent * times for extent, times in zip(content.shape, repeats)])
    return np.tile(content, repeats)


# Where contents are computed


def _mapped(function: Callable[..., Element], *contents: Content) -> Content:
    """Apply a function to elements, after broadcasting."""
    shape = np.broadcast_shapes(*(content.shape for content in contents))
    _filled(0, shape)
    columns = [np.broadcast_to(content, shape).reshape(-1) for content in contents]
    return as_content([function(*items) for items in zip(*columns)], shape)


def _combined(context: Context, operation: str, one: Element, other: Element) -> Element:
    """Combine two elements; a result without a short form becomes wild."""
    if context.is_wild(one) or context.is_wild(other):
        if operation == "Equal" and one == other:
            return 1
        if operation not in ("Add", "Sub", "Mul"):
            return context.new_wild()
    found = symbols.combine(operation, symbols.number(one), symbols.number(other))
    return context.new_wild() if found is None else symbols.element(found)


def _negated(context: Context, item: Element) -> Element:
    return 1 - item if isinstance(item, int) else context.new_wild()


def _binary(context: Context, node: ir.Node) -> Content:
    if "broadcast" in node.attributes or _int(node, "fmod", 0) or "axis" in node.attributes:
        raise _Unknown
    contents = [_content(context, node, index) for index in range(len(node.inputs))]
    operation = {"Sum": "Add"}.get(node.op_type, node.op_type)
    return reduce(lambda left, right: _mapped(lambda a, b: _combined(context, operation, a, b), left, right), contents)


def _comparison(context: Context, node: ir.Node) -> Content:
    """Derive Greater, LessOrEqual and GreaterOrEqual from Less."""
    one, other = _content(context, node, 0), _content(context, node, 1)
    if node.op_type in ("Greater", "LessOrEqual"):
        one, other = other, one
    result = _mapped(lambda a, b: _combined(context, "Less", a, b), one, other)
    return _mapped(lambda item: _negated(context, item), result) if node.op_type.endswith("OrEqual") else result


def _logic(context: Context, node: ir.Node) -> Content:
    def decide(one: Element, other: Element) -> Element:
        settles = 0 if node.op_type == "And" else 1
        if settles in (one, other):
            return settles
        if isinstance(one, int):
            return other
        return one if isinstance(other, int) or one == other else context.new_wild()

    return _mapped(decide, _content(context, node, 0), _content(context, node, 1))


def _not(context: Context, node: ir.Node) -> Content:
    return _mapped(lambda item: _negated(context, item), _content(context, node, 0))


def _neg(context: Context, node: ir.Node) -> Content:
    return _mapped(lambda item: _combined(context, "Sub", 0, item), _content(context, node, 0))


def _abs(context: Context, node: ir.Node) -> Content:
    return as_content(*_absolute(_content(context, node, 0)))


def _absolute(content: Content) -> tuple[list[Element], tuple[int, ...]]:
    items = content.reshape(-1).tolist()
    if not all(isinstance(item, int) for item in items):
        raise _Unknown
    return [abs(item) for item in items], content.shape


def _where(context: Context, node: ir.Node) -> Content:
    """Choose elements where the condition is known; elsewhere, an element may be either."""

    def choose(condition: Element, yes: Element, no: Element) -> Element:
        if isinstance(condition, int):
            return yes if condition else no
        return yes if yes == no else context.new_wild()

    return _mapped(choose, *(_content(context, node, index) for index in range(3)))


def _reduction(context: Context, node: ir.Node) -> Content:
    operation = {"ReduceProd": "Mul", "ReduceSum": "Add", "ReduceMin": "Min", "ReduceMax": "Max"}[node.op_type]
    content, axes = _content(context, node, 0), _list(context, node, "axes", 1)
    if not axes and _int(node, "noop_with_empty_axes", 0):
        return content
    if content.size == 0:
        raise _Unknown
    along = sorted({axis % content.ndim for axis in axes or range(content.ndim)})
    kept = [axis for axis in range(content.ndim) if axis not in along]
    rows = content.transpose([*kept, *along]).reshape(int(np.prod([content.shape[axis] for axis in kept])), -1)
    items = [reduce(lambda a, b: _combined(context, operation, a, b), row) for row in rows.tolist()]
    keep = _int(node, "keepdims", 1)
    shape = [1 if axis in along else content.shape[axis] for axis in (range(content.ndim) if keep else kept)]
    return as_content(items, shape)


_RULES: dict[str, Callable[[Context, ir.Node], Content | list[Content]]] = {
    "Abs": _abs,
    "Add": _binary,
    "And": _logic,
    "Cast": _cast,
    "CastLike": _cast,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Div": _binary,
    "Equal": _binary,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Greater": _comparison,
    "GreaterOrEqual": _comparison,
    "Identity": _same,
    "Less": _comparison,
    "LessOrEqual": _comparison,
    "Max": _binary,
    "Min": _binary,
    "Mod": _binary,
    "Mul": _binary,
    "Neg": _neg,
    "Not": _not,
    "Or": _logic,
    "Range": _range,
    "ReduceMax": _reduction,
    "ReduceMin": _reduction,
    "ReduceProd": _reduction,
    "ReduceSum": _reduction,
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Sub": _binary,
    "Sum": _binary,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
"""The rule of each operator whose result can be known."""
