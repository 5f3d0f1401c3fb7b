"""Sums with zero."""

from surgery import Builder, Graph, Node, Parity, Value, graph_pass

from ._selection import UP_TO_SIGN
from ._shared import beside_unit


@graph_pass("drop-added-zero", parity=Parity.CLOSE)
def drop_added_zero(graph: Graph) -> None:
    """Remove Add and Sub of zero, and other operations that change at most the sign of a zero.

    Right because x + 0 is x for each number x, where the zeros do not enlarge x; because the sum and the mean of one
    element are that element; and because Where selects x when its condition is true everywhere, or when it selects
    between x and x. Only the sign of a zero may change: -0.0 + 0.0 is 0.0, sums begin at 0.0, and ONNX Runtime's Where
    gives 0.0 for -0.0. A division by that zero gives the other infinity, so nothing is removed before a division unless
    the remaining value is never negative. This is separate from drop-no-op, which is bit-identical.

    Example:
        g (float[N,3] x) => (float[N,3] y) <float zero = {0}> {
            a = Add(x, zero)
            y = Relu(a)
        }
    """
    for node in graph.nodes("Add", "Sub"):
        with graph.site(node) as new:
            found = beside_unit(node)
            if found is not None:
                _replace(node, found[0], new)
    for node in graph.nodes(*UP_TO_SIGN):
        with graph.site(node) as new:
            same = UP_TO_SIGN[node.op](node)
            if same is not None:
                _replace(node, same, new)


def _replace(node: Node, value: Value, new: Builder) -> None:
    result = node.outputs[0]
    new.require(
        value.is_never_minus_zero or not result.shows_sign_of_zero,
        "a consumer divides by the result, where the sign of a zero matters",
    )
    new.replace(result, value)
