"""Extents that several symbolic dims must have together, by shapes inferred with symbols. Runs in a worker process.

A table of positions fixes the number of patches, (height/16)*(width/16) + 1 = 577; a matrix fixes the number of
features that are left of an image; anchors fix the sum over three scales. Squares come first; then other extents with
the same product, at which height and width differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product

import numpy as np

from surgery.model.shapes.declarations import Extent
from surgery.verification.inputs.admissible import MOST, DemandEvaluator, Holds
from surgery.verification.inputs.demands import Demand
from surgery.verification.inputs.dims import Joint
from surgery.verification.inputs.expressions import Integers, Reader

Point = dict[str, int]

_GRID: Integers = np.concatenate([np.arange(1, 640), np.arange(640, 2048, 4), np.arange(2048, MOST + 1, 16)])
"""The extents that are tried against each other, as far as they are not equal."""

_OTHERS = (2, 1, 4, 8, 16, 3, 32)
"""The extents of further dims, most often the batch or the frames of a video."""

_MOST_COMBINATIONS, _MOST_GRIDS = 49, 3
"""Maximum numbers of combinations of further dims, for squares and for other extents of the last two dims."""

_SAMPLES = 64
"""Number of random points at which demands are tried that may always hold."""

_MOST_ALIASES, _READABLE = 8, 200
"""Maximum number of times that symbols are replaced in a text for people, and its maximum length."""

_LEAST = 32
"""The smallest extent that is preferred, if smaller ones are legal too: a deep network needs a few positions."""


def joint(
    names: Sequence[str], wanted: Mapping[Demand, str], aliases: Mapping[str, Extent], admitted: Mapping[str, Holds]
) -> list[Joint]:
    """Return the groups of dims that several dims of a demand tie together, with points that meet their demands.

    `wanted` are demands and the nodes that make them, `admitted` the extents of each dim by itself.
    """
    found = []
    for group, demands in _groups(_shared(names, wanted, aliases), names):
        points = _Solver(group, demands, aliases, admitted).points()
        if points:
            shown = [f"{wanted[demand]} requires {written(demand, aliases)}" for demand in demands]
            found.append(Joint(names=group, points=points, demands=shown))
    return found


def written(demand: Demand, aliases: Mapping[str, Extent]) -> str:
    """Return a demand as text, in terms of dims as far as that is readable."""
    text = f"{demand.left} {'>=' if demand.least else '='} {demand.right}"
    for _ in range(_MOST_ALIASES):
        longer = renamed(text, {name: f"({extent})" for name, extent in aliases.items()})
        if longer == text or len(longer) > _READABLE:
            break
        text = longer
    return text


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Return text with other names for symbols."""
    return re.sub(r"[A-Za-z_]\w*", lambda found: names.get(found[0], found[0]), text)


def _shared(
    names: Sequence[str], wanted: Iterable[Demand], aliases: Mapping[str, Extent]
) -> Iterator[tuple[Demand, frozenset[str]]]:
    """Yield the demands on several dims that do not always hold, with these dims."""
    random = np.random.default_rng(0)
    samples = {name: random.integers(1, 1000, _SAMPLES) for name in names}
    judge = DemandEvaluator(Reader(samples, aliases))
    for demand in wanted:
        used, holds = judge.judge(demand)
        if len(used) > 1 and not holds.all():
            yield demand, used


def _groups(
    demands: Iterable[tuple[Demand, frozenset[str]]], names: Sequence[str]
) -> Iterator[tuple[list[str], list[Demand]]]:
    """Yield groups of dims that share demands, and these demands."""
    groups: list[tuple[set[str], list[Demand]]] = []
    for demand, used in demands:
        together, own = set(used), [demand]
        for group in [group for group in groups if group[0] & used]:
            groups.remove(group)
            together, own = together | group[0], group[1] + own
        groups.append((together, own))
    for together, own in groups:
        yield [name for name in names if name in together], own


class _Solver:
    """The search for points of one group of dims. The last two dims are solved for, the others tried."""

    def __init__(
        self,
        names: Sequence[str],
        demands: Sequence[Demand],
        aliases: Mapping[str, Extent],
        admitted: Mapping[str, Holds],
    ) -> None:
        self.others, self.pair = names[:-2], names[-2:]
        self.demands = demands
        self.aliases = aliases
        self.admitted = admitted

    def points(self) -> list[Point]:
        """Return points that meet as many demands as any, the best ones first."""
        combinations = list(islice(self._combinations(), _MOST_COMBINATIONS))
        line = np.arange(1, MOST + 1)
        most, holds, others = self._best(combinations, line, line)
        tried = [others] if most == len(self.demands) else combinations[:_MOST_GRIDS]
        count, grid, base = self._best(tried, _GRID[:, None], _GRID[None, :])
        if not max(most, count):
            return []
        if count > most:
            return self._unequal(grid, base, None)
        side = _first(line[holds])
        square = {**others, **dict.fromkeys(self.pair, side)}
        return [square, *(self._unequal(grid, others, side) if count == most and base == others else [])]

    def _best(self, combinations: Iterable[Point], first: Integers, second: Integers) -> tuple[int, Holds, Point]:
        """Return the solution with the most demands met; the first that meets all is as good as any."""
        best: tuple[int, Holds, Point] | None = None
        for others in combinations:
            solved = self._solve(others, first, second)
            best = solved if best is None or solved[0] > best[0] else best
            if best[0] == len(self.demands):
                break
        assert best is not None
        return best

    def _combinations(self) -> Iterator[Point]:
        """Yield extents for the dims that are not solved for."""
        choices = [[extent for extent in _OTHERS if self._admits(name, extent)] or [1] for name in self.others]
        for extents in product(*choices):
            yield dict(zip(self.others, extents))

    def _admits(self, name: str, extent: int) -> bool:
        return name not in self.admitted or bool(self.admitted[name][extent - 1])

    def _solve(self, others: Point, first: Integers, second: Integers) -> tuple[int, Holds, Point]:
        """Return the number of demands met, at which extents of the last two dims, and the extents of the others.

        A demand that contradicts earlier ones is ignored.
        """
        fixed = {name: np.array(extent) for name, extent in others.items()}
        reader = Reader({**fixed, **dict(zip(self.pair, (first, second)))}, self.aliases)
        holds = np.ones(np.broadcast_shapes(first.shape, second.shape), bool)
        for name, extents in zip(self.pair, (first, second)):
            if name in self.admitted:
                holds = np.logical_and(holds, self.admitted[name][extents - 1])
        met = 0
        for demand in self.demands:
            # An extent of 1 could be broadcast, but to more than the other operand has.
            both = holds & DemandEvaluator(reader).judge(replace(demand, broadcast=False))[1]
            if both.any():
                met, holds = met + 1, both
        return met, holds, others

    def _unequal(self, holds: Holds, others: Point, side: int | None) -> list[Point]:
        """Return points with two different extents, as close to `side` as possible: the least ones, then odd ones."""
        before, above = np.zeros_like(holds), np.zeros_like(holds)
        before[1:], above[:, 1:] = holds[:-1], holds[:, :-1]
        unlike = _GRID[:, None] != _GRID[None, :]
        odd = (_GRID % 2 == 1)[:, None] & (_GRID % 2 == 1)[None, :]
        found = []
        for allowed in (holds & unlike & ~before & ~above, holds & unlike & odd):
            if side is not None:
                other = ~np.isin(_GRID, side)
                allowed = allowed & other[:, None] & other[None, :]
            best = _closest(allowed, side)
            found += [best, best[::-1]] if best else []
        ordered = found[0::2] + found[1::2]
        return [{**others, **dict(zip(self.pair, extents))} for extents in dict.fromkeys(ordered)]


def _first(extents: Integers) -> int:
    """Return an extent of the first run of them: from `_LEAST` on, else of the last one.

    Windows leave the same number of positions for each extent of a run. Either end may be the exact multiple, without
    padding and with it: the rounder one. A run without an end, as of a least number of positions, is tried where it
    begins.
    """
    runs = np.split(extents, np.flatnonzero(np.diff(extents) != 1) + 1)
    run = next((run for run in runs if run[-1] >= _LEAST), runs[-1])
    if run[-1] == MOST:
        return max(int(run[0]), _LEAST)
    return max((int(run[0]), int(run[-1])), key=lambda extent: extent & -extent)


def _closest(allowed: Holds, side: int | None) -> tuple[int, ...]:
    """Return the two extents that are closest to each other, and to a square with this side."""
    rows, columns = np.nonzero(allowed)
    if not rows.size:
        return ()
    first, second = np.log(_GRID[rows]), np.log(_GRID[columns])
    middle = (first + second) / 2
    wanted = np.log(side) if side is not None else np.maximum(middle, np.log(_LEAST))
    best = np.argmin(np.abs(first - second) + 2 * np.abs(middle - wanted))
    return int(_GRID[rows[best]]), int(_GRID[columns[best]])
