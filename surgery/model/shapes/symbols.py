"""Arithmetic on the elements of shape tensors: integers and symbolic expressions, in one normal form.

An expression is an expanded polynomial with integer coefficients, in symbols and in terms such as floor(n/2) or Min(5,
n), written as text; equal texts are equal numbers. Each symbol is at least 1, except wild symbols, about which nothing
is known. All results are cached: the layers of a model need the same ones.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from functools import lru_cache
from typing import Any

import onnx_ir as ir

from surgery.model.shapes import linear

Number = int | str
"""An integer, or the text of an expression."""
Element = int | ir.SymbolicDim

_REMEMBERED = 1 << 14
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPAQUE = re.compile(r"dim_x((?:[0-9a-f]{2})+)(?![A-Za-z0-9_])")
_POWER = re.compile(r"\*\*\s*(\(?-?\d*\s*\**)")
_MOST_POWERS = 1000
_LEADING_MINUS = re.compile(r"(^|[(,]\s*)-")


def opaque(name: str | None) -> str | None:
    """Return the symbol that stands for the name of a dim, whatever the name is; None for a meaningless name.

    In a model, "2*n", "10**10**10" or "batch size" is the name of one dim, not arithmetic.
    """
    if name is None or name.strip() in ("", "?", "-1"):
        return None
    if _PLAIN.fullmatch(name) and not _OPAQUE.fullmatch(name):
        return name
    return f"dim_x{name.encode(errors='surrogatepass').hex()}"


def shown(text: str) -> str:
    """Return an expression with the dim names of the model, which are quoted within arithmetic."""
    whole = _OPAQUE.fullmatch(text)
    if whole is not None:
        return _name_of(whole)
    return _OPAQUE.sub(lambda found: f"'{_name_of(found)}'", text)


def _name_of(found: re.Match[str]) -> str:
    return bytes.fromhex(found[1]).decode(errors="surrogatepass")


@lru_cache(_REMEMBERED)
def parse(text: str) -> Any:
    """Return the sympy expression of a text.

    The parser of onnx-ir lets a leading minus bind more tightly than a power, so it is written and read as 0 minus the
    power. Raises ValueError for a text that cannot be parsed, or whose powers would take forever to evaluate.
    """
    if "**" in text:
        powers = [found[1] for found in _POWER.finditer(text)]
        if not all(power.isdigit() for power in powers) or math.prod(map(int, powers)) > _MOST_POWERS:
            raise ValueError(f"the powers in '{text}' are too large")
    return ir.SymbolicDim(_LEADING_MINUS.sub(r"\g<1>0-", text))._expr


@lru_cache(_REMEMBERED)
def where_each_is(extent: int, text: str) -> int:
    """Return the value of an expression in which each symbol has the same extent.

    Text that cannot be parsed is the name of one symbol.
    """
    try:
        expression = None if text.isidentifier() else parse(text)
    except (ValueError, TypeError):
        expression = None
    return extent if expression is None else int(expression.subs(dict.fromkeys(expression.free_symbols, extent)))


@lru_cache(_REMEMBERED)
def normal(text: str) -> Number:
    """Return the normal form of an expression; text that cannot be parsed stays unchanged, as the name of a symbol."""
    if text.isidentifier() or linear.read(text) is not None:
        return text
    try:
        return written(parse(_without_ceilings(text)))
    except (ValueError, TypeError):
        return text


def _without_ceilings(text: str) -> str:
    """Rewrite ceiling(x) as -floor(-x), because the shape rules write ceiling but cannot parse it."""
    while (start := text.find("ceiling(")) >= 0:
        opened = start + len("ceiling(")
        closed, depth = opened, 1
        while depth:
            depth += {"(": 1, ")": -1}.get(text[closed], 0)
            closed += 1
        text = f"{text[:start]}(-floor(-({text[opened : closed - 1]}))){text[closed:]}"
    return text


def written(expression: Any) -> Number:
    """Return a sympy expression in normal form."""
    import sympy  # type: ignore[import-untyped]

    expanded = sympy.expand(expression)
    if expanded.is_Integer:
        return int(expanded)
    text = str(expanded)
    if "ceiling(" in text:
        text = str(parse(_without_ceilings(text)))
    return _LEADING_MINUS.sub(r"\g<1>0 - ", text) if "**" in text else text


def number(element: Element) -> Number:
    """Return an element as an integer or the text of its expression."""
    return element if isinstance(element, int) else str(element.value)


def element(found: Number) -> Element:
    """Return a number as an element."""
    return found if isinstance(found, int) else _dim(found)


@lru_cache(_REMEMBERED)
def _dim(text: str) -> ir.SymbolicDim:
    """Return one dim for each text, because a dim caches its parsed text."""
    return ir.SymbolicDim(text)


@lru_cache(_REMEMBERED)
def combine(operation: str, one: Number, other: Number) -> Number | None:
    """Return the result of an ONNX operation on two numbers; None if it has no short form.

    Symbols stand for at least 1 here; the caller handles wild ones.
    """
    if isinstance(one, int) and isinstance(other, int):
        return _of_integers(operation, one, other)
    rule = _SYMBOLIC.get(operation)
    if rule is None:
        return None
    with suppress(linear.OutOfReachError):
        return linear.combine(operation, one, other)
    try:
        return rule(_expression(one), _expression(other))
    except (ValueError, TypeError):
        return None


@lru_cache(_REMEMBERED)
def windows(extent: int | str, room: int, stride: int) -> Number | None:
    """Count the positions of a window: floor((extent + room) / stride) + 1. `room` is the padding minus the window."""
    if isinstance(extent, int):
        return (extent + room) // stride + 1
    with suppress(linear.OutOfReachError):
        return linear.windows(extent, room, stride)
    import sympy

    try:
        return written(sympy.floor((parse(extent) + room) / stride) + 1)
    except (ValueError, TypeError):
        return None


def _expression(item: Number) -> Any:
    import sympy

    return sympy.Integer(item) if isinstance(item, int) else parse(item)


def _of_integers(operation: str, one: int, other: int) -> int | None:
    match operation:
        case "Add":
            return one + other
        case "Sub":
            return one - other
        case "Mul":
            return one * other
        case "Div":
            # The quotient is rounded towards 0.
            return None if other == 0 else abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)
        case "Mod":
            return one % other if other else None
        case "Min":
            return min(one, other)
        case "Max":
            return max(one, other)
        case "Equal":
            return int(one == other)
        case "Less":
            return int(one < other)
    return None


def at_least(expression: Any, bound: int) -> bool:
    """Return whether an expression is certainly no smaller than `bound`.

    Each symbol is written as 1 + n, with n at least 0: then no coefficient may be negative.
    """
    import sympy

    expanded = sympy.expand(expression - bound)
    atoms = {atom: sympy.Dummy() for atom in expanded.atoms(sympy.floor, sympy.Min, sympy.Max, sympy.Mod)}
    opaque = expanded.xreplace(atoms)
    if any(not atom.is_nonnegative for atom, dummy in atoms.items() if opaque.has(dummy)):
        return False
    symbols = opaque.free_symbols - set(atoms.values())
    shifted = sympy.expand(opaque.xreplace({symbol: 1 + symbol for symbol in symbols}))
    if not all(part.is_polynomial() for part in sympy.Add.make_args(shifted)):
        return False
    return all(value >= 0 for value in shifted.as_coefficients_dict().values())


def _quotient(one: Any, other: Any) -> Number | None:
    import sympy

    if not (at_least(one, 0) and at_least(other, 1)):
        return None
    exact = sympy.expand(sympy.cancel(one / other))
    if all(value.is_Integer for value in exact.as_coefficients_dict().values()) and exact.is_polynomial():
        return written(exact)
    return written(sympy.floor(one / other))


def _rest(one: Any, other: Any) -> Number | None:
    import sympy

    if not (at_least(one, 0) and at_least(other, 1)):
        return None
    quotient = _quotient(one, other)
    exact = None if quotient is None else sympy.expand(one - other * _expression(quotient))
    return 0 if exact == 0 else written(sympy.Mod(one, other))


def _minimum(one: Any, other: Any) -> Number:
    import sympy

    if at_least(other - one, 0):
        return written(one)
    return written(other if at_least(one - other, 0) else sympy.Min(one, other))


def _maximum(one: Any, other: Any) -> Number:
    import sympy

    if at_least(other - one, 0):
        return written(other)
    return written(one if at_least(one - other, 0) else sympy.Max(one, other))


def _equal(one: Any, other: Any) -> int | None:
    import sympy

    if sympy.expand(one - other) == 0:
        return 1
    return 0 if at_least(one - other, 1) or at_least(other - one, 1) else None


def _less(one: Any, other: Any) -> int | None:
    if at_least(other - one, 1):
        return 1
    return 0 if at_least(one - other, 0) else None


_SYMBOLIC = {
    "Add": lambda one, other: written(one + other),
    "Sub": lambda one, other: written(one - other),
    "Mul": lambda one, other: written(one * other),
    "Div": _quotient,
    "Mod": _rest,
    "Min": _minimum,
    "Max": _maximum,
    "Equal": _equal,
    "Less": _less,
}
