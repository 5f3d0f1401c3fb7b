"""Initial states that are all zero."""

import numpy as np

from surgery import Builder, Graph, Node, Parity, Value, graph_pass

STATES = {"GRU": (5,), "LSTM": (5, 6), "RNN": (5,), "com.microsoft::DynamicQuantizeLSTM": (5, 6)}
"""Recurrent operators, and the positions of their initial states."""

MOVES = {"Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose"} | {
    "Cast",
    "Unsqueeze",
}
"""Operators whose result holds only elements of their first input, so it is zero if these are."""

Dim = int | str | None


@graph_pass("drop-zero-state", parity=Parity.EXACT)
def drop_zero_state(graph: Graph) -> None:
    """Remove the initial state of an LSTM, GRU, RNN or DynamicQuantizeLSTM that is zero in every run.

    Right because the state is optional and defaults to zero. It may be a zero constant, or zeros that ConstantOfShape,
    Expand and similar operators broadcast to a computed shape. That shape must be known to be the required one, because
    a state with another batch size makes a run fail, which must not change.

    Example:
        g (float[S,N,2] x, float[1,12,2] w, float[1,12,3] r) => (float[1,N,3] y) {
            s = Shape<start = 1, end = 2>(x)
            one = Constant<value = int64[1] {1}>()
            three = Constant<value = int64[1] {3}>()
            shape = Concat<axis = 0>(one, s, three)
            zeros = ConstantOfShape(shape)
            _, y = LSTM<hidden_size = 3>(x, w, r, , , zeros, zeros)
        }
    """
    for node in graph.nodes(*STATES):
        for position in STATES[node.op]:
            state = node.input(position)
            if state is not None and _origins(state) is not None:
                with graph.site(node) as new:
                    _drop(node, position, state, new)


def _origins(state: Value) -> list[Value | Node] | None:
    """List the constants and ConstantOfShape nodes of all elements of a value; None if there are other sources."""
    found: list[Value | Node] = []
    pending = [state]
    while pending:
        value = pending.pop()
        producer = value.producer
        if value.is_constant:
            found.append(value)
        elif producer is not None and producer.op == "ConstantOfShape":
            found.append(producer)
        elif producer is not None and producer.op == "Concat":
            pending += [item for item in producer.inputs if item is not None]
        elif producer is not None and producer.op in MOVES:
            pending.append(producer.required_input(0))
        else:
            return None
    return found


def _drop(node: Node, position: int, state: Value, new: Builder) -> None:
    for origin in _origins(state) or ():
        new.require(_is_zero(origin), "the initial state is not zero")
    wanted, shape = _wanted(node), state.shape
    known = shape is not None and None not in wanted and tuple(shape) == wanted
    new.require(known, "the shape of the initial state is not known to be that of the operator")
    new.set_input(node, position, None)


def _is_zero(origin: Value | Node) -> bool:
    """Return whether a constant, or the number with which a node fills a shape, is 0 and not -0.0."""
    if isinstance(origin, Value):
        array = origin.constant
    else:
        fill = origin.attr("value")
        array = np.zeros(1, np.float32) if fill is None else fill.numpy()
    return array is not None and array.dtype != object and not array.any() and not np.signbit(array).any()


def _wanted(node: Node) -> tuple[Dim, ...]:
    """Return the required shape of the state: directions, batch and hidden size; the batch comes first in layout 1."""
    data, recurrence = node.required_input(0).shape, node.required_input(2).shape
    batch_first = node.attr("layout", 0) == 1
    batch = data[0 if batch_first else 1] if data is not None and len(data) == 3 else None
    directions = 2 if node.attr("direction", "forward") == "bidirectional" else 1
    # The matrix of DynamicQuantizeLSTM is transposed, and its hidden_size has no default.
    hidden: Dim = node.attr("hidden_size")
    if hidden is None and recurrence is not None and len(recurrence) == 3 and not node.domain:
        hidden = recurrence[2]
    return (batch, directions, hidden) if batch_first else (directions, batch, hidden)
