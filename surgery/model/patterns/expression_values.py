"""Compute the expressions of rules in a match; an unknown value is a refusal."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import onnx_ir as ir

from surgery.model.graph.values import Refusal
from surgery.model.patterns.expression import (
    COMPARISONS,
    Binary,
    CallExpression,
    ConstantExpression,
    Expression,
    IndexExpression,
    Listed,
    NameExpression,
    Unary,
)
from surgery.model.patterns.match import Match
from surgery.model.patterns.vocabulary import FUNCTIONS, TYPES, Symbol, is_number, opset_of, refuse, show

_ORDERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "%": operator.mod,
}
_LONGEST_LIST = 4096


@dataclass(frozen=True)
class Typed:
    """A constant with an explicit element type: `float(0.5)`, `like(x, {0, 1})`."""

    dtype: ir.DataType
    value: Any


def check_condition(condition: Expression, match: Match, reason: str = "") -> None:
    """Refuse unless the condition holds, with `reason` or the text of the condition, and the actual values."""
    if not _truth(condition, evaluate(condition, match)):
        itself = f"{condition.text} is false"
        facts = ", ".join(fact for fact in dict.fromkeys(_facts(condition, match)) if fact != itself)
        said = reason or f"{condition.text} does not hold"
        raise Refusal(f"{said}: {facts}" if facts else said)


@singledispatch
def evaluate(expression: Expression, match: Match) -> Any:
    """Compute an expression; raise `Refusal` if a part of it is absent or unknown."""
    raise NotImplementedError(type(expression))


@evaluate.register
def _(expression: ConstantExpression, match: Match) -> Any:
    return expression.value


@evaluate.register
def _(expression: NameExpression, match: Match) -> Any:
    found = match.bound(expression.name)
    if found is None:
        raise Refusal(f"{expression.name} is absent")
    return found


@evaluate.register
def _(expression: Listed, match: Match) -> Any:
    return [evaluate(item, match) for item in expression.items]


@evaluate.register
def _(expression: CallExpression, match: Match) -> Any:
    name, arguments = expression.function, expression.arguments
    if name == "opset":
        return opset_of(match)
    if name == "present":
        return match.bound(arguments[0].text) is not None
    found = [evaluate(argument, match) for argument in arguments]
    if name in TYPES:
        return Typed(TYPES[name], found[0])
    if name == "like":
        if found[0].dtype is None:
            raise refuse(f"dtype({arguments[0].text})")
        return Typed(found[0].dtype, found[1])
    try:
        result = FUNCTIONS[name].compute(*found)
    except (TypeError, ValueError, ArithmeticError):
        result = None
    if result is None or (isinstance(result, list) and len(result) > _LONGEST_LIST):
        raise refuse(expression.text)
    return result


@evaluate.register
def _(expression: IndexExpression, match: Match) -> Any:
    items, index = evaluate(expression.base, match), evaluate(expression.index, match)
    if not isinstance(items, list):
        raise _is_no(expression.base, items, "list")
    if isinstance(index, list):
        return [_item(expression.base, items, one) for one in index]
    return _item(expression.base, items, index)


def _is_no(expression: Expression, value: Any, wanted: str) -> Refusal:
    shown = show(value)
    there = "" if shown == expression.text else f" {shown} and"
    return Refusal(f"{expression.text} is{there} no {wanted}")


def _item(base: Expression, items: list[Any], index: Any) -> Any:
    if not isinstance(index, int) or not -len(items) <= index < len(items):
        raise Refusal(f"{base.text} is {show(items)} and has no item {show(index)}")
    if items[index] is None:
        raise refuse(f"{base.text}[{index}]")
    return items[index]


@evaluate.register
def _(expression: Unary, match: Match) -> Any:
    value = evaluate(expression.operand, match)
    if expression.op == "not":
        return not _truth(expression.operand, value)
    return _calculate(expression, "-", 0, value)


@evaluate.register
def _(expression: Binary, match: Match) -> Any:
    if expression.op in ("and", "or"):
        return _decide(expression, match)
    left, right = evaluate(expression.left, match), evaluate(expression.right, match)
    if expression.op in COMPARISONS:
        return _compare(expression, left, right)
    return _calculate(expression, expression.op, left, right)


def _decide(expression: Binary, match: Match) -> bool:
    """Combine two conditions; one may decide the result even if the other is unknown."""
    decisive = expression.op == "or"
    unknown: Refusal | None = None
    for side in expression.parts:
        try:
            if _truth(side, evaluate(side, match)) == decisive:
                return decisive
        except Refusal as refusal:
            unknown = unknown or refusal
    if unknown is not None:
        raise unknown
    return not decisive


def _truth(side: Expression, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _is_no(side, value, "condition")
    return value


def _compare(expression: Binary, left: Any, right: Any) -> bool:
    if expression.op == "in":
        if not isinstance(right, list):
            raise _is_no(expression.right, right, "list")
        return any(_same(expression, left, item) for item in right)
    if expression.op in ("==", "!="):
        return _same(expression, left, right) == (expression.op == "==")
    for side, value in ((expression.left, left), (expression.right, right)):
        if not is_number(value):
            raise _is_no(side, value, "number")
    return bool(_ORDERS[expression.op](left, right))


def _same(expression: Binary, left: Any, right: Any) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(_same(expression, *pair) for pair in zip(left, right))
    for value, other in ((left, right), (right, left)):
        # A symbolic dim may be any number.
        if value is None or (isinstance(value, Symbol) and value != other):
            raise Refusal(f"{expression.text} is not known: {show(left)} and {show(right)}")
    return bool(left == right)


def _calculate(whole: Expression, op: str, left: Any, right: Any) -> Any:
    if isinstance(left, list) or isinstance(right, list):
        return _elementwise(whole, op, left, right)
    for value in (left, right):
        if not is_number(value) or isinstance(value, bool):
            raise Refusal(f"{whole.text} cannot be computed: {show(value)} is no number")
    try:
        if op != "/":
            return _ARITHMETIC[op](left, right)
        even = isinstance(left, int) and isinstance(right, int) and left % right == 0
        return left // right if even else left / right
    except ArithmeticError as error:
        raise Refusal(f"{whole.text} cannot be computed: {error}") from error


def _elementwise(whole: Expression, op: str, left: Any, right: Any) -> list[Any]:
    length = len(left) if isinstance(left, list) else len(right)
    one, other = (value if isinstance(value, list) else [value] * length for value in (left, right))
    if len(one) != len(other):
        raise Refusal(f"{whole.text} cannot be computed: the lists have {len(one)} and {len(other)} items")
    return [_calculate(whole, op, *pair) for pair in zip(one, other)]


def _facts(condition: Expression, match: Match) -> Iterator[str]:
    """Yield the actual values in a condition that does not hold."""
    if isinstance(condition, Binary | Unary) and (condition.op in COMPARISONS or condition.op in ("and", "or", "not")):
        for side in condition.parts:
            if condition.op == "and" and _holds(side, match):
                continue
            yield from _facts(side, match)
        return
    if isinstance(condition, ConstantExpression | Listed):
        return
    try:
        value = evaluate(condition, match)
    except Refusal as refusal:
        yield refusal.reason
        return
    yield f"{condition.text} is {show(value)}"


def _holds(condition: Expression, match: Match) -> bool:
    try:
        return bool(evaluate(condition, match))
    except Refusal:
        return False
