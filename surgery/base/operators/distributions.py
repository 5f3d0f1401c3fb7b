"""Kinds of data: the distributions of the elements of an input, within its legal range.

No single distribution distinguishes all wrong models from right ones. A changed bound shows only on values between the
old and the new bound, an exchanged comparison only on equal values, a changed epsilon only on small values, and a
dropped activation only beyond its knee.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from surgery.base.operators.dtypes import Array, greatest, limits
from surgery.base.operators.scenes import SCENES, within

ORDINARY = ("normal", "edges", "wide", "image", "coarse", "small", "near")
"""Kinds of data. "normal" is Gaussian; "edges" mixes in zeros of both signs, ±1, ±6, tiny and large values, and the
ends of ranges; "wide" spans five orders of magnitude; "image" is in [0, 1); "coarse" has few distinct integers, so
that many values are equal; "small" is around the magnitude at which an epsilon matters; "near" is close to the
constants that the graph compares with, on both sides. In addition, "special" has NaN and infinities, for outputs that
no other data changes."""

_EDGES = np.array([100.0, 0.0, 1.0, -1.0, 0.5, -100.0, -0.0, 2.0, -2.0, -0.5, 6.0, -6.0, 3.0, -3.0, 1e-6, 1e-30, -1e-6])
_DEALT = 5
"""The shift in `_EDGES` per seed, for tensors that are too small for random choice."""

_MEETING = (1.0, -1.0, 3.0, 0.5)
"""The value near which the inputs of a model without marks are drawn, selected by the seed."""

_SMALL = (1e-3, 1e-4, 1e-2, 1e-5)
_RELATIVE = np.array([0.5, 0.1, 0.01, 1e-3, 0.0])
"""Maximum distances of "near" from a mark, relative to it, or absolute for a mark at zero."""

Marks = tuple[float, ...]


def floats(
    character: str, rng: np.random.Generator, shape: tuple[int, ...], marks: Marks, sizes: Marks, seed: int
) -> Array:
    """Draw reals without bounds. `marks` are values that the graph compares with, `sizes` the magnitudes of "small"."""
    if character in SCENES:
        return SCENES[character](rng, shape)
    values = rng.standard_normal(shape)
    match character:
        case "image":
            return rng.random(shape)
        case "wide":
            return np.asarray(values * 10.0 ** rng.uniform(-3, 2, shape))
        case "edges":
            return _mixed_with_edges(values, rng, marks, seed)
        case "coarse":
            return _repeated(np.copysign(rng.integers(-2, 3, shape), values), seed)
        case "small":
            scales = sizes or _SMALL
            return np.asarray(values * scales[seed % len(scales)])
        case "near":
            return np.where(rng.random(shape) < 0.9, _near(marks or _meeting(seed), rng, shape), values)
        case "special":
            odd = rng.choice(np.array([np.nan, np.inf, -np.inf]), shape)
            values = np.where(rng.random(shape) < 0.3, odd, values)
            values.reshape(-1)[:2] = [np.nan, np.inf][: values.size]
            return values
    # A few exact zeros, for operators that treat them specially.
    return np.where(rng.random(shape) < 0.02, 0.0, values)


def _mixed_with_edges(values: Array, rng: np.random.Generator, marks: Marks, seed: int) -> Array:
    """Mix values at which operators change their behavior into others."""
    shape = values.shape
    mixed = np.where(rng.random(shape) < 0.5, rng.choice(_EDGES, shape), values)
    if mixed.size < 2 * _EDGES.size:
        mixed = np.resize(np.roll(_EDGES, -seed * _DEALT), shape)
    if marks:
        mixed = np.where(rng.random(shape) < 0.3, _near(marks, rng, shape), mixed)
    # Always include a negative zero, because only it shows the difference between x and x + 0.
    if mixed.size > 1:
        mixed.reshape(-1)[rng.integers(mixed.size)] = -0.0
    if seed % 4 == 3 and mixed.ndim > 1 and mixed.shape[-2] > 1:
        # A row of zeros, for divisions by its norm, sum or variance.
        mixed[..., 0, :] = 0.0
    return mixed


def _repeated(values: Array, seed: int) -> Array:
    """Make the last slice along an axis equal to the first, for two of three seeds, each along another axis.

    They alternate between the largest and the smallest values along it, which shows which of two equal extremes is
    found first.
    """
    axis = seed % 3
    if axis < 2 and axis < values.ndim and values.shape[axis] > 2:
        moved = np.moveaxis(values, axis, 0)
        ends = np.where(np.arange(moved[0].size).reshape(moved[0].shape) % 2, moved.min(axis=0), moved.max(axis=0))
        moved[0] = moved[-1] = ends
    return values


def _near(marks: Marks, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw values on and next to the marks."""
    places = rng.choice(np.array(marks), shape)
    away = rng.choice(_RELATIVE, shape) * rng.uniform(-1, 1, shape)
    return np.asarray(places + np.where(places == 0, 1.0, np.abs(places)) * away)


def _meeting(seed: int) -> Marks:
    return (_MEETING[seed % len(_MEETING)],)


def bounded(
    character: str,
    rng: np.random.Generator,
    shape: tuple[int, ...],
    ends: tuple[float, float],
    marks: Marks,
) -> Array:
    """Draw reals between two bounds, both included."""
    if character in SCENES:
        return within(character, rng, shape, ends)
    low, high = ends
    shares = rng.random(shape)
    match character:
        case "edges":
            drawn = np.where(rng.random(shape) < 0.3, np.round(shares), shares)
        case "coarse":
            drawn = np.round(shares * 4) / 4
        case "small" if low > 0:
            return np.asarray(low * (high / low) ** shares)
        case _:
            drawn = shares
    values = low + (high - low) * drawn
    if character == "near" and marks:
        values = np.where(rng.random(shape) < 0.8, _near(marks, rng, shape), values)
    return np.asarray(np.clip(values, low, high))


def clipped(values: Array, dtype: np.dtype[Any]) -> Array:
    """Convert reals to a dtype, keeping finite numbers finite."""
    top = greatest(dtype)
    with np.errstate(over="ignore", under="ignore"):
        finite = np.clip(values, -top, top)
        return np.asarray(np.where(np.isfinite(values), finite, values)).astype(dtype)


_REACH = {"normal": 10, "edges": 2, "wide": 1000, "image": 1, "coarse": 2, "small": 3, "near": 20}
_ANYWHERE = (None, None)


def integers(
    character: str,
    rng: np.random.Generator,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    ends: tuple[float | None, float | None],
    marks: Marks,
    seed: int,
) -> Array:
    """Draw integers between two bounds, both included; the kind of data determines a missing bound."""
    least, most = limits(dtype)
    reach = _REACH.get(character, 10)
    low = ends[0] if ends[0] is not None else max(0 if character == "image" else -reach, least)
    high = ends[1] if ends[1] is not None else reach
    low, high = int(np.clip(np.ceil(low), least, most)), int(np.clip(np.floor(high), least, most))
    if ends[0] is not None and ends[1] is None:
        high = min(max(high, low + reach), most)
    high = max(low, high)
    drawn = rng.integers(low, high, shape, endpoint=True)
    if character == "edges":
        drawn = np.where(rng.random(shape) < 0.3, rng.choice(np.array([low, high]), shape), drawn)
    if character == "near" and not marks and ends == _ANYWHERE:
        marks = _meeting(seed)
    if marks and character in ("edges", "near"):
        lowest, highest = max(low, least) if ends[0] is not None else least, high if ends[1] is not None else most
        near = np.clip(np.round(rng.choice(np.array(marks), shape)), lowest, highest)
        near = np.clip(near + rng.integers(-1, 2, shape), lowest, highest)
        drawn = np.where(rng.random(shape) < 0.5, near, drawn)
    return np.asarray(drawn).astype(dtype)
