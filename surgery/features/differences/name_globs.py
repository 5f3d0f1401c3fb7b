"""Places: the common part of the names of many nodes, as a glob: "/encoder/layer.*/attention/*"."""

from __future__ import annotations

import re
from collections.abc import Sequence

from surgery.base.operators.torch_modules import module_of
from surgery.model.proto.lineage_entries import LineageEntry

_NUMBER = re.compile(r"\d+")
_SPLIT = re.compile(r"([/.])")


def place(entries: Sequence[LineageEntry]) -> str:
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


def _path(entry: LineageEntry) -> str:
    if entry.node is None or "/" in entry.name or entry.scope:
        return f"{entry.scope}/{entry.name}" if entry.scope else entry.name
    return module_of(entry.node) or entry.name


def _shared(paths: Sequence[Sequence[str]]) -> list[str]:
    """Return the leading parts that all paths have in common, separators included."""
    first = paths[0]
    most = min(map(len, paths))
    length = next((at for at in range(most) if any(path[at] != first[at] for path in paths)), most)
    return list(first[:length])
