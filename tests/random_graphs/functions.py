"""Functions of a model: some of its nodes are moved into bodies of their own, as the dynamo exporter writes modules."""

from __future__ import annotations

from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto, helper

from random_graphs.trace import Trace

DOMAIN = "local"
MOST = 4
NOT_MOVED = ("Constant", "If", "Loop", "Scan")


def make_functions(t: Trace, model: ModelProto) -> None:
    """Let up to four nodes, alone or with the one after them, be calls of functions."""
    nodes = list(model.graph.node)
    outputs = {value.name for value in model.graph.output}
    made: list[FunctionProto] = []
    position = 0
    while position < len(nodes) and len(made) < MOST:
        chain = nodes[position : position + t.among(1, 2)]
        if t.chance(0.3) and all(_movable(node) for node in chain):
            call, function = _function(model, chain, nodes[position + len(chain) :], outputs, len(made))
            made.append(function)
            nodes[position : position + len(chain)] = [call]
        position += 1
    if made:
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        model.functions.extend(made)
        model.opset_import.append(helper.make_opsetid(DOMAIN, 1))


def _movable(node: NodeProto) -> bool:
    """Whether a node may move: one without a body, and without an output that is left out."""
    bodies = any(attribute.type == AttributeProto.GRAPH for attribute in node.attribute)
    return node.op_type not in NOT_MOVED and not bodies and all(node.output)


def _function(
    model: ModelProto, chain: list[NodeProto], rest: list[NodeProto], outputs: set[str], number: int
) -> tuple[NodeProto, FunctionProto]:
    made = [name for node in chain for name in node.output]
    inner = set(made)
    inputs = list(dict.fromkeys(name for node in chain for name in node.input if name and name not in inner))
    text = "".join(str(node) for node in rest)
    seen = [name for name in made if name in outputs or f'"{name}"' in text]
    name = f"function{number}"
    versions = [entry for entry in model.opset_import if entry.domain in {"", *(node.domain for node in chain)}]
    function = helper.make_function(DOMAIN, name, inputs, seen or made[-1:], chain, versions)
    return helper.make_node(name, inputs, seen or made[-1:], domain=DOMAIN), function
