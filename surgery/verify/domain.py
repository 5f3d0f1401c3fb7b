"""What may stand in an input, and how arrays are drawn from it."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from surgery.verify.elements import Array, greatest, is_float, is_integer, limits

ORDINARY = ("normal", "edges", "wide", "image", "coarse")
"""Kinds of data. "normal" is Gaussian; "edges" mixes in zeros of both signs, ±1, ±6, tiny and large values, and the
ends of integer ranges; "wide" spans five orders of magnitude; "image" lies in [0, 1); "coarse" has whole numbers
only, so that many are equal. Beside these, "special" has NaN and infinities, for outputs that nothing else moves."""

_EDGES = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 6.0, -6.0, 1e-6, -1e-6, 1e-30, 100.0, -100.0])
_WORDS = ("a", "b", "the", "monday", "Tuesday", "", "x1", "été")

Drawer = Callable[[np.random.Generator, tuple[int, ...]], Array]


@dataclass(frozen=True)
class Domain:
    """The legal elements of an input: an interval (both ends included), a choice, or a whole array by `draw`.

    `mask` asks for a first element of 1 in each row, so that no row is masked out whole.
    """

    low: float | None = None
    high: float | None = None
    choices: tuple[Any, ...] | None = None
    draw: Drawer | None = None
    mask: bool = False

    def meet(self, other: Domain) -> Domain:
        """Return what is legal for both; when nothing is, the first one wins."""
        if self.draw is not None or other.draw is not None:
            return self if self.draw is not None else other
        if self.choices is not None or other.choices is not None:
            first, second = (self, other) if self.choices is not None else (other, self)
            kept = tuple(item for item in first.choices or () if second.allows(item))
            return replace(first, choices=kept or first.choices, mask=self.mask or other.mask)
        low = max((bound for bound in (self.low, other.low) if bound is not None), default=None)
        high = min((bound for bound in (self.high, other.high) if bound is not None), default=None)
        if low is not None and high is not None and low > high:
            return self
        return Domain(low, high, mask=self.mask or other.mask)

    def allows(self, item: Any) -> bool:
        """Tell whether an element is legal."""
        if self.choices is not None:
            return item in self.choices
        if isinstance(item, str):
            return True
        return not ((self.low is not None and item < self.low) or (self.high is not None and item > self.high))


ANY = Domain()
MASK = Domain(choices=(0, 1), mask=True)
POSITIVE = Domain(low=0.05, high=2.0)
UNIT = Domain(low=0.0, high=1.0)


def generator(seed: int, name: str, character: str) -> np.random.Generator:
    """Return the random numbers of one input: its own, whatever other inputs the model has."""
    return np.random.default_rng([seed, zlib.crc32(name.encode()), zlib.crc32(character.encode())])


def draw(
    domain: Domain, dtype: np.dtype[Any], shape: tuple[int, ...], character: str, rng: np.random.Generator
) -> Array:
    """Draw an array; the same generator state gives the same bytes."""
    if domain.draw is not None:
        array: Array = np.asarray(domain.draw(rng, shape))
        return array.astype(dtype).reshape(array.shape)
    if domain.choices is not None:
        return _choose(domain, dtype, shape, character, rng)
    if dtype.kind == "O":
        words = np.empty(shape, dtype=object)
        words.reshape(-1)[:] = [_WORDS[i] for i in rng.integers(0, len(_WORDS), words.size)]
        return words
    if dtype.kind == "b":
        share = {"edges": 0.9, "image": 1.0}.get(character, 0.5)
        return rng.random(shape) < share
    if is_integer(dtype):
        return _integers(domain, dtype, shape, character, rng)
    if dtype.kind == "c":
        real = _floats(domain, np.dtype("f8"), shape, character, rng)
        return (real + 1j * _floats(domain, np.dtype("f8"), shape, character, rng)).astype(dtype)
    return _floats(domain, dtype, shape, character, rng)


def _choose(
    domain: Domain, dtype: np.dtype[Any], shape: tuple[int, ...], character: str, rng: np.random.Generator
) -> Array:
    choices = domain.choices or ()
    picks = rng.integers(0, len(choices), shape)
    if domain.mask and character == "image":
        picks = np.full(shape, len(choices) - 1)
    array = np.empty(shape, dtype=object)
    array.reshape(-1)[:] = [choices[i] for i in picks.reshape(-1)]
    result: Array = array if dtype.kind == "O" else array.astype("f8" if is_float(dtype) else "i8").astype(dtype)
    if domain.mask and result.ndim and result.shape[-1]:
        result[..., 0] = choices[-1]
    return result


def _integers(
    domain: Domain, dtype: np.dtype[Any], shape: tuple[int, ...], character: str, rng: np.random.Generator
) -> Array:
    least, most = limits(dtype)
    reach = {"normal": 10, "edges": 2, "wide": 1000, "image": 1}.get(character, 10)
    signed = character != "image"
    low = domain.low if domain.low is not None else max(-reach if signed else 0, least)
    high = domain.high if domain.high is not None else reach
    low, high = int(np.clip(np.ceil(low), least, most)), int(np.clip(np.floor(high), least, most))
    if domain.low is not None and domain.high is None:
        high = min(max(high, low + reach), most)
    high = max(low, high)
    drawn = rng.integers(low, high, shape, endpoint=True)
    if character == "edges":
        ends = rng.choice(np.array([low, high]), shape)
        drawn = np.where(rng.random(shape) < 0.3, ends, drawn)
    return np.asarray(drawn).astype(dtype)


def _floats(
    domain: Domain, dtype: np.dtype[Any], shape: tuple[int, ...], character: str, rng: np.random.Generator
) -> Array:
    if domain.low is not None and domain.high is not None:
        return np.asarray(rng.uniform(domain.low, domain.high, shape)).astype(dtype)
    if character == "image":
        values = rng.random(shape)
    else:
        values = rng.standard_normal(shape)
        if character == "wide":
            values = values * 10.0 ** rng.uniform(-3, 2, shape)
        elif character == "edges":
            values = np.where(rng.random(shape) < 0.5, rng.choice(_EDGES, shape), values)
        elif character == "coarse":
            values = np.round(values)
        elif character == "special":
            marks = rng.choice(np.array([np.nan, np.inf, -np.inf]), shape)
            values = np.where(rng.random(shape) < 0.3, marks, values)
            values.reshape(-1)[:2] = [np.nan, np.inf][: values.size]
        else:
            # A few exact zeros, for everything that treats them apart.
            values = np.where(rng.random(shape) < 0.02, 0.0, values)
    top = greatest(dtype)
    with np.errstate(over="ignore", under="ignore"):
        finite = np.clip(values, -top, top)
        return np.asarray(np.where(np.isfinite(values), finite, values)).astype(dtype)
