"""The error distribution of a lossy step: the errors of each output, in shares of its root mean square."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from surgery.base.operators.dtypes import Array, is_float
from surgery.verification.comparing.compare import placed_tensors, plain
from surgery.verification.comparing.details import Element
from surgery.verification.comparing.spread import Spread


def add_errors(
    spreads: dict[str, Spread], original: Mapping[str, Any], changed: Mapping[str, Any], binding: Mapping[str, Any]
) -> None:
    """Count the errors of the outputs of one run; `binding` describes its inputs.

    No share covers the error of an element that is not finite on both sides, or of an integer that differs.
    """
    for name, spread in spreads.items():
        for (item, before), (_, after) in zip(placed_tensors(original[name]), placed_tensors(changed[name])):
            if before.size == 0 or before.shape != after.shape or before.dtype.kind != after.dtype.kind:
                continue
            shares = _shares(before, after)
            spread.add(shares)
            at = int(np.argmax(shares))
            place = tuple(int(i) for i in np.unravel_index(at, before.shape))
            values = plain(before[place]), plain(after[place])
            spread.record(float(shares[at]), Element(name, item, place, *values, binding=binding))


def _shares(before: Array, after: Array) -> Array:
    """Return the error of each element in shares of the root mean square of all; infinite if no share covers it."""
    if not is_float(before.dtype):
        return np.where(before.reshape(-1) == after.reshape(-1), 0.0, np.inf)
    x, y = (values.reshape(-1).astype(np.float64) for values in (before, after))
    finite = np.isfinite(x)
    with np.errstate(all="ignore"):
        size = float(np.sqrt(np.mean(np.square(x[finite])))) if finite.any() else 0.0
        distance = np.abs(x - y) / size if size > 0.0 else np.where(x == y, 0.0, np.inf)
    # Where the original is NaN the changed value does not matter, and an infinity must stay.
    return np.where((x == y) | np.isnan(x), 0.0, np.where(finite & np.isfinite(y), distance, np.inf))
