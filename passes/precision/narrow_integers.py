"""int64 tensors inside a model turned into int32."""

from __future__ import annotations

import numpy as np

from surgery import Builder, Graph, Node, NodeSelector, Parity, Refusal, Value, data_type, graph_pass

from ._integer_bounds import INT32, IntegerBounds
from ._selection import selection
from ._sharing import Shared

TIED: dict[str, tuple[int, ...] | None] = {
    **dict.fromkeys(("Abs", "Clip", "Concat", "Div", "Max", "Min", "Mod", "Mul", "Neg", "Range", "Sign", "Sub"), None),
    **dict.fromkeys(("CumSum", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Reshape", "Slice"), (0,)),
    **dict.fromkeys(("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "Split", "Squeeze", "Tile"), (0,)),
    **dict.fromkeys(("Identity", "Transpose", "Unsqueeze"), (0,)),
    **dict.fromkeys(("Pad", "ScatterElements", "ScatterND"), (0, 2)),
    "Add": None,
    "Where": (1, 2),
}
"""Operators that compute int32 like int64, and the operands that have the type of the result; None for all."""

FREE: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"), (0, 1)),
    **dict.fromkeys(("Gather", "GatherElements", "ScatterElements"), (1,)),
    "Cast": (0,),
}
"""Operands that may be int32 or int64, whatever the type of the result."""

_INT32, _INT64 = data_type("int32"), data_type("int64")


@graph_pass("narrow-integers", parity=Parity.EXACT)
def narrow_integers(
    graph: Graph,
    *,
    trust_inputs: bool = False,
    nodes: NodeSelector | None = None,
    exclude: NodeSelector | None = None,
) -> None:
    """Compute in int32 what a model computes in int64, where no number can exceed int32.

    For NPUs and GPUs without int64. Inputs and outputs keep their types: Casts stand at the borders, also where the
    standard demands int64, as for the shape of a Reshape or the axes of a reduction, or yields it, as Shape and ArgMax.
    Nodes that compute only such operands stay in int64.

    Right because each number is proven to fit: bounds follow from constants, known dims, element types and operators.
    Inputs that select elements of an axis of known extent are bounded by it; an extent itself is taken to be below
    2^31. A node stays if an operand or its result may exceed int32, as a product of inputs, or a sum over a dynamic dim
    may.

    Options:
        trust_inputs: Take all int64 inputs of the model to fit into int32.
        nodes: The nodes to compute in int32, all by default.
        exclude: Nodes that stay.

    Example:
        g (int64[N] ids) => (float[N,2] y) <float[3,2] table = {0, 1, 2, 3, 4, 5}> { y = Gather(table, ids) }
    """
    is_chosen = selection(graph, nodes, exclude)
    bounds, useful, shared = IntegerBounds(graph, trust_inputs), _useful(graph), Shared()
    for node in [node for node in graph.nodes() if node in useful and is_chosen(node)]:
        with graph.site(node) as new:
            _narrow(node, bounds, shared, new)


def _is_wide(value: Value | None) -> bool:
    return value is not None and value.dtype == _INT64


def _positions(node: Node) -> list[int]:
    """List the positions of the int64 operands that may be int32."""
    tied = TIED.get(node.op, ())
    wanted = {*(range(len(node.inputs)) if tied is None else tied), *FREE.get(node.op, ())}
    return [position for position in sorted(wanted) if _is_wide(node.input(position))]


def _makes_wide(node: Node) -> bool:
    return any(_is_wide(value) for value in node.outputs)


def _is_border(node: Node) -> bool:
    """Return whether a node is a Cast to int32: it stays, and what is computed before it may be in int32."""
    return node.op == "Cast" and node.outputs[0].dtype == _INT32


def _useful(graph: Graph) -> set[Node]:
    """Return the nodes of whose results something is read in int32: not those that compute operands of int64."""
    known = [node for node in graph.nodes() if node.op in TIED or node.op in FREE]
    pending = [node for node in known if not _makes_wide(node) and _positions(node)]
    useful = {node for node in pending if not _is_border(node)}
    while pending:
        node = pending.pop()
        for position in _positions(node):
            producer = node.required_input(position).producer
            if producer is not None and producer not in useful and (producer.op in TIED or producer.op in FREE):
                useful.add(producer)
                pending.append(producer)
    return useful


def _narrow(node: Node, bounds: IntegerBounds, shared: Shared, new: Builder) -> None:
    positions = _positions(node)
    for position in positions:
        value = node.required_input(position)
        given = value.is_input and value.scope is node.graph.main
        why = "an input of the model" if given else "an operand"
        new.require(bounds.fits(value), f"{why} may exceed int32")
    if not _makes_wide(node):
        for position in positions:
            new.set_input(node, position, _twin(node, node.required_input(position), shared, new))
        return
    new.require(all(bounds.fits(value) for value in node.outputs if _is_wide(value)), "the result may exceed int32")
    operands = list(node.inputs)
    for position in positions:
        operands[position] = _twin(node, node.required_input(position), shared, new)
    made = _made(node, operands, new)
    for old, result in zip(node.outputs, made):
        if _is_wide(old):
            result = bounds.copied(old, new.node("Cast", result, to=int(_INT64)))
        new.replace(old, result)


def _made(node: Node, operands: list[Value | None], new: Builder) -> tuple[Value, ...]:
    if node.op == "Cast":
        source = node.required_input(0)
        return (source if source.dtype == _INT32 else new.node("Cast", source, to=int(_INT32)),)
    return new.nodes(node.op, *operands, outputs=len(node.outputs), attributes=node.attributes)


def _twin(node: Node, value: Value, shared: Shared, new: Builder) -> Value:
    """Return an int64 value in int32; one that was computed in int32 before is used as it is."""
    producer = value.producer
    if producer is not None and producer.op == "Cast" and producer.required_input(0).dtype == _INT32:
        return producer.required_input(0)
    return shared.get(node, value, lambda: (_converted(value, new),))[0]


def _converted(value: Value, new: Builder) -> Value:
    array = value.constant if value.is_constant else None
    if array is None:
        return new.node("Cast", value, to=int(_INT32))
    if array.size and not (INT32[0] <= array.min() and array.max() <= INT32[1]):
        raise Refusal("an operand may exceed int32")
    return new.constant(array.astype(np.int32), f"{value.name}_int32")
