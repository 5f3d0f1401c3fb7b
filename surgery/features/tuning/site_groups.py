"""Groups of sites that are likely to gain equally: nodes of one operator with weights of one shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surgery.engine.pipeline.sensitivity import Cost, costs_by_label
from surgery.model import storage
from surgery.model.graph.graph import Graph

if TYPE_CHECKING:
    from surgery.model.graph.values import Node

_DECADE = 10


@dataclass(frozen=True)
class SiteGroup:
    """Nodes of one operator that are converted together, or left unchanged."""

    title: str
    op: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class _Traits:
    """The properties of a node: its operator and kind, the shape of its weight, and its multiply-accumulates."""

    op: str
    kind: str
    weight: tuple[int, ...]
    macs: float


_KEYS: tuple[Callable[[_Traits], tuple[str, ...]], ...] = (
    lambda node: (node.kind, f"with weights of {'x'.join(map(str, node.weight))}" if node.weight else ""),
    lambda node: (node.kind, _decade(math.prod(node.weight)) if node.weight else ""),
    lambda node: (node.kind,),
)
"""The grouping keys of nodes, from the finest to the coarsest."""


def _decade(elements: int) -> str:
    """Format the powers of ten between which a number of elements lies."""
    low = _DECADE ** int(math.log10(max(elements, 1)))
    return f"with {_short(low)} to {_short(low * _DECADE)} weights"


def _short(number: int) -> str:
    for unit, name in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= unit:
            return f"{number // unit}{name}"
    return str(number)


def groups_of(stored: storage.StoredModel, labels: Sequence[str], most: int) -> tuple[SiteGroup, ...]:
    """Divide nodes of a model into at most `most` groups, or else into one for each kind; the costliest first.

    Labels of nodes that the model does not have are ignored.
    """
    model = storage.ir_from_proto(storage.without_alias(stored.proto), stored.weights)
    graph = Graph(model, weights=stored.weights)
    costs = costs_by_label(graph)
    wanted = set(labels)
    found = {
        node.label: _traits(node, costs.get(node.label, Cost()).macs) for node in graph.nodes() if node.label in wanted
    }
    names: dict[tuple[str, ...], list[str]] = {}
    for key in _KEYS:
        names = {}
        for label, traits in found.items():
            names.setdefault(key(traits), []).append(label)
        if len(names) <= most:
            break
    order = sorted(names.items(), key=lambda item: -sum(found[label].macs for label in item[1]))
    return tuple(SiteGroup(" ".join(filter(None, key)), found[nodes[0]].op, tuple(nodes)) for key, nodes in order)


def selectors(left: Sequence[SiteGroup], converted: Sequence[SiteGroup]) -> list[Mapping[str, Any]]:
    """Return recipe selectors for the nodes of the groups in `left`, but not of those in `converted`.

    If all groups of an operator are left unchanged, the operator selects them, else the names of the nodes.
    """
    others = {group.op for group in converted}
    operators = list(dict.fromkeys(group.op for group in left if group.op not in others))
    names = [name for group in left if group.op in others for name in group.nodes]
    return [*([{"op": operators}] if operators else []), *([by_name(names)] if names else [])]


def by_name(nodes: Sequence[str]) -> dict[str, Any]:
    """Return a selector of nodes by their names."""
    return {"name": [*nodes]}


def _traits(node: Node, macs: float) -> _Traits:
    shapes = [value.static_shape for value in node.inputs if value is not None and value.is_constant]
    weight = max((shape for shape in shapes if shape), key=math.prod, default=())
    weight = weight if len(weight) > 1 else ()
    return _Traits(node.op, _kind(node, weight), weight, macs)


def _kind(node: Node, weight: tuple[int, ...]) -> str:
    if node.op != "Conv" or len(weight) < 3:
        return node.op
    window = "x".join(map(str, weight[2:]))
    groups = node.attr("group", 1)
    if groups == 1:
        return f"Conv {window}"
    return f"depthwise Conv {window}" if weight[1] == 1 else f"grouped Conv {window}"
