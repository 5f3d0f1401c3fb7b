"""Blocks with subgraphs: If, Loop and Scan, that capture values of the graphs around them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np
import onnx
from onnx import helper

from random_graphs.blocks import BLOCKS, block, cast
from random_graphs.trace import STUMBLES, Scope, Trace, Unfit, Value, type_info

BODIES = ("condition", "branches", "loop", "loop_of_blocks", "scan")
INSIDE = ("Relu", "Sigmoid", "Neg", "Abs", "Tanh", "Identity")


def graph_of(t: Trace, scope: Scope, inputs: list[Value], outputs: list[Value]) -> onnx.GraphProto:
    """Make a body; what its inputs and outputs are is declared, or left to inference."""
    open_ = [onnx.ValueInfoProto(name=v.name) for v in outputs]
    ends = open_ if t.chance(0.3) else [type_info(v.name, v.runs[0]) for v in outputs]
    return helper.make_graph(
        scope.nodes, t.fresh("body"), [type_info(v.name, v.runs[0]) for v in inputs], ends, scope.initializers
    )


def _worked_on(t: Trace, x: Value, some: Callable[[Trace], Value] | None = None) -> Value:
    """Compute something of the same type and shape, with captures and constants, and what is worth taking out."""
    start = x
    for _ in range(t.among(1, 3)):
        op = t.choose(["Add", "Mul", "Sub", *INSIDE])
        if op in INSIDE:
            x = t.op(op, x)
            continue
        alike = [v for v in t.visible if v.is_tensor and v.dtype == x.dtype and v.dims == x.dims]
        other = t.choose(alike) if alike and t.chance(0.6) else t.drawn(t.choose([[], [1]]), x.dtype)
        x = t.op(op, x, other)
    if any(a.shape != b.shape for a, b in zip(x.runs, start.runs)):
        raise Unfit
    return x


def _truth(t: Trace) -> Value:
    """Make a condition: of a value, of a shape, or a constant one."""
    form = t.choose(["value", "shape", "constant", "given"])
    if form == "constant":
        return t.constant(np.array(t.chance(0.5)))
    if form == "shape":
        x = t.pick(lambda v: v.rank >= 1)
        first = t.op("Gather", t.op("Shape", x), t.constant(np.array(0, np.int64), fixed=True))
        return t.op("Equal", first, t.constant(np.array(t.choose([1, 2, 3, x.runs[0].shape[0]]), np.int64), fixed=True))
    if form == "given":
        scalars = [
            v for v in t.visible if v.is_tensor and v.dtype == np.bool_ and v.runs[0].size == 1 == v.runs[1].size
        ]
        return t.choose(scalars)
    x = t.float_value(dtype=np.dtype(np.float32))
    total = t.op("ReduceMax" if not x.is_empty else "ReduceSum", x, keepdims=0)
    return t.op(t.choose(["Greater", "Less"]), total, t.constant(np.array(0.5, np.float32), fixed=True))


@block(2)
def condition(t: Trace) -> Value:
    truth = _truth(t)
    x = t.float_value()
    bodies = []
    for _ in range(2):
        with t.body() as scope:
            if t.chance(0.2) and len(t.scopes) < 3:
                y = _if(t, _truth(t), x)
            else:
                y = _worked_on(t, x)
            if y.name not in {name for node in scope.nodes for name in node.output}:
                y = t.op("Identity", y)
            bodies.append(graph_of(t, scope, [], [y]))
    return t.op("If", truth, then_branch=bodies[0], else_branch=bodies[1])


def _if(t: Trace, truth: Value, x: Value) -> Value:
    bodies = []
    for _ in range(2):
        with t.body() as scope:
            y = t.op("Identity", _worked_on(t, x))
            bodies.append(graph_of(t, scope, [], [y]))
    return t.op("If", truth, then_branch=bodies[0], else_branch=bodies[1])


def _blocks(t: Trace) -> None:
    """Add a few blocks of any kind, but for such with bodies when those are nested deep already."""
    names = [name for name in BLOCKS if len(t.scopes) < 3 or name not in BODIES]
    for _ in range(t.among(1, 4)):
        with suppress(Unfit, *STUMBLES), t.attempt():
            BLOCKS[t.choose(names)][1](t)


def _results(t: Trace, scope: Scope, count: int) -> list[Value]:
    """Choose what a body gives, the latest first."""
    made = {name for node in scope.nodes if node.op_type != "Constant" for name in node.output}
    found = [value for value in scope.values if value.is_tensor and value.name in made]
    if not found:
        raise Unfit
    return found[::-1][:count]


@block(2)
def branches(t: Trace) -> Value:
    """Choose between branches of any blocks; the shapes that they give may differ."""
    truth = _truth(t)
    with t.body() as scope:
        _blocks(t)
        first = _results(t, scope, t.among(1, 2))
        then = graph_of(t, scope, [], first)
    with t.body() as scope:
        _blocks(t)
        own = []
        for value in first:
            alike = [v for v in t.visible if v.is_tensor and v.dtype == value.dtype and v.rank == value.rank]
            other = t.choose(alike)
            own.append(
                t.op("Identity", other) if other not in scope.values or other.constant or other in own else other
            )
        otherwise = graph_of(t, scope, [], own)
    made = t.op("If", truth, n=len(first), then_branch=then, else_branch=otherwise)
    return made[0] if len(first) > 1 else made


@block()
def loop_of_blocks(t: Trace) -> Value:
    """Loop over any blocks; what they make is collected."""
    x = t.float_value()
    trips = t.constant(np.array(t.among(0, 3), np.int64), fixed=True)
    with t.body() as scope:
        number = t.enter(t.fresh("i"), (np.array(0), np.array(0)))
        keep = t.enter(t.fresh("go"), (np.array(True), np.array(True)))
        carried = t.enter(t.fresh("carried"), x.runs, random=x.random)
        _blocks(t)
        collected = _results(t, scope, 1)
        after = t.op("Identity", _worked_on(t, carried))
        on = t.op("Identity", keep) if t.chance(0.5) else t.op("Less", number, t.scalar(1, np.dtype(np.int64)))
        body = graph_of(t, scope, [number, keep, carried], [on, after, *collected])
    return t.op("Loop", trips, None, x, n=2, body=body)[t.among(0, 1)]


@block(2)
def loop(t: Trace) -> Value:
    """Loop a few times over a carried value, and collect a scan output."""
    x = t.float_value()
    times = t.among(0, 3)
    trips: Value | None = t.constant(np.array(times, np.int64), fixed=True)
    if t.chance(0.2):
        y = t.pick(lambda v: v.rank >= 1)
        trips = t.op("Gather", t.op("Shape", y), t.constant(np.array(0, np.int64), fixed=True))
    with t.body() as scope:
        number = t.enter(t.fresh("i"), (np.array(0), np.array(0)))
        keep = t.enter(t.fresh("go"), (np.array(True), np.array(True)))
        carried = t.enter(t.fresh("carried"), x.runs, random=x.random)
        after = t.op("Identity", _worked_on(t, carried))
        if t.chance(0.4):
            after = t.op("Add", after, cast(t, number, x.dtype))
        collected = [t.op(t.choose(["Neg", "Abs"]), after)] if t.chance(0.5) else []
        on = t.op("Identity", keep)
        body = graph_of(t, scope, [number, keep, carried], [on, after, *collected])
    start = t.constant(np.array(True)) if t.chance(0.5) else None
    made = t.op("Loop", trips, start, x, n=1 + len(collected), body=body)
    return made[t.among(0, 1)] if collected else made


@block()
def scan(t: Trace) -> Value:
    """Scan over the first axis, with a state."""
    x = t.pick(lambda v: v.is_float and v.rank >= 1 and not v.is_empty)
    state = t.op(
        "ReduceSum", x, *([t.ints(0)] if t.opset >= 13 else []), keepdims=0, axes=None if t.opset >= 13 else [0]
    )
    if t.chance(0.5):
        state = t.op("Mul", state, t.scalar(0, state)) if state.rank else t.constant(np.array(0, x.dtype))
    with t.body() as scope:
        held = t.enter(t.fresh("held"), state.runs, random=x.random)
        item = t.enter(t.fresh("item"), tuple(run[0] for run in x.runs), random=x.random)  # type: ignore[arg-type]
        new = t.op("Identity", _worked_on(t, t.op("Add", held, item)))
        seen = t.op("Identity", t.op("Mul", new, item))
        body = graph_of(t, scope, [held, item], [new, seen])
    last, all_ = t.op("Scan", state, x, n=2, num_scan_inputs=1, body=body)
    return all_ if t.chance(0.7) else last
