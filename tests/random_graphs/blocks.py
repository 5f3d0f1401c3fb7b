"""The table of blocks: what a random graph is made of, each one a node or a few."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from random_graphs.trace import Trace, Unfit, Value

Block = Callable[[Trace], object]
BLOCKS: dict[str, tuple[float, Block]] = {}


def block(weight: float = 1.0) -> Callable[[Block], Block]:
    """Register a block; one of twice the weight is chosen twice as often."""

    def register(function: Block) -> Block:
        BLOCKS[function.__name__] = (weight, function)
        return function

    return register


def partner(t: Trace, x: Value, *, like: Value | None = None) -> Value:
    """Return a value that broadcasts with x: one of the graph, or a constant of a shape that fits."""
    if t.chance(0.5):
        found = [v for v in t.visible if v.is_tensor and v.dtype == x.dtype and not v.constant and _broadcast(x, v)]
        if found:
            return t.choose(found)
    return t.drawn(fitting(t, x), x.dtype)


def _broadcast(x: Value, y: Value) -> bool:
    try:
        shapes = [np.broadcast_shapes(a.shape, b.shape) for a, b in zip(x.runs, y.runs)]
    except ValueError:
        return False
    return all(int(np.prod(shape)) <= 4000 for shape in shapes)


def fitting(t: Trace, x: Value) -> list[int]:
    """Choose a constant's shape that broadcasts with x, and now and then one that enlarges it."""
    full = [d if d is not None else 1 for d in x.dims]
    for i, pair in enumerate(zip(*(run.shape for run in x.runs))):
        if pair[0] == 1 != pair[1] and t.chance(0.3):
            full[i] = pair[1]  # the constant broadcasts where the named dim is 1
    form = t.choose(["scalar", "ones", "last", "full", "channel", "some", "higher", "enlarge"])
    if form == "scalar":
        return []
    if form == "ones":
        return [1] * t.among(1, max(x.rank, 1))
    if form == "last":
        return full[-1:]
    if form == "full":
        return full
    if form == "channel":
        return full[1:2] + [1] * (x.rank - 2) if x.rank > 1 else full
    if form == "some":
        return [d if t.chance(0.5) else 1 for d in full]
    if form == "higher":
        return [1, *full] if t.chance(0.7) else [2, *full]
    return [t.among(2, 3) if d == 1 and e == 1 and t.chance(0.5) else d for d, e in zip(full, x.dims)]


def static(x: Value) -> tuple[int, ...]:
    """Return the shape; Unfit when it is not the same in both runs."""
    if not x.is_static:
        raise Unfit
    return x.runs[0].shape


def axis_of(t: Trace, x: Value, *, fixed: bool = False) -> int:
    """Choose an axis, counted from either end; a `fixed` one has the same extent, and some, in both runs."""
    axes = [i for i, d in enumerate(x.dims) if not fixed or d]
    axis = t.choose(axes)
    return int(axis) - x.rank if t.chance(0.3) else int(axis)


def axes_input(t: Trace, op: str, axes: list[int] | None) -> tuple[list[Value | None], dict[str, list[int]]]:
    """Give axes as the opset of the operator wants them: as an input, or as an attribute."""
    since = {"ReduceSum": 13, "Squeeze": 13, "Unsqueeze": 13}.get(op, 18)
    if axes is None:
        return [], {}
    return ([t.ints(*axes)], {}) if t.opset >= since else ([], {"axes": axes})


def unsqueeze(t: Trace, x: Value, axes: list[int]) -> Value:
    inputs, attributes = axes_input(t, "Unsqueeze", axes)
    return t.op("Unsqueeze", x, *inputs, **attributes)


def squeeze(t: Trace, x: Value, axes: list[int] | None) -> Value:
    inputs, attributes = axes_input(t, "Squeeze", axes)
    return t.op("Squeeze", x, *inputs, **attributes)


def reduce(t: Trace, op: str, x: Value, axes: list[int] | None, keep: bool | None = None) -> Value:
    inputs, attributes = axes_input(t, op, axes)
    kept = {} if keep is None else {"keepdims": int(keep)}
    return t.op(op, x, *inputs, **attributes, **kept)


def slice_(t: Trace, x: Value, starts: list[int], ends: list[int], axes: list[int], steps: list[int] | None) -> Value:
    inputs = [t.ints(*starts), t.ints(*ends), t.ints(*axes)]
    return t.op("Slice", x, *inputs, *([t.ints(*steps)] if steps is not None else []))


def cast(t: Trace, x: Value, dtype: object) -> Value:
    from onnx import helper

    return t.op("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def repeat(t: Trace, x: Value) -> Value:
    """Return a copy of the node that makes x, on the same inputs: a duplicate subexpression."""
    from onnx import NodeProto

    for scope in t.scopes:
        for node in scope.nodes:
            if list(node.output) == [x.name] and node.op_type != "Constant" and not x.random:
                twin = NodeProto.FromString(node.SerializeToString())
                twin.output[0] = t.fresh("twin")
                if twin.name:
                    twin.name = t.fresh("twin")
                return t.add(twin)
    raise Unfit
