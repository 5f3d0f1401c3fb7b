"""Replacement of operators."""

from itertools import zip_longest
from typing import Any

from surgery import (
    Graph,
    Keeps,
    Node,
    NodeSelector,
    Parity,
    Renames,
    UsageError,
    Value,
    graph_pass,
    require_form,
    typed_attribute,
)

from ._asked import asked

Written = int | float | str | list[int] | list[float] | list[str] | None


@graph_pass("replace-op", parity=Parity.INTENDED, changes=("types", "dims"))
def replace_op(
    graph: Graph,
    *,
    nodes: NodeSelector,
    op: str,
    attributes: dict[str, Written] | None = None,
    rename_attributes: Renames | None = None,
    inputs: tuple[int | str | None, ...] | None = None,
    keeps: Keeps = "nothing",
) -> None:
    """Replace the operator of the selected nodes, mapping their attributes and inputs.

    The nodes keep their names and the names of their outputs. The number of inputs, the attributes and their types are
    checked against the schema of the operator or the model-local function of that name; for an operator without a known
    schema they are accepted as given. An attribute that the operator does not have must be dropped by name, so that
    none is lost unnoticed. Outputs that the operator does not have are removed if nothing reads them. Dependent types
    and dims are declared anew.

    This changes the results, unless `keeps` declares otherwise.

    Example:
        # options: {nodes: {op: LeakyRelu}, op: Relu, attributes: {alpha: null}}
        g (float[2] x) => (float[2] y) { y = LeakyRelu<alpha = 0.1>(x) }

    Options:
        nodes: the nodes.
        op: the operator, such as HardSwish or com.microsoft::Gelu.
        attributes: attributes to add or to set, by their names in the new operator; null drops one.
        rename_attributes: the names of attributes of the old operator in the new one.
        inputs: the inputs of the new operator: the number of an old input, from 0, the name of a tensor, or null.
        keeps: the promise about the results, which is verified; by default, results are not compared.
    """
    domain, _, name = op.rpartition("::")
    if not name or (domain == "ai.onnx"):
        raise UsageError(f"'{op}' is not an operator", todo="write Relu, or my.domain::Name")
    with asked(graph) as new:
        for node in graph.select(nodes):
            wanted = _attributes(node, op, attributes or {}, rename_attributes or Renames())
            operands = _operands(graph, node, inputs)
            count = _used_outputs(node)
            require_form(node, op, len(operands), count, [key for key, made in wanted.items() if made is not None])
            if node.op != op:
                new.set_operator(node, op, count)
            for index, (old, operand) in enumerate(zip_longest(node.inputs, operands)):
                if old != operand:
                    new.set_input(node, index, operand)
            for key, made in wanted.items():
                if made is None or made != node.attributes.get(key):
                    new.set_attribute(node, key, made)
            for output in node.outputs[:count]:
                new.outdates(output)


def _attributes(node: Node, op: str, given: dict[str, Written], renames: Renames) -> dict[str, Any]:
    """Return the new value of each attribute; None for an attribute to remove."""
    called = renames.of("attribute", node.attributes)
    held = {called.get(key, key): attribute for key, attribute in node.attributes.items()}
    absent = next((key for key, value in given.items() if value is None and key not in held), None)
    if absent is not None:
        raise UsageError(f"there is no attribute '{absent}' to drop", where=f"node '{node.label}'")
    wanted: dict[str, Any] = {key: None for key in called if key not in held}
    for key, value in {**held, **given}.items():
        wanted[key] = None if value is None else typed_attribute(node, key, value, op=op)
    return wanted


def _operands(graph: Graph, node: Node, inputs: tuple[int | str | None, ...] | None) -> list[Value | None]:
    if inputs is None:
        return node.inputs
    operands: list[Value | None] = []
    for wish in inputs:
        if isinstance(wish, int) and not 0 <= wish < len(node.inputs):
            raise UsageError(f"there is no input {wish}, only {len(node.inputs)} of them", where=f"node '{node.label}'")
        operands.append(node.inputs[wish] if isinstance(wish, int) else _tensor(graph, node, wish))
    while operands and operands[-1] is None:
        operands.pop()
    return operands


def _tensor(graph: Graph, node: Node, name: str | None) -> Value | None:
    if name is None:
        return None
    value = graph.tensors([name])[0]
    if graph.in_function(node):
        raise UsageError(f"'{name}' is not visible inside the function", where=f"node '{node.label}'")
    return value


def _used_outputs(node: Node) -> int:
    """Return the number of outputs up to the last one that is read, at least one."""
    return max((place for place, value in enumerate(node.outputs, start=1) if value.is_used), default=1)
