"""The values of a tensor as a page shows them: figures, histograms, differences, first elements and an image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.interface.workbench.tensor_image import images_of

if TYPE_CHECKING:
    from surgery.features.workbench import looks

_BINS = 24
_MOST_SHOWN = 16

Array = np.ndarray[Any, Any]


def summary_of(look: looks.TensorLook) -> dict[str, Any]:
    """Return what a page shows of a tensor, as plain values; elements and images are of the first set of inputs."""
    before, after = look.numbers
    return {
        "name": look.name,
        "sets": list(look.sets),
        "is_original": look.is_original,
        "before": _side(look.before, before) if look.before else None,
        "after": _side(look.after, after) if look.after else None,
        "histogram": _histogram(before, after),
        "difference": _finite(look.difference.to_json()) if look.difference is not None else None,
        "images": images_of(*(numbers[0] if numbers else None for numbers in look.numbers)),
    }


def _side(arrays: Sequence[Array], numbers: Sequence[Array] | None) -> dict[str, Any]:
    """Return the figures of one model."""
    first = arrays[0]
    found: dict[str, Any] = {
        "dtype": str(first.dtype),
        "shapes": [list(array.shape) for array in arrays],
        "first": [_plain(value) for value in first.ravel()[:_MOST_SHOWN]],
        "elements": int(first.size),
    }
    if numbers is None:
        return found
    flat = _flat(numbers)
    finite = flat[np.isfinite(flat)]
    found |= {"nan": int(np.isnan(flat).sum()), "infinite": int(np.isinf(flat).sum())}
    if finite.size:
        figures = {"min": finite.min(), "max": finite.max(), "mean": finite.mean(), "std": finite.std()}
        found |= {key: float(value) for key, value in figures.items()}
    return found


def _flat(numbers: Sequence[Array]) -> Array:
    return np.concatenate([array.ravel() for array in numbers])


def _histogram(before: Sequence[Array] | None, after: Sequence[Array] | None) -> dict[str, Any] | None:
    """Return the histograms of both models, in the same bins."""
    sides = {key: _flat(numbers) for key, numbers in (("before", before), ("after", after)) if numbers is not None}
    finite = {key: numbers[np.isfinite(numbers)] for key, numbers in sides.items()}
    if not any(numbers.size for numbers in finite.values()):
        return None
    least = min(float(numbers.min()) for numbers in finite.values() if numbers.size)
    most = max(float(numbers.max()) for numbers in finite.values() if numbers.size)
    edges = np.histogram_bin_edges([], _BINS, (least, most))
    counts = {key: np.histogram(numbers, edges)[0].tolist() for key, numbers in finite.items()}
    return {"from": float(edges[0]), "to": float(edges[-1]), **counts}


def _finite(value: Any) -> Any:
    """Return plain values for JSON: numbers that are not finite become texts."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return _plain(value) if isinstance(value, float) else value


def _plain(value: Any) -> float | int | str | bool:
    item = value.item() if hasattr(value, "item") else value
    if isinstance(item, float) and not math.isfinite(item):
        return str(item)
    return item if isinstance(item, int | float | bool) else str(item)
