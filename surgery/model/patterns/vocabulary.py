"""The vocabulary of expressions in rules: a fixed list of functions, and the names of element types.

A function returns None if its result is unknown; the enclosing expression is then unknown too, see
`surgery.model.patterns.expression`. Functions have no side effects on the graph, and never read large tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import onnx_ir as ir

from surgery.model.graph.values import Refusal, Value
from surgery.model.patterns.match import Match

MOST_ELEMENTS = 4096
"""`value` does not read constants with more elements than this."""

_MOST_SHOWN = 16

Kind = Literal["value", "present", "values", "number", "list", "any"]
"""The kind of an argument: a value of the graph, any name of the match, a variadic name, or a computed item."""


class Symbol(str):
    """The name of a symbolic dim, such as "batch": equal to itself, and an unknown number."""


class Word(str):
    """The name of an element type in a rule."""


@dataclass(frozen=True)
class Function:
    """One function of the vocabulary. `takes` has one kind per argument; with `more`, the last one may repeat."""

    about: str
    takes: tuple[Kind, ...]
    compute: Callable[..., Any]
    more: bool = False


def _word(dtype: ir.DataType) -> str:
    return {"FLOAT": "float", "DOUBLE": "double"}.get(dtype.name, dtype.name.lower())


TYPES: Mapping[str, ir.DataType] = {_word(dtype): dtype for dtype in ir.DataType if dtype != ir.DataType.UNDEFINED}
"""The element types by name in ONNX text."""


def type_word(dtype: ir.DataType) -> Word:
    """Return the name of an element type."""
    return Word(_word(dtype))


def _known(dims: Iterable[int | str | None] | None) -> list[Any] | None:
    return None if dims is None else [Symbol(dim) if isinstance(dim, str) else dim for dim in dims]


def _dims(value: Value) -> list[Any] | None:
    return _known(value.shape)


def _dtype(value: Value) -> Word | None:
    return None if value.dtype is None else type_word(value.dtype)


def _elements(value: Value) -> list[Any] | None:
    tensor = value.tensor
    if tensor is None or tensor.size > MOST_ELEMENTS:
        return _known(value.elements)
    if tensor.dtype == ir.DataType.STRING:
        return None
    return list(tensor.numpy().reshape(-1).tolist())


def _same_shape(one: Value, other: Value) -> bool:
    return one.shape is not None and None not in one.shape and one.shape == other.shape


def _inverse(order: Sequence[Any]) -> list[int] | None:
    if sorted(order) != list(range(len(order))):
        return None
    return [list(order).index(position) for position in range(len(order))]


def _concat(*parts: Any) -> list[Any]:
    return [item for part in parts for item in (part if isinstance(part, list) else [part])]


def _fold(function: Callable[[Iterable[Any]], Any]) -> Callable[..., Any]:
    """Make a function of a list accept a list or several numbers."""

    def compute(*parts: Any) -> Any:
        items = _concat(*parts)
        return function(items) if items and all(is_number(item) for item in items) else None

    return compute


def is_number(item: Any) -> bool:
    """Return whether an item is a number."""
    return isinstance(item, int | float)


FUNCTIONS: Mapping[str, Function] = {
    "rank": Function("the number of dims of a value", ("value",), lambda value: value.rank),
    "dims": Function("the dims of a value, a list; `dims(x)[-1]` is the last", ("value",), _dims),
    "size": Function("the number of elements of a value", ("value",), lambda value: value.size),
    "dtype": Function("the element type of a value: float, float16, int64, ...", ("value",), _dtype),
    "constant": Function("whether a value is the same in every run", ("value",), lambda value: value.is_constant),
    "scalar": Function("the single element of a constant", ("value",), lambda value: value.scalar),
    "value": Function(f"the elements of a constant, a list of at most {MOST_ELEMENTS}", ("value",), _elements),
    "present": Function("whether an optional value or attribute is there", ("present",), lambda item: item is not None),
    "reads": Function("how many node inputs read a value", ("value",), lambda value: value.reads),
    "count": Function("the number of values of a variadic name", ("values",), len),
    "same_shape": Function("whether two values provably have the same dims", ("value", "value"), _same_shape),
    "broadcasts_to": Function(
        "whether broadcasting two values provably gives the shape of the second",
        ("value", "value"),
        Match.broadcasts_to,
    ),
    "len": Function("the length of a list", ("list",), len),
    "concat": Function("lists and numbers as one list", ("any",), _concat, more=True),
    "inverse": Function("the permutation that undoes one", ("list",), _inverse),
    "min": Function("the least of numbers or of a list", ("any",), _fold(min), more=True),
    "max": Function("the greatest of numbers or of a list", ("any",), _fold(max), more=True),
    "sum": Function("the sum of numbers or of a list", ("any",), _fold(sum), more=True),
    "prod": Function("the product of numbers or of a list", ("any",), _fold(math.prod), more=True),
    "abs": Function("a number without its sign", ("number",), abs),
    "floor": Function("the value rounded down", ("number",), math.floor),
    "sqrt": Function("the square root", ("number",), lambda number: math.sqrt(number) if number >= 0 else None),
}
"""The vocabulary. `opset()`, `op(y)` and the types are part of the language itself."""


def show(item: Any) -> str:
    """Format a computed item as in a rule."""
    if isinstance(item, list):
        more = ", ..." if len(item) > _MOST_SHOWN else ""
        return "{" + ", ".join(show(part) for part in item[:_MOST_SHOWN]) + more + "}"
    if item is None:
        return "?"
    if isinstance(item, str) and not isinstance(item, Symbol | Word):
        return f'"{item}"'
    return str(item).lower() if isinstance(item, bool) else str(item)


def opset_of(match: Match) -> int:
    """Return the version of the default domain at the match."""
    return match.graph.imports_of(match.root.ir).get("", 0)


def refuse(text: str) -> Refusal:
    """Return the refusal for an expression without a known value."""
    return Refusal(f"{text} is not known")
