"""Records: dataclasses whose JSON form follows from their fields."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import PurePath
from typing import Any, ClassVar, Final, NamedTuple, overload

_KEY: Final = re.compile(r"(?P<inlined>\*?)(?:(?P<key>\w+)=)?(?P<path>[\w.]+)(?P<or_null>\??)(?::(?P<digits>\d))?")


class Key(NamedTuple):
    """How reports show an attribute of a record."""

    name: str
    path: tuple[str, ...]
    """The attribute, or one of an attribute."""
    is_inlined: bool = False
    """The keys of the nested record take its place."""
    or_null: bool = False
    """What is empty is shown as null."""
    digits: int | None = None
    """Numbers are rounded to as many decimal digits."""


class Record:
    """A base of dataclasses: reports show the fields, in their order.

    `keys` of the class statement lists the keys if these are others than the fields:

        class Stage(Record, keys="stage=name text? seconds:3 *verdict"):

    Each is a field or property, or `key=field`; `spec.level` is an attribute of a field, and null if the field is.
    "?" shows an empty value as null, ":3" rounds to three digits, and "*" inserts the keys of a nested record.
    """

    _keys: ClassVar[tuple[Key, ...]] = ()

    def __init_subclass__(cls, *, keys: str = "") -> None:
        """Read the keys. TypeError if one names no attribute, so that a misspelled name fails on import."""
        if keys:
            known = {name for base in cls.__mro__ for name in (*vars(base), *vars(base).get("__annotations__", ()))}
            cls._keys = tuple(_key(cls.__name__, known, text) for text in keys.split())

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        found: dict[str, Any] = {}
        for key in shown(type(self)):
            value = plain(_reached(self, key.path), key.digits)
            found.update(value if key.is_inlined else {key.name: (value or None) if key.or_null else value})
        return found


def _key(kind: str, known: Container[str], text: str) -> Key:
    found = _KEY.fullmatch(text)
    path = () if found is None else tuple(found["path"].split("."))
    if found is None or path[0] not in known:
        raise TypeError(f"{kind} has no attribute for its key '{text}'")
    digits = None if found["digits"] is None else int(found["digits"])
    return Key(found["key"] or path[-1], path, bool(found["inlined"]), bool(found["or_null"]), digits)


def _reached(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = None if value is None else getattr(value, name)
    return value


def shown(kind: type[Any]) -> tuple[Key, ...]:
    """Return the keys of a record, or of another dataclass, which shows all of its fields."""
    return getattr(kind, "_keys", ()) or tuple(Key(field.name, (field.name,)) for field in fields(kind))


@overload
def plain(value: Mapping[str, Any]) -> dict[str, Any]: ...
@overload
def plain(value: Any, digits: int | None = None) -> Any: ...
def plain(value: Any, digits: int | None = None) -> Any:
    """Return a value as JSON holds it, with NaN and infinity, which JSON lacks, as strings; `digits` rounds numbers."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, Mapping):
        return {key: plain(item, digits) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, digits) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {key.name: plain(_reached(value, key.path)) for key in shown(type(value))}
    return _scalar(value, digits)


def _scalar(value: Any, digits: int | None) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (complex, PurePath)) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    return round(value, digits) if digits is not None and isinstance(value, float) else value
