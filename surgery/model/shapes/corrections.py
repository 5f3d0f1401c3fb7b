"""Corrections of the guesses in the rules of onnx-shape-inference: they are taken back, or replaced by facts.

Each rule runs after the package's own rule for the operator and corrects its results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from surgery.base.operators.traits import BROADCASTING
from surgery.model.shapes.symbols import Element, combine, element, normal, number

if TYPE_CHECKING:
    from surgery.model.shapes.context import Context

_BROADCASTS = BROADCASTING | {"Expand", "StringConcat"}
_STANDARD = ("", "ai.onnx.preview")
"""The domains with the operators of the rules."""


def correct(context: Context, node: ir.Node) -> None:
    """Correct the results that the rule of the node's operator wrote to its outputs."""
    if node.domain in _STANDARD:
        rule = _RULES.get(node.op_type)
        if rule is not None:
            rule(context, node)
    if not node.domain and node.op_type in _BROADCASTS:
        _broadcast(context, node)
    for value in node.outputs:
        if value.shape is not None and not all(isinstance(dim, int) or _is_name(dim) for dim in value.shape):
            _set_dims(value, [_evened(dim) for dim in value.shape])


def _is_name(dim: ir.SymbolicDim) -> bool:
    return dim.value is None or dim.value.isidentifier()


def _evened(dim: Element) -> Element:
    """Return a dim in normal form."""
    return dim if isinstance(dim, int) or dim.value is None else element(normal(dim.value))


def _broadcast(context: Context, node: ir.Node) -> None:
    """Replace the result of broadcasting different symbols: any of them may be 1, so the result is a new symbol.

    The package takes the first. If one of several extents is a number above 1, that is the result.
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
    """Return whether one dim never exceeds another; broadcasting both then gives the other."""
    import sympy  # type: ignore[import-untyped]

    if one == other:
        return True
    left, right = one._expr, other._expr
    return isinstance(left, sympy.Min) and right in left.args


def _set_dims(value: ir.Value, dims: Sequence[Element] | None) -> None:
    value.shape = None if dims is None else ir.Shape(list(dims))


def _constant(context: Context, value: ir.Value | None) -> list[int] | None:
    """Return the elements of an operand if all are numbers, else None."""
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
    """Drop the shape if the axes are unknown: then the rank is too, because an extent that is a symbol may be 1."""
    axes = _given(node, 1)
    data = node.inputs[0]
    unknown = axes is not None and _constant(context, axes) is None
    everything = axes is None and "axes" not in node.attributes
    symbolic = data is None or data.shape is None or any(not isinstance(dim, int) for dim in data.shape)
    if unknown or (everything and symbolic):
        node.outputs[0].shape = None


def _split(context: Context, node: ir.Node) -> None:
    """Replace the extents if the sizes are unknown: these need not be equal."""
    sizes = _given(node, 1)
    if sizes is None or _constant(context, sizes) is not None:
        return
    axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
    for value in node.outputs:
        if value.shape is not None:
            dims = list(value.shape)
            dims[axis] = context.new_symbolic_dim()
            _set_dims(value, dims)


def _unique(context: Context, node: ir.Node) -> None:
    """Keep the rank of the input if there is an axis."""
    data = node.inputs[0]
    if "axis" in node.attributes:
        dims = None if data is None or data.shape is None else list(data.shape)
        if dims is not None:
            dims[node.attributes["axis"].as_int()] = context.new_symbolic_dim()
        _set_dims(node.outputs[0], dims)


def _slice(context: Context, node: ir.Node) -> None:
    """Limit numbers past the end of a dim to its end; do not take unknown axes and steps for defaults."""
    data, output = node.inputs[0], node.outputs[0]
    if data is None or data.shape is None or output.shape is None:
        return
    rank = len(data.shape)
    starts, ends = _bounds(context, node, 1, "starts"), _bounds(context, node, 2, "ends")
    axes = _bounds(context, node, 3, "axes", range(rank))
    steps = _bounds(context, node, 4, "steps", [1] * rank)
    if axes is None:
        _set_dims(output, [context.new_symbolic_dim() for _ in range(rank)])
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
            # Any other start or step has no short form.
            dims[axis] = _least(context, extent, end) if start == 0 and step == 1 else context.new_symbolic_dim()
    _set_dims(output, dims)


def _bounds(
    context: Context, node: ir.Node, index: int, name: str, default: Sequence[int] | None = None
) -> list[int] | None:
    """Return the numbers given by an input, or before opset 10 by an attribute; the default if it is absent."""
    if name in node.attributes:
        return list(node.attributes[name].as_ints())
    value = _given(node, index)
    if value is None:
        return None if default is None else list(default)
    return _constant(context, value)


def _least(context: Context, extent: ir.SymbolicDim, end: int) -> Element:
    least = combine("Min", number(extent), end)
    return context.new_symbolic_dim() if least is None else element(least)


def _constant_of_shape(context: Context, node: ir.Node) -> None:
    """Take the elements of the operand as extents."""
    target = None if node.inputs[0] is None else context.get_symbolic_value(node.inputs[0])
    output = node.outputs[0]
    if target is None:
        length = None if node.inputs[0] is None or node.inputs[0].shape is None else node.inputs[0].shape[0]
        if isinstance(length, int):
            _set_dims(output, [context.new_symbolic_dim() for _ in range(length)])
        return
    _set_dims(output, target)


def _if(context: Context, node: ir.Node) -> None:
    """Drop the shapes of results if nothing is known about one branch."""
    branches = [node.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
    for index, value in enumerate(node.outputs):
        if any(branch.outputs[index].shape is None for branch in branches):
            value.shape = None


def _loop(context: Context, node: ir.Node) -> None:
    """Replace results of a Loop that may not run at all, or stop early: carried values may keep their first shape."""
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
    """Return whether no condition can end a Loop before its count."""
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
    """Replace symbolic extents with ceil_mode: a last window in the padding is left out, which has no short form."""
    if "ceil_mode" not in node.attributes or node.attributes["ceil_mode"].as_int() == 0:
        return
    for value in node.outputs:
        if value.shape is not None:
            dims = list(value.shape)
            dims[2:] = [dim if isinstance(dim, int) else context.new_symbolic_dim() for dim in dims[2:]]
            _set_dims(value, dims)


def _resize(context: Context, node: ir.Node) -> None:
    """Replace the extents if the aspect ratio is kept: then sizes are only a bound."""
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
    """Write the extents floor(dft_length / 2) + 1 and num_mel_bins."""
    bins, length = (_constant(context, node.inputs[index]) for index in (0, 1))
    _set_dims(
        node.outputs[0],
        [
            length[0] // 2 + 1 if length else context.new_symbolic_dim(),
            bins[0] if bins else context.new_symbolic_dim(),
        ],
    )


def _expand(context: Context, node: ir.Node) -> None:
    """Drop the shape if that of the data is unknown: its rank and its extents may exceed those of the target."""
    if node.inputs[0] is None or node.inputs[0].shape is None:
        node.outputs[0].shape = None


def _compress(context: Context, node: ir.Node) -> None:
    """Drop the shape if the rank of the data is unknown and an axis is given; without one, the result has one dim."""
    if "axis" in node.attributes and (node.inputs[0] is None or node.inputs[0].shape is None):
        node.outputs[0].shape = None


def _attention(context: Context, node: ir.Node) -> None:
    """Replace what the shape of values or caches determines, if that is unknown: it need not be as of query and key."""
    values, output = _given(node, 2), node.outputs[0]
    if output.shape is not None and (values is None or values.shape is None):
        _set_dims(output, [*output.shape[:-1], context.new_symbolic_dim()])
    caches = [_given(node, index) for index in (4, 5)]
    for cache, present in zip(caches, node.outputs[1:3]):
        if (cache is not None and cache.shape is None) or (present.shape is not None and len(present.shape) != 4):
            present.shape = None
    if (
        caches[0] is not None
        and caches[0].shape is None
        and len(node.outputs) > 3
        and node.outputs[3].shape is not None
    ):
        _set_dims(node.outputs[3], [*node.outputs[3].shape[:-1], context.new_symbolic_dim()])


_RULES: dict[str, Callable[[Context, ir.Node], None]] = {
    "Attention": _attention,
    "AveragePool": _pool,
    "Compress": _compress,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "FlexAttention": _attention,
    "If": _if,
    "Loop": _loop,
    "LpPool": _pool,
    "MaxPool": _pool,
    "MelWeightMatrix": _mel_weight_matrix,
    "Resize": _resize,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Unique": _unique,
}
