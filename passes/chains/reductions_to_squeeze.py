"""Reductions over axes of one element."""

import numpy as np

from surgery import Graph, Parity, graph_pass

from ._shared import has_parameters, reduced_axes

EXACT = ("ReduceMax", "ReduceMin", "ReduceProd")
UP_TO_SIGN = ("ReduceMean", "ReduceSum")
"""Reductions that begin with 0.0, which turns -0.0 into 0.0."""


@graph_pass("reductions-to-squeeze", parity=Parity.CLOSE)
def reductions_to_squeeze(graph: Graph) -> None:
    """Turn a sum, mean, maximum, minimum or product over axes of one element, which it removes, into a Squeeze.

    Right because the result for a single element is that element; only the sign of a zero may change in sums and means.
    A Squeeze moves nothing, and is merged with other changes of shape. A reduction that keeps its axes does nothing;
    drop-no-op and drop-added-zero remove it.

    Example:
        g (float[1,N,3] x) => (float[N,3] y) <int64[1] first = {0}> {
            y = ReduceSum<keepdims = 0>(x, first)
        }
    """
    for node in graph.nodes(*EXACT, *UP_TO_SIGN):
        axes = None if has_parameters(node) else reduced_axes(node)
        shape = node.required_input(0).shape
        if not axes or shape is None or node.attr("keepdims") or not all(_is_one(shape, axis) for axis in axes):
            continue
        with graph.site(node) as new:
            data = node.required_input(0)
            new.require(
                node.op in EXACT or data.is_never_minus_zero or not node.outputs[0].shows_sign_of_zero,
                "a consumer divides by the result, where the sign of a zero matters",
            )
            if node.opset < 13:
                squeezed = new.node("Squeeze", data, axes=[axis % len(shape) for axis in axes])
            else:
                squeezed = new.node("Squeeze", data, new.constant(np.array(axes, np.int64) % len(shape), "axes"))
            new.replace(node.outputs[0], squeezed)


def _is_one(shape: tuple[int | str | None, ...], axis: int) -> bool:
    return -len(shape) <= axis < len(shape) and shape[axis] == 1
