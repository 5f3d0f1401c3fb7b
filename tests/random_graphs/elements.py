"""Elements of tensors: ordinary ones, and those at which arithmetic is not what it looks like."""

from __future__ import annotations

from typing import Any

import numpy as np

FLOATS = (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16))
PLAIN = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 3.0, 6.0, -6.0, 0.1, 1e-3)

Array = np.ndarray[Any, Any]


def specials(dtype: np.dtype[Any]) -> list[float]:
    """Zeros, infinities, NaN, and the largest and smallest numbers of a float."""
    info = np.finfo(dtype)
    tiny, huge = float(info.tiny), float(info.max)
    return [0.0, -0.0, np.inf, -np.inf, np.nan, huge, -huge, huge / 2, tiny, -tiny, tiny / 8, float(info.eps)]


def draw(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    *,
    special: bool = False,
    low: int | None = None,
    high: int = 4,
    character: str | None = None,
) -> Array:
    """Draw elements. `special` mixes in infinities and the like; `character` is how floats are spread."""
    if dtype == np.bool_:
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        least = low if low is not None else 0 if dtype.kind == "u" else -3
        return rng.integers(least, high + 1, shape).astype(dtype)
    character = character or str(rng.choice(["normal", "normal", "plain", "same", "positive", "wide"]))
    if character == "normal":
        made = rng.standard_normal(shape)
    elif character == "plain":
        made = rng.choice(PLAIN, shape)
    elif character == "same":
        made = np.full(shape, rng.choice(PLAIN))
    elif character == "positive":
        made = rng.uniform(0.1, 2.0, shape)
    else:
        made = rng.standard_normal(shape) * 10.0 ** rng.uniform(-3, 3, shape)
    made = np.asarray(made).astype(dtype)
    if special and made.size:
        where = rng.random(shape) < 0.3
        mixed = rng.choice(np.array(specials(dtype)), shape)
        with np.errstate(over="ignore"):
            made = np.asarray(np.where(where, mixed, made)).astype(dtype)
    return made
