"""Paths: the modules or name scopes of each row, even if its own name does not show them.

A node that a pass made gets the common path of the nodes that it was made from. Any other node of unknown path gets the
common path of its readers, or else of its producers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TypeVar

from surgery.interface.drawing.node_data import split_path
from surgery.interface.drawing.tracked_nodes import TrackedNodes

T = TypeVar("T")

Path = tuple[str, ...]

_DEPTH = 16
"""Maximum depth of groups; the rest of a longer path becomes one name."""


def paths(found: TrackedNodes) -> list[Path]:
    """Return the path of each row."""
    known = [_given(found, row) for row in range(len(found.rows))]
    _inherit(found, known)
    if any(known):
        _infer(found, known)
    return [_limited(path or ()) for path in known]


def _given(found: TrackedNodes, row: int) -> Path | None:
    """Return the path of a row from its own node, if known."""
    one = found.rows[row]
    if one.is_port:
        return ()
    is_new = one.born > 0 or one.node.lineage is not None
    if is_new and one.node.path is not None and split_path(one.node.name) == one.node.path:
        return None  # its name is derived from other names
    return one.node.path


def _inherit(found: TrackedNodes, known: list[Path | None]) -> None:
    """Give new nodes the common path of the nodes that they were made from."""
    parents: dict[int, list[int]] = defaultdict(list)
    for old, new in found.links:
        parents[new].append(old)
    for row, one in enumerate(found.rows):
        if known[row] is not None:
            continue
        above = [path for old in parents[row] if (path := known[old]) is not None]
        if not above and one.node.lineage is not None:
            above = [path for name in one.node.lineage.origins if (path := split_path(name)) is not None]
        known[row] = common(above) if above else one.node.path


def _infer(found: TrackedNodes, known: list[Path | None]) -> None:
    """Give the remaining nodes a path from their neighbours."""
    readers: dict[int, list[int]] = defaultdict(list)
    sources: dict[int, list[int]] = defaultdict(list)
    for edge in found.edges:
        if not (found.rows[edge.source].is_port or found.rows[edge.target].is_port):
            readers[edge.source].append(edge.target)
            sources[edge.target].append(edge.source)
    left = [row for row, path in enumerate(known) if path is None]
    for neighbours, order in ((readers, reversed(left)), (sources, left)):
        for row in order:
            near = [path for other in neighbours[row] if (path := known[other]) is not None]
            if known[row] is None and near:
                known[row] = common(near)


def common(paths: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    """Return the leading parts that all paths share; at least one path is required."""
    shortest, *others = sorted(set(paths), key=len)
    length = len(shortest)
    for other in others:
        length = next((at for at in range(length) if shortest[at] != other[at]), length)
    return shortest[:length]


def _limited(path: Path) -> Path:
    return path if len(path) <= _DEPTH else (*path[: _DEPTH - 1], "/".join(path[_DEPTH - 1 :]))
