"""Values whose small elements must keep their precision, because a division, a logarithm or a power magnifies it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from surgery import Graph, Node, Value

from ._narrow_format import Format
from ._narrow_nodes import floats, is_default, is_float, is_moving, is_widening
from ._narrow_ranges import Ranges

_DIVISORS = {"Div": 1, "Mod": 1, "Log": 0, "Reciprocal": 0}
"""Operators that magnify the relative error of an input, which must not become 0, and the position of that input."""

_CARRYING = frozenset(
    {
        *("Abs", "Neg", "Relu", "LeakyRelu", "PRelu", "Clip", "Where", "Max", "Min", "Mean", "Sum", "Add"),
        *("Mul", "Div", "Pow", "Sqrt", "Reciprocal"),
        *("ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"),
        "ReduceSumSquare",
    }
)
"""Operators whose small results have the relative error of their small inputs. A difference, an exponential function
and a product of matrices have that of their terms, which need not be small."""


def divisor_of(node: Node) -> Value | None:
    """Return the input of a node whose relative error the node magnifies, or None.

    That is the base of a power with a negative exponent, or with one that is not known.
    """
    if not is_default(node):
        return None
    if node.op == "Pow":
        exponent = node.required_input(1).constant
        grows = exponent is not None and bool((np.asarray(exponent) >= 0).all())
        return None if grows else node.required_input(0)
    return node.input(_DIVISORS[node.op]) if node.op in _DIVISORS else None


def divisors(graph: Graph) -> list[Value]:
    """Return the computed float32 values that the nodes of a graph, except those of functions, divide by."""
    nodes = (node for node in graph.nodes() if not graph.in_function(node))
    values = dict.fromkeys(value for node in nodes if (value := divisor_of(node)) is not None)
    return [value for value in values if is_float(value) and not value.is_constant]


def fragile(graph: Graph, ranges: Ranges, format: Format) -> set[Value]:  # noqa: A002
    """Find the values on which a division depends and whose elements are denormal, or 0, in the narrower type.

    Computed in float32 from its operands on, an element of 1e-12 remains one; rounded on the way, it is a divisor of 0.
    """
    waiting = [value for value in divisors(graph) if _is_small(value, ranges, format)]
    found: set[Value] = set()
    while waiting:
        value = waiting.pop()
        if value in found:
            continue
        found.add(value)
        maker = value.producer
        if maker is not None and is_default(maker):
            waiting += _sources(maker, ranges, format)
    return found


def _sources(maker: Node, ranges: Ranges, format: Format) -> Iterator[Value]:  # noqa: A002
    """Yield the inputs of a node whose small elements make its results small."""
    if is_widening(maker):
        return
    read = [value for value in floats(maker) if not value.is_constant]
    if is_moving(maker):
        yield from read
    elif maker.op in _CARRYING:
        yield from (value for value in read if _is_small(value, ranges, format))


def _is_small(value: Value, ranges: Ranges, format: Format) -> bool:  # noqa: A002
    known = ranges.get(value.name)
    return known is not None and known.smallest < format.normal
