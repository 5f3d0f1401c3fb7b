"""The releases of ONNX and ONNX Runtime that support an opset of the default domain, and an IR version.

ONNX: `onnx.helper.VERSION_TABLE` of the installed onnx, which is the table of docs/Versioning.md of the project.

ONNX Runtime does not document its own history, so it is listed here. Measured from 1.2 to 1.32: each release was given
models of one Relu with each opset and each IR version, and the first release that created a session is listed. For
earlier releases: docs/Versioning.md of ONNX Runtime.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from surgery.base.json_record import Record

_RUNTIMES = (
    ("0.1.4", 8, 3),
    ("0.3.0", 9, 3),
    ("0.4.0", 10, 5),
    ("1.0", 11, 6),
    ("1.3", 12, 7),
    ("1.6", 13, 7),
    ("1.8", 14, 7),
    ("1.9", 15, 8),
    ("1.11", 16, 8),
    ("1.12", 17, 8),
    ("1.14", 18, 8),
    ("1.15", 19, 9),
    ("1.17", 20, 9),
    ("1.18", 21, 10),
    ("1.21", 22, 10),
    ("1.23", 23, 11),
    ("1.24", 25, 13),
    ("1.25", 26, 13),
    ("1.32", 28, 14),
)
"""Releases of ONNX Runtime with new versions, and the newest opset and IR version that each accepts."""

_OLDEST = 7
"""The oldest opset that any release of ONNX Runtime accepts."""


@dataclass(frozen=True)
class Release(Record, keys="onnx ir_version onnxruntime=runtime"):
    """The releases of an opset: the first release of ONNX with it, its IR version, and the first ONNX Runtime.

    `runtime` is None if no known release accepts the opset.
    """

    opset: int
    onnx: str | None
    ir_version: int | None
    runtime: str | None


@cache
def release(opset: int) -> Release:
    """Return the releases for an opset of the default domain."""
    import onnx.helper

    # Rows are (release, IR version, opset, ...), the oldest first.
    row = next((row for row in onnx.helper.VERSION_TABLE if row[2] >= opset), None)
    if row is None:
        return Release(opset, None, None, None)
    runtime = next((name for name, most, _ in _RUNTIMES if _OLDEST <= opset <= most), None)
    return Release(opset, str(row[0]), int(row[1]), runtime)


def reader(ir_version: int) -> str | None:
    """Return the first release of ONNX Runtime that reads an IR version; None if none is known."""
    return next((name for name, _, most in _RUNTIMES if ir_version <= most), None)
