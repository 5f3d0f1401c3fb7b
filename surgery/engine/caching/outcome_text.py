"""Serialization of step outcomes as plain text; deserialization runs no code."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

import numpy as np

from surgery.base.packing import TAG, Packer
from surgery.engine.pipeline.records import RefusedSite
from surgery.engine.pipeline.sensitivity import Sensitivity
from surgery.engine.pipeline.step_cache_interface import EndFacts
from surgery.model.graph.signature_mappings import Pieces, Relation
from surgery.model.graph.state import Refused, Site
from surgery.verification.comparing import details
from surgery.verification.comparing.deployment import Deployed, Executed
from surgery.verification.verdict.validity import Validity


def _leaf(value: Any) -> Any:
    match value:
        case complex():
            return {TAG: "complex", "of": [value.real, value.imag]}
        case bytes():
            return {TAG: "bytes", "of": base64.b64encode(value).decode()}
        case np.ndarray() if value.dtype.kind in "biuf":
            data = base64.b64encode(value.tobytes()).decode()
            return {TAG: "array", "of": [value.dtype.str, list(value.shape), data]}
    raise TypeError(f"a {type(value).__name__} is not stored")


def _array(held: Any) -> np.ndarray[Any, Any]:
    dtype, shape, data = held
    return np.frombuffer(base64.b64decode(data), np.dtype(dtype)).reshape(shape)


_PACKER: Final = Packer(
    *(details.Status, details.Verdict, details.Details, details.Element, details.NonFinitePlaces, details.Arbitration),
    *(details.OutputErrors, Site, Refused, RefusedSite, Sensitivity, Relation, Pieces, EndFacts, Validity),
    *(Deployed, Executed),
    leaf=_leaf,
    readers={"complex": lambda held: complex(*held), "bytes": base64.b64decode, "array": _array},
)


def dump(value: Any) -> bytes:
    """Serialize a value. TypeError for unsupported values, such as a class that is not listed here."""
    return json.dumps(_PACKER.pack(value), separators=(",", ":"), ensure_ascii=True).encode()


def load(data: bytes) -> Any:
    """Deserialize a text made by `dump`. Raises ValueError, TypeError or KeyError for any other."""
    return _PACKER.unpack(json.loads(data))
