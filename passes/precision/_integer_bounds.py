"""Bounds of int64 values that hold for all inputs, from constants, dims and the operators that compute them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from surgery import Graph, Node, Value

Bounds = tuple[int, int]

INT32: Bounds = (-(2**31), 2**31 - 1)
INT64: Bounds = (-(2**63), 2**63 - 1)
EXTENT: Bounds = (0, 2**31 - 1)
"""Extents of axes and positions on them: no runtime has tensors with more elements on an axis."""

NARROW: dict[str, Bounds] = {
    "BOOL": (0, 1),
    **{
        name.upper(): (int(np.iinfo(name).min), int(np.iinfo(name).max))
        for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32")
    },
}
"""The bounds of element types."""

SAME = frozenset(
    {
        *("Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "ReduceMax", "ReduceMean"),
        *("ReduceMin", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
    }
)
"""Operators whose results are within the bounds of their first operand."""

POSITIONS = frozenset({"ArgMax", "ArgMin", "NonMaxSuppression", "NonZero", "Shape", "TopK"})
"""Operators whose int64 results are extents, or positions on an axis."""

LOOKS = frozenset({"Gather", "GatherElements"})
"""Operators whose second operand holds positions on one axis of the first."""

_KEEPS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators whose result holds all elements of their first operand, and no others."""


class IntegerBounds:
    """The bounds of the values of a graph; inputs of the model are trusted to fit into int32 on request."""

    def __init__(self, graph: Graph, trust_inputs: bool) -> None:
        self._trusted = trust_inputs
        self._main = graph.main
        self._known: dict[Value, Bounds] = {}
        for node in graph.nodes():
            for value in node.outputs:
                if value.dtype is not None and value.dtype.name == "INT64":
                    self._known[value] = self._result(node, value)

    def of(self, value: Value) -> Bounds:
        """Return the bounds of a value."""
        if value not in self._known:
            self._known[value] = self._source(value)
        return self._known[value]

    def fits(self, value: Value) -> bool:
        """Return whether a value is within int32."""
        low, high = self.of(value)
        return INT32[0] <= low and high <= INT32[1]

    def copied(self, old: Value, made: Value) -> Value:
        """Return a value that replaces another one and has its bounds."""
        self._known[made] = self.of(old)
        return made

    def _source(self, value: Value) -> Bounds:
        """Return the bounds of a value that no node computes, or that has another type."""
        held = _held(value)
        if held is not None:
            return held
        kind = None if value.dtype is None else value.dtype.name
        if kind in NARROW:
            return NARROW[kind]
        if not value.is_input or value.scope is not self._main:
            return INT64
        return INT32 if self._trusted else self._looked_up(value)

    def _looked_up(self, value: Value) -> Bounds:
        """Return the bounds of positions: others would be an error on an axis of known extent."""
        for reader in value.consumers:
            if reader.scope is not self._main:
                continue
            if reader.op in LOOKS and reader.input(1) == value:
                shape = reader.required_input(0).shape
                axis = int(reader.attr("axis", 0))
                extent = None if not shape else shape[axis]
                if isinstance(extent, int):
                    return -extent, extent - 1
            if reader.op in _KEEPS and reader.input(0) == value:
                found = self._looked_up(reader.outputs[0])
                if found != INT64:
                    return found
        return INT64

    def _result(self, node: Node, value: Value) -> Bounds:
        held = _held(value)
        if held is not None:
            return held
        if node.op in POSITIONS:
            return EXTENT
        if node.op in SAME:
            return self.of(node.required_input(0))
        rule = _RULES.get(node.op)
        low, high = INT64 if rule is None else rule(node, self)
        # What exceeds int64 wraps around.
        return (low, high) if INT64[0] <= low and high <= INT64[1] else INT64


def _held(value: Value) -> Bounds | None:
    """Return the bounds of a constant, or of elements that are the same in every run."""
    array = value.constant if value.is_constant else None
    if array is not None:
        return (int(array.min()), int(array.max())) if array.size and array.dtype.kind in "iub" else (0, 0)
    elements = value.elements
    if not elements or not all(isinstance(item, int) for item in elements):
        return None
    numbers = [int(item) for item in elements]
    return min(numbers), max(numbers)


def _operands(node: Node, known: IntegerBounds, positions: Iterable[int] | None = None) -> list[Bounds]:
    wanted = range(len(node.inputs)) if positions is None else positions
    return [known.of(value) for position in wanted if (value := node.input(position)) is not None]


def _hull(bounds: Iterable[Bounds]) -> Bounds:
    """Return the bounds of values that are within any of these."""
    found = list(bounds)
    return min(low for low, _ in found), max(high for _, high in found)


def _add(node: Node, known: IntegerBounds) -> Bounds:
    one, other = _operands(node, known)
    return one[0] + other[0], one[1] + other[1]


def _sub(node: Node, known: IntegerBounds) -> Bounds:
    one, other = _operands(node, known)
    return one[0] - other[1], one[1] - other[0]


def _mul(node: Node, known: IntegerBounds) -> Bounds:
    one, other = _operands(node, known)
    corners = [a * b for a in one for b in other]
    return min(corners), max(corners)


def _div(node: Node, known: IntegerBounds) -> Bounds:
    (low, high), _ = _operands(node, known)
    largest = max(abs(low), abs(high))
    return -largest, largest


def _mod(node: Node, known: IntegerBounds) -> Bounds:
    low, high = _operands(node, known)[1]
    largest = max(abs(low), abs(high), 1) - 1
    return (0 if low > 0 and not node.attr("fmod", 0) else -largest), largest


def _neg(node: Node, known: IntegerBounds) -> Bounds:
    low, high = known.of(node.required_input(0))
    return -high, -low


def _abs(node: Node, known: IntegerBounds) -> Bounds:
    low, high = known.of(node.required_input(0))
    return (0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))


def _max(node: Node, known: IntegerBounds) -> Bounds:
    found = _operands(node, known)
    return max(low for low, _ in found), max(high for _, high in found)


def _min(node: Node, known: IntegerBounds) -> Bounds:
    found = _operands(node, known)
    return min(low for low, _ in found), min(high for _, high in found)


def _clip(node: Node, known: IntegerBounds) -> Bounds:
    low, high = known.of(node.required_input(0))
    for position, limit in ((1, max), (2, min)):
        bound = node.input(position)
        if bound is not None:
            least, most = known.of(bound)
            low, high = limit(low, least), limit(high, most)
    return low, high


def _cast(node: Node, known: IntegerBounds) -> Bounds:
    source = node.required_input(0)
    kind = None if source.dtype is None else source.dtype.name
    return known.of(source) if kind in NARROW or kind == "INT64" else INT64


def _sum(node: Node, known: IntegerBounds) -> Bounds:
    """Return the bounds of all partial sums over as many elements as are known to be summed up at most."""
    operand, result = node.required_input(0), node.outputs[0]
    if operand.size is None:
        return INT64
    count = operand.size // result.size if result.size else operand.size
    low, high = known.of(operand)
    return min(0, count * low), max(0, count * high)


def _cumulative(node: Node, known: IntegerBounds) -> Bounds:
    operand, axis = node.required_input(0), node.required_input(1).scalar
    extent = operand.shape[int(axis)] if operand.shape and axis is not None else None
    if not isinstance(extent, int):
        return INT64
    low, high = known.of(operand)
    return min(0, extent * low), max(0, extent * high)


def _of_any(*positions: int) -> Callable[[Node, IntegerBounds], Bounds]:
    """Return the rule of an operator whose result holds elements of these operands, or of all."""

    def rule(node: Node, known: IntegerBounds) -> Bounds:
        return _hull(_operands(node, known, positions or None))

    return rule


def _padded(node: Node, known: IntegerBounds) -> Bounds:
    return _hull([(0, 0), *_operands(node, known, (0, 2))])


def _sign(node: Node, known: IntegerBounds) -> Bounds:
    return -1, 1


def _filled(node: Node, known: IntegerBounds) -> Bounds:
    value = node.attr("value")
    number = 0 if value is None else int(np.asarray(value.numpy()).reshape(-1)[0])
    return number, number


_RULES: dict[str, Callable[[Node, IntegerBounds], Bounds]] = {
    "Abs": _abs,
    "Add": _add,
    "Cast": _cast,
    "Clip": _clip,
    "Concat": _of_any(),
    "ConstantOfShape": _filled,
    "CumSum": _cumulative,
    "Div": _div,
    "Max": _max,
    "Min": _min,
    "Mod": _mod,
    "Mul": _mul,
    "Neg": _neg,
    "Pad": _padded,
    "Range": _of_any(0, 1),
    "ReduceSum": _sum,
    "ScatterElements": _of_any(0, 2),
    "ScatterND": _of_any(0, 2),
    "Sign": _sign,
    "Sub": _sub,
    "Where": _of_any(1, 2),
}
