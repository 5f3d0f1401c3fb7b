"""Masks that are added to the scores of a Softmax, and are too low for a narrower type.

The lowest number of float32 stands for "not this element": added to a score, it leaves a probability of 0. So does 3/4
of the lowest number of a narrower type, and the sum cannot become infinite. In a row that is masked completely all sums
are the lowest number of float32, so that the probabilities are equal: see `_narrow_rows`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

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
BIASED = "com.microsoft::MultiHeadAttention"
PACKED = "com.microsoft::Attention"
QUERIES, KEYS, BIAS, PADDING, MASK = 0, 1, 3, 4, 5
"""The positions of inputs of MultiHeadAttention; the mask of Attention has the same."""
WEIGHT, PACKED_BIAS, LENGTHS, PAST = 1, 2, 3, 4
"""The positions of inputs of Attention."""
_FIRST_AXES = 13
"""The opset from which on the axes of Squeeze and the sizes of Split are inputs."""
_ABSORBING = float(np.finfo(np.float32).min) / 4
"""The largest number to which a score can be added in float32 without changing it."""
_FIRST_MAX = 8
"""The opset from which on Max broadcasts."""


def lowest(format: Format) -> float:  # noqa: A002
    """Return the number that stands for masked elements in a narrower type: in float16, -49,152."""
    return -1.5 * 2.0 ** math.floor(math.log2(format.greatest))


def masks(graph: Graph, ranges: Ranges, limit: float, format: Format) -> set[Value]:  # noqa: A002
    """Find the values that only masks make too large for the narrower type, and that only a Softmax depends on.

    They are the inputs of a Softmax or an attention, and those summands of them that reach below -`limit`, but not
    above it, on the calibration data. Rows may be covered completely only where the queries of the attention can be
    made 0. Infinities may be meant to give NaN, so values with any are left out, as are inputs of the model.
    """
    if graph.opset < _FIRST_MAX:
        return set()
    found = {value for value in parts(graph) if _is_low(value, ranges, limit)}
    hidden = covered(found, ranges, limit)
    found -= {value for value in hidden if not _is_choice(value, limit) or not _is_hidden(value, hidden, format)}
    most = format.greatest + lowest(format)
    small = {name for name, known in ranges.items() if known.largest <= most and not known.endless}
    while True:
        other = {value for value in found if not _belongs(value, found, small)}
        if not other:
            return found
        found -= other


def covered(masks: Collection[Value], ranges: Ranges, limit: float) -> set[Value]:
    """Return those masks of which a row is below -`limit` completely on the calibration data."""
    return {value for value in masks if value.name in ranges and ranges[value.name].row < -limit}


def _is_hidden(mask: Value, others: set[Value], format: Format) -> bool:  # noqa: A002
    """Return whether each Softmax that a mask covers rows of is in an attention whose queries can be made 0."""
    readers = [reader for reader in mask.consumers if not (is_default(reader) and reader.op in EXTENTS)]
    return all(
        is_hideable(reader, format.dtype) if _bias(reader) == mask else reader.outputs[0] in others
        for reader in readers
    )


def _is_choice(mask: Value, limit: float) -> bool:
    """Return whether a mask consists of elements of constants, and all below -`limit` are the same number.

    The number must absorb every score in float32, so that all sums of a covered row are equal.
    """
    low, waiting, seen = set[float](), [mask], set[Value]()
    while waiting:
        value = waiting.pop()
        tensor, maker = value.tensor, value.producer
        if tensor is not None:
            array = tensor.numpy()
            low.update(np.unique(array[array < -limit]).tolist())
        elif maker is None or not is_default(maker) or not is_moving(maker):
            return False
        elif value not in seen:
            seen.add(value)
            waiting += floats(maker)
    return len(low) == 1 and max(low) <= _ABSORBING


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
    return known.largest > limit >= known.highest


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


def is_hideable(node: Node, dtype: Any) -> bool:
    """Return whether the queries of an attention with a mask can be made 0 row by row.

    The mask must be the same for all heads. MultiHeadAttention needs separate queries, with a constant bias;
    Attention, which computes them itself, becomes MultiHeadAttention where the target has it.
    """
    mask = node.input(MASK)
    shape = None if mask is None else mask.shape
    shared = shape is not None and len(shape) == 4 and shape[1] == 1
    if node.graph.opset < _FIRST_AXES or not shared or node.attr("unidirectional", 0):
        return False
    if node.op == PACKED:
        return _is_separable(node) and node.graph.target.has(BIASED, dtype)
    return node.op == BIASED and _is_separate(node)


def _is_separate(node: Node) -> bool:
    """Return whether a MultiHeadAttention has separate queries, with a constant bias, and masks no keys by length.

    The width of the queries tells which part of the bias is theirs.
    """
    bias, queries = node.input(BIAS), node.required_input(QUERIES)
    if node.input(KEYS) is None or node.input(PADDING) is not None or queries.shape is None or queries.rank != 3:
        return False
    return bias is None or (bias.is_constant and isinstance(queries.shape[2], int))


def _is_separable(node: Node) -> bool:
    """Return whether an Attention is a MultiHeadAttention of a product that can be split."""
    weight, bias = node.input(WEIGHT), node.input(PACKED_BIAS)
    plain = node.input(LENGTHS) is None and node.input(PAST) is None and not node.attr("do_rotary", 0)
    known = weight is not None and weight.static_shape is not None and bias is not None and bias.is_constant
    return plain and known and not any(value.is_used for value in node.outputs[1:])
