"""Masks that are added to the scores of a Softmax, and are too low for a narrower type.

The lowest number of float32 stands for "not this element": added to a score, it leaves a probability of 0, and in a row
that is masked completely all sums are that number, so that the probabilities are equal. 3/4 of the lowest number of a
narrower type does the same, if the scores are small: the sum rounds to it, and cannot become infinite.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from surgery import Graph, Node, Value

from ._narrow_format import Format
from ._narrow_nodes import EXTENTS, floats, is_default, is_float, is_moving
from ._narrow_ranges import Ranges

_SUMS = frozenset({"Add", "Sum"})
_BIASES = {
    "Attention": 3,
    "Softmax": 0,
    "com.microsoft::Attention": 5,
    "com.microsoft::DecoderMaskedMultiHeadAttention": 4,
    "com.microsoft::GroupQueryAttention": 10,
    "com.microsoft::MultiHeadAttention": 5,
}
"""Operators that take the exponential of an input relative to others, perhaps with something added to it first, and the
position of the input."""
_FIRST_MAX = 8
"""The opset from which on Max broadcasts."""


def lowest(format: Format) -> float:  # noqa: A002
    """Return the number that stands for masked elements in a narrower type: in float16, -49,152."""
    return -1.5 * 2.0 ** math.floor(math.log2(format.greatest))


def masks(graph: Graph, ranges: Ranges, limit: float, format: Format) -> set[Value]:  # noqa: A002
    """Find the values that only masks make too large for the narrower type, and that only a Softmax depends on.

    They are the inputs of a Softmax or an attention, and those summands of them that reach below -`limit`, but not
    above it, on the calibration data, in no row completely. Infinities may be meant to give NaN, so values with any are
    left out, as are inputs of the model.
    """
    if graph.opset < _FIRST_MAX:
        return set()
    found = {value for value in parts(graph) if _is_low(value, ranges, limit)}
    most = format.greatest + lowest(format)
    small = {name for name, known in ranges.items() if known.largest <= most and not known.endless}
    while True:
        other = {value for value in found if not _belongs(value, found, small)}
        if not other:
            return found
        found -= other


def parts(graph: Graph) -> list[Value]:
    """List the values that a Softmax or an attention reads, and those that these are sums of or move, upstream."""
    found: dict[Value, None] = {}
    waiting = [bias for node in graph.nodes() if (bias := _bias(node)) is not None]
    while waiting:
        value = waiting.pop()
        if value not in found:
            found[value] = None
            waiting += _parts(value)
    return list(found)


def _bias(node: Node) -> Value | None:
    position = _BIASES.get(node.op)
    value = None if position is None else node.input(position)
    return value if is_float(value) else None


def _is_low(value: Value, ranges: Ranges, limit: float) -> bool:
    tensor = value.tensor
    if tensor is not None:
        array = tensor.numpy()
        return bool(array.size and array.min() < -limit and array.max() <= limit and array.min() > -float("inf"))
    known = ranges.get(value.name)
    if known is None or known.endless or value.is_input or value.is_output:
        return False
    return known.largest > limit >= known.highest and known.row >= -limit


def _parts(value: Value) -> Iterator[Value]:
    """Yield the values of which a value is a sum or which it moves."""
    maker = value.producer
    if maker is not None and is_default(maker) and (maker.op in _SUMS or is_moving(maker)):
        yield from floats(maker)


def _belongs(value: Value, found: set[Value], small: set[str]) -> bool:
    """Return whether all that reads a value, and all that a sum is made of, can be in the narrower type with it."""
    maker = value.producer
    summands = floats(maker) if maker is not None and is_default(maker) and maker.op in _SUMS else ()
    return all(one in found or one.name in small for one in summands) and all(
        _is_part(reader, value, found, small) for reader in value.consumers
    )


def _is_part(reader: Node, value: Value, found: set[Value], small: set[str]) -> bool:
    """Return whether a node passes a value on to a Softmax only, or reads no elements of it."""
    if _bias(reader) == value:
        return sum(one == value for one in reader.inputs) == 1
    if is_default(reader) and reader.op in EXTENTS:
        return True
    if not is_default(reader) or reader.outputs[0] not in found:
        return False
    others = [one for one in floats(reader) if one != value]
    return is_moving(reader) or (reader.op in _SUMS and all(one.name in small for one in others))
