"""Dataclasses as plain values and back, for files and other processes; unpacking runs only their constructors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final

TAG: Final = "~"


class Packer:
    """Packs values of these dataclasses and enums, in tuples, lists and mappings.

    `leaf` packs all other values, and `readers` unpack what it tagged.
    """

    def __init__(
        self,
        *kinds: type[Any],
        leaf: Callable[[Any], Any] = lambda value: value,
        readers: Mapping[str, Callable[[Any], Any]] | None = None,
    ) -> None:
        self._kinds = {kind.__name__: kind for kind in kinds}
        self._leaf = leaf
        self._readers = {
            "map": lambda held: {self.unpack(key): self.unpack(item) for key, item in held},
            "list": lambda held: [self.unpack(item) for item in held],
            **(readers or {}),
        }

    def pack(self, value: Any) -> Any:
        """Return a value as JSON values, and leaves."""
        name = type(value).__name__
        if isinstance(value, Enum) and name in self._kinds:
            return {TAG: name, "of": value.value}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, tuple):
            return [self.pack(item) for item in value]
        if is_dataclass(value) and name in self._kinds:
            return {TAG: name, "of": [self.pack(getattr(value, one.name)) for one in fields(value)]}
        return self._pack_rarely(value)

    def _pack_rarely(self, value: Any) -> Any:
        if isinstance(value, list):
            return {TAG: "list", "of": [self.pack(item) for item in value]}
        if not isinstance(value, Mapping):
            return self._leaf(value)
        if all(isinstance(key, str) and key != TAG for key in value):
            return {key: self.pack(item) for key, item in value.items()}
        return {TAG: "map", "of": [[self.pack(key), self.pack(item)] for key, item in value.items()]}

    def unpack(self, value: Any) -> Any:
        """Return what `pack` packed; TypeError, ValueError or KeyError for anything else."""
        if isinstance(value, list):
            return tuple(self.unpack(item) for item in value)
        if not isinstance(value, dict):
            return value
        if TAG not in value:
            return {key: self.unpack(item) for key, item in value.items()}
        tag, held = value[TAG], value["of"]
        kind = self._kinds.get(tag)
        if kind is None:
            return self._readers[tag](held)
        return kind(held) if issubclass(kind, Enum) else kind(*map(self.unpack, held))
