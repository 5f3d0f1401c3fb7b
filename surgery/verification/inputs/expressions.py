"""The values of expressions over dims, for many extents of the dims at once."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import reduce

import numpy as np
import numpy.typing as npt

from surgery.model.shapes.declarations import Extent

_LONGEST = 4000
"""Maximum length of an expression that is parsed."""

_DEEPEST = 40
"""Maximum number of times that symbols of an expression are replaced by others in turn."""

Integers = npt.NDArray[np.int64]
Ratio = tuple[Integers, Integers]
"""Numerators and positive denominators."""


class Reader:
    """Evaluates expressions at all `extents` of the dims; `aliases` are expressions for other names.

    The arrays of all dims broadcast to each other: with one array for every dim, all dims have the same extent.
    """

    def __init__(self, extents: Mapping[str, Integers], aliases: Mapping[str, Extent]) -> None:
        self.extents = extents
        self.aliases = aliases

    def read(self, extent: Extent) -> tuple[frozenset[str], Integers] | None:
        """Return the dims that an extent depends on, and its values; None if it cannot be evaluated."""
        if isinstance(extent, int):
            return frozenset(), np.array(extent, np.int64)
        if len(extent) > _LONGEST:
            return None
        used: set[str] = set()
        try:
            top, bottom = self._value(ast.parse(extent, mode="eval").body, used, _DEEPEST)
        except (SyntaxError, ValueError, RecursionError, OverflowError):
            return None
        return frozenset(used), top // bottom

    def _value(self, tree: ast.expr, used: set[str], depth: int) -> Ratio:
        match tree:
            case ast.Constant(value=int() as value):
                return np.array(value, np.int64), _ONE
            case ast.Name(id=name):
                return self._named(name, used, depth)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                top, bottom = self._value(operand, used, depth)
                return -top, bottom
            case ast.BinOp(left=left, op=operator, right=right):
                return _combined(operator, self._value(left, used, depth), self._value(right, used, depth))
            case ast.Call(func=ast.Name(id=function), args=arguments) if arguments:
                return _called(function, [self._value(one, used, depth) for one in arguments])
        raise ValueError(ast.unparse(tree))

    def _named(self, name: str, used: set[str], depth: int) -> Ratio:
        if name in self.extents:
            used.add(name)
            return self.extents[name], _ONE
        alias = self.aliases.get(name)
        if alias is None or not depth:
            raise ValueError(name)
        return self._value(ast.parse(str(alias), mode="eval").body, used, depth - 1)


_ONE = np.array(1, np.int64)


def _combined(operator: ast.operator, left: Ratio, right: Ratio) -> Ratio:
    (a, below), (b, under) = left, right
    match operator:
        case ast.Add():
            return a * under + b * below, below * under
        case ast.Sub():
            return a * under - b * below, below * under
        case ast.Mult():
            return a * b, below * under
        case ast.Div():
            # A divisor is positive at all legal sizes; at others, the quotient is negative, which no extent is.
            legal = b > 0
            return np.where(legal, a * under, -1), np.where(legal, below * b, 1)
    raise ValueError("no such arithmetic")


def _called(function: str, values: list[Ratio]) -> Ratio:
    if function == "floor" and len(values) == 1:
        return values[0][0] // values[0][1], _ONE
    if function == "truncated" and len(values) == 1:
        return np.sign(values[0][0]) * (abs(values[0][0]) // values[0][1]), _ONE
    if function in ("Min", "Max"):
        bottom = reduce(np.lcm, (below for _, below in values), _ONE)
        choose = np.minimum if function == "Min" else np.maximum
        return reduce(choose, [top * (bottom // below) for top, below in values]), bottom
    if function == "Mod" and len(values) == 2 and all((below == 1).all() for _, below in values):
        (top, _), (divisor, _) = values
        return np.where(divisor > 0, top % np.maximum(divisor, 1), -1), _ONE
    raise ValueError(function)
