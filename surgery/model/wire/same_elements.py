"""Comparison of tensor elements without loading large tensors: files stay mapped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from surgery.base.operators.message_tensors import to_array
from surgery.model.wire.tensors import STRING, external_reference, is_external

if TYPE_CHECKING:
    import onnx

    from surgery.model.wire.weights import Weights

_PIECE: Final = 1 << 18
"""Number of bytes compared at a time, so that both pieces stay in the cache."""


def bytes_of(tensor: onnx.TensorProto) -> bytes:
    """Return the elements of a tensor stored in its message, as bytes that are equal only for equal elements."""
    if tensor.data_type == STRING:
        return b"".join(b"%d:%b" % (len(text), text) for text in tensor.string_data)
    if tensor.HasField("raw_data"):
        return tensor.raw_data
    try:
        return to_array(tensor).tobytes()
    except (TypeError, ValueError):
        # An invalid tensor, with fewer elements than its dims require, must still differ from others.
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
    """Compare piece by piece, without copying; comparing memoryviews would go byte by byte."""
    if len(one) != len(other):
        return False
    if not len(one):
        return True
    import numpy as np

    first, second = np.frombuffer(one, np.uint8), np.frombuffer(other, np.uint8)
    pieces = (slice(at, at + _PIECE) for at in range(0, len(first), _PIECE))
    return all(np.array_equal(first[piece], second[piece]) for piece in pieces)
