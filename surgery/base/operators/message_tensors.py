"""The elements of tensors that are stored in a message, as arrays of their own element types.

`onnx.numpy_helper` of older releases reads bfloat16 and 8-bit floats as unsigned integers, and writes neither.
"""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING

import numpy as np

from surgery.base.operators.dtypes import ONNX_TYPES, Array, pack_nibbles, packed_size, type_of, unpack_nibbles

if TYPE_CHECKING:
    import onnx


def to_array(tensor: onnx.TensorProto) -> Array:
    """Return the elements of a tensor. Raises ValueError for one whose elements do not fit its dims."""
    dtype = ONNX_TYPES.get(tensor.data_type)
    if dtype is None:
        from onnx import numpy_helper

        return np.asarray(numpy_helper.to_array(tensor))
    if tensor.external_data:
        raise ValueError(f"the data of '{tensor.name}' is in another file")
    dims = tuple(tensor.dims)
    # One element, or one byte of packed elements, per item.
    items = np.array(tensor.int32_data, np.int32).astype(np.uint16 if dtype.itemsize == 2 else np.uint8)
    raw = np.frombuffer(tensor.raw_data if tensor.HasField("raw_data") else items.tobytes(), np.uint8)
    needed = packed_size(dtype, dims)
    if not tensor.HasField("raw_data") and needed < math.prod(dims):
        # onnx reads the first bytes: its text parser writes one for each element.
        raw = raw[:needed]
    if raw.size != needed:
        raise ValueError(f"'{tensor.name}' has {raw.size} bytes; its type and dims require {needed}")
    return unpack_nibbles(raw, dtype, dims)


def from_array(array: Array, name: str = "") -> onnx.TensorProto:
    """Return an array as a tensor."""
    import onnx

    number = type_of(array.dtype)
    if number not in ONNX_TYPES:
        return onnx.numpy_helper.from_array(array, name)
    return onnx.TensorProto(name=name, data_type=number, dims=array.shape, raw_data=pack_nibbles(array).tobytes())


def in_memory(address: int, number: int, shape: tuple[int, ...]) -> Array:
    """Return a copy of the elements that a runtime has at an address, of one of the `ONNX_TYPES`."""
    dtype = ONNX_TYPES[number]
    raw = np.frombuffer(ctypes.string_at(address, packed_size(dtype, shape)), np.uint8)
    return unpack_nibbles(raw, dtype, shape)
