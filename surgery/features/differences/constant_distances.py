"""Contents of constants: cheap fingerprints and distances."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surgery.base.json_record import Record
from surgery.model.storage import bytes_of, external_reference, is_external
from surgery.model.wire.tensors import STRING

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from surgery.model.storage import Weights

_PIECE = 1 << 20
_PROBES = 3
_PROBE = 64


def sign_of(tensor: onnx.TensorProto, weights: Weights) -> Hashable:
    """Return a fingerprint of a constant: its type, dims and elements, or a few bytes of the elements of a large one.

    Different signs mean different elements. Equal signs of large constants do not prove that their elements are equal.
    """
    kind = tensor.data_type, tuple(tensor.dims)
    if not is_external(tensor):
        return *kind, bytes_of(tensor)
    view = weights.view(external_reference(tensor))
    last = max(0, len(view) - _PROBE)
    return *kind, b"".join(view[at : at + _PROBE] for at in (last * n // (_PROBES - 1) for n in range(_PROBES)))


@dataclass(frozen=True)
class Distance(Record, keys="elements different max_abs=largest relative not_finite"):
    """How far apart the elements of two tensors are, as float64.

    `relative` is the largest difference divided by the largest magnitude in the first tensor. Elements that are NaN or
    infinite in only one tensor, or infinite with different signs, are counted by `not_finite` and left out of `largest`
    and `relative`. For strings, these two are None.
    """

    elements: int
    different: int
    largest: float | None
    relative: float | None
    not_finite: int = 0


def distance(a: onnx.TensorProto, of_a: Weights, b: onnx.TensorProto, of_b: Weights) -> Distance | None:
    """Compare two tensors element by element, in order; None if they differ in number of elements."""
    import numpy as np

    if math.prod(a.dims) != math.prod(b.dims):
        return None
    one, other = of_a.read(a).reshape(-1), of_b.read(b).reshape(-1)
    if STRING in (a.data_type, b.data_type):
        return Distance(one.size, int(np.count_nonzero(one.astype(object) != other.astype(object))), None, None)
    different = lost = 0
    largest = scale = 0.0
    for start in range(0, one.size, _PIECE):
        x, y = (_wide(array[start : start + _PIECE]) for array in (one, other))
        apart = ~((x == y) | (np.isnan(x) & np.isnan(y)))
        finite = np.isfinite(x) & np.isfinite(y)
        different += int(np.count_nonzero(apart))
        lost += int(np.count_nonzero(apart & ~finite))
        largest = max(largest, float(np.abs(x[finite] - y[finite]).max(initial=0.0)))
        scale = max(scale, float(np.abs(x[np.isfinite(x)]).max(initial=0.0)))
    return Distance(one.size, different, largest, largest / scale if scale else None, lost)


def _wide(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    import numpy as np

    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
