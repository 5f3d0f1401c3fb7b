"""Values whose rounding moves a result by a whole step, because an operator jumps where they pass a certain number.

The remainder of 6.001 by 3 is 0.001, and that of 5.999 is 2.999: an error of 0.03 percent becomes one of 100 percent. A
step of float16 is 0.5 near 600, so that the remainder of such a number by 3 is arbitrary.
"""

from __future__ import annotations

from collections.abc import Iterator

from surgery import GATHERING, Graph, Node, Value

from ._narrow_format import Format
from ._narrow_nodes import LARGE_MATRIX, floats, is_default
from ._narrow_ranges import Ranges

_JUMPING = frozenset({"Ceil", "Floor", "Mod", "Range", "Round", "Tan", "Unique"})
"""Operators that jump, or have a pole, at numbers that are not special to their operands: at each integer, at each
multiple of a divisor, at odd multiples of a quarter turn, or where two elements become equal."""

_ANGLES = frozenset({"Cos", "Sin", "Tan"})
LARGEST_ERROR = 2.0**-6
"""The rounding error of an angle, in radians, above which not even three digits of its sine are right."""

_LAYERS = frozenset({"Conv", "ConvTranspose", "GRU", "Gemm", "LSTM", "MatMul", "RNN"}) | GATHERING


def is_jumping(node: Node) -> bool:
    """Return whether a node jumps, or has a pole, at numbers that any operand may pass."""
    return is_default(node) and node.op in _JUMPING


def angle_error(node: Node, ranges: Ranges, format: Format) -> float:  # noqa: A002
    """Return the rounding error of the angle that a node reads, in radians; 0 if it reads none, or it is not known."""
    known = ranges.get(node.required_input(0).name) if is_default(node) and node.op in _ANGLES else None
    return 0.0 if known is None else known.largest * 2.0**-format.digits


def deciding(graph: Graph, ranges: Ranges, format: Format) -> dict[Value, str]:  # noqa: A002
    """Find the values on which the results of operators that jump depend, each with the name of an operator.

    The search ends at layers with large weights: their results have a rounding error in any case, unless the whole
    network stays in float32.
    """
    found: dict[Value, str] = {}
    for node in graph.nodes():
        if not graph.in_function(node) and _jumps(node, ranges, format):
            waiting = [value for value in floats(node) if not value.is_constant]
            while waiting:
                value = waiting.pop()
                if value not in found and not _is_of_layer(value):
                    found[value] = node.op
                    waiting += _operands(value)
    return found


def _jumps(node: Node, ranges: Ranges, format: Format) -> bool:  # noqa: A002
    if not is_default(node):
        return False
    if node.op == "Cast":
        made = node.outputs[0].dtype
        return made is not None and made.name.lstrip("U").startswith("INT")
    return is_jumping(node) or angle_error(node, ranges, format) > LARGEST_ERROR


def _operands(value: Value) -> Iterator[Value]:
    """Yield what a value is computed from."""
    maker = value.producer
    if maker is not None and is_default(maker) and not maker.has_subgraphs:
        yield from (one for one in floats(maker) if not one.is_constant)


def _is_of_layer(value: Value) -> bool:
    """Return whether a layer with large weights computes a value."""
    maker = value.producer
    if maker is None or not is_default(maker) or maker.op not in _LAYERS:
        return False
    tensors = [one.tensor for one in floats(maker)]
    return any(tensor is not None and tensor.size >= LARGE_MATRIX for tensor in tensors)
