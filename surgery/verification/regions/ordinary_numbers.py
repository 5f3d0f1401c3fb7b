"""Regions with ordinary numbers in place of extreme stored ones.

A value that is divided by a stored zero or multiplied by a stored infinity is never finite, and shows nothing of what
was computed before. If both models have such numbers, they are also compared with other numbers in their place: a
rewrite that is right for these and agrees on the stored ones is right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from surgery.base.operators.dtypes import Array, dtype_of, is_float
from surgery.base.operators.message_tensors import from_array, to_array
from surgery.base.operators.subgraphs import graphs, nested
from surgery.verification.regions.regions import Region

if TYPE_CHECKING:
    import onnx

_LARGEST = 1 << 20
"""Maximum number of elements of a stored tensor that is examined."""

_HUGE = 1e12
"""Numbers above this magnitude, or below its inverse, make others overflow or vanish."""

_ORDINARY = 0.5, 1.5

_HIGH, _LOW, _NAN = 1.375, 0.625, 0.875
"""Replacements of infinity, negative infinity and NaN."""


def with_ordinary_numbers(region: Region) -> Iterator[Region]:
    """Yield copies of a region with ordinary numbers in place of extreme stored ones in both pieces.

    The replacements are positive, because a variance needs a square root. In the first copy, equal tensors stay equal.
    In the second, only non-finite numbers are replaced, by the same number everywhere, because a rewrite may join
    tensors.
    """
    held = [{_key(tensor) for tensor in _stored(piece)} for piece in (region.before, region.after)]
    common = held[0] & held[1]
    for ordinary in (lambda tensor, array: _other(tensor, array) if _key(tensor) in common else array, _made_finite):
        before, after = (_tamed(piece, ordinary) for piece in (region.before, region.after))
        if before is not None and after is not None:
            yield replace(region, before=before, after=after)


def _tamed(piece: onnx.ModelProto, ordinary: Callable[[onnx.TensorProto, Array], Array]) -> onnx.ModelProto | None:
    result = type(piece)()
    result.CopyFrom(piece)
    has_changed = False
    for tensor in _stored(result):
        array = to_array(tensor)
        found = ordinary(tensor, array)
        if found is not array and not np.array_equal(found, array):
            tensor.CopyFrom(from_array(found.astype(array.dtype), tensor.name))
            has_changed = True
    return result if has_changed else None


def _other(tensor: onnx.TensorProto, array: Array) -> Array:
    """Replace numbers that are too large, too small or not finite with drawn ones."""
    key = _key(tensor)
    rng = np.random.default_rng([len(key), *key[-8:]])
    return np.where(_wild(array), rng.uniform(*_ORDINARY, array.shape), array)


def _made_finite(_: onnx.TensorProto, array: Array) -> Array:
    wide = array.astype(np.float64)
    return np.where(np.isnan(wide), _NAN, np.where(np.isinf(wide), np.where(wide > 0, _HIGH, _LOW), wide))


def _stored(piece: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield the float tensors that are stored in place and not too large, including those of subgraphs."""
    found = [tensor for graph in graphs(piece.graph) for tensor in graph.initializer]
    constants = [node for node in nested(piece.graph.node) if node.op_type == "Constant"]
    found += [attribute.t for node in constants for attribute in node.attribute if attribute.HasField("t")]
    for tensor in found:
        dtype = dtype_of(tensor.data_type)
        if dtype is not None and is_float(dtype) and not tensor.external_data and math.prod(tensor.dims) <= _LARGEST:
            yield tensor


def _key(tensor: onnx.TensorProto) -> bytes:
    """Return a key that tensors of the same type, shape and bits share."""
    header = f"{tensor.data_type} {list(tensor.dims)} ".encode()
    return header + to_array(tensor).tobytes()


def _wild(array: Array) -> Array:
    magnitude = np.abs(array.astype(np.float64))
    return np.asarray(~((magnitude >= 1 / _HUGE) & (magnitude <= _HUGE)))
