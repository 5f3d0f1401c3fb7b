"""Predicates: conditions on a model that packages and plugins declare, for `when` and `expect` in recipes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from surgery.registry import discovery


@dataclass(frozen=True)
class Predicate:
    """A named question about a model: a function that takes a `Graph`, changes nothing, and returns the answer."""

    name: str
    function: Callable[[Any], object]

    @property
    def module(self) -> str:
        """The module that declares it."""
        return self.function.__module__

    @property
    def file(self) -> str:
        """The file of the declaration."""
        return str(inspect.unwrap(self.function).__code__.co_filename)

    @property
    def place(self) -> str:
        """The file and the line of the declaration."""
        return f"{self.file}:{inspect.unwrap(self.function).__code__.co_firstlineno}"

    @property
    def origin(self) -> str:
        """The installed distribution with its version, or the path of the file, that it comes from."""
        return discovery.origin(self.module, self.file)
