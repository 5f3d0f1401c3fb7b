"""Why a pattern pass does not fire: matches refused by a guard, and the best partial matches elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surgery.engine.why.describe import listed, named
from surgery.engine.why.near_misses import Fault, Grower, Partial, seeds
from surgery.engine.why.tracing_graph import Declined, TracingGraph
from surgery.model.graph.values import Node, Value
from surgery.model.patterns.compiled_pattern import CompiledPattern, compile_pattern
from surgery.model.patterns.match import Bindings, Match, matches
from surgery.model.patterns.rewrite import apply_match

if TYPE_CHECKING:
    from surgery.engine.registry.passes import Pass

_MOST_GROWN = 4000
"""Maximum number of starting points of partial matches, over all patterns of a pass."""


@dataclass(frozen=True)
class NearMatch:
    """A place where a pattern matches but was refused (`declined`, or `reason` at a boundary), or matches in part."""

    pattern: int
    plan: CompiledPattern
    nodes: Mapping[int, Node]
    bindings: Bindings
    faults: tuple[Fault, ...] = ()
    reason: str = ""
    declined: Declined | None = None
    escapes: tuple[str, ...] = ()

    @property
    def matched(self) -> int:
        """The number of matching lines."""
        return len(self.nodes.keys() - {fault.line for fault in self.faults})

    @property
    def share(self) -> float:
        """The fraction of the pattern that matches."""
        return self.matched / len(self.plan.nodes)

    @property
    def anchor(self) -> Node:
        """The node to report: that of the last matching line."""
        good = self.nodes.keys() - {fault.line for fault in self.faults}
        return self.nodes[max(good or self.nodes)]

    def rank(self) -> tuple[int, int, int]:
        """Return the sort key for explanations of one place; the smallest is the best."""
        depth = self.declined.depth if self.declined is not None else 0
        far = sum(fault.weight for fault in self.faults) + len(self.plan.nodes) - len(self.nodes)
        return far, -self.matched, -depth


def candidates(graph: TracingGraph, declared: Pass, options: Mapping[str, Any], at: Node | None) -> list[NearMatch]:
    """List the places where a pass nearly fires on a graph that it has run on, nearest first.

    With `at`, list all candidates that include this node; otherwise the best one for each place.
    """
    plans = [compile_pattern(text) for text in declared.match]
    found = [one for number, plan in enumerate(plans) for one in _refused(graph, number, plan, declared, options)]
    if at is not None:
        found = [one for one in found if at in one.nodes.values()]
        found += [_candidate(number, one) for number, plan in enumerate(plans) for one in _around(plan, at)]
        return sorted(_distinct(sorted(found, key=NearMatch.rank)), key=NearMatch.rank)
    found = _distinct(sorted(found, key=NearMatch.rank))
    covered = {node for one in found for node in one.nodes.values()}
    found += _partial(graph, plans, covered)
    return sorted(_distinct(sorted(found, key=NearMatch.rank)), key=lambda one: -one.share)


def _refused(
    graph: TracingGraph, number: int, plan: CompiledPattern, declared: Pass, options: Mapping[str, Any]
) -> Iterator[NearMatch]:
    """Yield the matches refused by a boundary or a guard."""
    if not plan.fits_in({op for op, nodes in graph.index.items() if nodes}):
        return
    for anchor in graph.nodes(*plan.anchor_ops):
        for match in list(matches(graph, plan, anchor)):
            known = len(graph.declined)
            if apply_match(graph, plan, match, declared.function, options):
                break
            reason = graph.refusals[-1].reason
            declined = graph.declined[-1] if len(graph.declined) > known else None
            escapes = () if declined is not None else tuple(_escapes(plan, match))
            nodes = dict(enumerate(match.nodes))
            yield NearMatch(number, plan, nodes, match.bindings, (), reason, declined, escapes)


def _escapes(plan: CompiledPattern, match: Match) -> Iterator[str]:
    """Yield descriptions of outside readers of values that a match would remove."""
    nodes = match.nodes
    for node in nodes:
        if node.ir.graph is not match.root.ir.graph:
            yield f"{named(node)} is not in the graph of {named(match.root)}"
    for name in plan.interior:
        value = match.bindings[name]
        if not isinstance(value, Value):
            continue
        if value.is_output:
            yield f"{name} is the graph output '{value.name}'"
        others = [reader for reader in value.consumers if reader not in nodes]
        if others:
            yield f"{name} is '{value.name}', read by {listed(others)} too"


def _partial(graph: TracingGraph, plans: Sequence[CompiledPattern], covered: set[Node]) -> Iterator[NearMatch]:
    """Grow matches from the nodes outside of refused matches, rarest operators first."""
    nodes = {op: [Node(graph, node) for node in found] for op, found in graph.index.items()}
    nearest: dict[Node, int] = {}
    budget = max(_MOST_GROWN // len(plans), 50)
    for number, plan in enumerate(plans):
        if 2 * len(absent_ops(graph, plan)) >= _reach(plan):
            continue  # too many of its operators are absent for a near miss
        grower = Grower(plan)
        explored: set[tuple[int, Node]] = set()
        grown = 0
        for line, node in seeds(plan, nodes):
            if node in covered or (line, node) in explored or not grower.may_start(line, node):
                continue
            grown += 1
            if grown > budget:
                break
            # A match with a greater distance than another explanation of this node is not worth following.
            partial = grower.grow(line, node, min(_reach(plan), nearest.get(node, 99)))
            if partial is None:
                continue
            explored.update(partial.nodes.items())
            if _is_near(partial):
                for one in partial.nodes.values():
                    nearest[one] = min(partial.distance, nearest.get(one, 99))
                yield _candidate(number, partial)


def _around(plan: CompiledPattern, node: Node) -> Iterator[Partial]:
    """Yield the partial matches with a node assigned to any line, regardless of its operator."""
    grower = Grower(plan)
    for line in range(len(plan.nodes)):
        partial = grower.grow(line, node, _reach(plan) + 1)
        if partial is not None and partial.matched > 0:
            yield partial


def absent_ops(graph: TracingGraph, plan: CompiledPattern) -> set[str]:
    """Return the operators of a pattern that the model lacks, unless it has a permitted alternative."""
    lines = (line.ops for line in plan.nodes if not any(graph.index.get(op) for op in line.ops))
    return {"|".join(f"{domain}::{op}" if domain else op for domain, op in ops) for ops in lines}


def _reach(plan: CompiledPattern) -> int:
    return 2 + len(plan.nodes) // 3


def _is_near(partial: Partial) -> bool:
    lines = len(partial.plan.nodes)
    return bool(partial.faults) and (2 * partial.matched >= lines or lines == 1)


def _candidate(number: int, partial: Partial) -> NearMatch:
    return NearMatch(number, partial.plan, partial.nodes, partial.bindings, partial.faults)


def _distinct(found: Sequence[NearMatch]) -> list[NearMatch]:
    """Leave out candidates that overlap better ones by more than half."""
    taken: set[Node] = set()
    kept = []
    for one in found:
        nodes = set(one.nodes.values())
        if 2 * len(nodes & taken) <= len(nodes):
            kept.append(one)
            taken |= nodes
    return kept
