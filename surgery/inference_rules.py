"""Where the rules of onnx-shape-inference guess: what is taken back, and what can be known instead.

Each rule runs after the package's own rule of the operator and corrects what that wrote.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from surgery.ops import BINARY_ELEMENTWISE

if TYPE_CHECKING:
    from surgery.inference import Context

Element = int | ir.SymbolicDim
_NAME = re.compile(r"[A-Za-z_]\w*")
_WHOLE = {ir.DataType.INT32, ir.DataType.INT64}
_MOST_ELEMENTS = 1024
_MINTS_ELEMENTS = {"Concat", "Max", "Min", "Sum"}
_BROADCASTS = BINARY_ELEMENTWISE | {"Expand", "Max", "Mean", "Min", "StringConcat", "Sum", "Where"}


def correct(context: Context, node: ir.Node) -> None:
    """Correct what the rule of the node's operator wrote to its outputs."""
    for value in node.outputs:
        if value.shape is not None and any(_is_odd(dim) for dim in value.shape):
            _set_dims(value, [_evened(dim) for dim in value.shape])
    if node.domain:
        return
    rule = _RULES.get(node.op_type)
    if rule is not None:
        rule(context, node)
    if node.op_type in _BROADCASTS:
        _broadcast(context, node)
    if node.op_type in _MINTS_ELEMENTS:
        context.wild.update(_minted(context, node))


def _is_odd(dim: Element) -> bool:
    text = None if isinstance(dim, int) else dim.value
    return text is not None and ("ceiling(" in text or text.isdigit())


def _evened(dim: Element) -> Element:
    """Write ceiling(x) as -floor(-x), for the package writes the one and cannot read it; and a number as such."""
    if isinstance(dim, int) or dim.value is None:
        return dim
    text = dim.value
    if text.isdigit():
        return int(text)
    while (start := text.find("ceiling(")) >= 0:
        opened = start + len("ceiling(")
        closed, depth = opened, 1
        while depth:
            depth += {"(": 1, ")": -1}.get(text[closed], 0)
            closed += 1
        text = f"{text[:start]}(-floor(-({text[opened : closed - 1]}))){text[closed:]}"
    expression = ir.SymbolicDim(text)._expr
    return ir.SymbolicDim(str(expression))


def _broadcast(context: Context, node: ir.Node) -> None:
    """Of two different symbols broadcast together either may be 1: the result is neither.

    The package takes the first. Where one of several extents is a number above 1, that is the result.
    """
    output = node.outputs[0]
    if output.shape is None:
        return
    shapes = [list(value.shape) for value in node.inputs if value is not None and value.shape is not None]
    if node.op_type == "Expand":
        target = None if node.inputs[1] is None else context.get_symbolic_value(node.inputs[1])
        shapes = shapes[:1] + ([list(target)] if target is not None else [])
    result = list(output.shape)
    for index in range(1, len(result) + 1):
        dims = {shape[-index] for shape in shapes if len(shape) >= index} - {1}
        symbols = [dim for dim in dims if isinstance(dim, ir.SymbolicDim)]
        if len(dims) == len(symbols) > 0:
            most = next((dim for dim in symbols if all(_at_most(other, dim) for other in symbols)), None)
            result[-index] = context.new_symbolic_dim() if most is None else most
    output.shape = ir.Shape(result)


def _at_most(one: ir.SymbolicDim, other: ir.SymbolicDim) -> bool:
    """Tell whether one dim never exceeds another; broadcast together they then give the other."""
    import sympy  # type: ignore[import-untyped]

    if one == other:
        return True
    left, right = one._expr, other._expr
    return isinstance(left, sympy.Min) and right in left.args


def _minted(context: Context, node: ir.Node) -> set[str]:
    """Return the symbols among the elements of a result that are in no operand: they stand for anything."""
    data = context.elements.get(node.outputs[0])
    if data is None:
        return set()
    names = _names(data)
    for value in node.inputs:
        if value is not None:
            names -= _names(context.get_symbolic_value(value) or ())
    return names


def _names(data: Sequence[Element]) -> set[str]:
    return {name for item in data if isinstance(item, ir.SymbolicDim) for name in _NAME.findall(item.value or "")}


def _is_wild(context: Context, item: Element) -> bool:
    return not context.wild.isdisjoint(_names([item]))


def _set_dims(value: ir.Value, dims: Sequence[Element] | None) -> None:
    value.shape = None if dims is None else ir.Shape(list(dims))


def _constant(context: Context, value: ir.Value | None) -> list[int] | None:
    """Return the elements of an operand when all are numbers."""
    if value is None:
        return None
    data = context.get_symbolic_value(value)
    if data is None:
        return None
    numbers = [item for item in data if isinstance(item, int)]
    return numbers if len(numbers) == len(data) else None


def _given(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def _squeeze(context: Context, node: ir.Node) -> None:
    """Without known axes the rank is not known: an extent that is a symbol may be 1."""
    axes = _given(node, 1)
    data = node.inputs[0]
    unknown = axes is not None and _constant(context, axes) is None
    everything = axes is None and "axes" not in node.attributes
    symbolic = data is None or data.shape is None or any(not isinstance(dim, int) for dim in data.shape)
    if unknown or (everything and symbolic):
        node.outputs[0].shape = None


def _split(context: Context, node: ir.Node) -> None:
    """Sizes that are not known are no equal sizes."""
    sizes = _given(node, 1)
    if sizes is None or _constant(context, sizes) is not None:
        return
    axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
    for value in node.outputs:
        if value.shape is not None:
            dims = list(value.shape)
            dims[axis] = context.new_symbolic_dim()
            _set_dims(value, dims)
        context.forget(value)


def _unique(context: Context, node: ir.Node) -> None:
    """Along an axis the result keeps the rank of the input."""
    data = node.inputs[0]
    if "axis" in node.attributes:
        dims = None if data is None or data.shape is None else list(data.shape)
        if dims is not None:
            dims[node.attributes["axis"].as_int()] = context.new_symbolic_dim()
        _set_dims(node.outputs[0], dims)


def _slice(context: Context, node: ir.Node) -> None:
    """A number past the end of a dim counts up to the end; axes and steps that are not known are no defaults."""
    data, output = node.inputs[0], node.outputs[0]
    if data is None or data.shape is None or output.shape is None:
        return
    rank = len(data.shape)
    starts, ends = _bounds(context, node, 1, "starts"), _bounds(context, node, 2, "ends")
    axes = _bounds(context, node, 3, "axes", range(rank))
    steps = _bounds(context, node, 4, "steps", [1] * rank)
    if axes is None:
        _set_dims(output, [context.new_symbolic_dim() for _ in range(rank)])
        context.forget(output)
        return
    dims = list(output.shape)
    count = rank if starts is None else len(starts)
    for index, axis in enumerate(axes[:count]):
        extent = data.shape[axis]
        start = None if starts is None else starts[index]
        end = None if ends is None else ends[index]
        step = None if steps is None else steps[index]
        if step is None:
            dims[axis] = context.new_symbolic_dim()
        elif isinstance(extent, ir.SymbolicDim) and end is not None and 0 <= end < 2**31 - 1:
            # Some other start or step has no short form
            dims[axis] = _least(context, extent, end) if start == 0 and step == 1 else context.new_symbolic_dim()
    context.forget(output)
    _set_dims(output, dims)
    content = _array(context, data)
    if content is not None and starts is not None and ends is not None and steps is not None:
        cut = [slice(None)] * rank
        for axis, start, end, step in zip(axes, starts, ends, steps):
            # Counted from the back, the place before the first element is -1 - extent
            stop = None if step < 0 and end < -content.shape[axis] else end
            cut[axis] = slice(start, stop, step)
        _set_content(context, output, content[tuple(cut)])


def _array(context: Context, value: ir.Value | None) -> np.ndarray[Any, Any] | None:
    """Return the contents of a small integer tensor with any number of axes: numbers and symbolic dims."""
    if value is None or value.shape is None:
        return None
    data = context.elements.get(value)
    if data is None:
        tensor = ir.convenience.get_const_tensor(value)
        if tensor is None or not tensor.dtype.is_integer() or tensor.size > _MOST_ELEMENTS:
            return None
        return tensor.numpy()
    content = np.empty(len(data), dtype=object)
    content[:] = data
    return content.reshape([dim if isinstance(dim, int) else -1 for dim in value.shape])


def _set_content(context: Context, value: ir.Value, content: np.ndarray[Any, Any]) -> None:
    if value.shape is not None and tuple(value.shape) == content.shape:
        context.set_symbolic_value(value, content.reshape(-1).tolist())


def _transpose(context: Context, node: ir.Node) -> None:
    """The contents of a small tensor move along."""
    content = _array(context, node.inputs[0])
    if content is not None:
        order = node.attributes["perm"].as_ints() if "perm" in node.attributes else None
        _set_content(context, node.outputs[0], content.transpose(order))


def _bounds(
    context: Context, node: ir.Node, index: int, name: str, default: Sequence[int] | None = None
) -> list[int] | None:
    """Return the numbers that an input, or before opset 10 an attribute, gives; the default when it is absent."""
    if name in node.attributes:
        return list(node.attributes[name].as_ints())
    value = _given(node, index)
    if value is None:
        return None if default is None else list(default)
    return _constant(context, value)


def _least(context: Context, extent: ir.SymbolicDim, end: int) -> Element:
    import sympy

    expression = sympy.Min(sympy.Integer(end), extent._expr)
    return int(expression) if expression.is_Integer else ir.SymbolicDim(str(expression))


def _reshape(context: Context, node: ir.Node) -> None:
    """An element of which nothing is known may be 0 or -1: then it is not the extent."""
    target = None if node.inputs[1] is None else context.get_symbolic_value(node.inputs[1])
    output = node.outputs[0]
    if target is None or output.shape is None or len(target) != len(output.shape):
        return
    wild = [_is_wild(context, item) for item in target]
    if any(wild):
        _set_dims(
            output,
            [
                context.new_symbolic_dim() if unknown or item == -1 else dim
                for item, dim, unknown in zip(target, output.shape, wild)
            ],
        )


def _constant_of_shape(context: Context, node: ir.Node) -> None:
    """The extents are the elements of the operand; and all elements of the result are known."""
    target = None if node.inputs[0] is None else context.get_symbolic_value(node.inputs[0])
    output = node.outputs[0]
    if target is None:
        length = None if node.inputs[0] is None or node.inputs[0].shape is None else node.inputs[0].shape[0]
        if isinstance(length, int):
            _set_dims(output, [context.new_symbolic_dim() for _ in range(length)])
        return
    _set_dims(output, target)
    fill = node.attributes["value"].as_tensor().numpy().reshape(-1)[0] if "value" in node.attributes else None
    numbers = [item for item in target if isinstance(item, int)]
    if fill is not None and np.issubdtype(fill.dtype, np.integer) and len(numbers) == len(target):
        count = int(np.prod(numbers, dtype=np.int64))
        if count <= 1024:
            context.set_symbolic_value(output, [int(fill)] * count)


def _equal(context: Context, node: ir.Node) -> None:
    """An extent is never negative, so it never equals -1; what is written the same is the same."""
    result = _pairwise(context, node, _equality)
    if result is not None:
        context.set_symbolic_value(node.outputs[0], result)


def _equality(context: Context, one: Element, other: Element) -> Element | None:
    if isinstance(one, int) and isinstance(other, int):
        return int(one == other)
    if isinstance(one, ir.SymbolicDim) and one == other:
        return 1
    return 0 if _never_equal(context, one, other) or _never_equal(context, other, one) else None


def _never_equal(context: Context, one: Element, other: Element) -> bool:
    if not isinstance(one, ir.SymbolicDim) or not isinstance(other, int) or other >= 0:
        return False
    return not _is_wild(context, one) and one._expr is not None and bool(one._expr.is_nonnegative)


def _divide(context: Context, node: ir.Node) -> None:
    """Rounding towards 0 is rounding down where nothing is negative."""
    result = _pairwise(context, node, _quotient)
    if result is not None and node.outputs[0].dtype in _WHOLE:
        context.set_symbolic_value(node.outputs[0], result)


def _quotient(context: Context, one: Element, other: Element) -> Element | None:
    if isinstance(one, int) and isinstance(other, int) and other:
        return abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)
    if isinstance(one, ir.SymbolicDim) and isinstance(other, int) and other > 0 and not _is_wild(context, one):
        expression = one._expr
        if expression is not None and expression.is_nonnegative:
            return _evened(one // other)
    return None


def _modulo(context: Context, node: ir.Node) -> None:
    """The sign is that of the divisor, as in Python; with fmod that of the dividend."""
    if "fmod" in node.attributes and node.attributes["fmod"].as_int():
        return
    result = _pairwise(context, node, _rest)
    if result is not None and node.outputs[0].dtype in _WHOLE:
        context.set_symbolic_value(node.outputs[0], result)


def _rest(context: Context, one: Element, other: Element) -> Element | None:
    return one % other if isinstance(one, int) and isinstance(other, int) and other else None


def _pairwise(
    context: Context, node: ir.Node, combine: Callable[[Context, Element, Element], Element | None]
) -> list[Element] | None:
    """Combine the elements of two operands of at most one axis; None when one result is not known."""
    left, right = (None if value is None else context.get_symbolic_value(value) for value in node.inputs)
    if left is None or right is None or (len(left) != len(right) and 1 not in (len(left), len(right))):
        return None
    count = max(len(left), len(right))
    pairs = zip(left * (count if len(left) == 1 else 1), right * (count if len(right) == 1 else 1))
    result = [combine(context, one, other) for one, other in pairs]
    known = [item for item in result if item is not None]
    return known if len(known) == len(result) else None


def _where(context: Context, node: ir.Node) -> None:
    """The elements are chosen where the condition is known; else they may be anything."""
    output = node.outputs[0]
    context.forget(output)
    operands = [None if value is None else context.get_symbolic_value(value) for value in node.inputs]
    condition, yes, no = operands
    if condition is None or yes is None or no is None:
        return
    count = max(len(condition), len(yes), len(no))
    if any(len(item) not in (1, count) for item in (condition, yes, no)):
        return
    rows = [item * (count if len(item) == 1 else 1) for item in (condition, yes, no)]
    result = [a if chosen else b for chosen, a, b in zip(*rows)]
    if all(isinstance(item, int) for item in rows[0]):
        context.set_symbolic_value(output, result)


def _if(context: Context, node: ir.Node) -> None:
    """When nothing is known of one branch, nothing is known of the result."""
    branches = [node.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
    for index, value in enumerate(node.outputs):
        if any(branch.outputs[index].shape is None for branch in branches):
            value.shape = None


def _loop(context: Context, node: ir.Node) -> None:
    """A Loop may not run at all, or stop early: what it carried may have kept its first shape."""
    body = node.attributes["body"].as_graph()
    carried = len(node.inputs) - 2
    for index, value in enumerate(node.outputs):
        if index >= carried:
            if value.shape is not None and not _runs_to_the_end(context, node, body):
                _set_dims(value, [context.new_symbolic_dim(), *list(value.shape)[1:]])
            continue
        first, last = node.inputs[index + 2], body.outputs[index + 1].shape
        if first is None or first.shape is None or last is None or len(first.shape) != len(last):
            value.shape = None
            continue
        _set_dims(value, [a if a == b else context.new_symbolic_dim() for a, b in zip(first.shape, last)])


def _runs_to_the_end(context: Context, node: ir.Node, body: ir.Graph) -> bool:
    """Tell whether no condition can end a Loop before its count."""
    first = node.inputs[1]
    if first is not None and _truth(first) is not True:
        return False
    again: ir.Value | None = body.outputs[0]
    while again is not None and again not in body.inputs:
        producer = again.producer()
        if producer is None or producer.op_type not in ("Identity", "Cast"):
            return _truth(again) is True
        again = producer.inputs[0]
    return again is body.inputs[1]


def _truth(value: ir.Value) -> bool | None:
    tensor = ir.convenience.get_const_tensor(value) if value.const_value is not None else None
    if tensor is None:
        producer = value.producer()
        if producer is None or producer.op_type != "Constant" or "value" not in producer.attributes:
            return None
        tensor = producer.attributes["value"].as_tensor()
    return bool(tensor.numpy().reshape(-1)[0]) if tensor.size == 1 else None


def _pool(context: Context, node: ir.Node) -> None:
    """With ceil_mode a last window that would lie in the padding is left out, which no short form says."""
    if "ceil_mode" not in node.attributes or node.attributes["ceil_mode"].as_int() == 0:
        return
    for value in node.outputs:
        if value.shape is not None:
            dims = list(value.shape)
            dims[2:] = [dim if isinstance(dim, int) else context.new_symbolic_dim() for dim in dims[2:]]
            _set_dims(value, dims)


def _resize(context: Context, node: ir.Node) -> None:
    """Sizes are only a bound when the aspect ratio is kept."""
    policy = node.attributes.get("keep_aspect_ratio_policy")
    output = node.outputs[0]
    if policy is None or policy.as_string() == "stretch" or output.shape is None or _given(node, 3) is None:
        return
    axes = node.attributes["axes"].as_ints() if "axes" in node.attributes else range(len(output.shape))
    dims = list(output.shape)
    for axis in axes:
        dims[axis] = context.new_symbolic_dim()
    _set_dims(output, dims)


def _mel_weight_matrix(context: Context, node: ir.Node) -> None:
    """The extents are floor(dft_length / 2) + 1 and num_mel_bins."""
    bins, length = (_constant(context, node.inputs[index]) for index in (0, 1))
    _set_dims(
        node.outputs[0],
        [
            length[0] // 2 + 1 if length else context.new_symbolic_dim(),
            bins[0] if bins else context.new_symbolic_dim(),
        ],
    )


_RULES: dict[str, Callable[[Context, ir.Node], None]] = {
    "AveragePool": _pool,
    "ConstantOfShape": _constant_of_shape,
    "Div": _divide,
    "Equal": _equal,
    "If": _if,
    "Loop": _loop,
    "LpPool": _pool,
    "MaxPool": _pool,
    "MelWeightMatrix": _mel_weight_matrix,
    "Mod": _modulo,
    "Reshape": _reshape,
    "Resize": _resize,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unique": _unique,
    "Where": _where,
}
