"""Ranges of the values of a model on calibration data."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from surgery import Graph, UsageError, Value, WorkerError

MAGNITUDES = (1e-3, 100.0)
"""The magnitudes of inputs at which values are measured, too, where the inputs are drawn.

A product of four factors grows from 2 to 1e8, and shrinks to 1e-12, and a float16 holds neither. The square of a larger
input overflows, and that of a smaller one is lost.
"""


@dataclass
class Range:
    """The largest finite magnitude of the elements of a value, and the smallest that is not 0.

    `faintest` is the smallest over the input sets of the largest magnitude, if it is not 0.
    `highest` is the largest element; of the rows along the last axis, `row` is the smallest maximum and `square` the
    largest mean of the squares; `count` is the largest number of elements. They are infinite or 0 if unknown.
    `endless` is whether any element is infinite or NaN.
    """

    largest: float = 0.0
    smallest: float = math.inf
    highest: float = math.inf
    row: float = -math.inf
    square: float = math.inf
    count: int = 0
    endless: bool = False
    faintest: float = math.inf

    def include(self, array: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> None:
        """Widen the range by the elements of an array."""
        finite = array[np.isfinite(array)]
        self.endless = self.endless or finite.size < array.size
        if not finite.size:
            return
        first = not self.count
        self.count = max(self.count, array.size)
        self.highest = max(-math.inf if first else self.highest, float(finite.max()))
        if finite.size == array.size:
            rows = array.reshape(-1, array.shape[-1] if array.ndim else 1)
            squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
            self.row = min(math.inf if first else self.row, float(rows.max(axis=1).min()))
            self.square = max(0.0 if first else self.square, float(squares.max()) / rows.shape[1])
        else:
            self.row, self.square = -math.inf, math.inf
        size = np.abs(finite)
        self.largest = max(self.largest, float(size.max()))
        positive = size[size > 0]
        if positive.size:
            self.faintest = min(self.faintest, float(size.max()))
            self.smallest = min(self.smallest, float(positive.min()))


Ranges = dict[str, Range]
"""Ranges by the names of values; values of unknown range are missing."""


def measured(graph: Graph, values: Iterable[Value]) -> Ranges:
    """Return the ranges of values of the main graph and of bodies on the calibration data; empty without data.

    A value of a body that never runs on the data has no range.
    """
    wanted = list(dict.fromkeys(values))
    return graph.remember(("ranges", *(value.name for value in wanted)), lambda: _measure(graph, wanted))


def _measure(graph: Graph, values: list[Value]) -> Ranges:
    found: Ranges = {}
    try:
        for value, array in graph.recordings([one for one in values if one.scope is graph.main], MAGNITUDES):
            if array.dtype == np.float32:
                found.setdefault(value.name, Range()).include(array)
    except (UsageError, WorkerError):
        return {}  # no inputs, or the model does not run
    inside = [value for value in values if value.scope is not graph.main]
    try:
        ranges = graph.body_ranges(inside, MAGNITUDES) if inside else {}
    except (UsageError, WorkerError):
        return found
    return found | {value.name: _in_body(*found) for value, found in ranges.items() if found[0]}


def _in_body(largest: float, smallest: float, faintest: float) -> Range:
    return Range(largest, smallest, faintest=faintest)
