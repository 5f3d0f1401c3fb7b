"""Hard gates whose scale the layers after them absorb."""

import math

import numpy as np

from surgery import Builder, Graph, Node, Parity, Value, graph_pass

from ._before import are_layers, take_in_before
from ._layers import Affine


@graph_pass("fold-hard-sigmoid", parity=Parity.CLOSE)
def fold_hard_sigmoid(graph: Graph) -> None:
    """Turn z · clip(x + s, 0, w) before layers into z · HardSigmoid(x), and multiply their weights by w.

    Right because clip(x + s, 0, w) is w · max(0, min(1, x/w + s/w)), and a MatMul, Gemm or Conv is linear in its input.
    This restores a gate whose division by w was folded into a layer, as in x · relu6(x + 3) with the 1/6 in the next
    convolution. All readers of the product must be such layers, each with a constant weight. If the division still
    exists, fuse-hard-sigmoid does the same.

    Example:
        g (float[N,1,4] x) => (float[N,1,4] y)
        <float three = {3}, float zero = {0}, float six = {6}, float[1,1,1] w = {2}> {
            a = Add(x, three)
            c = Clip(a, zero, six)
            p = Mul(x, c)
            y = Conv(p, w)
        }
    """
    for node in graph.nodes("Clip"):
        readers = node.outputs[0].consumers
        product = readers[0] if len(readers) == 1 and readers[0].op == "Mul" else None
        if product is not None and are_layers(product.outputs[0].consumers, product.outputs[0]):
            with graph.site(product) as new:
                _fold(node, product, new)


def _fold(clip: Node, product: Node, new: Builder) -> None:
    bounds, cut, result = clip.bounds, clip.outputs[0], product.outputs[0]
    line = clip.required_input(0)
    add = line.producer
    new.require(add is not None and add.op == "Add", "the sliced value is not a sum")
    new.require(bounds is not None and bounds[0] == 0 and 0 < bounds[1] < math.inf, "the cut is not at 0 and a number")
    assert add is not None and bounds is not None
    data, shift = _sides(add)
    new.require(shift is not None, "the addend is not a scalar constant")
    assert data is not None and shift is not None
    new.require(new.target.computes("HardSigmoid", data.dtype), "HardSigmoid is not computed in this type")
    new.require(line.shape is not None and line.shape == data.shape, "the constant may enlarge the result")
    private = all(value.reads == 1 and not value.is_output for value in (line, cut)) and not result.is_output
    new.require(private, "a value in between is read by others")
    readers = result.consumers
    new.require(
        all(node.scope is product.scope for node in (add, clip, *readers)),
        "the chain crosses the boundary of a subgraph",
    )
    width = bounds[1]
    hard = new.node("HardSigmoid", data, alpha=1 / width, beta=float(shift.scalar) / width)
    other = next(value for value in product.inputs if value is not None and value != cut)
    gated = new.node("Mul", other, hard)
    for reader in readers:
        take_in_before(Affine(product, gated, np.array(width), np.array(0.0)), reader, new)


def _sides(add: Node) -> tuple[Value | None, Value | None]:
    """Return the value to which an Add adds a constant number, and the number; (None, None) for other Adds."""
    first, second = add.input(0), add.input(1)
    if first is None or second is None or add.opset < 7 or first.is_constant == second.is_constant:
        return None, None
    data, number = (second, first) if first.is_constant else (first, second)
    return (data, number) if number.scalar is not None else (None, None)
