"""Ranges of the values of a model on calibration data."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from surgery import Graph, UsageError, Value, WorkerError


@dataclass
class Range:
    """The largest finite magnitude of the elements of a value, and the smallest that is not 0.

    `highest` is the largest element; `square` is the largest mean of the squares along the last axis, and `count` the
    largest number of elements. They are infinite or 0 if they are not known.
    """

    largest: float = 0.0
    smallest: float = math.inf
    highest: float = math.inf
    square: float = math.inf
    count: int = 0

    def include(self, array: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> None:
        """Widen the range by the elements of an array."""
        finite = array[np.isfinite(array)]
        if not finite.size:
            return
        size = np.abs(finite)
        first = not self.count
        self.count = max(self.count, array.size)
        self.highest = max(-math.inf if first else self.highest, float(finite.max()))
        self.square = max(0.0 if first else self.square, _mean_square(array))
        self.largest = max(self.largest, float(size.max()))
        positive = size[size > 0]
        if positive.size:
            self.smallest = min(self.smallest, float(positive.min()))


def _mean_square(array: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> float:
    """Return the largest mean of squares along the last axis; elements that are not finite count as 0."""
    wide = np.nan_to_num(array, nan=0.0, posinf=0.0, neginf=0.0).reshape(-1, array.shape[-1] if array.ndim else 1)
    return float(np.einsum("ij,ij->i", wide, wide, dtype=np.float64).max()) / wide.shape[1]


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
        for value, array in graph.recordings([value for value in values if value.scope is graph.main]):
            if array.dtype == np.float32:
                found.setdefault(value.name, Range()).include(array)
    except (UsageError, WorkerError):
        return {}  # no inputs, or the model does not run
    inside = [value for value in values if value.scope is not graph.main]
    try:
        ranges = graph.body_ranges(inside) if inside else {}
    except (UsageError, WorkerError):
        return found
    return found | {value.name: Range(*pair) for value, pair in ranges.items() if pair[0]}
