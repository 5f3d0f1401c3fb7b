"""Arithmetic on numbers such as 64*batch + 2 or floor(n/2 - 1/2) + 1, without the weight of sympy.

This covers most needs of shapes. Each symbol stands for at least 1, as in `surgery.model.shapes.symbols`, whose normal
form is kept.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import NamedTuple

Number = int | str

_NAME = re.compile(r"[A-Za-z_]\w*")
_PRODUCT = r"(?:([1-9]\d*)\*)?([A-Za-z_]\w*(?:\*[A-Za-z_]\w*)*)"
_TERM = rf"(?:{_PRODUCT}|(?:([1-9]\d*)\*)?((?:floor|Min)\(.*\)))"
_LINEAR = re.compile(rf"{_TERM}(?: ([+-]) ([1-9]\d*))?")
_QUOTIENT = re.compile(rf"{_TERM}/([1-9]\d*)(?: ([+-]) ([1-9]\d*)/([1-9]\d*))?")
_MINIMUM = re.compile(rf"Min\(([1-9]\d*), ({_PRODUCT}(?: [+-] [1-9]\d*)?)\)")


class OutOfReachError(Exception):
    """The result of an operation may have a form that only sympy knows."""


class Linear(NamedTuple):
    """A factor times distinct symbols, sorted by name, plus a constant; the factor is 0 only without symbols.

    In the place of the symbols, there may be one function: the rounded quotient of a linear number, such as floor(n/2),
    or its minimum with an integer, such as Min(5, n + 1).
    """

    factor: int
    symbols: tuple[str, ...]
    constant: int

    def written(self) -> Number:
        """Return the number in normal form."""
        if not self.symbols:
            return self.constant
        text = "*".join(self.symbols)
        text = text if self.factor == 1 else f"{self.factor}*{text}"
        return text if self.constant == 0 else f"{text} {'+' if self.constant > 0 else '-'} {abs(self.constant)}"

    def at_least(self, bound: int) -> bool:
        """Return whether the number is certainly no smaller than `bound`."""
        return self.least >= bound

    @property
    def least(self) -> int:
        """The least value: that of the least symbols, since no factor is negative."""
        return self.factor * (_least_of_function(self.symbols[0]) if self.has_function else 1) + self.constant

    @property
    def has_function(self) -> bool:
        """Whether it has a function in the place of the symbols."""
        return bool(self.symbols) and self.symbols[0].endswith(")")


def names(text: str) -> list[str]:
    """Return the names in an expression, including those of functions."""
    return _NAME.findall(text)


def read(number: Number) -> Linear | None:
    """Parse a number; return None if it is not linear in one product of symbols, or not in normal form."""
    if isinstance(number, int):
        return Linear(0, (), number)
    found = _LINEAR.fullmatch(number)
    if found is None:
        return None
    linear = Linear(*_term(found), int(f"{found[5]}{found[6]}") if found[5] else 0)
    is_normal = linear.symbols == tuple(sorted(set(linear.symbols))) and linear.written() == number
    return linear if is_normal and (not linear.has_function or _is_function(linear.symbols[0])) else None


def _term(found: re.Match[str]) -> tuple[int, tuple[str, ...]]:
    """Return the factor and the symbols of the term at the beginning of a text."""
    return int(found[1] or found[3] or 1), (found[4],) if found[4] else tuple(found[2].split("*"))


@lru_cache(1 << 12)
def _quotient(text: str) -> tuple[Linear, int] | None:
    """Parse floor(n/2 - 1/2) as the linear number n - 1 and the divisor 2; return None if it is not in normal form."""
    found = _QUOTIENT.fullmatch(text.removeprefix("floor(").removesuffix(")"))
    if found is None:
        return None
    factor, symbols = _term(found)
    divisor = math.lcm(int(found[5]), int(found[8] or 1))
    constant = int(f"{found[6]}{found[7]}") * (divisor // int(found[8])) if found[6] else 0
    linear = Linear(factor * (divisor // int(found[5])), symbols, constant)
    inner = symbols[0] if linear.has_function else None
    is_normal = _rounded(linear, divisor) == Linear(1, (text,), 0) and (inner is None or _is_function(inner))
    return (linear, divisor) if is_normal else None


@lru_cache(1 << 12)
def _minimum(text: str) -> tuple[int, Linear] | None:
    """Parse Min(5, n + 1) as 5 and n + 1, which can be less; return None if it is not in normal form."""
    found = _MINIMUM.fullmatch(text)
    linear = read(found[2]) if found is not None else None
    return None if found is None or linear is None or linear.at_least(int(found[1])) else (int(found[1]), linear)


def _is_function(text: str) -> bool:
    """Return whether a text is a function in normal form."""
    return (_minimum if text.startswith("Min(") else _quotient)(text) is not None


def _least_of_function(text: str) -> int:
    """Return the least value of a function in normal form."""
    minimum = _minimum(text)
    if minimum is not None:
        return minimum[1].least
    quotient = _quotient(text)
    assert quotient is not None, text
    return quotient[0].least // quotient[1]


def _rounded(linear: Linear, divisor: int) -> Linear:
    """Return the quotient of a linear number, rounded down."""
    if linear.factor % divisor == 0:
        return Linear(linear.factor // divisor, linear.symbols, linear.constant // divisor)
    factor, whole = _reduced(linear.factor, divisor)
    text = f"{Linear(factor, linear.symbols, 0).written()}/{whole}"
    if linear.constant % divisor == 0:
        return Linear(1, (f"floor({text})",), linear.constant // divisor)
    part, of = _reduced(abs(linear.constant), divisor)
    return Linear(1, (f"floor({text} {'+' if linear.constant > 0 else '-'} {part}/{of})",), 0)


def _reduced(one: int, other: int) -> tuple[int, int]:
    common = math.gcd(one, other)
    return one // common, other // common


def product_in_minimum(text: str) -> str | None:
    """Return n of Min(5, n), which is at least 1, as both are; None for another text."""
    minimum = _minimum(text)
    return str(minimum[1].written()) if minimum is not None and not minimum[1].constant else None


def combine(operation: str, one: Number, other: Number) -> Number | None:
    """Return the result of an operation on two numbers; None if it has no short form.

    Raises `OutOfReachError` if an operand or the result is not linear.
    """
    mine, its = read(one), read(other)
    if mine is None or its is None:
        raise OutOfReachError
    match operation:
        case "Add":
            return _sum(mine, its, 1).written()
        case "Sub":
            return _sum(mine, its, -1).written()
        case "Mul":
            return _product(mine, its).written()
        case "Div" | "Mod":
            return _division(operation, mine, its)
        case _:
            return _comparison(operation, mine, its)


def windows(extent: str, room: int, stride: int) -> Number:
    """Return floor((extent + room) / stride) + 1; raises `OutOfReachError` if that is not linear."""
    linear = read(extent)
    if linear is None:
        raise OutOfReachError
    places = _rounded(linear._replace(constant=linear.constant + room), stride)
    return places._replace(constant=places.constant + 1).written()


def _sum(one: Linear, other: Linear, sign: int) -> Linear:
    """Return `one` plus or minus `other`."""
    factor = one.factor + sign * other.factor
    if factor < 0 or (one.symbols and other.symbols and one.symbols != other.symbols):
        raise OutOfReachError
    return Linear(factor, (one.symbols or other.symbols) if factor else (), one.constant + sign * other.constant)


def _product(one: Linear, other: Linear) -> Linear:
    if not one.symbols:
        one, other = other, one
    if not other.symbols:
        if other.constant < 0:
            raise OutOfReachError
        symbols = one.symbols if other.constant else ()
        return Linear(one.factor * other.constant, symbols, one.constant * other.constant)
    if one.constant or other.constant or one.has_function or other.has_function:
        raise OutOfReachError
    if set(one.symbols) & set(other.symbols):
        raise OutOfReachError
    return Linear(one.factor * other.factor, tuple(sorted(one.symbols + other.symbols)), 0)


def _division(operation: str, one: Linear, other: Linear) -> Number | None:
    """Return the quotient of two numbers, or the rest 0; none if they may be negative."""
    if not (one.at_least(0) and other.at_least(1)):
        return None
    quotient = Linear(0, (), 1) if one == other else _exact_quotient(one, other) if other.symbols else None
    if quotient is None and not other.symbols:
        quotient = _rounded(one, other.constant)
        if operation == "Mod" and (one.factor % other.constant or one.constant % other.constant):
            raise OutOfReachError
    if quotient is None:
        raise OutOfReachError
    return quotient.written() if operation == "Div" else 0


def _exact_quotient(one: Linear, other: Linear) -> Linear | None:
    """Return the quotient of two products; None if there may be a rest."""
    if one.constant or other.constant or one.factor % other.factor or not set(other.symbols) <= set(one.symbols):
        return None
    rest = tuple(symbol for symbol in one.symbols if symbol not in other.symbols)
    factor = one.factor // other.factor
    return Linear(factor, rest, 0) if rest else Linear(0, (), factor)


def _comparison(operation: str, one: Linear, other: Linear) -> Number | None:
    """Return the smaller or larger of two numbers, or whether one is less or they are equal: 0, 1 or None."""
    if one.symbols and other.symbols and one.symbols != other.symbols:
        raise OutOfReachError
    symbols = one.symbols or other.symbols
    factor, constant = one.factor - other.factor, one.constant - other.constant
    # A symbol has no upper bound.
    above = Linear(factor, symbols, constant).least if factor >= 0 else None
    below = Linear(-factor, symbols, -constant).least if factor <= 0 else None
    match operation:
        case "Less":
            return 1 if below is not None and below >= 1 else 0 if above is not None and above >= 0 else None
        case "Equal":
            if factor == constant == 0:
                return 1
            return 0 if any(least is not None and least >= 1 for least in (above, below)) else None
        case "Min" | "Max":
            small, large = (one, other) if operation == "Min" else (other, one)
            if below is not None and below >= 0:
                return small.written()
            if above is not None and above >= 0:
                return large.written()
            bound, inner = (one, other) if other.symbols else (other, one)
            if operation == "Min" and not bound.symbols and bound.constant > 0 and not inner.has_function:
                return f"Min({bound.constant}, {inner.written()})"
    raise OutOfReachError
