"""Blocks of operators that work element by element, and reductions."""

from __future__ import annotations

import numpy as np

from random_graphs.blocks import axis_of, block, cast, partner, reduce, static
from random_graphs.trace import Trace, Value

SMOOTH = (
    *("Abs", "Neg", "Exp", "Log", "Sqrt", "Reciprocal", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh"),
    *("Asinh", "Acosh", "Atanh", "Tanh", "Sigmoid", "Softplus", "Softsign", "Erf"),
)
ACTIVATIONS = (
    "Relu",
    "LeakyRelu",
    "Elu",
    "Selu",
    "Celu",
    "HardSigmoid",
    "ThresholdedRelu",
    "HardSwish",
    "Mish",
    "Gelu",
)
STEPS = ("Floor", "Ceil", "Round", "Sign")
ALPHAS = {"LeakyRelu": 0.2, "Elu": 0.7, "Celu": 1.3, "HardSigmoid": 1 / 6, "ThresholdedRelu": 0.4}
KINDS = (np.float32, np.float32, np.float64, np.float16, np.int32, np.int64, np.int8, np.uint8, np.bool_)


@block(4)
def smooth(t: Trace) -> Value:
    return t.op(t.choose(SMOOTH), t.float_value())


@block(4)
def activation(t: Trace) -> Value:
    op = t.choose(ACTIVATIONS)
    alpha = ALPHAS.get(op)
    own = {"alpha": alpha} if alpha is not None and t.chance(0.6) else {}
    if op == "Gelu" and t.chance(0.5):
        own = {"approximate": "tanh"}
    return t.op(op, t.float_value(), **own)


@block()
def step(t: Trace) -> Value:
    return t.op(t.choose(STEPS), t.float_value())


@block(8)
def arithmetic(t: Trace) -> Value:
    x = t.pick(lambda v: v.dtype.kind in "fiu" and v.dtype.itemsize > 1)
    y = partner(t, x)
    op = t.choose(["Add", "Add", "Sub", "Mul", "Mul", "Div"] if x.is_float else ["Add", "Sub", "Mul"])
    return t.op(op, *((x, y) if t.chance(0.7) else (y, x)))


@block(3)
def neutral(t: Trace) -> Value:
    """Add a neutral element, or one that looks like one."""
    x = t.pick(lambda v: v.dtype.kind in "fi" and v.dtype.itemsize > 1)
    op, number = t.choose([("Add", 0), ("Sub", 0), ("Mul", 1), ("Div", 1), ("Add", -0.0), ("Mul", -1), ("Mul", 0)])
    dims = [d if d is not None and t.chance(0.5) else 1 for d in x.dims]
    shape = t.choose([[], [1], dims, [1] * (x.rank + 1)])
    y = t.constant(np.full(shape, number, x.dtype))
    return t.op(op, *((x, y) if t.chance(0.7) or op in ("Sub", "Div") else (y, x)))


@block(2)
def constant_chain(t: Trace) -> Value:
    """Add two or three constants one after another, as scales and shifts come."""
    x = t.pick(lambda v: v.dtype.kind in "fi" and v.dtype.itemsize > 1)
    family = t.choose([["Add", "Sub"], ["Mul", "Div"], ["Mul", "Add"]] if x.is_float else [["Add", "Sub"], ["Mul"]])
    for _ in range(t.among(2, 3)):
        y = partner(t, x)
        op = t.choose(family)
        x = t.op(op, *((x, y) if t.chance(0.7) else (y, x)))
    return x


@block(2)
def bounds(t: Trace) -> Value:
    x = t.pick(lambda v: v.dtype.kind in "fi" and v.dtype.itemsize > 1)
    low, high = sorted(t.rng.integers(-3, 7, 2)) if t.chance(0.8) else (2, -1)
    form = t.choose(["clip", "clip", "low", "high", "min", "max", "both"])
    if form in ("min", "max"):
        return t.op(form.capitalize(), x, t.scalar(low, x))
    if form == "both":
        return t.op("Min", t.op("Max", x, t.scalar(low, x)), t.scalar(high, x))
    ends = [t.constant(np.array(n, x.dtype)) for n in (low, high)]
    given = {"low": ends[:1], "high": [None, ends[1]]}.get(form, ends)
    return t.op("Clip", x, *given)


@block()
def several(t: Trace) -> Value:
    x = t.float_value()
    return t.op(t.choose(["Min", "Max", "Sum", "Mean"]), *[x, *(partner(t, x) for _ in range(t.among(0, 2)))])


@block()
def power(t: Trace) -> Value:
    x = t.float_value()
    exponent = t.choose([2, 3, 0.5, 1, 0, -1, 2.0])
    other = np.dtype(t.choose([np.float32, np.int64])) if t.opset >= 12 and t.chance(0.3) else x.dtype
    return t.op("Pow", x, t.scalar(exponent, other))


@block()
def whole_number_division(t: Trace) -> Value:
    x = t.pick(lambda v: v.is_int and v.dtype.itemsize >= 4)
    y = t.scalar(t.choose([1, 2, 3, -2, 4]), x)
    for _ in range(t.among(1, 2)):
        x = t.op(t.choose(["Div", "Div", "Mul", "Add"]), x, y)
    return x


@block()
def modulo(t: Trace) -> Value:
    x = t.pick(lambda v: v.is_int or v.is_float)
    return t.op("Mod", x, t.scalar(t.choose([2, 3, 5]), x), fmod=1 if x.is_float or t.chance(0.3) else None)


@block(2)
def comparison(t: Trace) -> Value:
    op = t.choose(["Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"])
    x = t.pick(lambda v: v.dtype.kind in "fi" and v.dtype.itemsize > 2)
    first = t.op(op, x, partner(t, x))
    if t.chance(0.3):
        return t.op("Not", first)
    return first


@block(2)
def logic(t: Trace) -> Value:
    x = t.pick(lambda v: v.dtype == np.bool_)
    op = t.choose(["And", "Or", "Xor", "Not", "Not", "Cast"])
    if op == "Not":
        return t.op("Not", x)
    if op == "Cast":
        return cast(t, x, t.choose([np.float32, np.int64, np.int32, np.float64]))
    return t.op(op, x, partner(t, x))


@block()
def bits(t: Trace) -> Value:
    x = t.pick(lambda v: v.is_int)
    op = t.choose(["BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"])
    if op == "BitShift":
        x = cast(t, x, t.choose([np.uint8, np.uint32, np.uint64]))
        return t.op(op, x, t.scalar(t.among(0, 3), x), direction=t.choose(["LEFT", "RIGHT"]))
    return t.op(op, x) if op == "BitwiseNot" else t.op(op, x, partner(t, x))


@block()
def nan_or_inf(t: Trace) -> Value:
    x = t.float_value()
    if t.chance(0.5):
        return t.op("IsNaN", x)
    return t.op("IsInf", x, detect_negative=0 if t.chance(0.3) else None)


@block(2)
def choice(t: Trace) -> Value:
    """Choose between two by a condition that broadcasts."""
    c = t.pick(lambda v: v.dtype == np.bool_)
    x = t.pick(lambda v: v.dtype.kind in "fi" and v.dtype.itemsize > 2)
    if t.chance(0.2):
        c = t.op("Not", c)
    y = partner(t, x)
    return t.op("Where", c, *((x, y) if t.chance(0.7) else (y, x)))


@block(2)
def parametric_relu(t: Trace) -> Value:
    x = t.float_value(rank=(1, 5))
    dims = [d if d is not None else 1 for d in x.dims]
    shape = t.choose([[1], dims[-1:], [dims[1], *[1] * (x.rank - 2)] if x.rank > 1 else [1]])
    return t.op("PRelu", x, t.drawn(shape, x.dtype))


@block(2)
def other_type(t: Trace) -> Value:
    """Cast, and often on to a second type or back."""
    x = t.pick(lambda v: v.dtype != np.dtype(object))
    first = cast(t, x, t.choose(KINDS))
    if t.chance(0.5):
        return cast(t, first, x.dtype if t.chance(0.6) else t.choose(KINDS))
    return first


@block()
def cast_like(t: Trace) -> Value:
    x = t.pick(lambda v: v.dtype.kind in "fiu")
    return t.op("CastLike", x, t.pick(lambda v: v.dtype.kind in "fiu", constants=True))


@block(2)
def softmax(t: Trace) -> Value:
    x = t.float_value(rank=(1, 5))
    axis = axis_of(t, x) if t.chance(0.7) else None
    return t.op(t.choose(["Softmax", "Softmax", "LogSoftmax", "Hardmax"]), x, axis=axis)


@block()
def normalized(t: Trace) -> Value:
    x = t.float_value(rank=(1, 5))
    form = t.choose(["LpNormalization", "MeanVarianceNormalization", "Shrink", "CumSum"])
    if form == "LpNormalization":
        return t.op(form, x, axis=axis_of(t, x), p=t.among(1, 2))
    if form == "Shrink":
        return t.op(form, x, lambd=0.3, bias=t.choose([0.0, 0.1]))
    if form == "CumSum":
        axis = t.constant(np.array(axis_of(t, x), np.int64))
        return t.op(form, x, axis, reverse=t.among(0, 1), exclusive=t.among(0, 1))
    return t.op(form, t.float_value(rank=4), axes=t.choose([None, [0, 2, 3], [2, 3]]))


@block(3)
def reduction(t: Trace) -> Value:
    ops = ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"]
    x = t.float_value(rank=(0, 5)) if t.chance(0.9) else t.pick(lambda v: v.dtype == np.int64)
    axes = None if t.chance(0.15) else sorted({axis_of(t, x) for _ in range(t.among(1, 2))}) if x.rank else None
    return reduce(t, "Reduce" + t.choose(ops), x, axes, keep=t.choose([None, True, False]))


@block()
def position(t: Trace) -> Value:
    x = t.float_value(rank=(1, 5))
    last = {"select_last_index": 1} if t.opset >= 12 and t.chance(0.2) else {}
    return t.op(t.choose(["ArgMax", "ArgMin"]), x, axis=axis_of(t, x), keepdims=t.among(0, 1), **last)


@block()
def best(t: Trace) -> Value:
    x = t.float_value(rank=(1, 5))
    axis = axis_of(t, x)
    k = t.ints(t.among(1, max(1, min(run.shape[axis] for run in x.runs))))
    values, places = t.op("TopK", x, k, n=2, axis=axis, largest=t.among(0, 1))
    return values if t.chance(0.7) else places


@block()
def dropout(t: Trace) -> Value:
    x = t.float_value()
    ratio = [t.constant(np.array(0.3, np.float32))] if t.opset >= 12 and t.chance(0.6) else []
    if ratio and t.chance(0.3):
        ratio.append(t.constant(np.array(False)))
    if t.chance(0.3):
        return t.op("Dropout", x, *ratio, n=2)[0]
    return t.op("Dropout", x, *ratio)


@block(0.1)
def noise(t: Trace) -> Value:
    x = t.pick(lambda v: v.is_float and v.dtype == np.float32)
    return t.op(t.choose(["RandomNormalLike", "RandomUniformLike"]), x, seed=3.0 if t.chance(0.5) else None)


@block()
def bounded_table(t: Trace) -> Value:
    """Look one-hot vectors up, made of positions within bounds."""
    x = t.pick(lambda v: v.is_int)
    depth = t.among(2, 5)
    values = t.constant(np.array([0, 1], t.choose([np.float32, np.int64])))
    return t.op("OneHot", x, t.constant(np.array(depth, np.int64)), values, axis=t.choose([-1, 0]))


@block()
def constants_only(t: Trace) -> Value:
    """Compute something from constants alone, then use it."""
    x = t.float_value()
    shape = [d if d is not None else 1 for d in x.dims]
    k = t.drawn(shape, x.dtype)
    for _ in range(t.among(1, 3)):
        k = t.op(t.choose(["Neg", "Abs", "Exp", "Identity", "Sqrt", "Relu"]), k) if t.chance(0.6) else t.op("Add", k, k)
    return t.op(t.choose(["Add", "Mul"]), x, k)


@block()
def scaled_static(t: Trace) -> Value:
    """Divide by the number of elements, as means are spelled out."""
    x = t.float_value(rank=(1, 5))
    axis = axis_of(t, x, fixed=True)
    count = static(x)[axis] if x.is_static else x.dims[axis] or 1
    return t.op("Div", reduce(t, "ReduceSum", x, [axis], keep=True), t.scalar(count, x))
