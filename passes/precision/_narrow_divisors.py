"""Values whose small elements must keep their precision, because a division, a logarithm or a root magnifies it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from surgery import Graph, Node, Value

from ._narrow_format import Format
from ._narrow_nodes import floats, is_default, is_float, is_moving
from ._narrow_ranges import Ranges

_DIVISORS = {"Div": 1, "Mod": 1, "Log": 0, "Reciprocal": 0}
"""Operators that magnify the relative error of an input, which must not become 0, and the position of that input."""

_SHARP_ROOT = 0.5
"""The exponent below which a power turns a small number into a large one: 1e-10 to the power of 0.1 is 0.1."""

_REDUCTIONS = frozenset({"Mean", "ReduceL1", "ReduceL2", "ReduceMean", "ReduceSum", "ReduceSumSquare", "Sum"})
_ADDING = _REDUCTIONS | {"Add"}
"""Operators whose result is small only if all operands are, apart from signs."""
_SCALING = frozenset({"Div", "Mul", "Pow", "Reciprocal", "ReduceProd", "Sqrt"})
"""Operators whose result may be large where an operand is small."""
_CARRYING = _ADDING | _SCALING | {"Abs", "LeakyRelu", "Neg", "PRelu", "Relu"}
"""Operators whose small results have the relative error of their small inputs. An exponential function and a product of
matrices have that of their terms, which need not be small; a difference has a larger one, see `_differs`."""
_BOUNDING = frozenset({"Add", "Clip", "Max", "Sum"})
_FEW = 4096
"""Maximum number of elements of a constant that is compared."""
LOST = 32
"""A positive number below as many steps of the narrower type is rounded by more than a percent, or becomes 0."""


@dataclass
class Fragile:
    """What must stay in float32 for the sake of the divisors and arguments of logarithms of a graph.

    `small` are values with elements that are denormal, or 0, in the narrower type, and `exact` those of which a
    difference is small. `readers` are nodes whose results are not small, and their inputs are.
    """

    small: set[Value] = field(default_factory=set)
    exact: set[Value] = field(default_factory=set)
    readers: set[Node] = field(default_factory=set)

    def __contains__(self, value: object) -> bool:
        return value in self.small or value in self.exact


def divisor_of(node: Node) -> Value | None:
    """Return the input of a node whose relative error the node magnifies, or None.

    That is the base of a power with a negative exponent, a fraction below a half, or one that is not known.
    """
    if not is_default(node):
        return None
    if node.op == "Pow":
        exponent = node.required_input(1).constant
        calm = exponent is not None and bool(
            np.all((np.asarray(exponent) >= _SHARP_ROOT) | (np.asarray(exponent) == 0))
        )
        return None if calm else node.required_input(0)
    return node.input(_DIVISORS[node.op]) if node.op in _DIVISORS else None


def divisors(graph: Graph) -> list[Value]:
    """Return the computed float32 values that the nodes of a graph, except those of functions, divide by."""
    nodes = (node for node in graph.nodes() if not graph.in_function(node))
    values = dict.fromkeys(value for node in nodes if (value := divisor_of(node)) is not None)
    return [value for value in values if is_float(value) and not value.is_constant]


def fragile(graph: Graph, ranges: Ranges, format: Format) -> Fragile:  # noqa: A002
    """Find what must stay in float32, so that no divisor becomes 0 that is none in float32.

    Computed in float32 from its operands on, an element of 1e-12 remains one; rounded on the way, it is a divisor of 0.
    So is the difference of 1 and a probability of 0.9999, and the root of a mean of squares of 1e-8.
    """
    search = _Search(ranges, format)
    for node in graph.nodes():
        value = divisor_of(node)
        if value is not None and not value.is_constant and not graph.in_function(node):
            search.start(value, format.normal, is_direct=node.op != "Pow")
            if node.op == "Div" and value in search.found.small:
                search.start(node.required_input(0), format.smallest, is_direct=False)
        if node.op == "Atanh" and is_default(node) and search.reaches_one(node.required_input(0)):
            search.found.readers.add(node)
            search.need(node.required_input(0))
    return search.found


@dataclass(frozen=True)
class _Place:
    """A value on which a divisor depends.

    `is_small` is whether small elements of it make the divisor small, `is_direct` whether only moves are between them,
    and `is_reduced` whether a sum or mean over its elements is.
    """

    value: Value
    is_small: bool = False
    is_direct: bool = False
    is_reduced: bool = False


class _Search:
    """The search upstream of divisors."""

    def __init__(self, ranges: Ranges, format: Format) -> None:  # noqa: A002
        self.found = Fragile()
        self._ranges = ranges
        self._format = format
        self._step = 2.0 ** (1 - format.digits)
        self._lost = LOST * format.smallest
        self._seen: set[_Place] = set()

    def start(self, value: Value, limit: float, *, is_direct: bool) -> None:
        """Search upstream of a divisor, or of what is divided by a small one, which is small below a limit."""
        waiting = [_Place(value, self._is_below(value, limit), is_direct)]
        while waiting:
            place = waiting.pop()
            maker = place.value.producer
            if place in self._seen:
                continue
            self._seen.add(place)
            if maker is not None and is_default(maker):
                waiting += self._upstream(place, maker)
            elif place.is_small:
                self.found.small.add(place.value)

    def reaches_one(self, value: Value) -> bool:
        """Return whether the type rounds an element below 1 to 1."""
        known = self._ranges.get(value.name)
        return known is not None and known.largest > 1 - self._step

    def need(self, value: Value) -> None:
        """Keep a value in float32, and what computes it element by element."""
        waiting = [value]
        while waiting:
            value = waiting.pop()
            if value in self.found.exact or value.is_constant:
                continue
            self.found.exact.add(value)
            maker = value.producer
            if maker is not None and is_default(maker) and (_moves(maker) or maker.op in _CARRYING | {"Sub"}):
                waiting += self._read(maker)

    def _upstream(self, place: _Place, maker: Node) -> Iterator[_Place]:
        """Record what a value needs, and yield the operands on which it depends."""
        if place.is_direct and self._is_bounded(maker):
            place = replace(place, is_small=True)
        if place.is_small:
            self.found.small.add(place.value)
        if _differs(maker) and self._cancels(place, maker):
            self.found.readers.add(maker)
            for operand in self._read(maker):
                self.need(operand)
        operands = (operand for operand in self._read(maker) if not operand.is_constant)
        if _moves(maker):
            yield from (self._moved(place, operand) for operand in operands if self._matters(place, operand))
        elif maker.op in _SCALING:
            yield from (self._scaled(place, maker, operand) for operand in operands)
        elif maker.op in _CARRYING:
            reduced = place.is_reduced or maker.op in _REDUCTIONS
            yield from (
                _Place(operand, place.is_small and self._is_below(operand, self._format.normal), is_reduced=reduced)
                for operand in operands
                if self._matters(place, operand)
            )
        elif maker.op == "Sub":
            yield from (_Place(operand, is_reduced=place.is_reduced) for operand in operands)

    def _read(self, node: Node) -> Iterator[Value]:
        """Yield the inputs of either type, as a part of the model may be in the narrower type already."""
        return (value for value in node.inputs if value is not None and (is_float(value) or self._is_narrow(value)))

    def _is_narrow(self, value: Value) -> bool:
        return bool(value.dtype == self._format.dtype)

    def _matters(self, place: _Place, operand: Value) -> bool:
        """Return whether small elements of an operand, if it has any, are not covered by others or by a bound."""
        return place.is_small or not self._is_below(operand, self._format.normal, place.is_reduced)

    def _moved(self, place: _Place, operand: Value) -> _Place:
        return replace(place, value=operand)

    def _scaled(self, place: _Place, maker: Node, operand: Value) -> _Place:
        """Return an operand whose small elements may make larger results."""
        limit = self._format.normal if place.is_small else self._lost
        is_small = self._is_below(operand, limit, place.is_reduced and not place.is_small)
        if is_small and not place.is_small:
            self.found.readers.add(maker)
        return _Place(operand, is_small, is_reduced=place.is_reduced)

    def _is_below(self, value: Value, limit: float, is_reduced: bool = False) -> bool:
        known = self._ranges.get(value.name)
        if known is None:
            return False
        return 0 < known.largest < limit if is_reduced else known.smallest < limit

    def _is_bounded(self, maker: Node) -> bool:
        """Return whether a bound or an epsilon, which the narrower type makes 0, keeps a divisor from being 0."""
        if maker.op not in _BOUNDING:
            return False
        return any(0 < size < self._lost for value in floats(maker) if (size := _size(value)) is not None)

    def _cancels(self, place: _Place, maker: Node) -> bool:
        """Return whether a difference is below the rounding error of its operands, in all elements of a sum over it."""
        sizes = [1.0] if maker.op == "Log" else [self._largest(value) for value in floats(maker)]
        return self._is_below(place.value, max(sizes, default=0) * self._step, place.is_reduced)

    def _largest(self, value: Value) -> float:
        known = self._ranges.get(value.name)
        return known.largest if known is not None else _size(value) or 0.0


def _moves(node: Node) -> bool:
    """Return whether a node passes elements on; a Cast rounds them where it has to."""
    return is_moving(node) or (is_default(node) and node.op == "Cast")


def _differs(maker: Node) -> bool:
    """Return whether a node computes a difference, or a logarithm, which is that of its input and 1 near 1."""
    if maker.op == "Add":
        return any(value.producer is not None and value.producer.op == "Neg" for value in floats(maker))
    return maker.op in ("Log", "Sub")


def _size(value: Value) -> float | None:
    """Return the largest magnitude of a constant; None if it is not known."""
    tensor = value.tensor
    if tensor is None or tensor.size > _FEW:
        return None
    size = np.abs(tensor.numpy())
    return float(size.max(initial=0)) if np.isfinite(size).all() else math.inf
