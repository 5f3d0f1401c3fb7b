"""The order of boxes in each row: barycenter sweeps down and up, keeping the order with the fewest crossings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from surgery.interface.layout.arrays import Ints, distinct, inverse, offsets, ranges
from surgery.interface.layout.long_edges import LanedRows

STRIDE = 48
"""A sweep handles every 48th row at once, so it takes 48 steps regardless of the depth of the drawing."""
PATIENCE = 3
"""Number of sweeps without improvement after which the search ends."""
SMALL = 400
"""Maximum number of vertices of a drawing for which several initial orders are tried."""
SHUFFLES = 1_200
"""Number of random orders that are tried then, times the number of vertices."""
SWITCHES = 8
"""Maximum number of rounds of exchanging neighbors."""
MOST = 256
"""Maximum number of pairs of edges that are examined to exchange two vertices."""


@dataclass(frozen=True)
class _SortedVertices:
    """Vertices that are sorted at once, grouped by row, and their neighbors in the previous row."""

    vertices: Ints
    neighbors: Ints
    starts: Ints
    degree: Ints


def ordered(rows: LanedRows, first: Ints) -> Ints:
    """Return the place of each vertex; the places of row r start at `rows.starts[r]`, from left to right.

    `first` is the initial order: any numbers, one for each vertex. The result has at most as many crossings. For small
    drawings, other initial orders are tried too.
    """
    sorter = _Sorter(rows)
    best = inverse(np.lexsort((first, rows.row)))
    fewest = crossings(rows, best)
    if not fewest:
        return best
    starts = [best]
    if len(best) < SMALL:
        numbers = np.random.default_rng(len(best))
        starts += [inverse(np.lexsort((-first, rows.row)))]
        starts += [
            inverse(np.lexsort((numbers.permutation(len(best)), rows.row)))
            for _ in range(min(SHUFFLES // len(best), 12))
        ]
    for start in starts:
        place, count = sorter.sorted(start, crossings(rows, start))
        if count:
            sorter.switch(place)
            count = crossings(rows, place)
        if count < fewest:
            best, fewest = place, count
        if not fewest:
            break
    return best


class _Sorter:
    """The data shared by all initial orders."""

    def __init__(self, rows: LanedRows) -> None:
        self._rows = rows
        self._down = _steps(rows, rows.upper, rows.lower, 1)
        self._up = _steps(rows, rows.lower, rows.upper, -1)
        self._sides = [_Side(rows.upper, rows.lower, len(rows.row)), _Side(rows.lower, rows.upper, len(rows.row))]

    def sorted(self, place: Ints, fewest: int) -> tuple[Ints, int]:
        """Sweep until nothing improves. Returns the best order, as a new array, and its number of crossings."""
        best = place.copy()
        idle = 0
        for sweep in range(_sweeps(len(place))):
            place = place.copy()
            for step in self._down if sweep % 2 == 0 else self._up:
                _sort(place, step, 1 if sweep % 4 < 2 else -1)
            found = crossings(self._rows, place)
            idle = 0 if found < fewest else idle + 1
            if found < fewest:
                best, fewest = place, found
            if not fewest or idle > PATIENCE:
                break
        return best.copy(), fewest

    def switch(self, place: Ints) -> None:
        """Exchange neighbors in a row where that reduces crossings, in every other row at once."""
        row = self._rows.row
        for _ in range(SWITCHES):
            before = place.copy()
            for even, odd in ((0, 0), (0, 1), (1, 0), (1, 1)):
                at = inverse(place)
                left, right = at[:-1], at[1:]
                chosen = (row[left] == row[right]) & (row[left] % 2 == even) & (place[left] % 2 == odd)
                left, right = left[chosen], right[chosen]
                saved = sum((side.saved(left, right, place) for side in self._sides), np.zeros(len(left), np.int64))
                left, right = left[saved > 0], right[saved > 0]
                place[left], place[right] = place[right], place[left]
            if np.array_equal(before, place):
                break


class _Side:
    """The neighbors of each vertex in the rows above, or in those below."""

    def __init__(self, far: Ints, near: Ints, count: int) -> None:
        self._neighbors = far[np.argsort(near, kind="stable")]
        self._starts = offsets(near, count)

    def saved(self, left: Ints, right: Ints, place: Ints) -> Ints:
        """Return the number of crossings saved by exchanging the vertices of each pair."""
        first, second = np.diff(self._starts)[left], np.diff(self._starts)[right]
        counts = np.where(first * second <= MOST, first * second, 0)
        pair = np.repeat(np.arange(len(left), dtype=np.int64), counts)
        at = ranges(np.zeros(len(left), np.int64), counts)
        one = self._neighbors[self._starts[left][pair] + at // second[pair]]
        other = self._neighbors[self._starts[right][pair] + at % second[pair]]
        sign = np.sign(place[one] - place[other]).astype(np.float64)
        return np.asarray(np.bincount(pair, sign, len(left)), np.float64).astype(np.int64)


def _sweeps(vertices: int) -> int:
    """Return the maximum number of sweeps; large drawings get fewer to save time, and are never seen as a whole."""
    return 24 if vertices < 4_000 else 12 if vertices < 40_000 else 6


def _steps(rows: LanedRows, fixed: Ints, free: Ints, direction: int) -> list[_SortedVertices]:
    """Split a sweep into steps: in each, vertices `free` of some rows are sorted by `fixed` ones in previous rows."""
    order = np.argsort(free, kind="stable")
    neighbors = fixed[order]
    starts = offsets(free, len(rows.row))
    degree = np.diff(starts)
    alone = np.diff(rows.starts) == 1
    vertices = np.nonzero((degree > 0) & ~alone[rows.row])[0]
    phase = (rows.row[vertices] * direction) % STRIDE
    by_phase = np.argsort(phase, kind="stable")
    bounds = offsets(phase, STRIDE)
    steps = []
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist()):
        if begin < end:
            chosen = vertices[by_phase[begin:end]]
            counts = degree[chosen]
            inner = neighbors[ranges(starts[chosen], counts)]
            steps.append(_SortedVertices(chosen, inner, np.cumsum(counts) - counts, counts))
    return steps


def _sort(place: Ints, step: _SortedVertices, bias: int) -> None:
    """Sort vertices by the mean place of their neighbors. Places of rows do not overlap, so rows stay separate."""
    mean = np.add.reduceat(place[step.neighbors], step.starts) / step.degree
    own = place[step.vertices]
    order = np.lexsort((own * bias, mean))
    place[step.vertices[order]] = np.sort(own)


def crossings(rows: LanedRows, place: Ints) -> int:
    """Count the pairs of edges between neighboring rows that cross."""
    order = np.lexsort((place[rows.lower], place[rows.upper]))
    row = rows.row[rows.lower[order]]
    return inversions(place[rows.lower[order]] - rows.starts[row], offsets(row, len(rows.starts) - 1))


def inversions(values: Ints, starts: Ints) -> int:
    """Count, in each slice `starts[i]` to `starts[i + 1]`, the pairs that are in descending order.

    From the highest bit to the lowest, slices are partitioned stably by the bit; each one that a zero overtakes is
    larger.
    """
    total = 0
    width = int(values.max()).bit_length() if len(values) else 0
    for bit in range(width - 1, -1, -1):
        ones = (values >> bit) & 1
        before = np.zeros(len(values) + 1, np.int64)
        np.cumsum(ones, out=before[1:])
        sizes = np.diff(starts)
        base = np.repeat(before[starts[:-1]], sizes)
        overtaken = before[:-1] - base
        total += int(overtaken[ones == 0].sum())
        if not bit:
            break
        within = np.diff(before[starts])
        middle = starts[1:] - within
        index = np.arange(len(values), dtype=np.int64)
        target = np.where(ones == 1, np.repeat(middle, sizes) + overtaken, index - overtaken)
        parted = np.empty_like(values)
        parted[target] = values
        values = parted
        starts = distinct(np.concatenate([starts, middle]))
    return total
