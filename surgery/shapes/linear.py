"""Arithmetic on numbers such as 64*batch + 2, which covers most needs of shapes, without the weight of sympy.

Each symbol stands for at least 1, as in `surgery.shapes.symbols`, whose normal form is kept.
"""

from __future__ import annotations

import re
from typing import NamedTuple

Number = int | str

_NAME = re.compile(r"[A-Za-z_]\w*")
_PRODUCT = r"(?:([1-9]\d*)\*)?([A-Za-z_]\w*(?:\*[A-Za-z_]\w*)*)"
_LINEAR = re.compile(rf"{_PRODUCT}(?: ([+-]) ([1-9]\d*))?")
_MINIMUM = re.compile(rf"Min\([1-9]\d*, {_PRODUCT}\)")


class OutOfReachError(Exception):
    """The result of an operation may have a form that only sympy knows."""


class Linear(NamedTuple):
    """A factor times distinct symbols, sorted by name, plus a constant; the factor is 0 only without symbols."""

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
        return self.factor + self.constant >= bound


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
    linear = Linear(int(found[1] or 1), tuple(found[2].split("*")), int(f"{found[3]}{found[4]}") if found[3] else 0)
    is_normal = linear.symbols == tuple(sorted(set(linear.symbols))) and linear.written() == number
    return linear if is_normal else None


def product_in_minimum(text: str) -> str | None:
    """Return n of Min(5, n), which is at least 1, as both are; None for another text."""
    return text.removesuffix(")").partition(", ")[2] if _MINIMUM.fullmatch(text) else None


def is_normal(text: str) -> bool:
    """Return whether a text is certainly in normal form: linear, or the minimum of a number and a product."""
    if read(text) is not None:
        return True
    product = read(product_in_minimum(text) or "")
    return product is not None and product.factor < int(text.removeprefix("Min(").partition(",")[0])


def combine(operation: str, one: Number, other: Number) -> Number | None:
    """Return the result of an operation on two numbers; None if it has no short form.

    Raises `OutOfReachError` if an operand or the result is not linear.
    """
    if other == 0 and isinstance(one, str) and product_in_minimum(one) is not None:
        known: dict[str, Number] = {"Add": one, "Sub": one, "Max": one, "Less": 0, "Min": 0, "Mul": 0}
        if operation in known:
            return known[operation]
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
    if linear is None or linear.factor % stride:
        raise OutOfReachError
    constant = (linear.constant + room) // stride + 1
    return Linear(linear.factor // stride, linear.symbols, constant).written()


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
    if one.constant or other.constant or set(one.symbols) & set(other.symbols):
        raise OutOfReachError
    return Linear(one.factor * other.factor, tuple(sorted(one.symbols + other.symbols)), 0)


def _division(operation: str, one: Linear, other: Linear) -> Number | None:
    """Return the quotient of two numbers, or the rest 0; none if they may be negative."""
    if not (one.at_least(0) and other.at_least(1)):
        return None
    quotient = _exact_quotient(one, other)
    if quotient is None:
        raise OutOfReachError
    return quotient.written() if operation == "Div" else 0


def _exact_quotient(one: Linear, other: Linear) -> Linear | None:
    """Return the quotient of two numbers if there is no rest; None if there may be one."""
    if one == other:
        return Linear(0, (), 1)
    if not other.symbols:
        divisor = other.constant
        divides = one.factor % divisor == 0 and one.constant % divisor == 0
        return Linear(one.factor // divisor, one.symbols, one.constant // divisor) if divides else None
    if one.constant or other.constant or one.factor % other.factor or not set(other.symbols) <= set(one.symbols):
        return None
    rest = tuple(symbol for symbol in one.symbols if symbol not in other.symbols)
    factor = one.factor // other.factor
    return Linear(factor, rest, 0) if rest else Linear(0, (), factor)


def _comparison(operation: str, one: Linear, other: Linear) -> Number | None:
    """Return the smaller or larger of two numbers, or whether one is less or they are equal: 0, 1 or None."""
    if one.symbols and other.symbols and one.symbols != other.symbols:
        raise OutOfReachError
    factor, constant = one.factor - other.factor, one.constant - other.constant
    # A symbol has no upper bound.
    above = factor + constant if factor >= 0 else None
    below = -factor - constant if factor <= 0 else None
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
            bound, product = (one, other) if other.symbols else (other, one)
            if operation == "Min" and not bound.symbols and not product.constant:
                return f"Min({bound.constant}, {product.written()})"
    raise OutOfReachError
