"""Arithmetic on products such as 64*batch, which covers most needs of shapes, without the weight of sympy.

Each symbol stands for at least 1, as in `surgery.shapes.symbols`, whose normal form is kept.
"""

from __future__ import annotations

import re
from typing import NamedTuple

Number = int | str

_NAME = re.compile(r"[A-Za-z_]\w*")
_PRODUCT = re.compile(r"(?:([1-9]\d*)\*)?([A-Za-z_]\w*(?:\*[A-Za-z_]\w*)*)")

_MINIMUM = re.compile(rf"Min\([1-9]\d*, {_PRODUCT.pattern}\)")


class Product(NamedTuple):
    """A positive factor times distinct symbols, sorted by name."""

    factor: int
    symbols: tuple[str, ...]

    def written(self) -> Number:
        """Return the product in normal form."""
        if not self.symbols:
            return self.factor
        text = "*".join(self.symbols)
        return text if self.factor == 1 else f"{self.factor}*{text}"


def names(text: str) -> list[str]:
    """Return the names in an expression, including those of functions."""
    return _NAME.findall(text)


def read(number: Number) -> Product | None:
    """Parse a number as a product; return None if it is not positive, or not such a product."""
    if isinstance(number, int):
        return Product(number, ()) if number > 0 else None
    found = _PRODUCT.fullmatch(number)
    if found is None:
        return None
    product = Product(int(found[1] or 1), tuple(found[2].split("*")))
    is_normal = product.symbols == tuple(sorted(set(product.symbols))) and product.written() == number
    return product if is_normal else None


def product_in_minimum(text: str) -> str | None:
    """Return n of Min(5, n), which is at least 1, as both are; None for another text."""
    return text.removesuffix(")").partition(", ")[2] if _MINIMUM.fullmatch(text) else None


def is_normal(text: str) -> bool:
    """Return whether a text is in normal form for sure: a product, or the minimum of a number and a product."""
    if read(text) is not None:
        return True
    product = read(product_in_minimum(text) or "")
    return product is not None and product.factor < int(text.removeprefix("Min(").partition(",")[0])


def combine(operation: str, one: Number, other: Number) -> Number | None:
    """Return the result of an operation on two numbers, one of which has a symbol; None if it is not a product."""
    mine, its = read(one), read(other)
    if other == 0 and isinstance(one, str) and product_in_minimum(one) is not None:
        known: dict[str, Number] = {"Add": one, "Sub": one, "Max": one, "Less": 0, "Min": 0, "Mul": 0}
        return known.get(operation)
    if mine is None or its is None:
        return _with_nothing(operation, mine, its, one, other)
    if operation == "Min" and not (mine.symbols and its.symbols):
        bound, product = (mine, its) if its.symbols else (its, mine)
        return bound.factor if product.factor >= bound.factor else f"Min({bound.factor}, {product.written()})"
    match operation:
        case "Mul" if not set(mine.symbols) & set(its.symbols):
            return Product(mine.factor * its.factor, tuple(sorted(mine.symbols + its.symbols))).written()
        case "Div" if mine.factor % its.factor == 0 and set(its.symbols) <= set(mine.symbols):
            rest = tuple(symbol for symbol in mine.symbols if symbol not in its.symbols)
            return Product(mine.factor // its.factor, rest).written()
        case "Mod" if mine.factor % its.factor == 0 and set(its.symbols) <= set(mine.symbols):
            return 0
    return None


def _with_nothing(
    operation: str, mine: Product | None, its: Product | None, one: Number, other: Number
) -> Number | None:
    """Combine a product, which is at least 1, with 0 or a negative number."""
    if (product := mine or its) is None:
        return None
    low = other if mine is not None else one
    if not isinstance(low, int):
        return None
    match operation:
        case "Less":
            return int(its is not None)
        case "Equal":
            return 0
        case "Min":
            return low
        case "Max":
            return product.written()
        case "Mul" if low == 0:
            return 0
        case "Add" | "Sub" if low == 0 and (operation == "Add" or mine is not None):
            return product.written()
    return None
