"""Comparisons of a count with a number, in the notation of recipes: `0`, `">= 1"`, `"<= 500"`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

from surgery.engine.yaml.yaml_nodes import quoted

Operator = Literal["==", "!=", "<", "<=", ">", ">="]

_HOLDS: dict[Operator, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
# Spellings of other languages, with their equivalents here.
_MEANT = {"=": "==", "=<": "<=", "=>": ">=", "<>": "!=", "!": "!=", "===": "=="}


@dataclass(frozen=True)
class CountCondition:
    """A condition on a count: an operator and a non-negative integer."""

    op: Operator
    number: int

    @classmethod
    def parse(cls, value: object) -> CountCondition:
        """Read `0`, `"0"`, `"== 0"`, `">= 1"`; raise ValueError, with a one-line message, for a mistake."""
        if isinstance(value, int) and not isinstance(value, bool):
            if value < 0:
                raise ValueError(f"a count is never negative: {value}")
            return cls("==", value)
        if not isinstance(value, str):
            raise ValueError("a comparison is a number, or text such as '>= 1'")
        found = re.fullmatch(r"\s*([=!<>]*)\s*(-?)([0-9]{1,18})\s*", value)
        if found is None:
            raise ValueError(f"{quoted(value)} is not a comparison such as 0, '>= 1' or '<= 500'")
        sign, minus, digits = found.groups()
        if minus:
            raise ValueError(f"a count is never negative: {quoted(value)}")
        if sign and sign not in _HOLDS:
            hint = f"; did you mean '{_MEANT[sign]} {digits}'?" if sign in _MEANT else ""
            raise ValueError(f"{quoted(sign)} does not compare{hint or '; use ==, !=, <, <=, > or >='}")
        return cls(cast(Operator, sign or "=="), int(digits))

    def holds(self, count: int) -> bool:
        """Return whether a count meets the condition."""
        return _HOLDS[self.op](count, self.number)

    def __str__(self) -> str:
        return f"{self.op} {self.number}"
