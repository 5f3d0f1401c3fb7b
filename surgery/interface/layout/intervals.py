"""Cutting a sequence of items into repetitions of a pattern, and at places that few values cross."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from surgery.interface.layout.arrays import Ints
from surgery.interface.layout.group_hashes import Hashes, digests

LEAST = 6
"""Minimum number of nodes in a repetition of a pattern; smaller groups would not improve readability."""
CANDIDATES = 24
"""Maximum number of pattern lengths that are tried."""
SHARE = 8
"""A pattern must cover one item in this many."""
LARGE = 16
"""A pattern that covers one item in this many is not put into another block."""
LOOSE = 3
"""Maximum number of places, including both ends, of a range next to such a pattern that is not put into a block."""
PATTERNS = 4
"""Maximum number of pattern lengths that are searched in one sequence, one after another."""


@dataclass(frozen=True)
class Sequence:
    """Items in order, and edges between them, each to a later place."""

    marks: Hashes
    """The kind of each item."""
    context: Hashes
    """The kind of each item with its surroundings."""
    sizes: Ints
    """The number of nodes of each item."""
    edges: Ints
    """Rows (place, place), sorted."""
    labels: Hashes
    """The slots of each edge."""

    def part(self, first: int, last: int) -> Sequence:
        """Return the items from `first` up to `last` (exclusive), and the edges between them."""
        low, high = np.searchsorted(self.edges[:, 0], (first, last))
        inside = low + np.nonzero(self.edges[low:high, 1] < last)[0]
        return Sequence(
            self.marks[first:last],
            self.context[first:last],
            self.sizes[first:last],
            self.edges[inside] - first,
            self.labels[inside],
        )

    def crossing(self) -> Ints:
        """Return the number of items read across each place, from before the first item to after the last one."""
        size = len(self.marks)
        last = np.arange(size, dtype=np.int64)
        np.maximum.at(last, self.edges[:, 0], self.edges[:, 1])
        change = np.bincount(np.arange(size) + 1, minlength=size + 2) - np.bincount(last + 1, minlength=size + 2)
        return np.asarray(np.cumsum(change)[: size + 1], np.int64)


@dataclass(frozen=True)
class Block:
    """A block: the items from `first` up to `last` (exclusive), and the blocks inside, relative to its first item."""

    first: int
    last: int
    inside: tuple[Block, ...] = ()


class BlockCutter:
    """Cuts sequences into blocks; equal sequences are cut in the same way."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: dict[bytes, tuple[Block, ...]] = {}

    def cut(self, row: Sequence) -> tuple[Block, ...]:
        """Return the blocks of a sequence; none if it is short enough."""
        if len(row.marks) <= self._limit:
            return ()
        key = b"".join(part.tobytes() for part in (row.marks, row.sizes, row.edges, row.labels))
        if key not in self._known:
            self._known[key] = self._cut(row)
        return self._known[key]

    def _cut(self, row: Sequence) -> tuple[Block, ...]:
        runs = _patterns(row)
        blocks = [
            [self._block(row, first + turn * period, period) for turn in range(count)] for first, period, count in runs
        ]
        # Places where chunks may be cut: everywhere except between repetitions of a pattern, which are drawn as one.
        free = np.ones(len(row.marks) + 1, np.bool_)
        for first, period, count in runs:
            free[first + 1 : first + period * count] = False
        places = np.nonzero(free)[0]
        if len(places) - 1 <= self._limit:
            return tuple(block for run in blocks for block in run)
        return self._parted(row.crossing(), places, blocks)

    def _parted(self, crossing: Ints, places: Ints, runs: list[list[Block]]) -> tuple[Block, ...]:
        """Keep patterns that make up much of a room visible, and put the ranges between them into blocks."""
        size = int(places[-1])
        large = [run for run in runs if (run[-1].last - run[0].first) * LARGE >= size]
        blocks = [block for run in runs for block in run]
        if not large:
            return self._chunked(crossing, places, blocks)
        ends = [0, *(run[-1].last for run in large)]
        begins = [*(run[0].first for run in large), size]
        found: list[Block] = []
        for first, last, run in zip(ends, begins, [*large, []]):
            held = [block for block in blocks if first <= block.first < last]
            inside = [Block(block.first - first, block.last - first, block.inside) for block in held]
            here = places[(places >= first) & (places <= last)] - first
            if len(here) > LOOSE:
                found.append(Block(first, last, self._chunked(crossing[first : last + 1], here, inside)))
            else:
                found += held
            found += run
        return tuple(found)

    def _block(self, row: Sequence, first: int, size: int) -> Block:
        return Block(first, first + size, self.cut(row.part(first, first + size)))

    def _chunked(self, crossing: Ints, places: Ints, blocks: list[Block]) -> tuple[Block, ...]:
        """Put the ranges between `places` into chunks, with their blocks, until there are few enough."""
        if len(places) - 1 <= self._limit:
            return tuple(blocks)
        marks = chunks(crossing[places], self._limit)
        found: list[Block] = []
        for low, high in pairwise(marks):
            first, last = int(places[low]), int(places[high])
            held = [block for block in blocks if first <= block.first < last]
            inside = [Block(block.first - first, block.last - first, block.inside) for block in held]
            if high - low == 1:
                found += held
            else:
                inner = self._chunked(crossing[first : last + 1], places[low : high + 1] - first, inside)
                found.append(Block(first, last, inner))
        return tuple(found)


def covered(row: Sequence) -> int:
    """Return the number of items in repetitions of a pattern."""
    return sum(period * count for _, period, count in _patterns(row))


def _patterns(row: Sequence) -> list[tuple[int, int, int]]:
    """Find runs of patterns until none covers enough of the remaining items."""
    found: list[tuple[int, int, int]] = []
    marks = row.marks.copy()
    for _ in range(PATTERNS):
        runs = turns(replace(row, marks=marks))
        if not runs:
            break
        found += runs
        for first, period, count in runs:
            size = period * count
            marks[first : first + size] = digests(np.arange(first, first + size), np.zeros(size, np.int64))
    return sorted(found)


def turns(row: Sequence) -> list[tuple[int, int, int]]:
    """Return the runs of the pattern that covers most, without overlaps: (first place, pattern length, repetitions)."""
    size = len(row.marks)
    most, best, runs = 0, 0, [(0, 0)]
    for period in sorted(_periods(row)):
        tried = _runs(row.marks, period)
        covered = sum(last - first for first, last in tried)
        if covered > 1.05 * most:
            most, best, runs = covered, period, tried
    if most * SHARE < size:
        return []
    crossing = row.crossing()
    return [turn for first, last in runs for turn in _cut(row, crossing, first, last, best)]


def _periods(row: Sequence) -> list[int]:
    """Return the most frequent distances between items with the same surroundings."""
    size = len(row.marks)
    order = np.argsort(row.context, kind="stable")
    same = row.context[order[1:]] == row.context[order[:-1]]
    distance = np.bincount(np.diff(order)[same], minlength=1)
    score = distance * np.arange(len(distance))
    likely = np.argsort(-score, kind="stable")[:CANDIDATES].tolist()
    return [period for period in likely if score[period] and 2 * period <= size]


def _runs(marks: Hashes, period: int) -> list[tuple[int, int]]:
    """Return the ranges, at least two periods long, in which each mark equals the one a period before."""
    differs = np.nonzero(marks[:-period] != marks[period:])[0]
    begins = np.concatenate([[0], differs + 1])
    ends = np.concatenate([differs, [len(marks) - period]])
    found = []
    floor = 0
    for first, last in zip(begins.tolist(), ends.tolist()):
        first = max(first, floor)
        if last - first >= period:
            found.append((first, last + period))
            floor = last + period
    return found


def _cut(row: Sequence, crossing: Ints, first: int, last: int, period: int) -> list[tuple[int, int, int]]:
    """Cut a run where the fewest items are read across, and keep adjacent repetitions with equal inner edges."""
    period *= max(1, -(-LEAST // max(1, int(row.sizes[first : first + period].sum()))))
    if last - first < 2 * period:
        return []
    shift = np.arange(min(period, last - first - 2 * period + 1))
    counts = (last - first - shift) // period
    costs = [
        crossing[first + one : first + one + period * count + 1 : period].mean()
        for one, count in zip(shift.tolist(), counts.tolist())
    ]
    at = int(np.argmin(np.round(costs, 3)))
    begin, count = first + at, int(counts[at])
    digest = _digests(row, begin, period, count)
    found = []
    start = 0
    for end in [*(np.nonzero(np.diff(digest))[0] + 1).tolist(), count]:
        if end - start > 1:
            found.append((begin + start * period, period, end - start))
        start = end
    return found


def _digests(row: Sequence, begin: int, period: int, count: int) -> Hashes:
    """Return a hash of the edges inside each repetition of a pattern."""
    turn = (row.edges - begin) // period
    inside = (turn[:, 0] == turn[:, 1]) & (row.edges[:, 0] >= begin) & (turn[:, 1] < count)
    place = (row.edges[inside] - begin) % period
    found = np.zeros(count, np.uint64)
    np.add.at(found, turn[inside, 0], digests(place[:, 0], place[:, 1], row.labels[inside]))
    return found


def chunks(crossing: Ints, limit: int) -> list[int]:
    """Return the places to cut so that parts have similar sizes, and few items are read across.

    `crossing[i]` is the number of items read across place i, including the places at both ends.
    """
    size = len(crossing) - 1
    count = min(3 * limit // 4, -(-size // max(13 * limit // 20, 2)))
    step = size / count
    places = [0]
    for part in range(1, count):
        ideal = part * step
        low, high = max(places[-1] + 1, int(ideal - step / 4)), int(ideal + step / 4) + 1
        window = crossing[low:high] + np.abs(np.arange(low, high) - ideal) / size
        places.append(low + int(np.argmin(window)))
    return [*places, size]
