"""The values of a tensor as a page shows them: figures, a histogram and the first elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_BINS = 24
_MOST_SHOWN = 64


def summary_of(name: str, arrays: Sequence[np.ndarray[Any, Any]]) -> dict[str, Any]:
    """Return the figures of a tensor on several sets of inputs, as plain values; the elements are of the first set."""
    if not arrays:
        return {"name": name, "sets": 0}
    first = arrays[0]
    found: dict[str, Any] = {
        "name": name,
        "sets": len(arrays),
        "dtype": str(first.dtype),
        "shapes": [list(array.shape) for array in arrays],
        "first": [_plain(value) for value in first.ravel()[:_MOST_SHOWN]],
        "elements": int(first.size),
    }
    if first.dtype.kind not in "biuf" or not first.size:
        return found
    numbers = np.concatenate([array.ravel().astype(np.float64) for array in arrays])
    finite = numbers[np.isfinite(numbers)]
    found |= {"nan": int(np.isnan(numbers).sum()), "infinite": int(np.isinf(numbers).sum())}
    if finite.size:
        counts, edges = np.histogram(finite, _BINS)
        figures = {"min": finite.min(), "max": finite.max(), "mean": finite.mean(), "std": finite.std()}
        found |= {key: float(value) for key, value in figures.items()}
        found["histogram"] = {"counts": counts.tolist(), "from": float(edges[0]), "to": float(edges[-1])}
    return found


def _plain(value: Any) -> float | int | str | bool:
    item = value.item() if hasattr(value, "item") else value
    if isinstance(item, float) and not np.isfinite(item):
        return str(item)
    return item if isinstance(item, int | float | bool) else str(item)
