"""Predicates: conditions on a model that packages and plugins declare, for `when` and `expect` in recipes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Predicate:
    """A named condition on a model: a function that takes a `Graph`, changes nothing, and returns a bool."""

    name: str
    function: Callable[[Any], object]

    @property
    def module(self) -> str:
        """The module that declares the predicate."""
        return self.function.__module__

    @property
    def file(self) -> str:
        """The file of the declaration."""
        return str(inspect.unwrap(self.function).__code__.co_filename)

    @property
    def place(self) -> str:
        """The file and line of the declaration."""
        return f"{self.file}:{inspect.unwrap(self.function).__code__.co_firstlineno}"
