"""The constant tensors of a model before and after a change: unchanged and changed ones, and histograms of samples."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.base.errors import SurgeryError
from surgery.model import storage
from surgery.model.wire.weights import array_of

if TYPE_CHECKING:
    import onnx

    from surgery.model.storage import StoredModel

SAMPLED = 1 << 16
"""Maximum number of elements of a tensor that are read for its histogram."""

_BLOCK = 1 << 10
_PIECE = 1 << 20
"""Number of bytes compared at once."""

_BINS = 48
_LARGEST = 24
_PACKED = 1 << 20
"""Maximum size in bytes of a tensor of packed elements that is read, because it is unpacked as a whole."""


def compare_weights(before: StoredModel, after: StoredModel) -> dict[str, Any]:
    """Compare the constant tensors of two models by name, as plain values.

    Only tensors that a run has moved or created are read for the comparison. `largest` has the largest tensors of the
    second model, each with its `state` ("same", "changed" or "new") and a histogram of a sample of its `values`.
    """
    old = {tensor.name: tensor for tensor in storage.all_tensors(before.proto) if tensor.name}
    new = {tensor.name: tensor for tensor in storage.all_tensors(after.proto) if tensor.name}
    states = {name: _state(old.get(name), before, tensor, after) for name, tensor in new.items()}
    counts = Counter(states.values())
    largest = sorted(new.values(), key=lambda tensor: -storage.payload_bytes(tensor))[:_LARGEST]
    return {
        "before": _totals(before),
        "after": _totals(after),
        "kept": counts["same"],
        "altered": counts["changed"],
        "new": counts["new"],
        "gone": len(old.keys() - new.keys()),
        "sampled": SAMPLED,
        "largest": [_entry(tensor, states[tensor.name], after) for tensor in largest],
    }


def _totals(model: StoredModel) -> dict[str, Any]:
    sizes: Counter[str] = Counter()
    count = 0
    for tensor in storage.all_tensors(model.proto):
        count += 1
        sizes[_type(tensor)] += storage.payload_bytes(tensor)
    return {"tensors": count, "bytes": sum(sizes.values()), "by_type": dict(sizes.most_common())}


def _type(tensor: onnx.TensorProto) -> str:
    import onnx_ir

    try:
        return onnx_ir.DataType(tensor.data_type).name.lower()
    except ValueError:
        return f"type {tensor.data_type}"


def _state(old: onnx.TensorProto | None, before: StoredModel, new: onnx.TensorProto, after: StoredModel) -> str:
    if old is None:
        return "new"
    if old.data_type != new.data_type or list(old.dims) != list(new.dims):
        return "changed"
    where = [storage.external_reference(one) if storage.is_external(one) else None for one in (old, new)]
    same = where[0] is not None and where[0] == where[1] and before.weights is after.weights
    return "same" if same or _same_bytes(old, before, new, after) else "changed"


def _same_bytes(old: onnx.TensorProto, before: StoredModel, new: onnx.TensorProto, after: StoredModel) -> bool:
    """Return whether two tensors have the same bytes, reading piece by piece up to the first difference."""
    one, other = _bytes(old, before), _bytes(new, after)
    if one is None or other is None or one.size != other.size:
        return one is None and other is None
    pieces = range(0, one.size, _PIECE)
    return all(np.array_equal(one[at : at + _PIECE], other[at : at + _PIECE]) for at in pieces)


def _bytes(tensor: onnx.TensorProto, model: StoredModel) -> np.ndarray[Any, Any] | None:
    """Return the bytes of a tensor, mapped if it is external; None if it cannot be read."""
    try:
        if storage.is_external(tensor):
            return np.frombuffer(model.weights.view(storage.external_reference(tensor)), np.uint8)
        return np.frombuffer(storage.bytes_of(tensor), np.uint8)
    except (SurgeryError, ValueError):
        return None


def _entry(tensor: onnx.TensorProto, state: str, model: StoredModel) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "type": _type(tensor),
        "dims": list(tensor.dims),
        "bytes": storage.payload_bytes(tensor),
        "state": state,
        "values": values(tensor, model),
    }


def values(tensor: onnx.TensorProto, model: StoredModel) -> dict[str, Any] | None:
    """Return a histogram of a sample of the elements of a tensor; None if it has no finite numbers.

    `counts` are for equal bins between `low` and `high`; `zeros` and `not_finite` are fractions of the sample.
    """
    try:
        found = _sample(tensor, model)
    except (SurgeryError, ValueError, TypeError):
        return None
    if found is None or not found.size:
        return None
    finite = found[np.isfinite(found)]
    if not finite.size:
        return None
    low, high = float(finite.min()), float(finite.max())
    counts, _ = np.histogram(finite, bins=_BINS if high > low else 1, range=(low, high) if high > low else None)
    return {
        "low": low,
        "high": high,
        "counts": [int(count) for count in counts],
        "zeros": float(np.count_nonzero(finite == 0) / found.size),
        "not_finite": float(1 - finite.size / found.size),
    }


def _sample(tensor: onnx.TensorProto, model: StoredModel) -> np.ndarray[Any, Any] | None:
    """Return elements from evenly spaced blocks of a tensor, as float64; None for strings and complex numbers."""
    if _type(tensor) in ("string", "complex64", "complex128", "undefined"):
        return None
    if not storage.is_external(tensor):
        return _spread(model.weights.read(tensor).reshape(-1))
    reference, size = storage.external_reference(tensor), storage.payload_bytes(tensor)
    count = int(np.prod(tensor.dims, dtype=np.int64))
    if count and size % count:  # packed
        return _spread(model.weights.read(tensor).reshape(-1)) if size <= _PACKED else None
    return _spread(array_of(model.weights.view(reference), tensor.data_type, (count,)))


def _spread(flat: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if flat.size <= SAMPLED:
        return flat.astype(np.float64)
    blocks, last = SAMPLED // _BLOCK, flat.size - _BLOCK
    starts = [last * number // (blocks - 1) for number in range(blocks)]
    return np.concatenate([flat[at : at + _BLOCK] for at in starts]).astype(np.float64)
