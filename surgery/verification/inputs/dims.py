"""Symbolic dims: their names, how they depend on each other, and which extents to try."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import floor
from typing import TypedDict

from surgery.model.shapes.declarations import Extent

Linear = dict[str, int]
"""A sum of dims times integers; the constant is under the empty name."""


class Joint(TypedDict):
    """Dims that depend on each other, points for them, and the demands that they meet, as text."""

    names: list[str]
    points: list[dict[str, int]]
    demands: list[str]


class Solved(TypedDict):
    """The admitted extents of dims for which the graph does not admit all, groups of dims that it admits only together,
    dims that may be 1 where others are larger, each followed by these, and points on either side of the constants that
    extents are compared with."""

    meets: list[list[str]]
    compared: list[dict[str, int]]
    admits: dict[str, list[int]]
    joint: list[Joint]


class Implied(Solved):
    """What a graph implies for its dims: the dims that follow from others, the extents of constants that dims meet, and
    the dims that may be 1 nevertheless because they meet others only in a broadcast. `shapes` are those of values, with
    the symbols of the dims."""

    ties: dict[str, Linear]
    sizes: dict[str, list[int]]
    broadcast: list[str]
    shapes: dict[str, list[Extent]]


UNKNOWN = Implied(ties={}, sizes={}, broadcast=[], meets=[], compared=[], admits={}, joint=[], shapes={})
"""Nothing is implied."""


SMALL = ((2, 3, 5, 7, 11, 13, 17, 19, 23, 29), (1, 4, 6, 9, 8, 10, 12, 15, 14, 16))
"""Two sets of extents, distinct within each set and between them. The first dim, most often the batch, is 1 in one of
them: broadcasting goes wrong only there. In the first set, the others are odd, so that a wrong split or padding
shows."""

SPATIAL = ((45, 37, 21), (50, 68, 24))
"""Two sets of extents for the height, width and depth of an image, large enough that a deep network still has several
positions in its last layer. With few positions, all taps of a kernel but the middle one see padding, and prove
nothing."""

NARROW = ((15, 13, 9), (22, 18, 12))
"""The same for images of which a few positions are left everywhere, if a run takes long with `SPATIAL` extents."""

LONG = (2, 37, 41, 31, 29)
"""One set of larger extents: a window, a bucket or a slice may treat the first few positions alike."""

WIDE = (101, 118, 52)
"""The same for images: strides and windows of the last layers of a deep network need several positions."""

LARGE = (32, 64, 224, 16, 8, 128)
"""Extents for dims that must be a multiple of a window or a stride, or large enough for a kernel."""

LARGER = (512, 576, 1024, 160, 256, 96)
"""The same for sequences: frames of a signal, and windows over which its spectrum is computed."""

MULTIPLES = ((64, 96, 32), (96, 64, 32), (32, 64, 32))
"""Extents for images that are scaled down by two several times and up again, with different height and width."""

STEP = 32
"""If a multiple of this is legal, most often other multiples are legal too, and nothing else is."""

UNEVEN = 5
"""An odd extent for a dim that starts with an even one, most often the batch; the next dim has 3."""

SIGNALS = (1601, 16001)
"""Extents for the samples of a waveform: speech encoders turn a few hundred of them into one position, and others need
a second of speech."""


_SINGLE = 4
"""Number of dims that are each tried at 1, with the others unchanged."""

_CHANNELS = 3
"""Models with more free dims are not tried with the samples of a waveform: batch, channels and samples."""

_SEQUENCES = 3
"""Models with more free dims are not tried with sequences of `LARGER` extents."""

_WINDOW = 16
"""A dim whose smallest extent exceeds this is under a large window, and gets an extent of several windows."""


@dataclass(frozen=True)
class Dims:
    """The free dims of a model in order of appearance, and the user's extents for them.

    `ties` holds the dims that follow from others, `admits` the extents of dims for which the graph does not admit all,
    `joint` points for groups of dims that the graph admits only together. `images` are two sets of extents for images.
    """

    names: tuple[str, ...]
    wishes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    spatial: tuple[str, ...] = ()
    ties: Mapping[str, Linear] = field(default_factory=dict)
    admits: Mapping[str, Sequence[int]] = field(default_factory=dict)
    joint: Sequence[Sequence[Mapping[str, int]]] = ()
    images: tuple[tuple[int, ...], tuple[int, ...]] = SPATIAL

    def tied(self, ties: Mapping[str, Linear]) -> Dims:
        """Return the dims with some of them following from others, except those that the user sets."""
        kept = {name: form for name, form in ties.items() if name not in self.wishes}
        return replace(self, names=tuple(name for name in self.names if name not in kept), ties=kept)

    def joined(self, groups: Sequence[Joint]) -> Dims:
        """Return the dims with groups of them that move only together, as far as the user's sizes allow."""
        allowed = [[point for point in group["points"] if self._grants(point)] for group in groups]
        return replace(self, joint=tuple(points for points in allowed if points))

    def _grants(self, point: Mapping[str, int]) -> bool:
        return all(extent in self.wishes.get(name, (extent,)) for name, extent in point.items())

    @property
    def together(self) -> frozenset[str]:
        """The dims that move only together with others."""
        return frozenset(name for points in self.joint for name in points[0])

    def complete(self, point: Mapping[str, int]) -> dict[str, int]:
        """Add the dims that follow from others to a point."""
        sums = {
            name: max(1, sum(times * (point[other] if other else 1) for other, times in form.items()))
            for name, form in self.ties.items()
        }
        return {**point, **sums}

    def ladder(self) -> Iterator[dict[str, int]]:
        """Yield points to try in turn until the model accepts one: small and odd first, then large or equal."""
        if not self.names:
            yield {}
            return
        points = [self.point(0), self._small(0), self.point(1), *self.multiples(), self._all(4), self._all(1)]
        points += [{**self.point(0), name: 1} for name in self.names[:_SINGLE] if name not in self.wishes]
        points += [self._leading(2, extent) for extent in LARGE[:2]]
        points += [self._all(LARGE[0]), *self._signals()]
        points += [self._leading(2, extent) for extent in LARGE[2:]]
        points += [self._leading(1, extent) for extent in LARGE[1:3]]
        points += [self._all(extent) for extent in LARGE]
        if len(self.names) <= _SEQUENCES and not self.spatial:
            points += [self._leading(first, extent) for extent in LARGER for first in (2, 1)]
        seen: list[dict[str, int]] = []
        for point in points:
            if point not in seen:
                seen.append(point)
                yield point

    def _signals(self) -> list[dict[str, int]]:
        """Return points at which the last dim, else the first, has the samples of a waveform."""
        if self.spatial or len(self.names) > _CHANNELS:
            return []
        ends = dict.fromkeys((self.names[-1], self.names[0]))
        return [{**self._small(0), name: self._wish(name, 0, extent)} for name in ends for extent in SIGNALS]

    def starts(self) -> list[dict[str, int]]:
        """Return the points to try first after a small one was rejected."""
        narrow = [self._admitted(self._start(which), {}, times) for times in (2, 1) for which in (0, 1)]
        points = [self.point(0), self.point(1), *(narrow if self.admits else []), *self.multiples()]
        further = [
            self._together(self._small(which % 2), which) for which in range(max(map(len, self.joint), default=0))
        ]
        return [*points[:2], *further, *points[2:]]

    def _together(self, point: Mapping[str, int], which: int) -> dict[str, int]:
        """Return a point with other extents for the dims that move only together."""
        found = dict(point)
        for points in self.joint:
            found.update((name, extent) for name, extent in points[which % len(points)].items() if name in point)
        return found

    def multiples(self) -> list[dict[str, int]]:
        """Return points with image sizes that several layers can halve."""
        return [self._imaged(self._small(0), 0, extents) for extents in MULTIPLES] if self.spatial else []

    def point(self, which: int) -> dict[str, int]:
        """Return one of the two starting points: the user's extents, else small ones, larger for images."""
        point = self._admitted(self._start(which), self.point(0) if which and self.admits else {})
        return self._together(point, which)

    def _start(self, which: int) -> dict[str, int]:
        return self._imaged(self._small(which), which, self.images[which])

    def long(self) -> dict[str, int]:
        """Return a point with larger extents, except for the first dim, most often the batch."""
        point = {name: self._wish(name, 0, _nth(LONG, index)) for index, name in enumerate(self.names)}
        return self._together(self._admitted(self._imaged(point, 0, WIDE), {}), 2)

    def _imaged(self, point: Mapping[str, int], which: int, extents: Sequence[int]) -> dict[str, int]:
        """Return a point with other extents for the dims of images."""
        names = (name for name in self.spatial if name in point)
        return {**point, **{name: self._wish(name, which, extent) for name, extent in zip(names, extents)}}

    def _admitted(self, point: Mapping[str, int], avoided: Mapping[str, int], times: int = 4) -> dict[str, int]:
        """Move each dim to the next extent that the graph admits, a different one for each, and not to an avoided one.

        A dim that is smaller than a large window first grows by `times` the window.
        """
        found = dict(point)
        taken: set[int] = set()
        for name, extent in point.items():
            admits = self.admits.get(name)
            if not admits or name in self.wishes:
                continue
            extent += times * admits[0] if extent < admits[0] > _WINDOW else 0
            further = [other for other in admits if other >= extent] or list(admits[-1:])
            unlike = (other for other in further if other not in taken and other != avoided.get(name))
            found[name] = next(unlike, further[0])
            taken.add(found[name])
        return found

    def _small(self, which: int) -> dict[str, int]:
        return {name: self._wish(name, which, extent) for name, extent in first_extents(self.names, which).items()}

    def alternatives(self, name: str, extent: int) -> list[int]:
        """Return other extents to try for a dim that has an accepted one."""
        wishes = self.wishes.get(name)
        if wishes:
            return [other for other in wishes if other != extent]
        if name in self.together:
            return self._moves(name, extent)
        index = self.names.index(name)
        found = [self.point(1)[name], _nth(SMALL[1], index), _nth(SMALL[0], index), extent + 1, extent * 2, 1]
        if extent % STEP == 0:
            found.insert(1, extent + STEP)
        admits = self.admits.get(name)
        if admits:
            found = [other for other in (self.point(0)[name], *found, *admits[:1]) if other in admits]
        return [other for other in dict.fromkeys(found) if other != extent and other > 0]

    def _moves(self, name: str, extent: int) -> list[int]:
        """Return the extents of a dim that moves only together with others, with which these need not move."""
        points = [point for group in self.joint for point in group if name in point]
        rest = [{**point, name: 0} for point in points if point[name] == extent]
        return [point[name] for point in points if point[name] != extent and {**point, name: 0} in rest]

    def uneven(self, name: str) -> int:
        """Return an odd size for a dim: the one that it starts with, if that is odd."""
        extent = self.point(0)[name]
        return extent if extent % 2 and extent > 1 else UNEVEN

    def _all(self, extent: int) -> dict[str, int]:
        return {name: self._wish(name, 0, extent) for name in self.names}

    def _leading(self, first: int, extent: int) -> dict[str, int]:
        return {name: self._wish(name, 0, first if index == 0 else extent) for index, name in enumerate(self.names)}

    def _wish(self, name: str, which: int, extent: int) -> int:
        wishes = self.wishes.get(name)
        return wishes[min(which, len(wishes) - 1)] if wishes else extent


def symbols_of(names: Sequence[str]) -> dict[str, str]:
    """Return a symbol for each dim, whose own name may be no name in an expression."""
    return {name: f"_d{index}" for index, name in enumerate(names)}


def first_extents(names: Iterable[str], which: int = 0) -> dict[str, int]:
    """Return one of two small extents for each dim."""
    return {name: _nth(SMALL[which], index) for index, name in enumerate(names)}


def _nth(extents: tuple[int, ...], index: int) -> int:
    return extents[index] if index < len(extents) else 2 * index + 11


def free_names(extents: Iterable[Extent]) -> tuple[str, ...]:
    """Return the dims that can be chosen: the names, but not expressions over other names."""
    texts = list(dict.fromkeys(extent for extent in extents if isinstance(extent, str)))
    plain = {text for text in texts if text.isidentifier()}
    return tuple(text for text in texts if not _is_expression(text, plain))


def evaluate(extent: Extent, point: Mapping[str, int]) -> int:
    """Return the extent of a dim at a point; a dim may be an expression over others ("past + 1")."""
    if isinstance(extent, int):
        return extent
    if extent in point:
        return point[extent]
    return max(0, int(_evaluate(ast.parse(extent, mode="eval").body, point)))


def calculate(extent: str, point: Mapping[str, int]) -> int:
    """Return the value of an inferred dim, such as "floor(n/2 - 1/2) + 1" or "Min(512, n)"; it may be negative.

    Raises ValueError for other functions, for unknown names, and if the value is not a whole number.
    """
    found = _evaluate(ast.parse(extent, mode="eval").body, point, exact=True)
    if found != int(found):
        raise ValueError(f"the dim '{extent}' is {found}")
    return int(found)


def _is_expression(text: str, plain: set[str]) -> bool:
    """Return whether a dim name is arithmetic over names that are dims themselves.

    "batch-size" is an ordinary name unless there are dims called "batch" and "size".
    """
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        return False
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    allowed = (ast.BinOp, ast.UnaryOp, ast.Name, ast.Constant, ast.operator, ast.unaryop, ast.expr_context)
    arithmetic = all(isinstance(node, allowed) for node in ast.walk(tree))
    if not arithmetic or isinstance(tree, ast.Name) or not names <= plain:
        return False
    try:
        _evaluate(tree, dict.fromkeys(names, 6))
    except (ValueError, ZeroDivisionError):
        return False
    return True


_Number = int | Fraction

_Operation = Callable[..., _Number]

_FUNCTIONS: Mapping[str, _Operation] = {"floor": floor, "Min": min, "Max": max}

_OPERATIONS: Mapping[type[ast.operator], _Operation] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Mod: operator.mod,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
}


def _evaluate(tree: ast.expr, point: Mapping[str, int], *, exact: bool = False) -> _Number:
    """Evaluate arithmetic; quotients are rounded down, unless `exact`, where functions may round them."""
    match tree:
        case ast.Constant(value=int() as value):
            return value
        case ast.Name(id=name) if name in point:
            return point[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand, point, exact=exact)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if exact and name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_evaluate(arg, point, exact=True) for arg in args))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            operands = [_evaluate(side, point, exact=exact) for side in (left, right)]
            return Fraction(*operands) if exact and isinstance(op, ast.Div) else _OPERATIONS[type(op)](*operands)
    raise ValueError(f"cannot evaluate the dim '{ast.unparse(tree)}'")
