"""Comparisons of extents with constants, and the extents on either side of each constant.

What a graph computes for 512 positions it may not compute for 513: a condition is met, a Slice cuts, a Min takes the
other operand. `compares` looks for such comparisons with the shapes of two runs, which is cheap. `compared` solves them
with shapes inferred with symbols, in a worker process.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from surgery.base.operators.use import Index, TypedIndex
from surgery.model.shapes.declarations import Extent
from surgery.verification.inputs.admissible import EXTENTS
from surgery.verification.inputs.demands import Shapes
from surgery.verification.inputs.dims import first_extents
from surgery.verification.inputs.expressions import Integers, Reader
from surgery.verification.inputs.factors import integers, stored

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

Value = TypeVar("Value", bound=Hashable)
Number = int | float | str
"""A number, or an expression over dims."""

Pair = tuple[Number, Number]
Made = tuple[str, Sequence[Value | None], Callable[[str], "list[int] | None"]]
"""The operator that makes a value, its operands, and its integer attributes by name."""

_DECIDING = frozenset({"Clip", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min"})
"""Operators whose result depends on which of two operands is larger."""

_COMPARING = _DECIDING | {"Range", "Slice"}

_SAME = frozenset({"Abs", "Cast", "Expand", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that keep numbers that are at least 0."""

_DEPTH = 24
"""Maximum number of operators through which an extent is followed."""

_FEW = 16
"""Maximum number of elements of a tensor whose numbers are compared."""

_MOST_SIZES, _MOST_POINTS = 8, 6
"""Maximum number of extents for each dim by itself, and of points for several dims together."""


@dataclass
class _ExtentNumbers(Generic[Value]):
    """The numbers that a graph computes from extents; of positions, which a Range counts, the greatest one.

    `shape` returns the shape of a value, `stored` its elements if they are known, and `made` what makes it.
    """

    shape: Callable[[Value], Sequence[Extent] | None]
    stored: Callable[[Value], list[Number] | None]
    made: Callable[[Value], Made[Value] | None]
    known: dict[Value, tuple[list[Number], bool] | None] = field(default_factory=dict)

    def pairs(self, op: str, operands: Sequence[Value | None]) -> Iterator[Pair]:
        """Yield the pairs of numbers that a node compares."""
        found = [self.elements(value) for value in operands]
        if op in _DECIDING:
            for first, second in combinations([one for one in found if one], 2):
                for place in range(max(len(first), len(second))):
                    yield first[place % len(first)], second[place % len(second)]
        elif op == "Range" and found[0] and found[1]:
            yield found[0][0], found[1][0]
        elif op == "Slice" and operands[0] is not None:
            yield from _cut(self.shape(operands[0]), found[1:])

    def elements(self, value: Value | None) -> list[Number] | None:
        """Return the elements of a small tensor."""
        found = self._read(value, _DEPTH)
        return found[0] if found else None

    def _read(self, value: Value | None, depth: int) -> tuple[list[Number], bool] | None:
        """Return elements, and whether they are positions."""
        if value is None or not depth:
            return None
        if value not in self.known:
            self.known[value] = None
            stored = self.stored(value)
            self.known[value] = (stored, False) if stored is not None else self._computed(value, depth)
        return self.known[value]

    def _computed(self, value: Value, depth: int) -> tuple[list[Number], bool] | None:
        made = self.made(value)
        if made is None:
            return None
        op, inputs, attribute = made
        if op == "Shape" and inputs[0] is not None:
            dims = self.shape(inputs[0])
            start, end = attribute("start") or [0], attribute("end")
            return None if dims is None else ([*dims[start[0] : end[0] if end else None]], False)
        if op not in _SAME | _OF_NUMBERS.keys() | {"Concat", "Gather", "Range", "Slice"}:
            return None
        operands = [self._read(one, depth - 1) for one in inputs[: 1 if op in _SAME else len(inputs)]]
        first = operands[0]
        if op in _SAME:
            return first
        if op == "Range" and operands[1]:
            return [_OF_NUMBERS["Sub"](operands[1][0][0], 1)], True
        if first is None or any(operand is None for operand in operands[:2]):
            return None
        read = [operand for operand in operands if operand is not None]
        if op in _OF_NUMBERS:
            return _combined(op, read)
        if any(is_counted for _, is_counted in read):
            return None
        found = _moved(op, [elements for elements, _ in read])
        return (found, False) if found is not None and len(read) == len(operands) else None


def _combined(op: str, operands: Sequence[tuple[list[Number], bool]]) -> tuple[list[Number], bool] | None:
    """Return the results of arithmetic on two operands."""
    if len(operands) != 2:
        return None
    (first, counts), (second, other_counts) = operands
    if counts and other_counts and op == "Sub":
        return first, True  # the greatest distance: both positions begin at 0
    if counts != other_counts and op in ("Max", "Min"):
        return (first, True) if counts else (second, True)
    if not first or not second or (len(first) != len(second) and 1 not in (len(first), len(second))):
        return None
    places = range(max(len(first), len(second)))
    results = [_OF_NUMBERS[op](first[place % len(first)], second[place % len(second)]) for place in places]
    return results, counts or other_counts


def _moved(op: str, operands: Sequence[list[Number]]) -> list[Number] | None:
    """Return the elements that an operator picks or joins, by indices that are known."""
    if op == "Concat":
        return [number for elements in operands for number in elements]
    data, *bounds = operands
    whole = [[number for number in elements if isinstance(number, int)] for elements in bounds]
    if any(len(one) != len(other) for one, other in zip(whole, bounds)):
        return None
    if op == "Gather":
        return [data[place] for place in whole[0] if -len(data) <= place < len(data)]
    is_plain = len(whole) > 1 and all(len(one) == 1 for one in whole) and whole[3:] in ([], [[1]])
    return data[whole[0][0] : whole[1][0]] if is_plain else None


def _cut(shape: Sequence[Extent] | None, bounds: Sequence[list[Number] | None]) -> Iterator[Pair]:
    """Yield the extents that a Slice cuts, with its bounds."""
    starts, ends, axes = (*bounds, None, None, None)[:3]
    for given in (starts, ends):
        places = range(len(given or ())) if axes is None else axes
        for bound, axis in zip(given or (), places):
            if shape is not None and isinstance(axis, int) and -len(shape) <= axis < len(shape):
                yield shape[axis], bound if isinstance(bound, str) else abs(bound)


def _divided(first: Number, second: Number) -> Number:
    if isinstance(first, str) or isinstance(second, str):
        return f"truncated(({first}) / ({second}))"
    return math.trunc(first / second) if second else 0


def _arithmetic(text: str, of_numbers: Callable[[float, float], float]) -> Callable[[Number, Number], Number]:
    """Return a function that computes a number from numbers, and from expressions an expression."""

    def apply(first: Number, second: Number) -> Number:
        if isinstance(first, str) or isinstance(second, str):
            return text.format(f"({first})", f"({second})")
        return of_numbers(first, second)

    return apply


_OF_NUMBERS: dict[str, Callable[[Number, Number], Number]] = {
    "Add": _arithmetic("{} + {}", lambda a, b: a + b),
    "Div": _divided,
    "Max": _arithmetic("Max({}, {})", max),
    "Min": _arithmetic("Min({}, {})", min),
    "Mul": _arithmetic("{} * {}", lambda a, b: a * b),
    "Sub": _arithmetic("{} - {}", lambda a, b: a - b),
}


# The search for comparisons, with the shapes of two runs


def compares(index: Index, first: Mapping[str, Sequence[int]], second: Mapping[str, Sequence[int]]) -> bool:
    """Return whether a model compares extents that differ between two runs with constants that they may cross."""
    nodes = [node for node, _ in index.nodes if node.op_type in _COMPARING]
    if not nodes:
        return False
    views = [TypedIndex(index, {name: tuple(shape) for name, shape in shapes.items()}) for shapes in (first, second)]
    numbers = [_of_run(view) for view in views]
    for node in nodes:
        pairs = [one.pairs(node.op_type, [name or None for name in node.input]) for one in numbers]
        if any(_may_cross(*both) for both in zip(*pairs)):
            return True
    return False


def _may_cross(first: Pair, second: Pair) -> bool:
    """Return whether of two numbers one is the same in both runs, and the other one may be below it and above."""
    for one, other in ((0, 1), (1, 0)):
        moving = {float(pair[one]) for pair in (first, second)}
        fixed = {float(pair[other]) for pair in (first, second)}
        if len(fixed) == 1 < len(moving):
            (bound,) = fixed
            return bound <= EXTENTS[-1] and (bound >= 2 or min(moving) < bound)
    return False


def elements(view: TypedIndex) -> Callable[[str], list[Number] | None]:
    """Return a function that returns the elements of a small tensor that the shapes of a run determine."""
    return _of_run(view).elements


def _of_run(view: TypedIndex) -> _ExtentNumbers[str]:
    index = view.index

    def stored(name: str) -> list[Number] | None:
        array = view.constant(name, 0)
        return _listed(array) if array is not None else None

    def made(name: str) -> Made[str] | None:
        node = index.producers.get(name)
        return None if node is None else (node.op_type, [one or None for one in node.input], _attributes(node))

    return _ExtentNumbers(view.shape, stored, made)


def _attributes(node: onnx.NodeProto) -> Callable[[str], list[int] | None]:
    return lambda name: next((list(one.ints) or [one.i] for one in node.attribute if one.name == name), None)


def _listed(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> list[Number] | None:
    """Return the numbers of a small tensor, whole ones as integers."""
    if array.size > _FEW or array.dtype.kind not in "iuf" or not np.isfinite(array).all():
        return None
    return [int(number) if float(number).is_integer() else float(number) for number in array.reshape(-1).tolist()]


# The extents on either side


def compared(
    nodes: Iterable[ir.Node],
    shape: Shapes,
    elements: Shapes,
    names: Mapping[str, str],
    follow: Mapping[str, Extent],
    aliases: Mapping[str, Extent],
) -> list[dict[str, int]]:
    """Return points below, at and above the constants with which a graph compares extents: those above come first.

    `names` are the names of the symbols, and `follow` expressions for the symbols that follow from others.
    """
    numbers = _of_symbols(shape, elements)
    wanted: dict[tuple[Pair, bool], None] = {}
    for node in nodes:
        if node.op_type in _COMPARING:
            for pair in numbers.pairs(node.op_type, node.inputs):
                wanted.update(dict.fromkeys((one, node.op_type in _DECIDING) for one in _ordered(pair)))
    loose = [symbol for symbol in names if symbol not in follow]
    # A dim that follows from others may also stand for itself: in a broadcast.
    readings = ((list(names), aliases), *([(loose, {**aliases, **follow})] if follow else []))
    found: dict[tuple[tuple[str, int], ...], int] = {}
    for symbols, equal in readings:
        for pair, is_decided in wanted:
            for turn, point in enumerate(_sides(pair, symbols, equal, both=is_decided)):
                found.setdefault(tuple(sorted((names[symbol], extent) for symbol, extent in point.items())), turn)
    return _few([dict(point) for point in sorted(found, key=lambda point: found[point])])


def _ordered(pair: Pair) -> Iterator[Pair]:
    """Yield an expression and what it is compared with."""
    first, second = pair
    if isinstance(first, str) and isinstance(second, str):
        yield f"({first}) - ({second})", 0
    elif isinstance(first, str):
        yield first, second
    elif isinstance(second, str):
        yield second, first


def _few(points: Sequence[dict[str, int]]) -> list[dict[str, int]]:
    """Return the first points for each dim or group of dims."""
    kept: dict[tuple[str, ...], list[dict[str, int]]] = defaultdict(list)
    for point in points:
        kept[tuple(point)].append(point)
    most = {names: _MOST_SIZES if len(names) == 1 else _MOST_POINTS for names in kept}
    return [point for point in points if point in kept[tuple(point)][: most[tuple(point)]]]


def _sides(pair: Pair, symbols: Sequence[str], aliases: Mapping[str, Extent], *, both: bool) -> list[dict[str, int]]:
    """Return points at which an expression is above, at and below a number, all as close together as possible.

    Of several dims, the last one moves. Without `both`, the side on which the small extents lie is left out: a Slice
    cuts off one row as it does any number, and runs near the end of a long table take long.
    """
    expression, number = pair
    if not isinstance(expression, str) or (not isinstance(number, str) and abs(number) > EXTENTS[-1]):
        return []  # no extent is near the end of a Slice such as the least int64
    read = Reader(dict.fromkeys(symbols, EXTENTS), aliases).read(expression)
    used = [symbol for symbol in symbols if read and symbol in read[0]]
    if not used or isinstance(number, str):
        return []
    small = first_extents(symbols)
    *others, last = used
    fixed = {symbol: small[symbol] for symbol in others}
    if others:
        extents: dict[str, Integers] = {symbol: np.array(extent) for symbol, extent in fixed.items()}
        read = Reader({**extents, last: EXTENTS}, aliases).read(expression)
    if read is None:
        return []
    signs = np.broadcast_to(np.sign(read[1] - number), EXTENTS.shape)
    usual = None if both else int(signs[small[last] == EXTENTS][0])
    return [{**fixed, last: extent} for sign, extent in _closest(signs).items() if sign != usual or sign == 0]


def _closest(signs: Integers) -> dict[int, int]:
    """Return the extent closest to a change of the sign for each sign, the positive one first."""
    changes, zeros = np.flatnonzero(np.diff(signs)), np.flatnonzero(signs == 0)
    if not changes.size:
        return {}
    middle = zeros[0] if zeros.size else changes[0]
    places = {sign: np.flatnonzero(signs == sign) for sign in (1, 0, -1)}
    return {sign: int(EXTENTS[each[np.argmin(abs(each - middle))]]) for sign, each in places.items() if each.size}


def _of_symbols(shape: Shapes, elements: Shapes) -> _ExtentNumbers[ir.Value]:
    def known(value: ir.Value) -> list[Number] | None:
        found = elements(value)
        if found is not None:
            return [*found]
        constant = stored(value)
        return _listed(np.asarray(constant.numpy())) if constant is not None and constant.size <= _FEW else None

    def made(value: ir.Value) -> Made[ir.Value] | None:
        node = value.producer()
        return None if node is None else (node.op_type, node.inputs, lambda name: integers(node, name))

    return _ExtentNumbers(shape, known, made)
