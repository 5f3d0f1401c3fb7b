"""The register of kinds of wrong rewrites."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from mutation.draft import Draft

Promise = Literal["exact", "close"]
Edit = Callable[[Draft], None]


@dataclass(frozen=True)
class Kind:
    """One way to be wrong. `promises`: what passes of this family promise."""

    name: str
    promises: tuple[Promise, ...]
    edit: Edit
    invalid: bool = False


KINDS: dict[str, Kind] = {}


def kind(name: str, *promises: Promise, invalid: bool = False) -> Callable[[Edit], Edit]:
    """Register a kind; with `invalid` its mutants may be refused before they run, being wrong by their interface."""

    def register(edit: Edit) -> Edit:
        assert name not in KINDS
        KINDS[name] = Kind(name, promises or ("exact", "close"), edit, invalid)
        return edit

    return register
