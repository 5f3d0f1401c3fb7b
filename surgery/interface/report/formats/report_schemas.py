"""JSON schemas of the reports of `--format json`, printed by `surgery schema NAME`, from their shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from surgery.interface.report.formats.report_shapes import SHAPES

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def names() -> tuple[str, ...]:
    """Return the names of the commands whose reports have a schema, with hyphens instead of spaces."""
    return tuple(sorted(SHAPES))


def schema(name: str) -> dict[str, Any]:
    """Return the JSON schema of the report of a command."""
    head = {"$schema": DIALECT, "title": f"The JSON report of surgery {name}"}
    shapes = [_object({"format_version": "integer", **shape}) for shape in SHAPES[name]]
    for shape in shapes:
        shape["properties"]["format_version"] = {"const": 1}
    return {**head, **(shapes[0] if len(shapes) == 1 else {"anyOf": shapes})}


def _schema(shape: Any) -> dict[str, Any]:
    if isinstance(shape, Mapping):
        return _object(shape)
    if isinstance(shape, list):
        return {"type": "array", "items": _schema(shape[0])}
    if shape == "any":
        return {}
    kind = shape.removesuffix("?")
    return {"type": [kind, "null"] if kind != shape else kind}


def _object(shape: Mapping[str, Any]) -> dict[str, Any]:
    properties = {key.removesuffix("?"): _schema(value) for key, value in shape.items()}
    return {"type": "object", "properties": properties, "required": [key for key in shape if not key.endswith("?")]}
