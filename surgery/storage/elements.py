"""Comparison of tensor elements without loading large tensors: files stay mapped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from surgery.storage.tensors import STRING, external_reference, is_external

if TYPE_CHECKING:
    import onnx

    from surgery.storage.weights import Weights

_PIECE: Final = 1 << 20


def bytes_of(tensor: onnx.TensorProto) -> bytes:
    """Return the elements of a tensor that is in its message, as bytes that only equal elements have."""
    if tensor.data_type == STRING:
        return b"".join(b"%d:%b" % (len(text), text) for text in tensor.string_data)
    if tensor.HasField("raw_data"):
        return tensor.raw_data
    from onnx import numpy_helper

    try:
        return bytes(numpy_helper.to_array(tensor).tobytes())
    except (TypeError, ValueError):
        # A broken tensor, with fewer elements than its dims say, still differs from others.
        return bytes(tensor.SerializeToString(deterministic=True))


def same_elements(a: onnx.TensorProto, of_a: Weights, b: onnx.TensorProto, of_b: Weights) -> bool:
    """Return whether two tensors have the same type, dims and elements, bit by bit."""
    if (a.data_type, a.dims) != (b.data_type, b.dims):
        return False
    if is_external(a) and is_external(b) and external_reference(a) == external_reference(b):
        return True
    return same_bytes(_view(a, of_a), _view(b, of_b))


def _view(tensor: onnx.TensorProto, weights: Weights) -> bytes | memoryview:
    return weights.view(external_reference(tensor)) if is_external(tensor) else bytes_of(tensor)


def same_bytes(one: bytes | memoryview, other: bytes | memoryview) -> bool:
    """Compare piece by piece: views are compared number by number, which is slow, and bytes take memory."""
    if len(one) != len(other):
        return False
    return all(bytes(one[at : at + _PIECE]) == bytes(other[at : at + _PIECE]) for at in range(0, len(one), _PIECE))
