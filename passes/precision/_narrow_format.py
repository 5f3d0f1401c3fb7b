"""The narrower float types, and the loss of weights in them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from surgery import data_type

_BLOCK = 1 << 22
"""Elements that are processed at once."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Format:
    """A narrower float type: its largest, smallest normal and smallest positive number, and its digits.

    `digits` counts the bits of the significand, including the hidden one: integers up to 2 to that power are exact.
    `opset` is the first opset in which Cast supports the type, and `carried_from` the first in which If, Loop and
    Scan do; source: the schemas.
    """

    name: str
    greatest: float
    normal: float
    smallest: float
    digits: int
    opset: int
    carried_from: int

    @property
    def dtype(self) -> Any:
        """The element type in ONNX."""
        return data_type(self.name)

    def narrowed(self, array: Array) -> Array:
        """Return an array rounded to the type, to nearest and ties to even."""
        with np.errstate(over="ignore"):
            return array.astype(self.dtype.numpy())

    def holds(self, array: Array) -> bool:
        """Return whether the type represents each element exactly, including infinities and NaN."""
        return bool(np.array_equal(self.narrowed(array).astype(np.float32), array, equal_nan=True))

    def loss(self, array: Array) -> Loss:
        """Return the loss of a float32 array in the type, computed one block at a time."""
        overflow = zeros = denormal = 0
        squares = lost = 0.0
        for block in _blocks(array):
            size = np.abs(block)
            finite = np.isfinite(size)
            size = np.where(finite, size, 0)
            narrow = self.narrowed(size).astype(np.float32)
            beyond = np.isinf(narrow)
            overflow += int(np.count_nonzero(beyond))
            zeros += int(np.count_nonzero((narrow == 0) & (size > 0)))
            denormal += int(np.count_nonzero((narrow > 0) & (narrow < self.normal)))
            squares += float(np.sum(np.square(size, dtype=np.float64)))
            lost += float(np.sum(np.square(np.where(beyond, 0, narrow) - size, dtype=np.float64)))
        return Loss(array.size, overflow, zeros, denormal, math.sqrt(lost / squares) if squares else 0.0)


@dataclass(frozen=True)
class Loss:
    """How many of `count` elements overflow, become 0 or denormal, and the norm of the error over the array's."""

    count: int
    overflow: int
    zeros: int
    denormal: int
    relative: float


FLOAT16 = Format("float16", 65504.0, 2.0**-14, 2.0**-24, 11, 6, 1)
"""IEEE 754 binary16."""

BFLOAT16 = Format("bfloat16", 3.3895313892515355e38, 2.0**-126, 2.0**-133, 8, 13, 16)
"""The upper half of float32."""


def _blocks(array: Array) -> Iterator[Array]:
    flat = array.reshape(-1)
    return (flat[start : start + _BLOCK] for start in range(0, flat.size, _BLOCK))
