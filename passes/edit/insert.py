"""Insertion of operators."""

from typing import Any

import numpy as np

from surgery import (
    Builder,
    Graph,
    Keeps,
    Node,
    NodeSelector,
    Parity,
    TensorNames,
    UsageError,
    Value,
    graph_pass,
    require_form,
    typed_attribute,
)

from ._asked import asked, outermost
from ._elements import elements

Written = int | float | str | list[int] | list[float] | list[str]
Operand = int | float | list[Any] | str | dict[str, Any] | None


@graph_pass("insert-after", parity=Parity.INTENDED, changes=("types", "dims"))
def insert_after(
    graph: Graph,
    *,
    op: str,
    tensors: TensorNames | None = None,
    nodes: NodeSelector | None = None,
    output: int = 0,
    attributes: dict[str, Written] | None = None,
    operands: list[Operand] | None = None,
    position: int = 0,
    keeps: Keeps = "nothing",
) -> None:
    """Insert an operator after tensors or nodes: all consumers read its result instead.

    An output of the model keeps its name and becomes the result of the operator. Types and dims that depend on it are
    updated, also those of model outputs. This changes the results, unless `keeps` declares otherwise.

    Options:
        op: The operator, with its domain if it is not the default one: Clip, com.acme::Foo.
        tensors: The tensors of the main graph, by name or glob.
        nodes: The nodes after which to insert, instead of `tensors`.
        output: The output of these nodes, counted from 0.
        attributes: Attributes of the operator.
        operands: The other inputs, in order: a number or a list of numbers, of the type of the tensor;
            `{int64: [0, -1]}` for another type; the name of a tensor; null for an omitted one.
        position: The input of the operator that reads the tensor, counted from 0.
        keeps: The promise about the results, which is verified; by default, results are not compared.

    Example:
        # options: {tensors: a, op: Clip, operands: [0, 6]}
        g (float[2] x) => (float[2] y) { a = Exp(x) y = Neg(a) }
    """
    if (nodes is None) == (not tensors):
        raise UsageError("give either 'tensors' or 'nodes'")
    chosen = graph.select(nodes) if nodes is not None else []
    found = [*graph.tensors(tensors or ()), *(_output(node, output) for node in chosen)]
    followers = _followers(graph)
    with asked(graph) as new:
        for value in dict.fromkeys(found):
            if value.is_input and value.is_output:
                raise UsageError(f"'{value.name}' is an input and an output at once", todo="name another tensor")
            near = value.producer or _first_reader(graph, value)
            anchor = followers[near] if near == value.producer else near
            place = new if anchor is None else new.at(anchor)
            made = _made(graph, place, near, value, op, attributes, operands, position)
            new.outdates(value)
            place.replace(value, made)


@graph_pass("insert-before", parity=Parity.INTENDED, changes=("types", "dims"))
def insert_before(
    graph: Graph,
    *,
    op: str,
    nodes: NodeSelector,
    input: int = 0,  # noqa: A002 - as users call it
    attributes: dict[str, Written] | None = None,
    operands: list[Operand] | None = None,
    position: int = 0,
    keeps: Keeps = "nothing",
) -> None:
    """Insert an operator before an input of nodes: only these nodes read its result.

    Other consumers of that tensor are not changed; `insert-after` changes all of them. Each node gets a separate
    operator. Types and dims that depend on it are updated, also those of model outputs. This changes the results,
    unless `keeps` declares otherwise.

    Options:
        op: The operator, with its domain if it is not the default one: Clip, com.acme::Foo.
        nodes: The nodes.
        input: The input of these nodes, counted from 0.
        attributes: Attributes of the operator.
        operands: The other inputs, see `insert-after`.
        position: The input of the operator that reads the tensor, counted from 0.
        keeps: The promise about the results, which is verified; by default, results are not compared.

    Example:
        # options: {nodes: {op: Exp}, op: Mul, operands: [0.5]}
        g (float[2] x) => (float[2] y, float[2] z) { y = Exp(x) z = Neg(x) }
    """
    with asked(graph) as new:
        for node in graph.select(nodes):
            value = node.input(input)
            if value is None:
                todo = f"it has {len(node.inputs)}, counted from 0"
                raise UsageError(f"'{node.label}' has no input {input}", todo=todo)
            made = _made(graph, new.at(node), node, value, op, attributes, operands, position)
            for result in node.outputs:
                new.outdates(result)
            new.set_input(node, input, made)


def _output(node: Node, index: int) -> Value:
    outputs = node.outputs
    if not 0 <= index < len(outputs) or not outputs[index].name:
        raise UsageError(f"'{node.label}' has no output {index}", todo=f"it has {len(outputs)}, counted from 0")
    return outputs[index]


def _first_reader(graph: Graph, value: Value) -> Node:
    """Return the first main-graph node that reads an input or a constant, directly or in a subgraph."""
    readers = outermost(graph, value.consumers)
    if not readers:
        raise UsageError(f"nothing reads '{value.name}'", todo="name another tensor")
    return readers[0]


def _followers(graph: Graph) -> dict[Node, Node | None]:
    """Map each node to the next one, before which new nodes are inserted; None at the end of the main graph."""
    found: dict[Node, Node | None] = {}
    for scope in graph.scopes:
        nodes = [Node(graph, node) for node in scope]
        # Nodes can be appended only to the main graph; elsewhere the nodes are sorted later.
        found |= dict(zip(nodes, [*nodes[1:], None if scope is graph.main else nodes[-1]])) if nodes else {}
    return found


def _made(
    graph: Graph,
    new: Builder,
    near: Node,
    value: Value,
    op: str,
    attributes: dict[str, Written] | None,
    operands: list[Operand] | None,
    position: int,
) -> Value:
    """Add the operator; `near` is a node in its scope."""
    inputs = [_operand(graph, new, value, given) for given in operands or []]
    if not 0 <= position <= len(inputs):
        raise UsageError(f"the tensor cannot be input {position} of {len(inputs) + 1}", todo="correct 'position'")
    inputs.insert(position, value)
    require_form(near, op, len(inputs), 1, attributes or {})
    typed = {name: typed_attribute(near, name, item, op=op) for name, item in (attributes or {}).items()}
    return new.node(op, *inputs, attributes=typed)


def _operand(graph: Graph, new: Builder, value: Value, given: Operand) -> Value | None:
    """Return the operand given in the recipe as a value; None for a missing operand."""
    if given is None:
        return None
    if isinstance(given, str):
        return graph.tensors([given])[0]
    if not isinstance(given, dict):
        if value.dtype is None:
            raise UsageError(f"the type of '{value.name}' is not known", todo="write operands as {float32: 0.5}")
        return new.constant(elements(given, value.dtype.numpy()), "operand")
    if len(given) != 1:
        raise UsageError(f"{given} is no operand", todo="write one type with its value, such as {int64: [0, -1]}")
    name, content = next(iter(given.items()))
    try:
        dtype = np.dtype(name)
    except TypeError:
        raise UsageError(f"there is no type '{name}'", todo="write it as numpy does: float32, int64, bool") from None
    return new.constant(elements(content, dtype), "operand")
