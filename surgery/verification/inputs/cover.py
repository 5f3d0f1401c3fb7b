"""The sizes at which every free dim is tried, whatever else was rejected, and a few points that cover them.

Broadcasting goes wrong at 1, a split or a padding at an odd size, and an operand that is enlarged by a constant shows
it only at 1, where all extents but that of the constant are rejected. So each dim is tried at 1, at 2, at an odd size,
at the extents of constants that it meets, and on either side of those that it is compared with. Several dims move at
once, so that one point serves all of them; if it is rejected, it is split until each size has been tried by itself,
with the other dims unchanged and at 1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from surgery.verification.inputs.dims import Dims, Implied

Point = dict[str, int]
Size = tuple[str, int]
"""A dim and an extent."""

LEAST = 3
"""The smallest odd size: 1 is a case of its own."""

_SHORT = 32
"""The longest size next to a constant that is tried together with the sizes of other dims."""

_PAIRED = 6
"""Maximum number of dims that are tried in pairs of sizes."""


@dataclass
class CoverBudget:
    """The numbers of points that may be tried and kept, and the estimated seconds that trying may take."""

    probes: int
    room: int
    seconds: float

    def spend(self, seconds: float) -> bool:
        """Deduct one probe; return False if none is left."""
        if self.probes <= 0 or self.room <= 0 or self.seconds <= 0:
            return False
        self.probes -= 1
        self.seconds -= seconds
        return True


def sizes(dims: Dims, suggested: Mapping[str, Sequence[int]], compared: Sequence[Point]) -> list[Size]:
    """Return the sizes at which dims are to be tried: the user's, else 1, 2, an odd one and those suggested.

    Where few points can be kept, a size above a constant that the graph compares with it comes first.
    """
    wanted: list[Size] = []
    for name in dims.names:
        sides = [point[name] for point in compared if set(point) == {name}]
        usual = (1, 2, dims.uneven(name), *suggested.get(name, ()))
        extents = dims.wishes.get(name) or (*sides[:1], 1, *sides[1:], *usual)
        wanted += [(name, extent) for extent in dict.fromkeys(extents)]
    return wanted


def stands_alone(point: Mapping[str, int], name: str, others: Sequence[str]) -> bool:
    """Return whether a dim is 1 where one of the dims that it meets in a broadcast is larger."""
    return point.get(name) == 1 and any(point.get(other, 1) > 1 for other in others)


class Cover:
    """The search for points that cover sizes. `probe` returns whether the original accepts a point, and keeps it."""

    def __init__(
        self,
        free: Dims,
        tied: Dims,
        implied: Implied,
        accepted: Sequence[Point],
        probe: Callable[[Point], bool],
    ) -> None:
        self.free = free
        self.accepted = list(accepted)
        self.base = self.accepted[0]
        self.tied = tied if tied.complete(self.base) == self.base else free
        wanted = sizes(free, implied["sizes"], implied["compared"])
        self.wanted = [size for size in wanted if self._may_be(size, implied["broadcast"])]
        self.compared = [point for point in implied["compared"] if free.wishes.keys().isdisjoint(point)]
        self.meets = [(name, others) for name, *others in implied["meets"] if name not in free.wishes]
        self.tried: set[tuple[Size, ...]] = set()
        self._probe = probe

    def _may_be(self, size: Size, broadcast: Sequence[str]) -> bool:
        """Return whether a size is worth trying: a dim that follows from others can only be broadcast to them."""
        name, extent = size
        if name in self.tied.together:
            return any(point.get(name) == extent for points in self.tied.joint for point in points)
        return extent == 1 and name in broadcast if self._follows(name) else True

    def _follows(self, name: str) -> bool:
        """Return whether a dim follows from other dims, not only from constants."""
        return bool(set(self.tied.ties.get(name, ())) - {""})

    def run(self, pairs: bool) -> None:
        """Try the sizes of all dims, first of those that others follow from; then, with `pairs`, pairs of sizes.

        Also try dims that a graph compares with a constant together, such as their sum, and each dim at 1 where another
        one that it is broadcast to is larger.
        """
        self._sides()
        for names in (set(self.tied.names), set(self.free.names)):
            self._sizes(names)
        for point in self.compared:
            if len(point) > 1 and not any(point.items() <= other.items() for other in self.accepted):
                self._at(self.base, list(point.items()))
        self._broadcast()
        loose = {name for name in self.free.names if not self._follows(name)}
        if pairs and 1 < len(loose) <= _PAIRED:
            self._pairs(loose)

    def _broadcast(self) -> None:
        """Try dims at 1 against larger ones: all that do not meet each other at once, else each by itself."""
        near: dict[str, set[str]] = defaultdict(set)
        for name, others in self.meets:
            near[name].update(others)
        done: list[tuple[str, list[str]]] = []
        while left := [item for item in self.meets if item not in done and not self._stands_alone(*item)]:
            ones: dict[str, int] = {}
            for name, _ in left:
                if near[name].isdisjoint(ones):
                    ones[name] = 1
            self._exactly(ones)
            for name, others in left:
                if name in ones:
                    done.append((name, others))
                    # Others may follow from the dim elsewhere, and only those that it meets here stay as they are.
                    if not self._stands_alone(name, others) and not self._exactly({name: 1}):
                        self._at(self.base, [(name, 1), *((other, self.base[other]) for other in others)])

    def _stands_alone(self, name: str, others: Sequence[str]) -> bool:
        """Return whether a dim is 1 at a point where the other extent of a broadcast is larger."""
        return any(stands_alone(point, name, others) for point in self.accepted)

    def _exactly(self, changes: Mapping[str, int]) -> bool:
        """Try the base with some dims changed and all others kept, whatever follows from what."""
        return self._try({**self.base, **changes})

    def _sides(self) -> None:
        """Try long sizes next to a constant with the other dims at 1 if the model accepts that, which is cheaper."""
        asked = [size for point in self.compared if len(point) == 1 for size in point.items() if size in self.wanted]
        for name, extent in asked:
            if extent > _SHORT and not self._is_covered((name, extent)):
                self._at({**self.base, **self._ones()}, [(name, extent)])

    def _sizes(self, names: set[str]) -> None:
        """Try the missing sizes of some dims, all at once as long as that is accepted."""
        left = [size for size in self.wanted if size[0] in names]
        while left := [size for size in left if not self._is_covered(size)]:
            group: dict[str, int] = {}
            for turn, name in enumerate(dict.fromkeys(name for name, _ in left)):
                own = [extent for other, extent in left if other == name]
                # Not all dims are 1 at the same time: that would show little about each.
                group[name] = own[turn % len(own)]
            self._split(list(group.items()))
            left = [size for size in left if size not in group.items()]

    def _split(self, group: list[Size]) -> None:
        """Try some sizes together, and if that is rejected in halves, down to each by itself."""
        if self._at(self.base, group):
            return
        if len(group) > 1:
            half = len(group) // 2
            self._split(group[:half])
            self._split(group[half:])
            return
        ((name, extent),) = group
        others = [point for point in self.accepted[1:] if point[name] != extent]
        for point in [{**self.base, **self._ones()}, *others[:2]]:
            if self._at(point, group):
                return

    def _ones(self) -> Point:
        return {name: 1 for name in self.base if name not in self.free.wishes}

    def _at(self, point: Mapping[str, int], group: Sequence[Size]) -> bool:
        """Try a point with some dims changed, and the dims that follow from them."""
        leading = {name: extent for name, extent in {**point, **dict(group)}.items() if name in self.tied.names}
        return self._try({**self.tied.complete(leading), **dict(group)})

    def _try(self, moved: Point) -> bool:
        key = tuple(sorted(moved.items()))
        if key in self.tried or moved in self.accepted:
            return False
        self.tried.add(key)
        if not self._probe(moved):
            return False
        self.accepted.append(moved)
        return True

    def _is_covered(self, size: Size) -> bool:
        name, extent = size
        return any(self._is(point[name], name, extent) for point in self.accepted)

    def _is(self, found: int, name: str, extent: int) -> bool:
        """Return whether an extent matches a size; any odd extent is as good as another."""
        is_uneven = name not in self.free.wishes and extent == self.free.uneven(name)
        return found == extent or (is_uneven and found >= LEAST and found % 2 == 1)

    def _pairs(self, names: set[str]) -> None:
        """Try points with many pairs of sizes that no accepted point has, until no pair is missing."""
        sides = {size for point in self.compared for size in point.items()}
        possible = [size for size in self.wanted if size[0] in names and self._is_covered(size) and size not in sides]
        missing = {pair for pair in combinations(possible, 2) if pair[0][0] != pair[1][0] and not self._holds(pair)}
        while missing:
            point = self._richest(missing, names)
            self._at(self.base, list(point.items()))
            # Pairs that were rejected together are not tried again.
            missing -= {pair for pair in missing if all(point.get(name) == extent for name, extent in pair)}
            missing = {pair for pair in missing if not self._holds(pair)}

    def _holds(self, pair: tuple[Size, Size]) -> bool:
        return any(all(self._is(point[name], name, extent) for name, extent in pair) for point in self.accepted)

    def _richest(self, missing: set[tuple[Size, Size]], names: set[str]) -> Point:
        """Begin with the first missing pair, and add for each other dim the size that completes the most pairs."""
        point = dict(min(missing))
        for name in self.free.names:
            if name in names and name not in point:
                counts = {extent: self._gain(missing, point, (name, extent)) for extent in self._sizes_of(name)}
                point[name] = max(counts, key=lambda extent: counts[extent])
        return point

    def _sizes_of(self, name: str) -> Iterator[int]:
        yield self.base[name]
        yield from (extent for other, extent in self.wanted if other == name)

    @staticmethod
    def _gain(missing: set[tuple[Size, Size]], point: Point, size: Size) -> int:
        chosen = {*point.items(), size}
        return sum(size in pair and all(one in chosen for one in pair) for pair in missing)
