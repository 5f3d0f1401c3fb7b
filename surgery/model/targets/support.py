"""The support of a runtime for one operator."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ONNX = "ai.onnx"
"""The name of the default domain in profiles."""

MANY = 2**31 - 1
ANY_VERSION = (1, MANY)
ANY_RANK = (0, MANY)

FIRST = ""
"""Stands for the type variable of the first input of an operator, or of its first output if it has no inputs."""


@dataclass(frozen=True)
class Support:
    """The supported part of one operator: the first and the last version, and the types of each type variable.

    If there are no types, they are unknown, and all are accepted. `rank` bounds the rank of the first input, `constant`
    has the inputs that must be constants, `zeros` those whose elements must all be 0, `attributes` the supported
    values, `inputs` and `outputs` the maximum numbers of these, and `least_outputs` the minimum number of outputs. An
    attribute without supported values must not be set.
    """

    versions: tuple[int, int] = ANY_VERSION
    types: Mapping[str, frozenset[str]] = field(default_factory=dict)
    rank: tuple[int, int] = ANY_RANK
    constant: tuple[str, ...] = ()
    zeros: tuple[str, ...] = ()
    attributes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    inputs: int = MANY
    outputs: int = MANY
    least_outputs: int = 1

    def has_version(self, version: int) -> bool:
        """Return whether a version of the operator is supported; 0 means any."""
        first, last = self.versions
        return not version or first <= version <= last

    def takes(self, version: int, dtype: str | None) -> bool:
        """Return whether a version of the operator (0: any) is supported in an element type such as "float16"."""
        if not self.has_version(version):
            return False
        main = next((self.types[key] for key in (FIRST, "T") if key in self.types), None)
        listed = list(self.types.values()) if main is None else [main]
        return dtype is None or not listed or any(dtype in types for types in listed)

    def takes_attribute(self, name: str, held: Any) -> bool:
        """Return whether an attribute with this value, None if it is not set, is supported."""
        allowed = self.attributes.get(name)
        return held is None or allowed is None or any(_same(held, one) for one in allowed)

    def rejected(self, inputs: int, attributes: Mapping[str, Any]) -> str | None:
        """Return an unsupported attribute of a node ("causal 0") or number of inputs ("17 inputs"); None if all is."""
        if inputs > self.inputs:
            return f"{inputs} inputs"
        return next((f"{key} {held}" for key, held in attributes.items() if not self.takes_attribute(key, held)), None)


def _same(held: Any, allowed: Any) -> bool:
    """Compare an attribute with an allowed value; a single allowed value also covers lists that only repeat it."""
    if isinstance(held, Sequence) and not isinstance(held, str) and not isinstance(allowed, list):
        return all(one == allowed for one in held)
    if isinstance(held, float) and isinstance(allowed, int | float):
        return math.isclose(held, allowed, rel_tol=1e-6)  # attributes are float32
    return bool(held == allowed)
