"""Loops that run a known number of times."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from surgery import Builder, Graph, Node, Parity, Refusal, Value, graph_pass

from ._shared import inside_out, known_scalar


@graph_pass("unroll-loop", parity=Parity.EXACT)
def unroll_loop(graph: Graph, *, max_trips: int = 16, max_nodes: int = 1000) -> None:
    """Unroll a Loop or Scan with a small, known number of iterations.

    Right because the iterations run in sequence, each with the values of the previous one; a random operator is
    evaluated as often as before. The trip count of a Loop must be a constant, and no iteration may end the loop: the
    condition is missing or true at first, and in the body it is passed on or constant. A Scan runs once for each
    element of its inputs, from the last one if it goes backwards. Collected outputs are concatenated along a new axis,
    which is the first one for a Loop.

    Options:
        max_trips: The maximum number of iterations.
        max_nodes: The maximum number of nodes that replace a loop.

    Example:
        g (float[2] x) => (float[2] y, float[2,2] z) <int64 n = {2}>
        {
            y, z = Loop (n, , x) <
                body = b (int64 i, bool c, float[2] s) => (bool d, float[2] r, float[2] t) {
                    d = Identity(c) r = Exp(s) t = Neg(s)
                }
            >
        }
    """
    for node in inside_out(graph, "Loop", "Scan"):
        with graph.site(node) as new:
            _unroll(node, _loop(node) if node.op == "Loop" else _scan(node), new, max_trips, max_nodes)


@dataclass(frozen=True)
class Iterations:
    """The iterations of a Loop or Scan: its body, `trips` times, which is None if unknown.

    `leading` is the number of body outputs before the carried ones. `arguments` returns the inputs of an iteration,
    given the carried values. Collected values are joined along `axes`, last to first if `backwards`.
    """

    body: Any
    trips: int | None
    carried: list[Value | None]
    leading: int
    arguments: Callable[[int, list[Value | None], Builder], list[Value | None]]
    axes: list[int]
    backwards: list[bool]
    more_nodes: int = 0


def _loop(node: Node) -> Iterations:
    body = node.attributes["body"].as_graph()
    carried: list[Value | None] = list(node.inputs[2:])
    collected = len(node.outputs) - len(carried)

    def arguments(trip: int, carried: list[Value | None], new: Builder) -> list[Value | None]:
        counter = _constant(new, np.array(trip, dtype=np.int64), "iteration")
        return [counter, _constant(new, np.array(True), "condition"), *carried]

    return Iterations(body, _trips(node, body), carried, 1, arguments, [0] * collected, [False] * collected)


def _scan(node: Node) -> Iterations:
    if node.opset < 9:
        raise Refusal("before opset 9 a Scan runs over a batch")
    body, count = node.attributes["body"].as_graph(), node.attr("num_scan_inputs")
    operands = [node.required_input(index) for index in range(len(node.inputs))]
    carried, scanned = operands[: len(operands) - count], operands[len(operands) - count :]
    collected = len(node.outputs) - len(carried)
    axes, directions = (node.attr(f"scan_input_{kind}") or [0] * count for kind in ("axes", "directions"))
    out_axes, out_directions = (node.attr(f"scan_output_{kind}") or [0] * collected for kind in ("axes", "directions"))
    extents = [value.shape[axis] for value, axis in zip(scanned, axes) if value.shape is not None]
    trips = next((extent for extent in extents if isinstance(extent, int)), None)
    if trips == 0:
        raise Refusal("ONNX Runtime does not run a Scan over an empty sequence")

    def arguments(trip: int, carried: list[Value | None], new: Builder) -> list[Value | None]:
        return [*carried, *(element(position, trip, new) for position in range(count))]

    def element(position: int, trip: int, new: Builder) -> Value:
        index = (trips or 0) - 1 - trip if directions[position] else trip
        where = _constant(new, np.array(index, dtype=np.int64), "iteration")
        return new.node("Gather", scanned[position], where, axis=axes[position])

    backwards = [bool(direction) for direction in out_directions]
    return Iterations(body, trips, list(carried), 0, arguments, out_axes, backwards, more_nodes=count)


def _unroll(node: Node, what: Iterations, new: Builder, max_trips: int, max_nodes: int) -> None:
    trips, body = what.trips, what.body
    new.require(trips is not None, "the number of iterations is not known")
    assert trips is not None
    new.require(trips <= max_trips, "the loop runs more than max_trips times")
    size = what.more_nodes + sum(1 for _ in body.all_nodes())
    new.require(trips * size <= max_nodes, "it would be replaced by more than max_nodes nodes")
    carried, count = what.carried, len(what.carried)
    collected: list[list[Value]] = [[] for _ in what.axes]
    for trip in range(trips):
        results = new.inline(body, what.arguments(trip, carried, new))[what.leading :]
        carried = list(results[:count])
        for items, item, backwards in zip(collected, results[count:], what.backwards):
            items.insert(0 if backwards else len(items), item)
    inner = [Value(node.graph, value) for value in body.outputs[what.leading + count :]]
    joined = [
        _joined(node, new, items, one, axis) if old.name else None
        for old, items, one, axis in zip(node.outputs[count:], collected, inner, what.axes)
    ]
    for old, result in zip(node.outputs, [*carried, *joined]):
        if old.name and result is not None:
            new.replace(old, result)


def _trips(node: Node, body: Any) -> int | None:
    """Return the number of iterations of a loop; None if it is not known."""
    start = node.input(1)
    if start is not None and known_scalar(start) is False:
        return 0
    count = node.input(0)
    trips = None if count is None else known_scalar(count)
    if trips is None or (start is not None and not known_scalar(start)):
        return None
    passed_on = Value(node.graph, body.outputs[0])
    while passed_on.producer is not None and passed_on.producer.op == "Identity":
        passed_on = passed_on.producer.required_input(0)
    return max(int(trips), 0) if passed_on.ir is body.inputs[1] or known_scalar(passed_on) is True else None


def _joined(node: Node, new: Builder, items: list[Value], inner: Value, axis: int) -> Value:
    """Join the collected values of the iterations along a new axis."""
    if not items:
        shape, dtype = inner.static_shape, inner.dtype
        new.require(shape is not None and dtype is not None, "the type of an empty result is not known")
        assert shape is not None and dtype is not None
        return _constant(new, np.zeros((0, *shape), dtype=dtype.numpy()), "nothing")
    axes = _constant(new, np.array([axis], dtype=np.int64), "axis") if node.opset >= 13 else None
    rows = [
        new.node("Unsqueeze", item, axes) if axes is not None else new.node("Unsqueeze", item, axes=[axis])
        for item in items
    ]
    return rows[0] if len(rows) == 1 else new.node("Concat", *rows, axis=axis)


def _constant(new: Builder, array: Any, name: str) -> Value:
    return new.constant(array, name=name)
