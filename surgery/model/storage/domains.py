"""`ai.onnx` as an alias of the default domain.

The specification and ONNX Runtime accept both names; the checker and the inference of onnx, and onnx-ir, accept only
the empty one.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

import onnx

from surgery.base.operators.subgraphs import nested

ALIAS: Final = "ai.onnx"
_WRITTEN: Final = bytes([len(ALIAS)]) + ALIAS.encode()
"""The serialized string `ai.onnx`."""


def _has_alias(proto: onnx.ModelProto) -> bool:
    """Return whether a model uses `ai.onnx` for the default domain, and may use the empty name instead."""
    if _WRITTEN not in proto.SerializeToString():
        return False
    imports: list[Any] = [proto.opset_import, *(function.opset_import for function in proto.functions)]
    versions = [{item.version for item in items if item.domain in ("", ALIAS)} for items in imports]
    # With two versions of the domain, or functions in it, the meaning is unclear.
    return all(len(found) <= 1 for found in versions) and all(f.domain != ALIAS for f in proto.functions)


def without_alias(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with the empty name of the default domain: a copy if it used the alias."""
    if not _has_alias(proto):
        return proto
    copy = deepcopy(proto)
    for items in (copy.opset_import, *(function.opset_import for function in copy.functions)):
        _merge(items)
    for body in (copy.graph, *copy.functions):
        for node in nested(body.node):
            if node.domain == ALIAS:
                node.domain = ""
    return copy


def _merge(imports: Any) -> None:
    """Rename the import of the default domain, and keep only one if both names are imported."""
    found = [item for item in imports if item.domain in ("", ALIAS)]
    for item in found[1:]:
        imports.remove(item)
    for item in found[:1]:
        item.domain = ""
