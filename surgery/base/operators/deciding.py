"""Kinds of data that make the guards of a graph decide: rows that are masked, padded, zero or constant.

Ordinary data seldom has them: a random mask of 30 positions has no row without a 1, and a random row has no norm of 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from surgery.base.operators.distributions import clipped
from surgery.base.operators.domain import Domain, draw
from surgery.base.operators.dtypes import Array, is_float, is_integer, limits

PADDED, HIDDEN, NOT_FINITE = "padded", "hidden", "not finite"

KINDS = (PADDED, "none", "all", "zero rows", "zeros", "constant", "negative", "positive", "faint", "least")
"""Kinds of data for all inputs. "padded" masks some rows completely, others not at all, and others on the left or on
the right; "none" and "all" are masks of all zeros and all ones. The others are floats in which rows, or all elements,
are zero or equal, all elements have the same sign, or are smaller than any epsilon, and integers at the end of their
range."""

DIRECT = (HIDDEN, NOT_FINITE)
"""Kinds of data for inputs whose elements arrive at the scores, or at a test for NaN and infinity, as they are: rows of
minus infinity, and of NaN and infinities."""

DECIDING = frozenset({*KINDS, *DIRECT})
"""All of them."""

PATTERNS = 4
"""Number of patterns of the rows of "padded": no position, those on the right, all, those on the left."""

_FAINT = 1e-30


def decide(
    kind: str, domain: Domain, dtype: np.dtype[Any], shape: tuple[int, ...], rng: np.random.Generator, seed: int
) -> Array | None:
    """Draw an array of one of the kinds; return None if the kind is none for this input, whose data stay ordinary."""
    if domain.draw is not None or not math.prod(shape) or dtype.kind in "OUSc":
        return None
    if _is_mask(domain, dtype):
        return _masking(kind, dtype, shape, seed)
    if is_integer(dtype):
        return _integers(kind, domain, dtype, shape, rng, seed)
    if not is_float(dtype) or domain.choices is not None:
        return None
    rule = _FLOATS.get(kind)
    if rule is None:
        return None
    array = rule(np.asarray(draw(domain, np.dtype(np.float64), shape, "normal", rng)), seed)
    if domain.low is not None or domain.high is not None:
        array = np.clip(array, domain.low, domain.high)
    return clipped(array, dtype)


def rows(shape: tuple[int, ...], seed: int) -> Array:
    """Return which positions of each row "padded" leaves: in turn none, some on the right, all, some on the left."""
    length = shape[-1] if shape else 1
    numbers = np.arange(math.prod(shape[:-1])) + seed
    places = np.arange(length)
    part = np.clip(1 + numbers // PATTERNS % max(1, length - 1), 1, max(1, length - 1))[:, None]
    left = [
        np.zeros((len(numbers), length), bool),
        places >= part,
        np.ones((len(numbers), length), bool),
        places < part,
    ]
    kept = np.choose((numbers % PATTERNS)[:, None], left)
    return np.asarray(kept.reshape(shape))


def _is_mask(domain: Domain, dtype: np.dtype[Any]) -> bool:
    if domain.choices is not None:
        return set(domain.choices) == {0, 1}
    return dtype.kind == "b" or (is_integer(dtype) and (domain.low, domain.high) == (0, 1))


def _masking(kind: str, dtype: np.dtype[Any], shape: tuple[int, ...], seed: int) -> Array | None:
    if kind == PADDED:
        return rows(shape, seed).astype(dtype)
    return np.full(shape, kind == "all").astype(dtype) if kind in ("none", "all") else None


def _integers(
    kind: str, domain: Domain, dtype: np.dtype[Any], shape: tuple[int, ...], rng: np.random.Generator, seed: int
) -> Array | None:
    """Draw rows of a number that the graph compares with, such as that of padding, or of zeros; or other extremes."""
    if kind == "least":
        return None if domain.low is None else np.full(shape, domain.low).astype(dtype)
    others = draw(domain, dtype, shape, "normal", rng)
    if kind == "negative":
        counts = dtype.kind == "i" and domain.low == 0 and domain.high is not None
        return (others - int(domain.high or 0) - 1).astype(dtype) if counts else None
    (least, most), marks = limits(dtype), dict.fromkeys((*map(round, domain.marks), 0))
    numbers = [number for number in marks if domain.allows(number) and least <= number <= most]
    if kind not in (PADDED, "none") or not numbers:
        return None
    mark = numbers[seed % len(numbers)]
    if kind == "none":
        return np.full(shape, mark).astype(dtype)
    unlike = mark + (1 if domain.allows(mark + 1) else -1)
    return np.where(rows(shape, seed), np.where(others == mark, unlike, others), mark).astype(dtype)


def _zero_rows(values: Array, seed: int) -> Array:
    return np.where((rows((*values.shape[:-1], 1), seed) if values.ndim else seed % 2) != 0, values, 0.0)


def _hidden(values: Array, seed: int) -> Array:
    return np.where(rows(values.shape, seed), 0.0, -np.inf)


def _not_finite(values: Array, seed: int) -> Array:
    odd = np.resize([np.nan, np.inf, -np.inf], values.shape)
    return np.where(rows(values.shape, seed), values, odd)


_FLOATS: dict[str, Callable[[Array, int], Array]] = {
    "zero rows": _zero_rows,
    "zeros": lambda values, seed: np.zeros_like(values),
    "constant": lambda values, seed: np.full_like(values, 0.5 + seed % 3),
    "negative": lambda values, seed: -np.abs(values),
    "positive": lambda values, seed: np.abs(values),
    "faint": lambda values, seed: values * _FAINT,
    HIDDEN: _hidden,
    NOT_FINITE: _not_finite,
}
