"""Large parametrizations: a part that stands for the rest is in `make test`, the rest in `make test-slow`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def sampled(values: Iterable[Any], step: int) -> list[Any]:
    """Return the arguments for `parametrize`, all but every step-th of them marked as slow."""
    return [value if index % step == 0 else _slow(value) for index, value in enumerate(values)]


def _slow(value: Any) -> Any:
    if isinstance(value, ParameterSet):
        return pytest.param(*value.values, marks=[*value.marks, pytest.mark.slow], id=value.id)
    return pytest.param(*(value if type(value) is tuple else (value,)), marks=pytest.mark.slow)
