"""What a runtime runs of one operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ONNX = "ai.onnx"
"""How profiles write the default domain."""

MANY = 2**31 - 1
ANY_VERSION = (1, MANY)
ANY_RANK = (0, MANY)

FIRST = ""
"""The type variable of the first input of an operator, or of its first output where it has no input."""


@dataclass(frozen=True)
class Support:
    """What a runtime runs of one operator: versions from the first to the last, and the types of each type variable.

    No types means that nothing is known of them, and all are taken. `rank` bounds the first input, `constant` names
    the inputs that must be constants, `attributes` has the values that are run, `outputs` is the largest number.
    """

    versions: tuple[int, int] = ANY_VERSION
    types: Mapping[str, frozenset[str]] = field(default_factory=dict)
    rank: tuple[int, int] = ANY_RANK
    constant: tuple[str, ...] = ()
    attributes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    outputs: int = MANY

    def has_version(self, version: int) -> bool:
        """Return whether it runs a version of the operator; 0 is any."""
        first, last = self.versions
        return not version or first <= version <= last

    def takes(self, version: int, dtype: str | None) -> bool:
        """Return whether it runs a version of the operator (0: any) in an element type such as "float16"."""
        if not self.has_version(version):
            return False
        main = next((self.types[key] for key in (FIRST, "T") if key in self.types), None)
        listed = list(self.types.values()) if main is None else [main]
        return dtype is None or not listed or any(dtype in types for types in listed)
