"""`ai.onnx` as an alias of the default domain.

The specification knows both, and so does ONNX Runtime; onnx's checker, its inference and onnx-ir know the empty one.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

import onnx

from surgery.operators.subgraphs import nested

ALIAS: Final = "ai.onnx"
_WRITTEN: Final = bytes([len(ALIAS)]) + ALIAS.encode()
"""How a text of just that is serialized."""


def _has_alias(proto: onnx.ModelProto) -> bool:
    """Return whether a model calls the default domain by its other name, and may call it by none instead."""
    if _WRITTEN not in proto.SerializeToString():
        return False
    imports: list[Any] = [proto.opset_import, *(function.opset_import for function in proto.functions)]
    versions = [{item.version for item in items if item.domain in ("", ALIAS)} for items in imports]
    # Two versions of one domain, or functions in it, mean something that nobody but its maker knows.
    return all(len(found) <= 1 for found in versions) and all(f.domain != ALIAS for f in proto.functions)


def without_alias(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model that calls the default domain by its empty name: a copy, if it did not."""
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
    """Rename the import of the default domain, and leave one where both names are imported."""
    found = [item for item in imports if item.domain in ("", ALIAS)]
    for item in found[1:]:
        imports.remove(item)
    for item in found[:1]:
        item.domain = ""
