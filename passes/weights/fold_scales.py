"""Factors far downstream of the weights that can absorb them."""

import numpy as np

from surgery import Builder, Graph, Node, Parity, Value, graph_pass

from ._region import Regions, Taken
from ._shared import fit

HALF = ("BFLOAT16", "FLOAT16")


@graph_pass("fold-scales", parity=Parity.CLOSE)
def fold_scales(graph: Graph) -> None:
    """Fold a scalar factor into constants further up the graph.

    Right because all operators in between are linear: operators that move elements, sums of values that all have the
    factor, products, convolutions and normalizations in their weights. So the factor of attention scores is folded into
    the weight and bias of the queries or keys, also through rotary embeddings, and into a part of the weight if a Split
    separates the queries from a packed product. Scaled values must not have other consumers. A power of two changes no
    digits; other factors are multiplied in float64 and rounded once.

    Example:
        g (float[N,3] x, float[2,N] k) => (float[N,N] y) <float[3,2] w = {1, 2, 3, 4, 5, 6}, float c = {0.5}> {
            q = MatMul(x, w)
            s = MatMul(q, k)
            t = Mul(s, c)
            y = Softmax(t)
        }
    """
    regions = Regions()
    for node in graph.nodes("Mul", "Div"):
        found = _scaled(node)
        if found is not None:
            with graph.site(node) as new:
                _fold(*found, node, regions, new)


def _scaled(node: Node) -> tuple[Value, Value] | None:
    """Return a value and the scalar constant by which a node multiplies or divides it; None for other nodes."""
    first, second = node.input(0), node.input(1)
    if first is None or second is None or node.opset < 7 or first.is_constant == second.is_constant:
        return None
    value, factor = (second, first) if first.is_constant else (first, second)
    if factor.scalar is None or (node.op == "Div" and factor == first):
        return None
    return (value, factor) if factor.dtype is not None and factor.dtype.is_floating_point() else None


def _fold(value: Value, constant: Value, node: Node, regions: Regions, new: Builder) -> None:
    factor = float(constant.scalar) if node.op == "Mul" or constant.scalar == 0 else 1 / float(constant.scalar)
    kind = constant.dtype
    new.require(factor != 0 and np.isfinite(factor), "the factor is zero or not finite")
    new.require(constant.rank == 0 or (value.rank or 0) >= (constant.rank or 0), "the factor may enlarge the result")
    is_half = kind is None or kind.name in HALF
    new.require(not is_half or abs(factor) <= 1, "the scaled value may overflow in half precision")
    region = regions.find(value, node)
    new.require(region is not None, "no constants further up can hold the factor")
    if region is not None:
        for taken in region.constants:
            _scale(taken, factor, new)
        for carrier in region.values:
            new.changes(carrier)
        new.replace(node.outputs[0], value)


def _scale(taken: Taken, factor: float, new: Builder) -> None:
    """Make one input of a node read a constant that includes the factor."""
    array = taken.value.constant
    assert array is not None
    scaled = np.array(array)
    part = scaled[taken.part]
    part[...] = fit(part.reshape(-1, 1), factor, array).reshape(part.shape)
    new.set_input(taken.reader, taken.position, new.constant(scaled, taken.value.name))
