"""How the field of an option is filled in, from its type."""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal

from surgery.engine.registry.options import Keeps

FieldKind = Literal[
    "choice",
    "several",
    "text",
    "code",
    "rule",
    "nodes",
    "tensors",
    "names",
    "texts by name",
    "lists by name",
    "values by name",
    "list",
    "value or list",
    "value",
]
"""One of a few, several of them, a line of text, lines of ONNX text, a rule, names and globs, mappings by what they map
to, lists whose brackets may be missing, and any other value as a recipe has it."""


def of(annotation: Any) -> FieldKind:
    """Return how an option with a type is filled in."""
    if annotation is bool or annotation == Keeps:
        return "choice"
    parts = parts_of(annotation)
    known = next((_SPECIAL[name] for part in parts if (name := _type_name(part)) in _SPECIAL), None)
    if known is not None:
        return known
    mapping = next((part for part in parts if typing.get_origin(part) is dict), None)
    if mapping is not None:
        return _of_mapping(typing.get_args(mapping)[1])
    if len(parts) > 1:
        return "value or list" if any(typing.get_origin(part) in _LISTS for part in parts) else "value"
    return _of_part(parts[0])


_SPECIAL: Mapping[str, FieldKind] = {
    "file": "text",
    "new names": "texts by name",
    "node selector": "nodes",
    "nodes in ONNX text": "code",
    "rule": "rule",
    "tensor names": "tensors",
}
"""The option types of surgery that have a name in messages, by it."""


_LISTS = (tuple, list, Sequence)


def _type_name(part: Any) -> str:
    """Return what messages call an option type of surgery; empty for another one."""
    named = [part, *typing.get_args(part)[1:]] if typing.get_origin(part) is typing.Annotated else [part]
    return next((str(one.type_name) for one in named if hasattr(one, "type_name")), "")


def _of_part(part: Any) -> FieldKind:
    origin, inner = typing.get_origin(part), typing.get_args(part)
    if origin is Literal:
        return "choice"
    if part is str:
        return "text"
    if origin not in _LISTS:
        return "value"
    if inner[:1] == (str,):
        return "names"
    return "several" if origin is tuple and typing.get_origin(inner[0]) is Literal else "list"


def _of_mapping(annotation: Any) -> FieldKind:
    parts = parts_of(annotation)
    if parts == [str]:
        return "texts by name"
    return "lists by name" if all(typing.get_origin(part) is list for part in parts) else "values by name"


def parts_of(annotation: Any) -> list[Any]:
    """Return the types that an option may have besides None."""
    is_union = typing.get_origin(annotation) in (typing.Union, UnionType)
    return [part for part in (typing.get_args(annotation) if is_union else (annotation,)) if part is not NoneType]


def unannotated(kind: Any) -> Any:
    """Return a type without its annotations."""
    return typing.get_args(kind)[0] if typing.get_origin(kind) is typing.Annotated else kind
