"""Arithmetic in the values of options: `1/255`, `0.485*255`, `2**-8`; numbers, + - * / ** and parentheses."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Final

_LONGEST: Final = 200
_DEEPEST: Final = 50
_LOOKS: Final = re.compile(r"[0-9].*[-+*/()]|[-+*/(].*[0-9]", re.DOTALL)

ARITHMETIC_PATTERN: Final = r"^[-+*/(). 0-9eE]+$"
"""The letters of an expression, for JSON schemas."""

_BINARY: Final[Mapping[type[ast.operator], Callable[[float, float], object]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_UNARY: Final[Mapping[type[ast.unaryop], Callable[[float], float]]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}


def looks_arithmetic(text: str) -> bool:
    """Return whether a text is meant as arithmetic, and is not a number already."""
    try:
        float(text)
    except ValueError:
        return _LOOKS.search(text) is not None
    return False


def evaluate(text: str) -> float:
    """Compute an expression in float64, and nothing else: there are no names, calls or attributes.

    Raises ValueError, with a one-line message and the column of the mistake, counted from 1.
    """
    if len(text) > _LONGEST:
        raise ValueError(f"the expression '{text[:20]}...' has more than {_LONGEST} characters")
    given = text.strip()
    try:
        tree = ast.parse(given, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        column = getattr(error, "offset", None)
        raise ValueError(f"'{given}' is no arithmetic{f': see column {column}' if column else ''}") from error
    try:
        found = _value(tree.body, given, 0)
    except (ZeroDivisionError, OverflowError) as error:
        what = "divides by zero" if isinstance(error, ZeroDivisionError) else "is too large"
        raise ValueError(f"'{given}' {what}") from error
    if not math.isfinite(found):
        raise ValueError(f"'{given}' is too large")
    return found


def _value(node: ast.expr, text: str, depth: int) -> float:
    if depth > _DEEPEST:
        raise ValueError(f"'{text[:20]}...' is nested too deeply")
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return float(node.value)
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _UNARY[type(node.op)](_value(node.operand, text, depth + 1))
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = (_value(side, text, depth + 1) for side in (node.left, node.right))
        found = _BINARY[type(node.op)](left, right)
        if not isinstance(found, float):  # a root of a negative number
            raise ValueError(f"'{text}' is not a real number")
        return found
    where = f"'{ast.get_source_segment(text, node) or text}' at column {node.col_offset + 1}"
    raise ValueError(f"'{text}' has {where}; only numbers, + - * / ** and ( ) are known")
