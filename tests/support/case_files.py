"""The case files of the standard passes."""

from __future__ import annotations

from functools import cache

from support import TESTS
from surgery import testing


@cache
def read() -> tuple[testing.Case, ...]:
    """Read all of them, once: several tests are about them."""
    return tuple(testing.cases(TESTS / "cases"))
