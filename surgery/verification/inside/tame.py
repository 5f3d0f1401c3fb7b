"""Regions with ordinary numbers in place of stored ones that no result survives.

What is divided by a stored zero or multiplied by a stored infinity is never finite, and shows nothing of what was
computed before. Where both models have such numbers, both are compared with others in their place as well: a rewrite
that is right for these and agrees on the stored ones is right.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from surgery.operators.dtypes import Array, dtype_of, is_float
from surgery.verification.inside.regions import Region

if TYPE_CHECKING:
    import onnx

_LARGEST = 1 << 20
"""Elements of a stored tensor that are looked at."""

_HUGE = 1e12
"""A magnitude from which on, or below the inverse of which, a number makes others overflow or vanish."""

_ORDINARY = 0.5, 1.5


def tamed(region: Region) -> Region | None:
    """Copy a region with ordinary numbers in both pieces; None where no stored number stands in the way.

    They are positive: what is taken for a variance has a square root. Equal tensors stay equal.
    """
    held = [{_key(tensor) for tensor in _stored(piece)} for piece in (region.before, region.after)]
    common = held[0] & held[1]
    before, after = (_tamed(piece, common) for piece in (region.before, region.after))
    return None if before is None or after is None else replace(region, before=before, after=after)


def _tamed(piece: onnx.ModelProto, common: set[bytes]) -> onnx.ModelProto | None:
    from onnx import numpy_helper

    result = type(piece)()
    result.CopyFrom(piece)
    has_changed = False
    for tensor in _stored(result):
        key = _key(tensor)
        array = numpy_helper.to_array(tensor)
        wild = _wild(array)
        if key in common and wild.any():
            rng = np.random.default_rng([len(key), *key[-8:]])
            ordinary = np.where(wild, rng.uniform(*_ORDINARY, array.shape), array)
            tensor.CopyFrom(numpy_helper.from_array(ordinary.astype(array.dtype), tensor.name))
            has_changed = True
    return result if has_changed else None


def _stored(piece: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield the float tensors that are stored in place and not too large."""
    found = [*piece.graph.initializer]
    found += [a.t for node in piece.graph.node if node.op_type == "Constant" for a in node.attribute if a.HasField("t")]
    for tensor in found:
        dtype = dtype_of(tensor.data_type)
        if dtype is not None and is_float(dtype) and not tensor.external_data and math.prod(tensor.dims) <= _LARGEST:
            yield tensor


def _key(tensor: onnx.TensorProto) -> bytes:
    """Return what two tensors of the same type, shape and bits have in common."""
    from onnx import numpy_helper

    header = f"{tensor.data_type} {list(tensor.dims)} ".encode()
    return header + numpy_helper.to_array(tensor).tobytes()


def _wild(array: Array) -> Array:
    magnitude = np.abs(array.astype(np.float64))
    return np.asarray(~((magnitude >= 1 / _HUGE) & (magnitude <= _HUGE)))
