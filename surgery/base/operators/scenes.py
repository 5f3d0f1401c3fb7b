"""Kinds of data that resemble images, signals and features of use, unlike noise of independent elements.

The sums of a convolution over noise are near their mean, but over a region of one color they are as large as its
weights allow. Ranges that are measured on noise alone are therefore too narrow for a picture with a sky.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from surgery.base.operators.dtypes import Array

_BLOCK = 8
"""The extent of a region of one value."""

LEAST_EXTENT = _BLOCK
"""The extent that some axis exceeds if there are several regions."""

_KNOTS = 4
"""The number of random values along an axis between which smooth data interpolate."""

_LIMIT = 2.0
"""The value of saturated elements; white and black are at about plus and minus two after the usual normalization."""

_FEW = 0.05
"""The share of the elements of sparse data that are not zero."""

_COLORS = 4
"""The largest extent of a last axis that holds the colors of an image, rather than places."""


def flat(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw blocks of one value each, with a root mean square of one."""
    axes = _places(shape)
    coarse = [math.ceil(extent / _BLOCK) if axis in axes else extent for axis, extent in enumerate(shape)]
    values = rng.standard_normal(coarse)
    for axis in axes:
        values = np.take(values, np.arange(shape[axis]) // _BLOCK, axis=axis)
    return _scaled(values)


def smooth(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw values that change little from one place to the next, with a root mean square of one."""
    axes = _places(shape)
    values = rng.standard_normal([_KNOTS if axis in axes else extent for axis, extent in enumerate(shape)])
    for axis in axes:
        at = np.linspace(0.0, _KNOTS - 1.0, shape[axis])
        low = np.minimum(at.astype(np.int64), _KNOTS - 2)
        share = (at - low).reshape([-1 if one == axis else 1 for one in range(len(shape))])
        values = (1.0 - share) * np.take(values, low, axis=axis) + share * np.take(values, low + 1, axis=axis)
    return _scaled(values)


def saturated(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw regions at either end of the range, with edges between them."""
    return np.clip(3.0 * smooth(rng, shape), -_LIMIT, _LIMIT)


def sparse(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw a few values of some size among zeros; at least one, as zeros alone would show no error."""
    chances, values = rng.random(shape), np.copysign(rng.uniform(_LIMIT / 2, _LIMIT, shape), rng.standard_normal(shape))
    return np.where((chances < _FEW) | (chances == chances.min(initial=1.0)), values, 0.0)


SCENES: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Array]] = {
    "flat": flat,
    "smooth": smooth,
    "saturated": saturated,
    "sparse": sparse,
}
"""The kinds of data, each with the function that draws it around zero."""


def within(character: str, rng: np.random.Generator, shape: tuple[int, ...], ends: tuple[float, float]) -> Array:
    """Draw one of the kinds between two bounds, both included."""
    low, high = ends
    shares = np.clip(SCENES[character](rng, shape) / (2.0 * _LIMIT) + 0.5, 0.0, 1.0)
    return np.asarray(low + (high - low) * shares)


def _scaled(values: Array) -> Array:
    """Scale values to a root mean square of one; a fixed range rounds an image that is nearly black to nothing."""
    size = math.sqrt(np.square(values).mean()) if values.size else 0.0
    return np.asarray(values / size if size else values)


def _places(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes of places, along which neighbors resemble each other: the last two, or those before colors."""
    rank = len(shape)
    if rank > 3 and shape[-1] <= _COLORS < shape[-2]:
        return rank - 3, rank - 2
    return tuple(range(max(rank - 2, min(rank - 1, 1), 0), rank))
