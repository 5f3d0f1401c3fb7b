"""Amounts: sums of products of dims; a number if every dim is a number, otherwise an expression."""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache

from surgery.base.operators.operations import UnknownDim
from surgery.model.shapes.facts import Dim
from surgery.model.shapes.symbols import parse, shown, where_each_is, written

_STAND_IN = 64
"""Value of each named dim when amounts with different names are compared."""


class Amount:
    """A sum of terms, each an integer times named dims, such as 768*batch*sequence.

    `rough` is the amount with the same number in place of each name; it is used for comparisons, not for reports.
    """

    def __init__(self) -> None:
        self._terms: Counter[tuple[str, ...]] = Counter()
        self.rough = 0

    @classmethod
    def of(cls, *factors: Dim) -> Amount:
        """Return the product of numbers and dims; `UnknownDim` if one is unknown."""
        amount = cls()
        amount.add(*factors)
        return amount

    def add(self, *factors: Dim) -> None:
        """Add a product of numbers and dims; `UnknownDim` if one is unknown."""
        number = 1
        names = []
        for factor in factors:
            if factor is None:
                raise UnknownDim
            if isinstance(factor, int):
                number *= factor
            else:
                names.append(factor)
        self._put(tuple(sorted(names)), number)

    def _put(self, names: tuple[str, ...], number: int) -> None:
        self._terms[names] += number
        self.rough += number * _stand_in(names)

    def __iadd__(self, other: Amount) -> Amount:
        self._terms.update(other._terms)
        self.rough += other.rough
        return self

    def __isub__(self, other: Amount) -> Amount:
        self._terms.subtract(other._terms)
        self.rough -= other.rough
        return self

    def times(self, *factors: Dim) -> Amount:
        """Return this amount multiplied by numbers and dims."""
        result = Amount()
        for names, number in self._terms.items():
            result.add(number, *names, *factors)
        return result

    @property
    def is_number(self) -> bool:
        """Whether the amount contains no named dims."""
        return not any(names for names, number in self._terms.items() if number)

    def to_json(self) -> int | str:
        """Return the amount as a number, or as an expression in normal form."""
        if self.is_number:
            return self._terms[()]
        import sympy  # type: ignore[import-untyped]

        terms = (sympy.Mul(number, *map(parse, names)) for names, number in self._terms.items() if number)
        found = written(sympy.Add(*terms))
        return found if isinstance(found, int) else shown(found)


@lru_cache(1 << 14)
def _stand_in(names: tuple[str, ...]) -> int:
    return math.prod(where_each_is(_STAND_IN, name) for name in names)
