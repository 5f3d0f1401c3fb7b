"""The element types of ONNX in NumPy, and the bytes of types that NumPy does not have."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]

ONNX_TYPES: dict[int, np.dtype[Any]] = {
    16: np.dtype(ml_dtypes.bfloat16),
    17: np.dtype(ml_dtypes.float8_e4m3fn),
    18: np.dtype(ml_dtypes.float8_e4m3fnuz),
    19: np.dtype(ml_dtypes.float8_e5m2),
    20: np.dtype(ml_dtypes.float8_e5m2fnuz),
    21: np.dtype(ml_dtypes.uint4),
    22: np.dtype(ml_dtypes.int4),
    23: np.dtype(ml_dtypes.float4_e2m1fn),
    24: np.dtype(ml_dtypes.float8_e8m0fnu),
    25: np.dtype(ml_dtypes.uint2),
    26: np.dtype(ml_dtypes.int2),
}
"""The element types that ONNX Runtime does not exchange as NumPy arrays, by their number in `TensorProto.DataType`."""

_NAMES = {
    "bfloat16": 16,
    "float8e4m3fn": 17,
    "float8e4m3fnuz": 18,
    "float8e5m2": 19,
    "float8e5m2fnuz": 20,
    "uint4": 21,
    "int4": 22,
    "float4e2m1": 23,
    "float8e8m0": 24,
    "uint2": 25,
    "int2": 26,
}
_NUMPY_TYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "object",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
}
_BITS = {21: 4, 22: 4, 23: 4, 25: 2, 26: 2}
_INFO: Any = ml_dtypes
_BITS_OF = {ONNX_TYPES[number]: bits for number, bits in _BITS.items()}


def type_of_name(name: str) -> int:
    """Return the number of an element type by its name in ONNX Runtime; 0 for types that NumPy has."""
    return _NAMES.get(name, 0)


@cache
def dtype_of(number: int) -> np.dtype[Any] | None:
    """Return the NumPy dtype of an ONNX element type, or None."""
    name = _NUMPY_TYPES.get(number)
    return np.dtype(name) if name is not None else ONNX_TYPES.get(number)


def type_of(dtype: np.dtype[Any]) -> int:
    """Return the number in `TensorProto.DataType` of a NumPy dtype."""
    if dtype.kind in "US":
        return 8
    return next(number for number in (*_NUMPY_TYPES, *ONNX_TYPES) if dtype_of(number) == dtype)


def epsilon(dtype: np.dtype[Any]) -> float:
    """Return the distance from 1 to the next number of a float dtype."""
    return float(_INFO.finfo(dtype).eps)


def greatest(dtype: np.dtype[Any]) -> float:
    """Return the largest finite number of a float dtype."""
    return float(_INFO.finfo(dtype).max)


def smallest(dtype: np.dtype[Any]) -> float:
    """Return the smallest positive number of a float dtype."""
    return float(_INFO.finfo(dtype).smallest_subnormal)


def is_float(dtype: np.dtype[Any]) -> bool:
    """Return whether elements are real floating-point numbers, including those of ml_dtypes."""
    return dtype.kind == "f" or (dtype in _FLOATS)


def is_integer(dtype: np.dtype[Any]) -> bool:
    """Return whether elements are integers, including those of 4 and 2 bits."""
    return dtype.kind in "iu" or dtype in _SMALL_INTEGERS


def limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the smallest and the largest integer of a dtype."""
    found: Any = _INFO.iinfo(dtype)
    return int(found.min), int(found.max)


def pack_nibbles(array: Array) -> Array:
    """Return the bytes of an array as stored in a runtime: 4- and 2-bit elements share a byte, lowest bits first."""
    bits = _BITS_OF.get(array.dtype)
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if bits is None:
        return np.asarray(flat)
    share = 8 // bits
    padded = np.zeros(-(-flat.size // share) * share, dtype=np.uint8)
    padded[: flat.size] = flat & ((1 << bits) - 1)
    groups = padded.reshape(-1, share)
    shifts = np.arange(share, dtype=np.uint8) * bits
    return np.asarray(np.bitwise_or.reduce(groups << shifts, axis=1), dtype=np.uint8)


def packed_size(dtype: np.dtype[Any], shape: Sequence[int]) -> int:
    """Return the number of bytes in which `pack_nibbles` stores an array."""
    return -(-math.prod(shape) * _BITS_OF.get(dtype, 8 * dtype.itemsize) // 8)


def unpack_nibbles(raw: Array, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Return the array of bytes packed by `pack_nibbles`."""
    bits = _BITS_OF.get(dtype)
    if bits is None:
        return raw.view(dtype).reshape(shape)
    size = int(np.prod(shape, dtype=np.int64))
    shifts = np.arange(8 // bits, dtype=np.uint8) * bits
    codes = ((raw[:, None] >> shifts) & ((1 << bits) - 1)).reshape(-1)[:size]
    if dtype in _SIGNED:
        codes = (codes.astype(np.int8) ^ (1 << (bits - 1))) - (1 << (bits - 1))
        return codes.astype(dtype).reshape(shape)
    return codes.astype(np.uint8).view(dtype).reshape(shape)


_SMALL_INTEGERS = frozenset(ONNX_TYPES[number] for number in (21, 22, 25, 26))
_SIGNED = frozenset(ONNX_TYPES[number] for number in (22, 26))
_FLOATS = frozenset(ONNX_TYPES[number] for number in (16, 17, 18, 19, 20, 23, 24))


def spread(value: Any, kind: str = "") -> Any:
    """Return a value of a runtime with its maps as plain arrays: [keys, values], sorted by key.

    `kind` is its type in the notation of ONNX Runtime, "seq(map(int64,tensor(float)))", because a map of a runtime has
    Python numbers, whose element types are known only from it.
    """
    if isinstance(value, list):
        return [spread(item, kind) for item in value]
    if type(value).__name__ == "SparseTensor":
        raise TypeError("an output is a sparse tensor, which cannot be compared with a dense one")
    if not isinstance(value, dict):
        return value
    found = _MAP.search(kind)
    keys = sorted(value)
    text = any(isinstance(key, str) for key in keys)
    names = (found[1], found[2]) if found is not None else ("string" if text else "int64", "float")
    return [_array(items, name) for items, name in zip((keys, [value[key] for key in keys]), names)]


_MAP = re.compile(r"map\((\w+),tensor\((\w+)\)\)")


def _array(items: list[Any], name: str) -> Array:
    names = {"float": "float32", "double": "float64", "string": "object"}
    found: Array = np.asarray(items, dtype=names.get(name, name))
    return found
