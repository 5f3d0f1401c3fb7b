"""The elements of an initializer, computed from checkpoint tensors a few rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from surgery.features.frameworks.import_plan import Assignment, bounds
from surgery.model import storage
from surgery.model.wire.reordering import rows_of
from surgery.model.wire.weights import Weights, array_of
from surgery.model.wire.wire import Reference

Array = np.ndarray[Any, Any]


class RangeError(ValueError):
    """Finite elements would become infinite in a narrower type."""


@dataclass
class _Losses:
    """The number of finite elements that a narrower type cannot represent, and the largest of them."""

    count: int = 0
    largest: float = 0.0

    def note(self, before: Array, after: Array) -> None:
        with np.errstate(invalid="ignore"):
            lost = np.isfinite(before) & ~np.isfinite(after)
        if lost.any():
            self.count += int(np.count_nonzero(lost))
            self.largest = max(self.largest, float(np.abs(before[lost].astype(np.float64)).max()))


def place(assignment: Assignment, weights: Weights) -> Reference:
    """Return the location of the elements of an initializer: in the checkpoint file, or copied to the scratch file.

    Raises RangeError if an element does not fit the narrower type of the model.
    """
    references = [entry.place() for entry in assignment.entries]
    if assignment.is_plain:
        return references[0]
    arrays = [
        array_of(weights.view(reference) if reference.length else memoryview(b""), int(entry.dtype), entry.dims)
        for reference, entry in zip(references, assignment.entries)
    ]
    for number, rows in enumerate(assignment.rows):
        if rows is not None:
            arrays[number] = rows.applied(arrays[number])
    source, wanted = assignment.source, assignment.target.dtype.numpy()
    is_joined_only = assignment.order is None and assignment.gates is None and source.part is None
    if is_joined_only and len(arrays) > 1 and source.axis == 0:
        pieces = iter(arrays)  # one after another, to avoid a copy for joining
    else:
        pieces = iter([_arranged(assignment, arrays)])
    losses = _Losses()
    reference = weights.spill(_converted(pieces, np.dtype(wanted), losses))
    if losses.count:
        raise RangeError(
            f"{losses.count} elements, up to {losses.largest:.3g}, are too large for {wanted}, the type in the model"
        )
    return reference


def _arranged(assignment: Assignment, arrays: list[Array]) -> Array:
    """Join the tensors, take a part, transpose, and reorder gates."""
    source = assignment.source
    whole = arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=source.axis)
    if source.part is not None:
        piece = bounds(source, whole.shape[source.axis])
        assert piece is not None
        whole = whole[(slice(None),) * source.axis + (slice(*piece),)]
    if assignment.order is not None:
        whole = whole.transpose(assignment.order)
    return whole if assignment.gates is None else assignment.gates.applied(whole)


def _converted(pieces: Iterator[Array], dtype: np.dtype[Any], losses: _Losses) -> Iterator[Array]:
    """Yield rows converted to another type."""
    for array in pieces:
        for rows in rows_of(array.reshape(1) if array.ndim == 0 else array):
            if rows.dtype == dtype:
                yield rows
                continue
            with np.errstate(over="ignore", invalid="ignore"):
                made = rows.astype(dtype)
            losses.note(rows, made)
            yield made


def fill(tensor: onnx.TensorProto, reference: Reference, weights: Weights) -> None:
    """Set the elements of an initializer; small ones are stored in the model itself."""
    storage.refer(tensor, reference)
    if reference.length < storage.INLINE_LIMIT:
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
        tensor.raw_data = bytes(weights.view(reference)) if reference.length else b""
