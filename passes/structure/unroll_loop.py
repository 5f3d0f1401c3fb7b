"""Loops that run a known number of times."""

from typing import Any

import numpy as np

from surgery import Builder, Graph, Node, Parity, Value, graph_pass

from ._shared import inside_out, known_scalar


@graph_pass("unroll-loop", parity=Parity.EXACT)
def unroll_loop(graph: Graph, *, max_trips: int = 16, max_nodes: int = 1000) -> None:
    """Write out a Loop that runs a known, small number of times: its body once for each iteration.

    Right because the iterations run one after the other, each with the values that the one before it leaves; a
    random operator is evaluated as often as before. The trip count must be a constant, and no iteration may end the
    loop: the condition is missing or true at first, and in the body it is passed on or constant. What the
    iterations collect is joined along a new first axis.

    Options:
        max_trips: How often a loop may run at most.
        max_nodes: How many nodes may take the place of a loop at most.

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
    for node in inside_out(graph, "Loop"):
        with graph.site(node) as new:
            _unroll(node, new, max_trips, max_nodes)


def _unroll(node: Node, new: Builder, max_trips: int, max_nodes: int) -> None:
    body = node.ir.attributes["body"].as_graph()
    trips = _trips(node, body)
    new.require(trips is not None, "the number of iterations is not known")
    assert trips is not None
    new.require(trips <= max_trips, "the loop runs more than max_trips times")
    new.require(trips * sum(1 for _ in body.all_nodes()) <= max_nodes, "more than max_nodes nodes would take its place")
    carried: list[Value | None] = list(node.inputs[2:])
    collected: list[list[Value]] = [[] for _ in node.outputs[len(carried) :]]
    for trip in range(trips):
        counter = _constant(new, np.array(trip, dtype=np.int64), "iteration")
        condition = _constant(new, np.array(True), "condition")
        _, *results = new.inline(body, [counter, condition, *carried])
        carried = list(results[: len(carried)])
        for items, item in zip(collected, results[len(carried) :]):
            items.append(item)
    scanned = body.outputs[1 + len(carried) :]
    joined = [
        _joined(node, new, items, Value(node.graph, inner)) if old.name else None
        for old, items, inner in zip(node.outputs[len(carried) :], collected, scanned)
    ]
    for old, result in zip(node.outputs, [*carried, *joined]):
        if old.name and result is not None:
            new.replace(old, result)


def _trips(node: Node, body: Any) -> int | None:
    """Return how often a loop runs, None when that is not known."""
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


def _joined(node: Node, new: Builder, items: list[Value], inner: Value) -> Value:
    """Join what the iterations collect along a new axis in front."""
    if not items:
        shape, dtype = inner.static_shape, inner.dtype
        new.require(shape is not None and dtype is not None, "the type of an empty result is not known")
        assert shape is not None and dtype is not None
        return _constant(new, np.zeros((0, *shape), dtype=dtype.numpy()), "nothing")
    axis = _constant(new, np.array([0], dtype=np.int64), "axis") if node.opset >= 13 else None
    rows = [
        new.node("Unsqueeze", item, axis) if axis is not None else new.node("Unsqueeze", item, axes=[0])
        for item in items
    ]
    return rows[0] if len(rows) == 1 else new.node("Concat", *rows, axis=0)


def _constant(new: Builder, array: Any, name: str) -> Value:
    return new.constant(array, name=name)
