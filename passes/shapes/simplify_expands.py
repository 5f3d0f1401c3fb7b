"""Expands and filled tensors that are redundant because readers broadcast, or whose shape is computed."""

from typing import Any

import numpy as np

from surgery import Builder, Graph, Node, Parity, Value, graph_pass

from ._broadcasting import Dims, declare, shrink
from ._targets import expand_target


@graph_pass("simplify-expands", parity=Parity.EXACT)
def simplify_expands(graph: Graph) -> None:
    """Remove an Expand whose consumers broadcast to the same shape without it; otherwise shorten its shape.

    Right because operators such as Add broadcast their inputs: the other inputs alone must have the extents that the
    result has now, there or downstream through elementwise operators only. An Expand that stays reads 1 for each extent
    that the input already has, which makes most computed shapes constant. A ConstantOfShape expands one number, which
    replaces it under the same conditions.

    Example:
        g (float[batch,1] mask, float[batch,seq] x) => (float[batch,seq] y)
        {
            s = Shape(x)
            m = Expand(mask, s)
            y = Add(x, m)
        }
    """
    for node in graph.nodes("Expand"):
        data, output, shape = node.required_input(0), node.outputs[0], node.required_input(1)
        if not output.is_used:
            continue
        with graph.site(node) as new:
            changed = None if data.shape is None else shrink(output, data.shape)
            if changed is not None:
                _replace(output, data, changed, new)
                continue
            new.require(not shape.is_constant, "the shape is constant, and a reader needs it")
            target = expand_target(node)
            numbers = [item for item in target if isinstance(item, int)]
            new.require(len(numbers) == len(target), "the extents that change are dynamic")
            new.set_input(node, 1, new.constant(np.array(numbers, dtype=np.int64), name="shape"))
    for node in graph.nodes("ConstantOfShape"):
        output, number = node.outputs[0], _filled(node)
        changed = shrink(output, ()) if output.is_used else None
        if changed is not None and number is not None:
            with graph.site(node) as new:
                _replace(output, new.constant(number, "number"), changed, new)


def _replace(output: Value, data: Value, changed: dict[Value, Dims], new: Builder) -> None:
    declare(new, {value: dims for value, dims in changed.items() if value != output})
    new.replace(output, data)


def _filled(node: Node) -> np.ndarray[Any, Any] | None:
    """Return the number that a ConstantOfShape repeats; None if it is a parameter of the function around the node."""
    attribute = node.attributes.get("value")
    if attribute is None:
        return np.zeros((), np.float32)
    return None if attribute.is_ref() else np.asarray(attribute.value.numpy()).reshape(())
