"""Serialization of step outcomes as plain text; deserialization runs no code."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

import numpy as np

from surgery.engine.pipeline.records import RefusedSite
from surgery.engine.pipeline.sensitivity import Sensitivity
from surgery.engine.pipeline.step_cache import EndFacts
from surgery.model.graph.signature_mappings import Pieces, Relation
from surgery.model.graph.state import Refused, Site
from surgery.verification.comparing import details
from surgery.verification.comparing.deployment import Deployed, Executed
from surgery.verification.verdict.validity import Validity

_TAG: Final = "~"
_CLASSES: Final[dict[str, Callable[..., Any]]] = {
    one.__name__: one
    for one in (
        *(details.Verdict, details.Details, details.Element, details.NonFinitePlaces, details.Arbitration),
        *(details.OutputErrors, Site, Refused, RefusedSite, Sensitivity, Relation, Pieces, EndFacts, Validity),
        *(Deployed, Executed),
    )
}


def dump(value: Any) -> bytes:
    """Serialize a value. TypeError for unsupported values, such as a class that is not listed here."""
    return json.dumps(_packed(value), separators=(",", ":"), ensure_ascii=True).encode()


def load(data: bytes) -> Any:
    """Deserialize a text made by `dump`. Raises ValueError, TypeError or KeyError for any other."""
    return _unpacked(json.loads(data))


def _packed(value: Any) -> Any:
    if isinstance(value, details.Status):
        return {_TAG: "Status", "of": value.value}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return [_packed(item) for item in value]
    if is_dataclass(value) and type(value).__name__ in _CLASSES:
        return {_TAG: type(value).__name__, "of": [_packed(getattr(value, one.name)) for one in fields(value)]}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and key != _TAG for key in value):
            return {key: _packed(item) for key, item in value.items()}
        return {_TAG: "map", "of": [[_packed(key), _packed(item)] for key, item in value.items()]}
    return _packed_rarely(value)


def _packed_rarely(value: Any) -> Any:
    match value:
        case list():
            return {_TAG: "list", "of": [_packed(item) for item in value]}
        case complex():
            return {_TAG: "complex", "of": [value.real, value.imag]}
        case bytes():
            return {_TAG: "bytes", "of": base64.b64encode(value).decode()}
        case np.ndarray() if value.dtype.kind in "biuf":
            data = base64.b64encode(value.tobytes()).decode()
            return {_TAG: "array", "of": [value.dtype.str, list(value.shape), data]}
    raise TypeError(f"a {type(value).__name__} is not stored")


def _unpacked(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_unpacked(item) for item in value)
    if not isinstance(value, dict):
        return value
    if _TAG not in value:
        return {key: _unpacked(item) for key, item in value.items()}
    tag, held = value[_TAG], value["of"]
    if tag in _CLASSES:
        return _CLASSES[tag](*map(_unpacked, held))
    return _READERS[tag](held)


def _array(held: Any) -> np.ndarray[Any, Any]:
    dtype, shape, data = held
    return np.frombuffer(base64.b64decode(data), np.dtype(dtype)).reshape(shape)


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "Status": details.Status,
    "map": lambda held: {_unpacked(key): _unpacked(item) for key, item in held},
    "list": lambda held: [_unpacked(item) for item in held],
    "complex": lambda held: complex(*held),
    "bytes": base64.b64decode,
    "array": _array,
}
