"""Tensors written by a user: numbers, booleans and strings, in lists of any depth."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from surgery.base.errors import UsageError
from surgery.model.wire.globs import did_you_mean


def literal_tensor(value: Any, dtype: ir.DataType, fill: tuple[int, ...] | None = None) -> ir.TensorProtocol:
    """Return a tensor of a type with the written elements; a single item fills the shape `fill`, if given.

    An array of that type is taken as it is.

    Raises UsageError for lists of uneven lengths, and for items that the type cannot hold, such as a fraction for an
    integer, or a number that is too large. Rounding of floats is allowed.
    """
    array = array_of(value)
    if fill is not None and array.ndim == 0:
        array = np.broadcast_to(array, fill)
    if array.dtype == dtype.numpy():
        return ir.Tensor(np.ascontiguousarray(array).reshape(array.shape), dtype=dtype)
    if dtype == ir.DataType.STRING:
        if array.dtype.kind != "U":
            raise UsageError("the items of a string tensor must be strings", todo="put quotes around them")
        return ir.StringTensor([item.encode() for item in array.reshape(-1).tolist()], shape=ir.Shape(array.shape))
    wanted = {"b": (dtype == ir.DataType.BOOL), "i": True, "u": True, "f": True}.get(array.dtype.kind, False)
    if not wanted or (dtype == ir.DataType.BOOL and array.dtype.kind != "b"):
        raise UsageError(f"'{_first(array)}' is not a {dtype.name.lower()}")
    with np.errstate(all="ignore"):
        made = array.astype(dtype.numpy())
        lost = (
            np.isfinite(array) & ~np.isfinite(made) if dtype.is_floating_point() else made.astype(array.dtype) != array
        )
    if lost.any():
        raise UsageError(f"{dtype.name.lower()} cannot hold {_first(array[lost])}")
    return ir.Tensor(made, dtype=dtype)


def packed_tensor(
    array: np.ndarray[Any, Any], dtype: ir.DataType | None = None, shape: tuple[int, ...] | None = None
) -> ir.TensorProtocol:
    """Return the tensor of an array, without copying it.

    With `dtype`, the bytes of the array are those of a tensor of that type and of `shape`: elements narrower than a
    byte are packed as in ONNX, the first one in the lowest bits.
    """
    if dtype is None:
        return ir.Tensor(array)
    dims = array.shape if shape is None else shape
    if dtype.bitwidth < 8:
        return ir.PackedTensor(array, dtype, shape=dims)
    return ir.Tensor(array.view(dtype.numpy()).reshape(dims), dtype=dtype)


def unpacked_codes(packed: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    """Return the codes of 1, 2, 4 or 8 bits packed in the bytes along the last axis of an array, lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    found: np.ndarray[Any, Any] = codes.reshape(*packed.shape[:-1], -1)
    return found


_TYPES = {each.name.lower(): each for each in ir.DataType if each != ir.DataType.UNDEFINED}
_NUMPY_NAMES = {"float32": ir.DataType.FLOAT, "float64": ir.DataType.DOUBLE}
"""The types that ONNX and NumPy call differently."""


def data_type(name: str) -> ir.DataType:
    """Return the element type with a name such as float16 or int4, in ONNX or in NumPy.

    Raises UsageError, with a suggestion, for an unknown one.
    """
    if name in _NUMPY_NAMES:
        return _NUMPY_NAMES[name]
    if name.lower() not in _TYPES:
        sizes = [other for other in _TYPES if other.rstrip("0123456789") == name.lower()]
        hint = f"give its size: {', '.join(sizes)}" if sizes else did_you_mean(name, _TYPES) or None
        raise UsageError(f"there is no element type '{name}'", todo=hint)
    return _TYPES[name.lower()]


def array_of(value: Any) -> np.ndarray[Any, Any]:
    """Return the array of written elements; raise UsageError for lists of uneven lengths."""
    try:
        return np.array(value)
    except ValueError as error:
        raise UsageError("the lists of the value are not of the same length") from error
    except OverflowError as error:
        raise UsageError("a number of the value is too large") from error


def _first(array: np.ndarray[Any, Any]) -> Any:
    return array.reshape(-1)[0].item() if array.size else "an empty list"
