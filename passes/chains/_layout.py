"""The shortest sequence of nodes from one arrangement of axes to another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from surgery import Builder, Value

from ._axes import Axis, Extent, Grouping, extents, leaves, regroup, runs, size_of

Step = tuple[list[int] | None, Value]
"""The permutation of a Transpose, or None for a Reshape, and the result of the node."""


@dataclass(frozen=True)
class Plan:
    """At most one Reshape, one Transpose and one Reshape, to be applied to a value."""

    source: Value
    before: list[int] | None
    perm: list[int] | None
    after: list[int] | None

    @property
    def nodes(self) -> int:
        """The number of nodes of the plan."""
        return sum(step is not None for step in (self.before, self.perm, self.after))

    @property
    def fails_on_empty(self) -> bool:
        """Whether a Reshape infers a dim and also copies one, which may be 0."""
        return any(0 in shape and -1 in shape for shape in (self.before, self.after) if shape is not None)

    @property
    def is_reshape(self) -> bool:
        """Whether it is a single Reshape."""
        return self.nodes == 1 and self.perm is None

    def build(self, new: Builder) -> Value:
        """Build the nodes, and return the last result."""
        value = self.source
        if self.before is not None:
            value = new.node("Reshape", value, new.constant(np.array(self.before, np.int64), "shape"))
        if self.perm is not None:
            value = new.node("Transpose", value, perm=self.perm)
        if self.after is not None:
            value = new.node("Reshape", value, new.constant(np.array(self.after, np.int64), "shape"))
        return value


def plan(source: Value, result: Value, steps: Sequence[Step]) -> Plan | None:
    """Find the shortest plan equivalent to the steps; return None if the dims do not determine it."""
    start, end = extents(source.shape), extents(result.shape)
    if start is None or end is None:
        return None
    groups: Grouping = [[Axis(size)] for size in start]
    first = [list(group) for group in groups]
    for perm, value in steps:
        if perm is not None:
            groups = [groups[axis] for axis in perm]
            continue
        wanted = extents(value.shape)
        regrouped = None if wanted is None else regroup(groups, wanted)
        if regrouped is None:
            return None
        groups = regrouped
    return _shortest(source, first, groups, start, end)


def _shortest(
    source: Value, first: Grouping, last: Grouping, start: Sequence[Extent], end: Sequence[Extent]
) -> Plan | None:
    before, after = leaves(first), leaves(last)
    if before == after:
        shape = None if start == end else spec(end, start)
        return Plan(source, None, None, shape) if start == end or shape is not None else None
    pieces = runs(before, after)
    piece_of = {leaf: number for number, piece in enumerate(pieces) for leaf in piece}
    whole_first = all(len({piece_of[leaf] for leaf in leaves([group])}) < 2 for group in first)
    place = {leaf: number for number, leaf in enumerate(before)}
    ways = [_both(first, last), _transpose_first(first, after), _reshape_first(last, place), _pieces(pieces, place)]
    usable = (whole_first, whole_first, _is_whole(last, pieces), True)
    for way, possible in zip(ways, usable):
        found = _complete(source, way, start, end) if possible and way is not None else None
        if found is not None:
            return found
    return None


Way = tuple[list[Extent], list[int]]
"""The dims before a Transpose, and its permutation."""


def _complete(source: Value, way: Way, start: Sequence[Extent], end: Sequence[Extent]) -> Plan | None:
    """Add the Reshapes that a Transpose needs before and after it; None if a shape cannot be specified."""
    middle, perm = way
    turned = [middle[axis] for axis in perm]
    before = None if list(start) == middle else spec(middle, start)
    after = None if turned == list(end) else spec(end, turned)
    if (before is None and list(start) != middle) or (after is None and turned != list(end)):
        return None
    return Plan(source, before, perm, after)


def _is_whole(last: Grouping, pieces: list[list[Axis]]) -> bool:
    """Return whether each final dim lies within one piece, so that a Reshape before the Transpose can form it."""
    piece_of = {leaf: number for number, piece in enumerate(pieces) for leaf in piece}
    return all(len({piece_of[leaf] for leaf in leaves([group])}) < 2 for group in last)


def _both(first: Grouping, last: Grouping) -> Way | None:
    """Return a single Transpose if the dims are the same, including those of extent 1; otherwise None."""
    parts = [tuple(leaves([group])) for group in first]
    perm: list[int] = []
    for group in last:
        wanted = tuple(leaves([group]))
        found = next((i for i, part in enumerate(parts) if part == wanted and i not in perm), None)
        if found is None:
            return None
        perm.append(found)
    return ([size_of(part) for part in parts], perm) if len(perm) == len(parts) else None


def _transpose_first(first: Grouping, after: list[Axis]) -> Way:
    """Return a Transpose of the source's dims with those of extent 1 in place; a Reshape after it does the rest."""
    parts = [leaves([group]) for group in first]
    place = {leaf: number for number, leaf in enumerate(after)}
    order = iter(sorted((i for i, part in enumerate(parts) if part), key=lambda i: place[parts[i][0]]))
    return [size_of(part) for part in parts], [next(order) if part else i for i, part in enumerate(parts)]


def _reshape_first(last: Grouping, place: dict[Axis, int]) -> Way:
    """Return a Transpose to the final dims with those of extent 1 in place; a Reshape before it forms them."""
    parts = [leaves([group]) for group in last]
    order = iter(sorted((i for i, part in enumerate(parts) if part), key=lambda i: place[parts[i][0]]))
    middle = [next(order) if part else i for i, part in enumerate(parts)]
    return [size_of(parts[i]) for i in middle], [middle.index(i) for i in range(len(parts))]


def _pieces(pieces: list[list[Axis]], place: dict[Axis, int]) -> Way:
    """Return a Transpose of as few axes as possible, between two Reshapes."""
    order = sorted(range(len(pieces)), key=lambda number: place[pieces[number][0]])
    return [size_of(pieces[number]) for number in order], [order.index(number) for number in range(len(pieces))]


def spec(wanted: Sequence[Extent], source: Sequence[Extent]) -> list[int] | None:
    """Return the shape input of a Reshape: numbers, 0 for a copied dim, -1 for at most one other; else None."""
    result = []
    for position, size in enumerate(wanted):
        if not size.symbols:
            result.append(size.number)
        elif position < len(source) and source[position] == size:
            result.append(0)
        else:
            result.append(-1)
    return result if result.count(-1) < 2 else None
