"""Places: the common part of the names of many nodes, as a glob: "/encoder/layer.*/attention/*"."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from surgery.graph.entries import Entry

_SCOPES = "pkg.torch.onnx.name_scopes"
"""The metadata key of PyTorch's exporter for the modules that a node comes from: a list, outermost first."""

_NUMBER = re.compile(r"\d+")
_SPLIT = re.compile(r"([/.])")


def place(entries: Sequence[Entry]) -> str:
    """Return the common place of nodes as a glob; empty if there is none. For one node it is its path or name.

    In many models, names of nodes are paths. Otherwise, the modules recorded by the exporter are used.
    """
    paths = [_path(entry) for entry in entries]
    if len(set(paths)) == 1:
        return paths[0]
    parts = [_SPLIT.split(_NUMBER.sub("*", path)) for path in dict.fromkeys(paths)]
    shared = _shared(parts)
    text = "".join(shared)
    return text if len(shared) == max(map(len, parts)) or not text else f"{text.rstrip('*')}*"


def _path(entry: Entry) -> str:
    if entry.node is None or "/" in entry.name or entry.scope:
        return f"{entry.scope}/{entry.name}" if entry.scope else entry.name
    for item in entry.node.metadata_props:
        if item.key == _SCOPES:
            return _module(item.value) or entry.name
    return entry.name


def _module(text: str) -> str:
    """Return the innermost module of a list such as "['', 'encoder', 'encoder.layer.0', 'linear']".

    The last entry is the call itself; it has no dots if it is not a module.
    """
    try:
        scopes = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ""
    names = [name for name in scopes if isinstance(name, str)] if isinstance(scopes, list) else []
    return max(names[:-1], key=len, default="")


def _shared(paths: Sequence[Sequence[str]]) -> list[str]:
    """Return the leading parts that all paths have in common, separators included."""
    first = paths[0]
    most = min(map(len, paths))
    length = next((at for at in range(most) if any(path[at] != first[at] for path in paths)), most)
    return list(first[:length])
