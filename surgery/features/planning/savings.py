"""The removed and added nodes and the savings of each site of a step, from the models before and after the step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from surgery.features.inspection.amounts import Amount
from surgery.features.inspection.costs import work
from surgery.features.planning.plan_document import Operations, PlannedNode, PlannedSite, Savings
from surgery.model import storage
from surgery.model.graph.graph import Graph
from surgery.model.graph.state import Site
from surgery.model.proto.lineage_entries import entries

if TYPE_CHECKING:
    import onnx

    from surgery.model.graph.values import Node


@dataclass(frozen=True)
class _PlannedNode:
    """The properties of a node that a plan uses."""

    op: str
    is_constant: bool
    origins: tuple[str, ...]
    reads: tuple[str, ...]
    makes: tuple[str, ...]


@dataclass
class ModelParts:
    """The parts of a model that sites refer to: nodes by label, bytes of initializers, value readers, operations."""

    nodes: dict[str, _PlannedNode] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)
    readers: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    results: frozenset[str] = frozenset()
    operations: Mapping[str, Amount | None] = field(default_factory=dict)
    size: int = 0

    @classmethod
    def of(cls, proto: onnx.ModelProto, weights: storage.Weights) -> ModelParts:
        """Return the view of a skeleton; its operations are not counted."""
        found = cls(results=frozenset(value.name for value in proto.graph.output))
        for entry in entries(proto):
            if entry.node is None:
                continue
            node, label = entry.node, entry.name
            is_constant = node.op_type == "Constant" and not node.domain
            origins = entry.lineage.origins if entry.lineage is not None else (() if is_constant else (label,))
            found.nodes[label] = _PlannedNode(entry.op, is_constant, origins, tuple(node.input), tuple(node.output))
            for name in node.input:
                found.readers[name].add(label)
        for tensor in proto.graph.initializer:
            found.weights[tensor.name] = storage.payload_bytes(tensor)
        found.size = storage.saved_size(proto, weights)
        return found


def operations(graph: Graph, labels: Collection[str] | None = None) -> dict[str, Amount | None]:
    """Return the operations of the given or all nodes by label; None if the cost model does not know them."""
    return {node.label: _operations(node) for node in graph.nodes() if labels is None or node.label in labels}


def _operations(node: Node) -> Amount | None:
    done = work(node)
    if done is None:
        return None
    total = Amount()
    total += done.macs.times(2)
    total += done.others
    return total


def total(known: Iterable[Amount | None]) -> Operations:
    """Return a sum as a plain value; unknown amounts count as zero."""
    found = Amount()
    for amount in known:
        if amount is not None:
            found += amount
    return found.to_json()


def between(before: ModelParts, after: ModelParts) -> Savings:
    """Return the savings of a step on the whole model."""
    amount = Amount()
    for label, done in before.operations.items():
        if done is not None and after.operations.get(label) is not done:
            amount += done
    for label, done in after.operations.items():
        if done is not None and before.operations.get(label) is not done:
            amount -= done
    return Savings(
        nodes=len(before.nodes) - len(after.nodes), bytes=before.size - after.size, operations=amount.to_json()
    )


@dataclass
class _Seen:
    """The nodes and initializers taken by earlier sites of a step, and the origins of the nodes that they added."""

    gone: set[str] = field(default_factory=set)
    freed: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    origins: dict[str, tuple[str, ...]] = field(default_factory=dict)


def planned(sites: Sequence[Site], before: ModelParts, after: ModelParts) -> tuple[PlannedSite, ...]:
    """Return the sites of a step as entries of a plan."""
    seen = _Seen()
    return tuple(_planned(site, before, after, seen) for site in sites)


def _planned(site: Site, before: ModelParts, after: ModelParts, seen: _Seen) -> PlannedSite:
    gone = set(site.removed)
    old = [before.nodes[label] for label in site.removed if label in before.nodes]
    origins = dict.fromkeys(
        name
        for label in site.removed
        for name in (before.nodes[label].origins if label in before.nodes else seen.origins.get(label, ()))
    )
    seen.origins.update(dict.fromkeys(site.added, tuple(origins)))
    seen.gone |= gone
    outputs = dict.fromkeys(
        name for node in old for name in node.makes if name in before.results or before.readers[name] - gone
    )
    return PlannedSite(
        site=site.number,
        anchor=site.anchor,
        removes=tuple(_named(label, before, after) for label in site.removed),
        adds=tuple(_named(label, after, before) for label in site.added),
        origins=tuple(origins),
        outputs=tuple(outputs),
        saves=Savings(
            nodes=len(site.removed) - len(site.added),
            bytes=_freed(site, before, after, seen) - _stored(site, before, after, seen),
            operations=_saved(site, before, after),
        ),
    )


def _named(label: str, first: ModelParts, second: ModelParts) -> PlannedNode:
    known = first.nodes.get(label) or second.nodes.get(label)
    return PlannedNode(name=label, op=known.op if known is not None else None)


def _freed(site: Site, before: ModelParts, after: ModelParts, seen: _Seen) -> int:
    """Return the bytes of the initializers that only this site and earlier ones have read."""
    read = {name for label in site.removed if label in before.nodes for name in before.nodes[label].reads}
    freed = {name for name in read & before.weights.keys() - after.weights.keys() if before.readers[name] <= seen.gone}
    freed -= seen.freed
    seen.freed |= freed
    return sum(before.weights[name] for name in freed)


def _stored(site: Site, before: ModelParts, after: ModelParts, seen: _Seen) -> int:
    """Return the bytes of the initializers that a site adds."""
    read = {name for label in site.added if label in after.nodes for name in after.nodes[label].reads}
    stored = read & after.weights.keys() - before.weights.keys() - seen.stored
    seen.stored |= stored
    return sum(after.weights[name] for name in stored)


def _saved(site: Site, before: ModelParts, after: ModelParts) -> Operations:
    """Return the operations that a site saves; None if those of one of its nodes are unknown."""
    amount = Amount()
    # A node that was added by one site and removed by another of the same step is in neither model.
    old = [before.operations.get(label) for label in site.removed]
    new = [after.operations.get(label) for label in site.added]
    for done in old:
        if done is None:
            return None
        amount += done
    for done in new:
        if done is None:
            return None
        amount -= done
    return amount.to_json()
