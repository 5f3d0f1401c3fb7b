"""The legal contents of an input, and drawing of arrays from them."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from surgery.base.operators.distributions import Marks, bounded, clipped, floats, integers
from surgery.base.operators.dtypes import Array, is_float, is_integer

_WORDS = ("a", "b", "the", "monday", "Tuesday", "", "x1", "été")

Drawer = Callable[[np.random.Generator, tuple[int, ...]], Array]


@dataclass(frozen=True)
class Domain:
    """The legal elements of an input: an interval (both ends included), a choice, or a whole array by `draw`.

    `mask` requires a 1 in each row, so that no row is masked out completely. `marks` are elements at which the
    computation of the graph changes its behavior, and `sizes` are magnitudes below which it does; they do not limit the
    legal elements. `also` are additional legal integers. The choices are all that is legal, unless the domain
    `is_open`: then others are, too, but of less interest.
    """

    low: float | None = None
    high: float | None = None
    choices: tuple[Any, ...] | None = None
    draw: Drawer | None = None
    mask: bool = False
    marks: Marks = ()
    sizes: Marks = ()
    also: tuple[int, ...] = ()
    is_open: bool = False

    @property
    def limited(self) -> bool:
        """Whether the legal elements are restricted."""
        return any(item is not None for item in (self.low, self.high, self.choices, self.draw))

    def meet(self, other: Domain) -> Domain:
        """Return the elements that are legal for both; if there are none, those of the first one."""
        if self.draw is not None or other.draw is not None:
            return self if self.draw is not None else other
        if self.is_open or other.is_open:
            return self._with_interest(other)
        if self.choices is not None or other.choices is not None:
            first, second = (self, other) if self.choices is not None else (other, self)
            kept = tuple(item for item in first.choices or () if second.allows(item))
            return replace(first, choices=kept or first.choices, mask=self.mask or other.mask)
        low = max((bound for bound in (self.low, other.low) if bound is not None), default=None)
        high = min((bound for bound in (self.high, other.high) if bound is not None), default=None)
        if low is not None and high is not None and low > high:
            return self
        return Domain(low, high, mask=self.mask or other.mask)

    def _with_interest(self, other: Domain) -> Domain:
        """Return the elements of interest for either that are legal for both; if there are none, the legal ones."""
        if self.is_open and other.is_open:
            return replace(self, choices=tuple(dict.fromkeys([*(self.choices or ()), *(other.choices or ())])))
        interest, legal = (self, other) if self.is_open else (other, self)
        kept = tuple(item for item in interest.choices or () if legal.choices is None and legal.allows(item))
        return replace(legal, choices=kept) if kept else legal

    def allows(self, item: Any) -> bool:
        """Return whether an element is legal."""
        if self.choices is not None and not self.is_open:
            return item in self.choices
        if isinstance(item, str):
            return True
        return not ((self.low is not None and item < self.low) or (self.high is not None and item > self.high))


def arranged(wanted: tuple[int, ...] | None, in_order: bool, drawer: Drawer, otherwise: Drawer | None = None) -> Drawer:
    """Return a drawer for an input from one for the shape `wanted` at its use, which may be another one.

    Elements that arrive there `in_order` are the same. Others, of which a part may arrive, or each several times, are
    drawn by `otherwise`, by default from those drawn for the use.
    """

    def draw_input(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        if wanted is None or (shape == wanted and otherwise is None):
            return drawer(rng, shape)
        if in_order and math.prod(shape) == math.prod(wanted):
            return drawer(rng, wanted).reshape(shape)
        if otherwise is not None:
            return otherwise(rng, shape)
        drawn = drawer(rng, wanted).reshape(-1)
        return rng.choice(drawn, shape) if drawn.size else np.zeros(shape, drawn.dtype)

    return draw_input


ANY = Domain()
MASK = Domain(choices=(0, 1), mask=True)
POSITIVE = Domain(low=1e-6, high=2.0)
UNIT = Domain(low=0.0, high=1.0)


def generator(seed: int, name: str, character: str) -> np.random.Generator:
    """Return the random generator of one input, independent of other inputs of the model."""
    return np.random.default_rng([seed, zlib.crc32(name.encode()), zlib.crc32(character.encode())])


def draw(
    domain: Domain,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    character: str,
    rng: np.random.Generator,
    seed: int = 0,
) -> Array:
    """Draw an array; the same generator state and seed give the same bytes."""
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
        share = {"edges": 0.9, "image": 1.0, "small": 0.1}.get(character, 0.5)
        return rng.random(shape) < share
    if is_integer(dtype):
        drawn = integers(character, rng, shape, dtype, (domain.low, domain.high), domain.marks, seed)
        if not domain.also or character == "normal":
            return drawn
        others = rng.choice(np.array(domain.also), shape)
        return np.asarray(np.where(rng.random(shape) < 0.2, others, drawn)).astype(dtype)
    if dtype.kind == "c":
        real = _reals(domain, shape, character, rng, seed)
        return np.asarray((real + 1j * _reals(domain, shape, character, rng, seed)).astype(dtype))
    return clipped(_reals(domain, shape, character, rng, seed), dtype)


def _reals(domain: Domain, shape: tuple[int, ...], character: str, rng: np.random.Generator, seed: int) -> Array:
    if domain.low is not None and domain.high is not None:
        return bounded(character, rng, shape, (domain.low, domain.high), domain.marks)
    return floats(character, rng, shape, domain.marks, domain.sizes, seed)


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
    # In a row with a single position, 0 would mask it out, which "normal" data must not do.
    if domain.mask and result.ndim and (result.shape[-1] > 1 or (result.size and character == "normal")):
        spared = rng.integers(0, result.shape[-1], (*result.shape[:-1], 1))
        np.put_along_axis(result, spared, choices[-1], axis=-1)
    return result
