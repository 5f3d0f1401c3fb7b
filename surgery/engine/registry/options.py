"""Options of passes: their types, and the conversion of values from YAML or the command line."""

from __future__ import annotations

import inspect
import json
import re
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union

from surgery.engine.registry.arithmetic import evaluate, looks_arithmetic

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


SIZE_PATTERN = r"^\s*[0-9]+(\.[0-9]+)?\s*([kKmMgG]?[bB]|[kKmMgG][iI][bB])?\s*$"
"""The pattern of texts that `parse_size` accepts, for JSON schemas."""


class SizeUnit:
    """Marks an int option as a number of bytes, which may be written "1MB" or "64KiB"."""

    type_name = "size"

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> dict[str, Any]:
        return {"anyOf": [handler(core), {"type": "string", "pattern": SIZE_PATTERN}]}

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(parse_size, handler(source))


Size = Annotated[int, SizeUnit()]
"""A number of bytes: 4096, "1MB" (10^6) or "64KiB" (2^16)."""


_PLAIN = ((bool, bool), (int, int), (float, float), (Size, int))
"""Option types, each with the type of values that need no conversion."""


class FileOption:
    """Marks a Path option as a file, relative to the folder of the recipe."""

    type_name = "file"


FilePath = Annotated[Path, FileOption()]
"""A file. A relative path in a recipe starts at its folder, and on the command line at the current folder."""


class Keeping:
    """Marks the option with which the user declares how an edit preserves the results."""

    type_name = "exact | close | nothing"


Keeps = Annotated[Literal["exact", "close", "nothing"], Keeping()]
"""How an edit preserves the results, which only the user knows: all bits, all but rounding, or nothing.

Verification enforces this instead of the promise that the pass declares.
"""


def parse_size(value: Any) -> Any:
    """Convert a text such as "1MB" to 1000000; return other values unchanged."""
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kKmMgG]?[iI]?[bB]?)\s*", value)
    unit = found.group(2).upper() if found else ""
    if found is None or unit not in _UNITS:
        raise ValueError(f"'{value}' is not a size such as 4096, 64KiB or 1MB")
    if len(found.group(1)) > 20:
        raise ValueError(f"'{value[:20]}...' is too large")
    return int(float(found.group(1)) * _UNITS[unit])


@dataclass(frozen=True)
class Option:
    """One option of a pass."""

    name: str
    annotation: Any
    default: Any
    about: str

    @property
    def required(self) -> bool:
        """Whether it is required."""
        return self.default is inspect.Parameter.empty

    @property
    def plain_default(self) -> Any:
        """The default as a JSON or YAML value: as text if they cannot represent it, None for a required option."""
        return None if self.required else json.loads(json.dumps(self.default, default=str), parse_constant=str)

    @property
    def type_name(self) -> str:
        """The name of the type in docs and messages."""
        return _type_name(self.annotation)

    @property
    def is_file(self) -> bool:
        """Whether its value is the path of a file."""
        return any(isinstance(part, FileOption) for part in _parts(self.annotation))

    def converted_default(self) -> Any:
        """Return the default as passed to the pass."""
        return self.default if self._is_plain(self.default) else self.validate(self.default)

    def _is_plain(self, value: Any) -> bool:
        """Return whether a value needs no conversion, and so no slow import of pydantic."""
        if value is None:
            return NoneType in typing.get_args(self.annotation)
        if isinstance(value, str):
            return typing.get_origin(self.annotation) is Literal and value in typing.get_args(self.annotation)
        return any(self.annotation is kind and type(value) is held for kind, held in _PLAIN)

    def validate(self, value: Any) -> Any:
        """Convert a value from YAML or the command line; raise ValueError, with a one-line message, for a problem."""
        if not isinstance(value, float) and self._is_plain(value):
            return value
        from pydantic import TypeAdapter, ValidationError

        value = _computed(self.annotation, str(value) if isinstance(value, Path) else value)
        # Text from the command line is converted; a number from YAML for a bool is a mistake.
        strict = not isinstance(value, str) or self.annotation is str
        adapter: TypeAdapter[Any] = TypeAdapter(self.annotation)
        try:
            if strict:
                # Validated as JSON, where a list is accepted for a tuple, because YAML has only lists.
                return adapter.validate_json(json.dumps(value), strict=True)
            return adapter.validate_python(value)
        except TypeError:
            raise ValueError(f"not a {type(value).__name__}") from None
        except ValidationError as error:
            detail = error.errors()[0]
            message = str(detail["ctx"]["error"]) if detail["type"] == "value_error" else detail["msg"].lower()
            raise ValueError(message) from None


def _computed(annotation: Any, value: Any) -> Any:
    """Compute arithmetic in texts such as "1/255" where a number is wanted and no text is; ValueError for a mistake."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if isinstance(value, str):
        whole = annotation is int
        if not (whole or annotation is float) or not looks_arithmetic(value):
            return _of_union(parts, value) if origin in (Union, UnionType) else value
        found = evaluate(value)
        return int(found) if whole and found.is_integer() else found
    if origin in (Union, UnionType):
        kinds = [part for part in parts if typing.get_origin(part) in (list, tuple, dict)]
        return _computed(kinds[0], value) if len(kinds) == 1 else value
    if isinstance(value, list | tuple) and origin in (list, tuple):
        inner = parts[:1] * len(value) if origin is list or parts[1:] == (...,) else parts
        return [_computed(part, item) for part, item in zip(inner, value)] if len(inner) == len(value) else value
    if isinstance(value, dict) and origin is dict:
        return {key: _computed(parts[1], item) for key, item in value.items()}
    return value


def _of_union(parts: tuple[Any, ...], value: str) -> Any:
    """Compute a text if every type that a union has is a number, or a list or mapping, which a text is not."""
    kinds = [part for part in parts if part is not NoneType]
    number = next((part for part in kinds if part in (int, float)), None)
    others = [part for part in kinds if part not in (int, float)]
    if number is None or any(typing.get_origin(part) not in (list, tuple, dict) for part in others):
        return value
    return _computed(float if float in kinds else number, value)


def _type_name(annotation: Any) -> str:
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return str(parts[1].type_name)
    if origin is Literal:
        return " | ".join(str(choice) for choice in parts)
    if origin in (Union, UnionType):
        return " | ".join("none" if part is NoneType else _type_name(part) for part in parts)
    if origin is list:
        return f"list[{_type_name(parts[0])}]"
    if hasattr(annotation, "type_name"):
        return str(annotation.type_name)
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield a type and its nested types."""
    yield annotation
    for part in typing.get_args(annotation):
        yield from _parts(part)
