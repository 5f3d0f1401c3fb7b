"""Helpers shared by the idioms: guards for the opset, constants and axes of a formula."""

from collections.abc import Sequence

import numpy as np

from surgery import Builder, Match, Node, Refusal, Value

Dim = int | str | None


def require_operator(m: Match, op: str, since: int) -> None:
    """Refuse unless the opset at the match has `op` in the form that is used."""
    m.require(m.root.opset >= since, f"{op} has this form since opset {since}")


def require_before_28(m: Match, op: str) -> None:
    """Refuse an operator with a new version in opset 28; ONNX Runtime 1.31, the oldest supported, stops at 26."""
    m.require(m.root.opset < 28, f"ONNX Runtime before 1.32 does not support {op} of opset 28")


def require_type(m: Match, op: str, x: Value) -> None:
    """Refuse unless the target computes an operator in the type of `x`."""
    m.require(m.root.graph.target.computes(op, x.dtype, m.root.opset), f"{op} is not computed in this type")


def require_plain_constants(m: Match, x: Value) -> None:
    """Refuse if a constant given by its elements in the pattern may add dims to `x`, or repeat it."""
    named = {value for _, value in m.inputs()}
    for node in m.nodes:
        for value in node.inputs:
            if value is not None and value not in named and value.is_constant:
                m.require(is_plain(value, x), "a constant may enlarge the result")


def require_tolerant_readers(m: Match) -> None:
    """Refuse if the last digits of a result near zero matter, because kernel and formula round differently.

    Measured with ONNX Runtime 1.32: its float Sigmoid is accurate to 1.2e-7, so below x = -8 no digit of
    1 / (1 + exp(-x)) is right; LayerNormalization gives 0 where the formula gives a rounding error, or the reverse.
    """
    result = m.root.outputs[0]
    magnified = result.is_magnified_near_zero
    m.require(not magnified, "something divides by the result or takes its logarithm, which magnifies its rounding")


def takes_own(new: Builder, op: str, x: Value) -> bool:
    """Return whether the target runs one of ONNX Runtime's own operators ("com.microsoft::Gelu") in x's type."""
    return x.dtype is not None and new.target.has(op, x.dtype)


def is_plain(constant: Value, x: Value) -> bool:
    """Return whether a constant has one element and keeps the shape of `x`."""
    tensor = constant.tensor
    if tensor is None or tensor.size != 1:
        return False
    rank = len(tensor.shape)
    return rank == 0 or (x.rank is not None and rank <= x.rank)


def is_close(found: float, expected: float, x: Value) -> bool:
    """Return whether two numbers are equal up to the rounding of a few steps in the type of `x`."""
    half = x.dtype is not None and x.dtype.name == "FLOAT16"
    return abs(found - expected) <= (2**-8 if half else 2**-21) * abs(expected)


def number(constant: Value, x: Value) -> float:
    """Return the only number of a constant; refuse if it has others or may change the shape of `x`."""
    if not is_plain(constant, x):
        raise Refusal("a parameter is not one constant number")
    return float(constant.scalar)


def reduced_axes(node: Node) -> list[int] | None:
    """Return the axes of a reduction as given by attribute or, in newer opsets, by input; None if all or unknown.

    An empty list means all axes, or no axes with noop_with_empty_axes.
    """
    given = node.input(1)
    axes: Sequence[object] | None = node.attr("axes") if given is None else given.elements
    if not axes or not all(isinstance(axis, int) for axis in axes):
        return None
    return [axis for axis in axes if isinstance(axis, int)]


def trailing(node: Node, x: Value) -> int:
    """Return the first axis, counted from the end, of a reduction over the last axes of `x` that keeps the dims."""
    axes = reduced_axes(node)
    if axes is None or not node.attr("keepdims"):
        raise Refusal("the mean is not over known axes that stay as dims")
    rank = x.rank
    if rank is None and min(axes) >= 0:
        raise Refusal("the mean is not over the last axes")
    from_end = sorted(axis if axis < 0 else axis - (rank or 0) for axis in axes)
    if from_end != list(range(-len(from_end), 0)):
        raise Refusal("the mean is not over the last axes")
    return from_end[0]


def common_axis(first: Node, second: Node, x: Value) -> int:
    """Return the single axis over which both nodes reduce, keeping its dim."""
    axes = [reduced_axes(node) for node in (first, second) if node.attr("keepdims")]
    kept = [axis[0] for axis in axes if axis is not None and len(axis) == 1]
    if len(kept) < 2 or (kept[0] != kept[1] and (x.rank is None or (kept[0] - kept[1]) % x.rank)):
        raise Refusal("the reductions are not over one axis that stays as a dim")
    return kept[0]


def reduce_like(m: Match, new: Builder, op: str, reduction: Node, x: Value) -> Value:
    """Reduce `x` with another operator over the same axes; before opset 18 the axes are an attribute."""
    m.require(
        x.dtype is not None and x.dtype.name in ("FLOAT", "FLOAT16", "DOUBLE"), "integers are not reduced in this way"
    )
    keepdims = reduction.attr("keepdims")
    if reduction.opset >= 18:
        return new.node(op, x, reduction.input(1), keepdims=keepdims)
    return new.node(op, x, axes=reduced_axes(reduction), keepdims=keepdims)


def block_of(split: Value, deep: Value, position: int) -> int:
    """Return the block size: one of the six dims of `split`, whose square divides the depth of `deep`."""
    inner, outer = split.shape or (), deep.shape or ()
    block = inner[position] if len(inner) == 6 and len(outer) == 4 else None
    depth = outer[1] if isinstance(block, int) else None
    if not isinstance(block, int) or block < 2 or not isinstance(depth, int) or depth % block**2:
        raise Refusal("the dims are not of blocks")
    return block


def times(dim: Dim, factor: int) -> Dim:
    """Multiply a dim by a factor, in the notation of shape inference."""
    return f"{factor}*{dim}" if isinstance(dim, str) else None if dim is None else factor * dim


BY_SIGN = (
    "l = Mul(x, slope)\n p = Greater|GreaterOrEqual(x, 0)\n y = Where(p, x, l)",
    "l = Mul(x, slope)\n p = Less|LessOrEqual(x, 0)\n y = Where(p, l, x)",
)
"""Patterns that choose between `x` and `slope` times `x`."""

SQUARES = ("q = Pow({0}, 2)", "q = Mul({0}, {0})")
INVERSES = (
    "s = Sqrt(v)\n n = Div({0}, s)",
    "s = Sqrt(v)\n i = Reciprocal(s)\n n = Mul({0}, i)",
    "s = Sqrt(v)\n i = Div(1, s)\n n = Mul({0}, i)",
    "i = Pow(v, -0.5)\n n = Mul({0}, i)",
)


def over_root_mean_square(x: str) -> list[str]:
    """Return the patterns, in all variants, in which `n` is the named value over √(mean of its squares + eps)."""
    return [
        f"{square.format(x)}\n m = ReduceMean(q, axes?)\n v = Add(m, eps)\n {inverse.format(x)}"
        for inverse in INVERSES
        for square in SQUARES
    ]


def normalized(m: Match, op: str, since: int) -> tuple[Value, dict[str, int | float]]:
    """Return the source of a normalization, with its axis and epsilon; refuse if it is not over the last axes.

    It may be computed in float while its source `z` and the result are float16.
    """
    require_operator(m, op, since)
    require_plain_constants(m, m.x)
    source: Value = getattr(m, "z", m.x)
    kinds = [None if value.dtype is None else value.dtype.name for value in (source, m.x, m.root.outputs[0])]
    m.require(kinds in (["FLOAT"] * 3, ["FLOAT16"] * 3, ["FLOAT16", "FLOAT", "FLOAT16"]), f"{op} has other types")
    return source, {"axis": trailing(m.node("m"), m.x), "epsilon": number(m.eps, m.x)}


def over_normalized(new: Builder, given: Value | None, source: Value, axis: int) -> Value:
    """Return a scale or bias in the shape of the normalized dims of `source`: `given`, or ones.

    A constant is brought into that shape, unless it has other readers: then it would be stored twice.
    """
    dims = () if source.shape is None else source.shape[axis:]
    shape = tuple(dim for dim in dims if isinstance(dim, int))
    known = bool(dims) and shape == dims
    if given is not None and known and given.static_shape == shape:
        return given
    array = np.ones((), source.dtype.numpy() if source.dtype else None) if given is None else given.constant
    shared = given is not None and len(given.consumers) > 1
    if not known or array is None or shared or not _spreads(array.shape, shape, source.rank or 0):
        raise Refusal("the scale or the bias is not known to have the normalized dims")
    tail = array.shape[max(0, array.ndim - len(shape)) :]
    return new.constant(np.broadcast_to(array.reshape(tail), shape), "scale" if given is None else given.name)


def _spreads(shape: tuple[int, ...], normalized: tuple[int, ...], rank: int) -> bool:
    """Return whether an array of this shape has the normalized dims, up to broadcasting."""
    lead = max(0, len(shape) - len(normalized))
    pairs = zip(shape[lead:][::-1], normalized[::-1])
    return len(shape) <= rank and all(dim == 1 for dim in shape[:lead]) and all(a in (1, b) for a, b in pairs)
