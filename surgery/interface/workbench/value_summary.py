"""The values of a tensor as a page shows them: figures, histograms, differences, first elements and an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.base.json_record import plain
from surgery.interface.workbench.tensor_image import images_of

if TYPE_CHECKING:
    from surgery.features.workbench.tensor_values import TensorLook

_BINS = 24
_MOST_SHOWN = 16

Array = np.ndarray[Any, Any]


def summary_of(look: TensorLook) -> dict[str, Any]:
    """Return what a page shows of a tensor, as plain values; elements and images are of the first set of inputs."""
    before, after = look.numbers
    return {
        "name": look.name,
        "sets": list(look.sets),
        "is_original": look.is_original,
        "before": _side(look.before, before) if look.before else None,
        "after": _side(look.after, after) if look.after else None,
        "histogram": _histogram(before, after),
        "difference": look.difference.to_json() if look.difference is not None else None,
        "images": images_of(*(numbers[0] if numbers else None for numbers in look.numbers)),
    }


def _side(arrays: Sequence[Array], numbers: Sequence[Array] | None) -> dict[str, Any]:
    """Return the figures of one model."""
    first = arrays[0]
    found: dict[str, Any] = {
        "dtype": str(first.dtype),
        "shapes": [list(array.shape) for array in arrays],
        "first": [_element(value) for value in first.ravel()[:_MOST_SHOWN]],
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


def _element(value: Any) -> Any:
    """Return an element for JSON; what is no number there, such as NaN or a complex number, is a text."""
    item = plain(value.item() if hasattr(value, "item") else value)
    return item if isinstance(item, int | float | bool) else str(item)
