"""The drawing document: everything that a viewer needs to draw a history, as plain values in columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from surgery.interface.drawing.geometry import BoxPositions, box, places
from surgery.interface.drawing.group_tree import Group, Tree, tree
from surgery.interface.drawing.hierarchy import with_repeats
from surgery.interface.drawing.history import History
from surgery.interface.drawing.inferred_values import Facts
from surgery.interface.drawing.node_details import NodeDetails
from surgery.interface.drawing.tracked_nodes import INPUT, ModelState, TrackedNodes
from surgery.model.wire.garbage_collection import collection_paused

FORMAT_VERSION = 1


class Strings:
    """A table of distinct texts by number; the empty text is number 0."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": 0}

    def __call__(self, text: str) -> int:
        """Return the number of a text."""
        return self._numbers.setdefault(text, len(self._numbers))

    def all(self, texts: Iterable[str]) -> list[int]:
        """Return the numbers of texts."""
        return [self(text) for text in texts]

    def listed(self) -> list[str]:
        """Return the texts; lone surrogates, which cannot be written to a file, are replaced."""
        return [text.encode("utf-8", "replace").decode() for text in self._numbers]


@collection_paused()
def document(history: History, title: str | None = None, first: Facts | None = None) -> dict[str, Any]:
    """Return the document of a history as JSON-compatible values, described in docs/reference/json.md.

    `title` replaces that of the history, and `first` are the facts of its first model, if they are known. Only shapes
    are computed, and no weights are read.
    """
    found, strings = history.rows, Strings()
    details = NodeDetails(history, strings, first)
    whole, copies = with_repeats(found, tree(found))
    placed = places(found, whole, copies)
    return {
        "format_version": FORMAT_VERSION,
        "title": history.title if title is None else title,
        "states": [_state(state) for state in found.states],
        "nodes": _nodes(found, whole, placed, strings),
        "altered": _altered(found, strings),
        "links": {"from": [old for old, _ in found.links], "to": [new for _, new in found.links]},
        "changes": _changes(found, strings),
        "edges": _edges(found, details, strings),
        "groups": _groups(whole.groups, placed, strings),
        "routes": _routes(placed),
        "ports": _ports(found, details, strings),
        "details": [details.of(row) for row in range(len(found.rows))],
        "strings": strings.listed(),
    }


def _state(state: ModelState) -> dict[str, Any]:
    told: dict[str, Any] = {"label": state.label, "pass": state.by, "nodes": state.nodes}
    told |= {"ir_version": state.ir_version, "opsets": dict(state.opsets)}
    if state.step is not None:
        told |= {"step": state.step, "sites": state.sites, "verdict": state.verdict, "needed": state.needed}
        told["message"] = state.message
    return told if state.file is None else told | {"file": state.file}


def _nodes(found: TrackedNodes, whole: Tree, placed: BoxPositions, strings: Strings) -> dict[str, list[int]]:
    rows = found.rows
    numbers = range(len(rows))
    return {
        "op": strings.all(row.node.op for row in rows),
        "domain": strings.all(row.node.domain for row in rows),
        "name": strings.all(row.node.label for row in rows),
        "born": [row.born for row in rows],
        "died": [row.died for row in rows],
        "group": whole.group,
        "layer": [placed.layer[row] for row in numbers],
        "order": [placed.order[row] for row in numbers],
        "x": [placed.x[row] for row in numbers],
        "pass": strings.all(row.maker for row in rows),
        "killer": strings.all(row.killer for row in rows),
    }


def _altered(found: TrackedNodes, strings: Strings) -> dict[str, list[int]]:
    listed = found.alterations
    return {
        "node": [one.row for one in listed],
        "state": [one.state for one in listed],
        "what": strings.all(one.what for one in listed),
    }


def _changes(found: TrackedNodes, strings: Strings) -> dict[str, list[Any]]:
    listed = found.changes
    return {
        "state": [one.state for one in listed],
        "what": strings.all(one.what for one in listed),
        "by": strings.all(one.by for one in listed),
        "nodes": [[*one.rows] for one in listed],
    }


def _edges(found: TrackedNodes, details: NodeDetails, strings: Strings) -> dict[str, list[int]]:
    listed = found.edges
    return {
        "from": [edge.source for edge in listed],
        "to": [edge.target for edge in listed],
        "value": strings.all(edge.value for edge in listed),
        "type": strings.all(details.type_of(found.rows[edge.source], edge.value) for edge in listed),
        "born": [edge.born for edge in listed],
        "died": [edge.died for edge in listed],
    }


def _groups(groups: Sequence[Group], placed: BoxPositions, strings: Strings) -> dict[str, list[int]]:
    boxes = [box(number) for number in range(len(groups))]
    return {
        "parent": [one.parent for one in groups],
        "name": strings.all(one.name for one in groups),
        "kind": strings.all(one.kind for one in groups),
        "layer": [placed.layer[one] for one in boxes],
        "order": [placed.order[one] for one in boxes],
        "x": [placed.x[one] for one in boxes],
        "count": [one.count for one in groups],
        "instance": [one.instance for one in groups],
        "owner": [one.owner for one in groups],
    }


def _routes(placed: BoxPositions) -> dict[str, list[int]]:
    return {
        "from": [source for source, _, _ in placed.routes],
        "to": [target for _, target, _ in placed.routes],
        "x": [x for _, _, x in placed.routes],
    }


def _ports(found: TrackedNodes, details: NodeDetails, strings: Strings) -> dict[str, list[int]]:
    ports = [(number, row) for number, row in enumerate(found.rows) if row.is_port]
    return {
        "name": strings.all(row.node.name for _, row in ports),
        "type": strings.all(details.type_of(row, row.node.name) for _, row in ports),
        "kind": strings.all("input" if row.node.op == INPUT else "output" for _, row in ports),
        "node": [number for number, _ in ports],
        "born": [row.born for _, row in ports],
        "died": [row.died for _, row in ports],
    }
