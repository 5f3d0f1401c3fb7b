"""Reshapes with a computed shape."""

import numpy as np

from surgery import Builder, Graph, Node, Parity, Value, graph_pass

from ._targets import COPY, INFER, MOVED, known_elements, reshape_target, reshaped, restated


@graph_pass("simplify-reshapes", parity=Parity.EXACT)
def simplify_reshapes(graph: Graph) -> None:
    """Replace a computed target shape of a Reshape by a constant, with 0 and -1 for dynamic dims.

    Right because the elements of the computed shape are followed through the nodes that compute it: an element that
    equals the input extent at the same position becomes 0, and one more may become -1, because the number of elements
    determines it. If the input is itself reshaped, its original shape may have the extents to copy; then the Reshape
    reads that value. Next to an extent that may be 0, -1 would be ambiguous: a Reshape that only inserts or removes
    axes of extent 1, or joins the dims on either side of an axis, becomes an Unsqueeze, a Squeeze or a Flatten, which
    take an empty batch as well; the computed shape of any other stays.

    Example:
        g (float[batch,seq,12] x) => (float[batch,seq,3,4] y) <int64[2] first = {0, 1}, int64[2] heads = {3, 4}>
        {
            s = Shape(x)
            t = Gather(s, first)
            u = Concat<axis = 0>(t, heads)
            y = Reshape(x, u)
        }
    """
    for node in graph.nodes("Reshape"):
        shape = node.input(1)
        if shape is None or shape.is_constant or node.opset < 5:
            continue
        with graph.site(node) as new:
            targets = ((value, _constant(node, value)) for value in reshaped(node.required_input(0)))
            source, target = next((pair for pair in targets if pair[1] is not None), (None, None))
            other = _otherwise(node, new) if target is None else None
            if other is not None:
                new.replace(node.outputs[0], other)
                continue
            new.require(target is not None, MOVED)
            if source != node.input(0):
                new.set_input(node, 0, source)
            new.set_input(node, 1, new.constant(np.array(target, dtype=np.int64), name="shape"))
            if node.has_attr("allowzero"):
                new.set_attribute(node, "allowzero", None)


def _otherwise(node: Node, new: Builder) -> Value | None:
    """Return the result without a computed shape, of the input or an earlier form of it; None if there is no way."""
    elements, made = known_elements(node.required_input(1)), node.outputs[0].shape
    if made is None or {COPY, INFER} & set(elements):
        return None
    found = (restated(value, made, node.opset, new) for value in reshaped(node.required_input(0)))
    return next((value for value in found if value is not None), None)


def _constant(node: Node, source: Value) -> list[int] | None:
    """Return the shape with which a Reshape can read a source if it is constant; otherwise None."""
    target = reshape_target(node, None if source == node.input(0) else source)
    numbers = [item for item in target if isinstance(item, int)]
    return numbers if len(numbers) == len(target) else None
