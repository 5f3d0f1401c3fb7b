"""Blocks in the words of exporters: activations, norms and attention spelled out, exactly or not quite."""

from __future__ import annotations

import math

import numpy as np

from random_graphs.blocks import block, cast, reduce, unsqueeze
from random_graphs.blocks_networks import rows
from random_graphs.trace import Trace, Unfit, Value


def near(t: Trace, number: float) -> float:
    """Give a number, or now and then another one, so that what looks like the idiom is not."""
    return number if t.chance(0.85) else number * t.choose([2.0, 0.5, -1.0, 1.01, 0.0])


def both(t: Trace, op: str, x: Value, y: Value) -> Value:
    """Write operands that commute in either order."""
    return t.op(op, x, y) if t.chance(0.6) else t.op(op, y, x)


@block(3)
def gelu(t: Trace) -> Value:
    x = t.float_value()
    if t.chance(0.4):
        cube = t.op("Pow", x, t.scalar(3, x)) if t.chance(0.5) else t.op("Mul", t.op("Mul", x, x), x)
        inner = both(t, "Add", x, both(t, "Mul", cube, t.scalar(near(t, 0.044715), x)))
        bend = t.op("Tanh", both(t, "Mul", inner, t.scalar(near(t, math.sqrt(2 / math.pi)), x)))
    else:
        bend = t.op("Erf", t.op("Div", x, t.scalar(near(t, math.sqrt(2)), x)))
    one = both(t, "Add", bend, t.scalar(1, x))
    if t.chance(0.5):
        return both(t, "Mul", both(t, "Mul", x, one), t.scalar(near(t, 0.5), x))
    return both(t, "Mul", both(t, "Mul", x, t.scalar(0.5, x)), one)


@block(3)
def hard_swish(t: Trace) -> Value:
    x = t.float_value()
    six = t.scalar(near(t, 6), x)
    shifted = both(t, "Add", x, t.scalar(near(t, 3), x))
    if t.chance(0.5):
        ends = [t.constant(np.array(n, x.dtype)) for n in (0, near(t, 6))]
        cut = t.op("Clip", shifted, *ends)
    else:
        cut = t.op("Min", t.op("Max", shifted, t.scalar(0, x)), six)
    form = t.choose(["swish", "divide last", "sigmoid", "factor"])
    if form == "divide last":
        return t.op("Div", both(t, "Mul", x, cut), six)
    gate = t.op("Mul", cut, t.scalar(1 / 6, x)) if form == "factor" else t.op("Div", cut, six)
    return gate if form == "sigmoid" else both(t, "Mul", x, gate)


@block(3)
def spelled_activation(t: Trace) -> Value:
    x = t.float_value()
    form = t.choose(
        ["sigmoid", "swish", "softsign", "mish", "leaky", "prelu", "abs", "relu", "elu", "celu", "threshold"]
    )
    if form == "sigmoid":
        return t.op("Div", t.scalar(1, x), both(t, "Add", t.op("Exp", t.op("Neg", x)), t.scalar(near(t, 1), x)))
    if form == "swish":
        return both(t, "Mul", x, t.op("Sigmoid", x if t.chance(0.7) else t.op("Mul", x, t.scalar(1.702, x))))
    if form == "softsign":
        return t.op("Div", x, both(t, "Add", t.op("Abs", x), t.scalar(near(t, 1), x)))
    if form == "mish":
        return both(t, "Mul", x, t.op("Tanh", t.op("Softplus", x)))
    if form == "abs":
        return both(t, "Max", x, t.op("Neg", x))
    if form == "relu":
        return both(t, "Max", x, t.scalar(near(t, 0), x))
    if form == "prelu":
        slope = t.drawn(t.choose([[1], x.dims[-1:] if x.rank and x.dims[-1] else [1]]), x.dtype)
        return t.op("Sub", t.op("Relu", x), t.op("Mul", slope, t.op("Relu", t.op("Neg", x))))
    alpha = t.scalar(t.choose([0.1, 0.5, 1.5, -0.3]), x)
    if form == "leaky":
        return both(t, "Max", x, both(t, "Mul", x, alpha))
    zero = t.scalar(near(t, 0), x)
    above = t.op(t.choose(["Greater", "GreaterOrEqual"] if t.opset >= 12 else ["Greater"]), x, zero)
    if form == "threshold":
        return t.op("Where", above, x, t.scalar(0, x))
    below = both(t, "Mul", t.op("Sub", t.op("Exp", x), t.scalar(1, x)), alpha)
    if form == "celu":
        inner = t.op("Div", x, alpha)
        return t.op("Mul", t.op("Elu", inner), alpha)
    return t.op("Where", above, x, below)


@block(3)
def spelled_norm(t: Trace) -> Value:
    """Spell out LayerNormalization or RMSNormalization over the last axes."""
    x = rows(t, (1, 4))
    axes = [-1] if t.chance(0.8) or x.rank < 3 else [-2, -1]
    if t.chance(0.1):
        axes = [0]
    centred = x
    if t.chance(0.6):
        centred = t.op("Sub", x, reduce(t, "ReduceMean", x, axes, keep=True))
    square = t.op("Pow", centred, t.scalar(2, x)) if t.chance(0.5) else t.op("Mul", centred, centred)
    spread = both(t, "Add", reduce(t, "ReduceMean", square, axes, keep=True), t.scalar(t.choose([1e-5, 1e-6, 0.1]), x))
    root = t.op("Sqrt", spread)
    y = both(t, "Mul", centred, t.op("Reciprocal", root)) if t.chance(0.3) else t.op("Div", centred, root)
    shape = t.choose([[x.dims[-1]], [], [1, x.dims[-1]]])
    if t.chance(0.8):
        y = both(t, "Mul", y, t.drawn(shape, x.dtype))
    return both(t, "Add", y, t.drawn(shape, x.dtype)) if t.chance(0.6) else y


@block(2)
def spelled_softmax(t: Trace) -> Value:
    x = t.float_value(rank=(1, 4))
    axis = [t.choose([-1, 0])]
    top = t.op("Sub", x, reduce(t, "ReduceMax", x, axis, keep=True))
    power = t.op("Exp", top)
    total = reduce(t, "ReduceSum", power, axis, keep=True)
    return t.op("Div", power, total) if t.chance(0.6) else t.op("Sub", top, t.op("Log", total))


@block(2)
def attention(t: Trace) -> Value:
    """Attend: three projections, heads by Reshape and Transpose, scores, Softmax, and the way back."""
    x = t.pick(lambda v: v.dtype == np.float32 and v.rank == 3 and bool(v.dims[2]) and not v.is_empty)
    heads, size = t.choose([1, 2]), t.choose([2, 4])
    width = heads * size
    if x.dims[1] is None and x.dims[0] is None:
        target: list[int] = [0, 0, heads, size]
    else:
        target = [0, -1, heads, size] if t.chance(0.7) else [0, 0, heads, size]

    def project() -> Value:
        y = t.op("MatMul", x, t.constant(t.rng.standard_normal([x.dims[2], width]) * 0.3, np.float32))
        y = t.op("Add", y, t.drawn([width], np.float32)) if t.chance(0.7) else y
        return t.op("Reshape", y, t.ints(*target))

    q, k, v = (t.op("Transpose", project(), perm=order) for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
    if t.chance(0.3):
        q = t.op("Mul", q, t.scalar(size**-0.5, q))
    scores = t.op("MatMul", q, k)
    scores = t.op("Div", scores, t.scalar(math.sqrt(size), scores)) if t.chance(0.7) else scores
    if t.chance(0.4):
        allowed = [v for v in t.visible if v.is_tensor and v.dtype == np.bool_ and v.rank == 2]
        mask = t.choose(allowed)
        scores = t.op("Where", mask, scores, t.scalar(t.choose([-1e4, -np.inf, -1e9]), scores))
    mixed = t.op("MatMul", t.op("Softmax", scores, axis=-1), v)
    return t.op("Reshape", t.op("Transpose", mixed, perm=[0, 2, 1, 3]), t.ints(0, -1 if -1 in target else 0, width))


@block()
def rotary(t: Trace) -> Value:
    x = t.pick(lambda v: v.dtype == np.float32 and v.rank in (3, 4) and bool(v.dims[-1]) and v.dims[-1] % 2 == 0)
    half = x.dims[-1] // 2
    first, second = (t.op("Slice", x, t.ints(a), t.ints(b), t.ints(-1)) for a, b in ((0, half), (half, 2**31 - 1)))
    turned = t.op("Concat", t.op("Neg", second), first, axis=-1)
    cos, sin = t.drawn([x.dims[-1]], x.dtype), t.drawn([x.dims[-1]], x.dtype)
    return t.op("Add", t.op("Mul", x, cos), t.op("Mul", turned, sin))


@block()
def reciprocal_root(t: Trace) -> Value:
    x = t.float_value()
    root = t.op("Sqrt", t.op("Add", t.op("Abs", x), t.scalar(near(t, 1e-3), x)))
    y = t.op("Reciprocal", root) if t.chance(0.5) else t.op("Div", t.scalar(1, x), root)
    return both(t, "Mul", x, y)


@block()
def norm_of_squares(t: Trace) -> Value:
    x = t.float_value(rank=(1, 4))
    form = t.choose(["l1", "l2", "log", "square"])
    axes = [t.choose([-1, 0])]
    if form == "l1":
        return reduce(t, "ReduceSum", t.op("Abs", x), axes, keep=t.choose([True, False]))
    if form == "log":
        return t.op("Log", reduce(t, "ReduceSum", t.op("Exp", x) if t.chance(0.5) else x, axes, keep=True))
    total = reduce(t, "ReduceSum", t.op("Mul", x, x), axes, keep=t.choose([True, False]))
    return t.op("Sqrt", total) if form == "l2" else total


@block()
def half_precision(t: Trace) -> Value:
    """Compute a little in float16 or double, as mixed-precision exports do."""
    x = t.float_value(dtype=np.dtype(np.float32))
    y = cast(t, x, t.choose([np.float16, np.float64]))
    for _ in range(t.among(1, 2)):
        op = t.choose(["Relu", "Add", "Mul", "Sqrt", "Sigmoid"])
        y = t.op(op, y, *([t.scalar(t.choose([0.5, 2.0, 0.1]), y)] if op in ("Add", "Mul") else []))
    return cast(t, y, np.float32) if t.chance(0.8) else y


@block()
def repeated_heads(t: Trace) -> Value:
    """Repeat along an axis by Unsqueeze, Expand, Reshape."""
    x = t.float_value(rank=(3, 4))
    if None in x.dims[1:]:
        raise Unfit
    grown = unsqueeze(t, x, [2])
    target = [1, x.dims[1], 2, *x.dims[2:]]
    wide = t.op("Expand", grown, t.ints(*target))
    return t.op("Reshape", wide, t.ints(-1 if x.dims[0] is None else x.dims[0], x.dims[1] * 2, *x.dims[2:]))
