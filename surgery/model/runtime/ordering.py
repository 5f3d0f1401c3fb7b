"""Late weights: move nodes that depend only on weights to the first reader of their results.

A runtime executes nodes in file order where possible. Exporters often put the transposition of every weight first, so
that all results are in memory at once, like a second copy of the model. The order of independent nodes has no meaning,
so the copy that is run has them as late as possible.

ONNX Runtime has no kernel for CastLike, and moves the Cast that it converts it to, and all nodes after it, to the end:
the copy has the Cast from the start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgery.base.operators.subgraphs import graphs, reads

if TYPE_CHECKING:
    import onnx


def defer(graph: onnx.GraphProto) -> None:
    """Move each node that depends on no input of the graph to just before its first reader, in place."""
    nodes = [(node, list(reads(node))) for node in graph.node]
    moving = {value.name for value in graph.input}
    waiting: dict[str, tuple[onnx.NodeProto, list[str]]] = {}
    later: set[int] = set()
    for node, operands in nodes:
        if moving.isdisjoint(operands):
            waiting.update((name, (node, operands)) for name in node.output if name)
            later.add(id(node))
        else:
            moving.update(name for name in node.output if name)
    if all(node.op_type == "Constant" for node, _ in waiting.values()):
        return
    ordered: list[onnx.NodeProto] = []
    done: set[int] = set()
    for node, operands in [*(item for item in nodes if id(item[0]) not in later), *nodes]:
        if id(node) not in done:
            _emit(node, operands, waiting, ordered, done)
    del graph.node[:]
    graph.node.extend(ordered)


def settle_casts(model: onnx.ModelProto) -> None:
    """Replace each CastLike with a known target type by a Cast, in place."""
    import onnx
    import onnx.shape_inference

    found = [
        node for graph in graphs(model.graph) for node in graph.node if node.op_type == "CastLike" and not node.domain
    ]
    if not found:
        return
    inferred = onnx.shape_inference.infer_shapes(model)
    types = {tensor.name: tensor.data_type for graph in graphs(model.graph) for tensor in graph.initializer}
    for graph in graphs(inferred.graph):
        for value in (*graph.input, *graph.value_info, *graph.output):
            types.setdefault(value.name, value.type.tensor_type.elem_type)
    for node in found:
        target = types.get(node.input[1], 0)
        if target:
            node.op_type = "Cast"
            del node.input[1:]
            node.attribute.append(onnx.helper.make_attribute("to", target))


def _emit(
    node: onnx.NodeProto,
    reads: list[str],
    waiting: dict[str, tuple[onnx.NodeProto, list[str]]],
    ordered: list[onnx.NodeProto],
    done: set[int],
) -> None:
    """Append a node, after the deferred nodes whose results it reads."""
    pending: list[tuple[onnx.NodeProto, list[str]]] = [(node, reads)]
    # An invalid model may have a cycle, so no node is entered twice.
    entered = {id(node)}
    while pending:
        current, names = pending[-1]
        sources = [waiting[name] for name in names if name in waiting]
        missing = next((one for one in sources if id(one[0]) not in done and id(one[0]) not in entered), None)
        if missing is not None:
            entered.add(id(missing[0]))
            pending.append(missing)
            continue
        pending.pop()
        if id(current) not in done:
            done.add(id(current))
            ordered.append(current)
