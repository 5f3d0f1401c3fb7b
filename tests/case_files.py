"""The case files of the standard passes."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from surgery import testing


@cache
def read() -> tuple[testing.Case, ...]:
    """Read all of them, once: several tests are about them."""
    return tuple(testing.cases(Path(__file__).parent / "cases"))
