"""Blocks that move elements, and such that compute shapes."""

from __future__ import annotations

import itertools

import numpy as np

from random_graphs.blocks import axis_of, block, cast, partner, repeat, slice_, squeeze, static, unsqueeze
from random_graphs.trace import Trace, Unfit, Value


def anything(t: Trace, low: int = 1, high: int = 6) -> Value:
    return t.pick(lambda v: low <= v.rank <= high)


@block(3)
def transposed(t: Trace) -> Value:
    """Transpose, and often once more, so that the two cancel or merge."""
    x = anything(t, 2)
    for _ in range(t.among(1, 2)):
        order = t.rng.permutation(x.rank).tolist()
        x = t.op("Transpose", x, perm=order if t.chance(0.9) else None)
    return x


@block(3)
def around_transpose(t: Trace) -> Value:
    """Transpose, do something elementwise, transpose back."""
    x = t.float_value(rank=(2, 5))
    order = t.rng.permutation(x.rank)
    moved = t.op("Transpose", x, perm=order.tolist())
    for _ in range(t.among(1, 3)):
        op = t.choose(["Relu", "Add", "Mul", "Sigmoid", "Tanh", "Softmax"])
        own = {"axis": axis_of(t, moved)} if op == "Softmax" else {}
        moved = t.op(op, moved, *([partner(t, moved)] if op in ("Add", "Mul") else []), **own)
    if moved.rank != x.rank:
        raise Unfit
    return t.op("Transpose", moved, perm=np.argsort(order).tolist())


def _target(t: Trace, x: Value) -> list[int]:
    """Choose a target of Reshape that fits both runs."""
    dims = list(x.dims)
    form = t.choose(["keep", "merge", "flat", "split", "ones", "zero"])
    if form == "flat" or not dims:
        return [-1]
    free = [i for i, d in enumerate(dims) if d is None]
    if form == "ones":
        dims.insert(t.among(0, len(dims)), 1)
    elif form == "merge" and len(dims) > 1:
        i = t.among(0, len(dims) - 2)
        joined = None if dims[i] is None or dims[i + 1] is None else dims[i] * dims[i + 1]  # type: ignore[operator]
        dims[i : i + 2] = [joined]
    elif form == "split":
        i = t.choose([i for i, d in enumerate(dims) if d and d % 2 == 0])
        dims[i : i + 1] = [2, dims[i] // 2] if t.chance(0.5) else [dims[i] // 2, 2]  # type: ignore[operator]
    elif form == "zero":
        return [0 if d != 1 or t.chance(0.5) else 1 for d in dims]
    if len(free) > 1 and form not in ("keep", "ones"):
        return [0 if d is None else d for d in dims]
    target = [-1 if d is None and sum(e is None for e in dims) == 1 else 0 if d is None else d for d in dims]
    if -1 not in target and target and t.chance(0.5):
        target[t.among(0, len(target) - 1)] = -1
    return target


@block(3)
def reshaped(t: Trace) -> Value:
    x = anything(t, 0)
    for _ in range(t.among(1, 2)):
        x = t.op("Reshape", x, t.ints(*_target(t, x)), allowzero=0 if t.opset >= 14 and t.chance(0.2) else None)
    return x


@block(2)
def squeezed(t: Trace) -> Value:
    x = anything(t, 0)
    form = t.choose(["out", "out and in", "in", "flatten"])
    if form == "flatten":
        return t.op("Flatten", x, axis=t.among(0, x.rank) if t.chance(0.7) else None)
    ones = [i for i, d in enumerate(x.dims) if d == 1]
    if form == "in" and ones:
        axes = [i for i in ones if t.chance(0.7)] or ones
        return squeeze(t, x, axes if t.chance(0.8) else [a - x.rank for a in axes])
    grown = unsqueeze(t, x, sorted({t.among(0, x.rank) for _ in range(t.among(1, 2))}))
    if form == "out and in":
        return squeeze(t, grown, [t.choose([i for i, d in enumerate(grown.dims) if d == 1])])
    return grown


@block(3)
def sliced(t: Trace) -> Value:
    x = anything(t)
    for _ in range(t.among(1, 2)):
        axis = axis_of(t, x)
        extent = min(run.shape[axis] for run in x.runs)
        start, end = (t.among(-extent - 1, extent + 1) for _ in range(2))
        ends = {"full": (0, 2**63 - 1, 1), "back": (-1, -(2**63) + 1, -1), "tail": (start, 2**31 - 1, 1)}
        chosen = ends.get(t.choose(["full", "back", "tail", "part", "part", "stride"]), (start, end, 1))
        step = t.among(1, 2) if chosen == (start, end, 1) else chosen[2]
        x = slice_(t, x, [chosen[0]], [chosen[1]], [axis], [step] if step != 1 or t.chance(0.5) else None)
    return x


@block(3)
def split_and_joined(t: Trace) -> Value:
    """Split along an axis, do something with a part, and join the parts, in order or not."""
    x = anything(t)
    axis = axis_of(t, x, fixed=True)
    extent = x.runs[0].shape[axis]
    if extent < 2:
        raise Unfit
    cuts = sorted({0, extent, *(t.among(1, extent - 1) for _ in range(t.among(1, 2)))})
    sizes = [b - a for a, b in itertools.pairwise(cuts)]
    if t.chance(0.5):
        parts = [slice_(t, x, [a], [b], [axis], None) for a, b in itertools.pairwise(cuts)]
    elif t.opset >= 13:
        parts = t.op("Split", x, t.ints(*sizes), n=len(sizes), axis=axis)
    else:
        parts = t.op("Split", x, n=len(sizes), axis=axis, split=sizes)
    if x.is_float and t.chance(0.4):
        parts[0] = t.op(t.choose(["Neg", "Relu", "Sigmoid"]), parts[0])
    if t.chance(0.3):
        parts = [parts[i] for i in t.rng.permutation(len(parts))]
    return t.op("Concat", *parts, axis=axis)


@block(2)
def joined(t: Trace) -> Value:
    x = anything(t)
    alike = [v for v in t.visible if v.is_tensor and v.dtype == x.dtype and v.rank == x.rank and v.dims == x.dims]
    others = [t.choose(alike) for _ in range(t.among(0, 2))]
    if t.chance(0.3) and x.is_static:
        others.append(t.drawn(static(x), x.dtype))
    axis = axis_of(t, x)
    made = t.op("Concat", x, *others, axis=axis)
    return t.op("Concat", made, x, axis=axis) if t.chance(0.2) else made


@block(2)
def gathered(t: Trace) -> Value:
    x = anything(t)
    axis = axis_of(t, x)
    extent = min(run.shape[axis] for run in x.runs)
    if not extent:
        raise Unfit
    form = t.choose(["Gather", "Gather", "scalar", "GatherElements", "GatherND", "graph"])
    if form == "scalar":
        return t.op("Gather", x, t.constant(np.array(t.among(-extent, extent - 1), np.int64)), axis=axis)
    if form == "GatherElements":
        shape = [1 if d is None else d for d in x.dims]
        return t.op(form, x, t.constant(t.rng.integers(0, extent, shape), np.int64), axis=axis)
    if form == "GatherND":
        depth = t.among(1, x.rank)
        lows = [min(run.shape[i] for run in x.runs) for i in range(depth)]
        return t.op(
            form, x, t.constant([[t.among(0, low - 1) for low in lows] for _ in range(t.among(1, 3))], np.int64)
        )
    if form == "graph":
        index = t.pick(lambda v: v.dtype in (np.dtype(np.int64), np.dtype(np.int32)) and v.rank <= 2)
        if t.highest.get(index.name, extent) >= extent:
            index = t.op("Mod", t.op("Abs", index), t.scalar(extent, index))
        return t.op("Gather", x, index, axis=axis)
    shape = t.choose([[1], [2], [3], [2, 2], [0]])
    return t.op(form, x, t.constant(t.rng.integers(-extent, extent, shape), np.int64), axis=axis)


@block()
def scattered(t: Trace) -> Value:
    x = t.float_value(rank=(1, 4))
    shape = [1 if d is None else min(d, 2) for d in x.dims]
    axis = axis_of(t, x)
    extent = min(run.shape[axis] for run in x.runs)
    if not extent or 0 in shape:
        raise Unfit
    updates = t.drawn(shape, x.dtype)
    if t.chance(0.5):
        return t.op("ScatterElements", x, t.constant(t.rng.integers(0, extent, shape), np.int64), updates, axis=axis)
    where = t.constant([[t.among(0, min(run.shape[i] for run in x.runs) - 1) for i in range(x.rank)]], np.int64)
    return t.op("ScatterND", x, where, t.drawn([1], x.dtype))


@block(2)
def expanded(t: Trace) -> Value:
    x = anything(t, 0)
    if t.chance(0.4):
        return t.op("Tile", x, t.ints(*(t.among(1, 2) for _ in range(x.rank))))
    target = [t.choose([1, 2, 3]) if d == 1 else 1 if d is None or t.chance(0.4) else d for d in x.dims]
    return t.op("Expand", x, t.ints(*([2] if t.chance(0.2) else []), *target))


@block(2)
def padded(t: Trace) -> Value:
    x = t.float_value(rank=(1, 4))
    for _ in range(t.among(1, 2)):
        mode = t.choose(["constant", "constant", "constant", "edge", "reflect"])
        low = -1 if t.chance(0.1) else 0
        pads = [t.among(low, 1) if t.chance(0.5) else 0 for _ in range(2 * x.rank)]
        value = [t.constant(np.array(t.choose([0, -0.0, 1, np.inf]), x.dtype))] if t.chance(0.4) else []
        x = t.op("Pad", x, t.ints(*pads), *value, mode=mode if mode != "constant" or t.chance(0.3) else None)
    return x


@block(2)
def blocks_of_space(t: Trace) -> Value:
    x = t.float_value(rank=4)
    _, c, h, w = x.dims
    form = t.choose(["DepthToSpace", "SpaceToDepth", "depth spelled", "space spelled"])
    if form in ("DepthToSpace", "SpaceToDepth"):
        mode = {"mode": t.choose(["DCR", "CRD"])} if form == "DepthToSpace" else {}
        return t.op(form, x, blocksize=2, **mode)
    if None in (c, h, w):
        raise Unfit
    assert c is not None and h is not None and w is not None
    if form == "depth spelled":
        inner, order = t.choose(
            [([2, 2, c // 4, h, w], [0, 3, 4, 1, 5, 2]), ([c // 4, 2, 2, h, w], [0, 1, 4, 2, 5, 3])]
        )
        last = [c // 4, h * 2, w * 2]
    else:
        inner, order, last = [c, h // 2, 2, w // 2, 2], [0, 3, 5, 1, 2, 4], [c * 4, h // 2, w // 2]
    first = 0 if t.chance(0.5) else -1
    return t.op(
        "Reshape", t.op("Transpose", t.op("Reshape", x, t.ints(first, *inner)), perm=order), t.ints(first, *last)
    )


@block()
def triangle(t: Trace) -> Value:
    x = t.pick(lambda v: v.rank >= 2 and v.dtype != np.bool_)
    if t.chance(0.3):
        return t.op("EyeLike", t.pick(lambda v: v.rank == 2 and v.dtype.kind in "fi" and v.dtype.itemsize >= 4))
    return t.op("Trilu", x, upper=t.among(0, 1))


@block()
def selected(t: Trace) -> Value:
    x = anything(t)
    form = t.choose(["NonZero", "Compress", "ReverseSequence", "Unique"])
    if form == "NonZero":
        return t.op(form, x)
    if form == "Unique":
        return t.op(form, t.float_value(rank=(1, 3)))
    if form == "Compress":
        axis = axis_of(t, x, fixed=True)
        return t.op(form, x, t.constant(t.rng.random(x.runs[0].shape[axis]) < 0.6), axis=axis)
    x = t.pick(lambda v: v.rank >= 2 and bool(v.dims[1]) and bool(v.dims[0]))
    return t.op(form, x, t.constant(t.rng.integers(1, x.dims[0] + 1, x.dims[1]), np.int64))


# Computed shapes


def shape_of(t: Trace, x: Value) -> Value:
    if t.opset >= 15 and t.chance(0.2):
        return t.op("Shape", x, start=0)
    return t.op("Shape", x)


def extent(t: Trace, x: Value, axis: int, *, scalar: bool = True) -> Value:
    shape = shape_of(t, x)
    if t.chance(0.4):
        one = slice_(t, shape, [axis], [axis + 1] if axis != -1 else [2**31], [0], None)
        return squeeze(t, one, [0]) if scalar else one
    one = t.op("Gather", shape, t.constant(np.array(axis, np.int64), fixed=True), axis=0 if t.chance(0.5) else None)
    return one if scalar else unsqueeze(t, one, [0])


@block(4)
def reshaped_by_shape(t: Trace) -> Value:
    """Merge the last two dims, or split the last one, by a shape that is computed, as exporters do."""
    x = anything(t, 2)
    parts = [extent(t, x, i, scalar=False) for i in range(x.rank - 2)]
    if t.chance(0.5) or not x.dims[-1] or x.dims[-1] % 2:
        product = t.op("Mul", extent(t, x, x.rank - 2), extent(t, x, x.rank - 1))
        parts.append(unsqueeze(t, product, [0]) if t.chance(0.6) else t.ints(-1))
    else:
        parts += [extent(t, x, x.rank - 2, scalar=False), t.ints(2), t.ints(x.dims[-1] // 2)]
    target = t.op("Concat", *parts, axis=0)
    return t.op("Reshape", x, cast(t, cast(t, target, np.int32), np.int64) if t.chance(0.1) else target)


@block(3)
def expanded_by_shape(t: Trace) -> Value:
    x = anything(t)
    shape = shape_of(t, x)
    form = t.choose(["expand", "zeros", "ones", "like", "where"])
    if form == "expand":
        y = t.drawn([1] * x.rank, x.dtype if x.dtype.kind != "b" else np.float32)
        return t.op("Expand", y, shape)
    if form == "like":
        return t.op("Expand", x, shape)
    if form == "where":
        ones = t.op("ConstantOfShape", t.ints(x.rank), value=_one(np.array([1], np.int64)))
        target = t.op("Where", t.op("Equal", shape, t.op("Mul", ones, t.ints(-1))), ones, shape)
        return t.op("Expand", x, target)
    number = 0 if form == "zeros" else 1
    made = t.op("ConstantOfShape", shape, value=_one(np.array([number], x.dtype)) if x.dtype.kind == "f" else None)
    return t.op(t.choose(["Add", "Mul"]), made, x) if made.dtype == x.dtype else made


def _one(array: object) -> object:
    from onnx import numpy_helper

    return numpy_helper.from_array(array)


@block(2)
def positions(t: Trace) -> Value:
    """Count along an axis, as position embeddings and masks do."""
    x = anything(t)
    i = axis_of(t, x) % x.rank
    zero, one = (t.constant(np.array(n, np.int64), fixed=True) for n in (0, 1))
    counted = t.op("Range", zero, extent(t, x, i), one)
    form = t.choose(["as is", "mask", "float", "gather"])
    if form == "mask":
        return t.op(t.choose(["Less", "Greater"]), unsqueeze(t, counted, [0]), unsqueeze(t, counted, [1]))
    if form == "float":
        return cast(t, counted, np.float32)
    return t.op("Gather", x, counted, axis=i) if form == "gather" else counted


@block(2)
def sliced_by_shape(t: Trace) -> Value:
    x = anything(t)
    axis = axis_of(t, x) % x.rank
    end = extent(t, t.pick(lambda v: v.rank > axis) if t.chance(0.3) else x, axis, scalar=False)
    if t.chance(0.4):
        end = t.op(t.choose(["Sub", "Add", "Div", "Mul"]), end, t.ints(t.among(1, 2)))
    return t.op("Slice", x, t.ints(0), end, t.ints(axis))


@block()
def size(t: Trace) -> Value:
    x = anything(t, 0)
    count = t.op("Size", x) if t.chance(0.5) else t.op("ReduceProd", shape_of(t, x), keepdims=0)
    return cast(t, count, np.float32) if t.chance(0.5) else count


@block(3)
def no_op(t: Trace) -> Value:
    """Add a node that gives its input back."""
    x = anything(t, 0)
    form = t.choose(
        ["Identity", "Identity", "Cast", "Reshape", "Transpose", "Slice", "Concat", "Expand", "Pad", "Where"]
    )
    if form == "Cast":
        return cast(t, x, x.dtype)
    if form == "Reshape":
        return t.op(form, x, t.ints(*([0] * x.rank)) if t.chance(0.5) else t.op("Shape", x))
    if form == "Transpose":
        return t.op(form, x, perm=list(range(x.rank)))
    if form == "Slice":
        return slice_(t, x, [0], [2**31 - 1], [axis_of(t, x)], None)
    if form == "Concat":
        return t.op(form, x, axis=axis_of(t, x))
    if form == "Expand":
        return t.op(form, x, t.ints(*([1] * x.rank)))
    if form == "Pad":
        return t.op(form, x, t.ints(*([0] * 2 * x.rank)))
    if form == "Where":
        return t.op(form, t.constant(np.array(t.chance(0.5))), x, x)
    return t.op(form, x)


@block(3)
def duplicate(t: Trace) -> Value:
    """Compute something twice, and one more node of it."""
    x = t.pick(lambda v: True)
    twin = repeat(t, x)
    if not x.is_float or x.random:
        return twin
    op = t.choose(["Relu", "Neg", "Sigmoid", "Abs"])
    a, b = t.op(op, x), t.op(op, twin)
    return t.op("Add", a, b) if t.chance(0.5) else b


@block()
def sequence(t: Trace) -> Value:
    x = anything(t, 1)
    axis = axis_of(t, x, fixed=True)
    if t.chance(0.5):
        parts = t.op("SplitToSequence", x, axis=axis, keepdims=t.among(0, 1))
    else:
        parts = t.op("SequenceConstruct", x, x)
        axis = t.among(0, x.rank - 1)
    form = t.choose(["at", "join", "length"])
    if form == "at":
        return t.op("SequenceAt", parts, t.constant(np.array(t.choose([0, -1, 1]), np.int64)))
    if form == "length":
        return t.op("SequenceLength", parts)
    return t.op("ConcatFromSequence", parts, axis=t.choose([0, axis]), new_axis=t.among(0, 1))
