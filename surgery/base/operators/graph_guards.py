"""Guards of a graph: values whose elements decide which of two ways the graph computes a result.

A row of a mask without a 1 gives NaN, which a Where replaces; a norm below its lower bound counts as the bound; an
index below zero counts from the end. A rewrite may be right on one way and wrong on the other, so both must be taken.

Needs a row in `_RULES` or `_COMBINING` for each operator whose first result is boolean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeGuard

from surgery.base.operators.forms import Schema, key_of
from surgery.base.operators.use import InputUse, TypedIndex, single_number

if TYPE_CHECKING:
    import onnx

Test = Literal["true", "below", "hidden", "empty"]

_TINY, _HUGE = 1e-2, 1e4
"""Up to which size a constant that is added counts as an epsilon, and from which on a bound is that of a type."""

_HIDDEN = -1e3
"""Scores below this number are masked."""

_SUMS = frozenset(
    {"CumSum", "ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "ReduceSumSquare", "Size"}
)
_FURTHER = 4
"""Number of nodes after a sum that still belong to it, such as a Cast and a Sqrt."""

_DIVIDING = {"Div": 1, "Log": 0, "Pow": 0, "Reciprocal": 0, "Sqrt": 0}
"""Operators before which an epsilon is added to an operand, and the position of the operand."""


@dataclass(frozen=True)
class Guard:
    """A value of the graph, and what decides about each of its elements.

    `test`: whether an element is true; whether it is below `bound`; whether all elements along `axis` are; whether
    there are no elements at all.
    """

    value: str
    test: Test
    bound: float = 0.0
    axis: int = 0


def guards(nodes: Iterable[onnx.NodeProto], view: TypedIndex) -> list[Guard]:
    """List the guards among some nodes of a main graph."""
    found: dict[Guard, None] = {}
    hides = _hides(view)
    for node in nodes:
        key = key_of(node.domain, node.op_type)
        rule = _RULES.get(key)
        if rule is not None and (hides or key not in _SCORES):
            found.update(dict.fromkeys(guard for guard in rule(node, view) if guard.value))
    constant = view.index.constants
    return [guard for guard in found if guard.value not in constant]


def _hides(view: TypedIndex) -> bool:
    """Return whether the graph has a number that is low enough to mask scores."""
    for name in view.index.constants:
        number = _number(view, name)
        if number is not None and number < _HIDDEN:
            return True
    return False


def _number(view: TypedIndex, name: str) -> float | None:
    """Return a constant if it is a single number."""
    return single_number(view.constant(name) if name else None)


def _result(node: onnx.NodeProto, view: TypedIndex) -> Iterator[Guard]:
    yield Guard(node.output[0], "true")


def _input(index: int) -> Callable[[onnx.NodeProto, TypedIndex], Iterator[Guard]]:
    def rule(node: onnx.NodeProto, view: TypedIndex) -> Iterator[Guard]:
        if index < len(node.input):
            yield Guard(node.input[index], "true")

    return rule


def _loop(node: onnx.NodeProto, view: TypedIndex) -> Iterator[Guard]:
    yield Guard(node.input[0], "below", 1.0)
    yield Guard(node.input[1], "true")


def _bounded(node: onnx.NodeProto, view: TypedIndex) -> Iterator[Guard]:
    """Yield the operands of Max and Min, with the numbers that they are compared with."""
    numbers = {name: _number(view, name) for name in node.input}
    for name in (name for name, number in numbers.items() if number is None):
        yield from (Guard(name, "below", bound) for bound in numbers.values() if _guards(bound, name, view))


def _clip(node: onnx.NodeProto, view: TypedIndex) -> Iterator[Guard]:
    use, name = InputUse(view, node, 0), node.input[0]
    bounds = [use.attr("min"), use.attr("max"), *(_number(view, other) for other in node.input[1:])]
    yield from (Guard(name, "below", bound) for bound in bounds if _guards(bound, name, view))


def _guards(bound: float | None, name: str, view: TypedIndex) -> TypeGuard[float]:
    """Return whether a bound guards a division: an epsilon, or a bound of a count or of another sum.

    The bounds of an activation are among the marks that ordinary data has on both sides, see `thresholds`.
    """
    if bound is None or abs(bound) > _HUGE:
        return False
    for _ in range(_FURTHER):
        node = view.index.producers.get(name)
        if node is None or not node.input:
            break
        if node.op_type in _SUMS:
            return True
        name = node.input[0]
    return 0 < abs(bound) < _TINY


def _epsilon(node: onnx.NodeProto, view: TypedIndex) -> Iterator[Guard]:
    """Yield the operand to which an epsilon is added before a division, a root or a logarithm."""
    readers = view.index.consumers.get(node.output[0], ())
    if not any(_DIVIDING.get(reader.op_type) == index for reader, index in readers):
        return
    for name, other in (node.input[:], node.input[::-1]):
        epsilon = _number(view, other)
        if epsilon is not None and 0 < epsilon < _TINY:
            yield Guard(name, "below", epsilon)


def _scores(node: onnx.NodeProto, view: TypedIndex) -> Iterator[Guard]:
    default = -1 if view.index.opset >= 13 else 1
    yield Guard(node.input[0], "hidden", _HIDDEN, int(InputUse(view, node, 0).attr("axis", default)))


def _elements(node: onnx.NodeProto, view: TypedIndex) -> Iterator[Guard]:
    yield Guard(node.output[0], "empty")


def _selection(node: onnx.NodeProto, view: TypedIndex) -> Iterator[Guard]:
    yield Guard(node.input[1], "true")
    yield Guard(node.output[0], "empty")


SELECTING = frozenset({"Compress", "NonMaxSuppression", "NonZero", "StringSplit", "Unique"})
"""Operators whose results have as many elements as the elements of their inputs decide."""

_SCORES = frozenset({"LogSoftmax", "Softmax"})
_RULES: dict[str, Callable[[onnx.NodeProto, TypedIndex], Iterable[Guard]]] = {
    **dict.fromkeys(
        ("Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "RegexFullMatch"),
        _result,
    ),
    **dict.fromkeys(("If", "Where"), _input(0)),
    **dict.fromkeys(("Max", "Min"), _bounded),
    **dict.fromkeys(_SCORES, _scores),
    **dict.fromkeys(("NonMaxSuppression", "NonZero", "Unique"), _elements),
    "Add": _epsilon,
    "Clip": _clip,
    "Compress": _selection,
    "Loop": _loop,
}


_COMBINING = frozenset({"And", "Not", "OptionalHasElement", "Or", "Xor"})
"""Operators whose boolean result follows from other ones, or from the form of their operand."""


def without_row(schema: Schema) -> Iterator[str]:
    """Report an operator with a boolean result that may decide."""
    decides = bool(schema.outputs) and schema.outputs[0].types == {"tensor(bool)"}
    if decides and schema.key not in _RULES.keys() | _COMBINING:
        yield "guards"
