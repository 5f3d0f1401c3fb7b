"""Operators in training mode in a model for inference."""

from surgery import Builder, Graph, Node, Parity, graph_pass


@graph_pass("remove-training-mode", parity=Parity.INTENDED)
def remove_training_mode(graph: Graph) -> None:
    """Switch Dropout and BatchNormalization to inference mode.

    For a model that was exported in training mode by mistake. Dropout is in training mode if `training_mode` is given
    and is not a constant false (since opset 12), or if the attribute `is_test` is 0 (before opset 7).
    BatchNormalization is in training mode if the attribute `training_mode` is 1 (since opset 14), if it has more than
    one output (opsets 7 to 13), or if `is_test` is 0 (before opset 7). The results change, because a Dropout is random
    and the statistics of a batch differ from the stored ones. If the running statistics are read, the model trains on
    purpose, and the node is not changed.

    Example:
        g (float[2,3] x) => (float[2,3] y) <float ratio = {0.5}, bool training = {1}> {
            a = Dropout(x, ratio, training)
            y = Relu(a)
        }
    """
    for node in graph.nodes("Dropout"):
        if _dropout_trains(node):
            with graph.site(node) as new:
                if node.opset < 7:
                    new.set_attribute(node, "is_test", 1)
                else:
                    new.set_input(node, 2, None)
    for node in graph.nodes("BatchNormalization"):
        if _normalization_trains(node):
            with graph.site(node) as new:
                _use_stored_statistics(node, new)


def _dropout_trains(node: Node) -> bool:
    if node.opset < 7:
        return not node.attr("is_test", 0)
    mode = node.input(2) if node.opset >= 12 else None
    return mode is not None and mode.scalar is not False


def _normalization_trains(node: Node) -> bool:
    if node.opset < 7:
        return not node.attr("is_test", 0)
    return bool(node.attr("training_mode", 0)) if node.opset >= 14 else len(node.outputs) > 1


def _use_stored_statistics(node: Node, new: Builder) -> None:
    read = [value.name for value in node.outputs[1:] if value.is_used]
    new.require(not read, f"the statistics are read: {', '.join(read)}")
    given = {name: node.attr(name) for name in node.attributes if name not in ("training_mode", "is_test")}
    mode = {"is_test": 1} if node.opset < 7 else {}
    kept = new.node("BatchNormalization", *node.inputs, name=node.name or None, attributes={**given, **mode})
    new.replace(node.outputs[0], kept)
