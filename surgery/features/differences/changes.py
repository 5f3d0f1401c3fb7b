"""The basic unit of a difference: a change of one property."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from surgery.base.json_record import Record


@dataclass(frozen=True)
class Change(Record):
    """A property that differs; None stands for absent."""

    what: str
    before: Any
    after: Any

    @property
    def kind(self) -> str:
        """The property that differs, with its values if they are short."""
        short = all(len(str(value)) <= _SHORT for value in (self.before, self.after))
        return str(self) if short else self.what

    def __str__(self) -> str:
        return f"{self.what} {_told(self.before)} -> {_told(self.after)}"


_SHORT = 12
"""Maximum number of characters of a value that is included in the kind of a change."""


def _told(value: object) -> str:
    return "-" if value is None else str(value)


def of_one(what: str, before: Any, after: Any) -> tuple[Change, ...]:
    """Return the change of one property, if it differs."""
    return () if before == after else (Change(what, before, after),)


def of_maps(prefix: str, before: dict[str, Any], after: dict[str, Any]) -> tuple[Change, ...]:
    """Return the changes of two mappings, key by key."""
    return tuple(
        change for key in {**before, **after} for change in of_one(prefix + key, before.get(key), after.get(key))
    )
