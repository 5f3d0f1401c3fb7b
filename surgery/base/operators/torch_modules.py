"""The module of a PyTorch model that a node comes from, as recorded by the exporter."""

from __future__ import annotations

import ast
from typing import Final

import onnx

SCOPES: Final = "pkg.torch.onnx.name_scopes"
"""The metadata key of PyTorch's exporter for the modules that a node comes from: a list, outermost first."""


def module_of(node: onnx.NodeProto) -> str:
    """Return the full name of the innermost module; empty if it is not recorded."""
    return next((innermost(item.value) for item in node.metadata_props if item.key == SCOPES), "")


def innermost(text: str) -> str:
    """Return the innermost module of a list such as "['', 'encoder', 'encoder.layer.0', 'linear']".

    The last entry is the call itself; it has no dots if it is not a module.
    """
    try:
        scopes = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ""
    names = [name for name in scopes if isinstance(name, str)] if isinstance(scopes, list) else []
    return max(names[:-1], key=len, default="")
