"""Apply a pattern pass at all matches until none is left, with a worklist of anchors instead of repeated sweeps."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.base.errors import PassError
from surgery.model.graph.state import Refused
from surgery.model.graph.values import Node, Refusal, Value
from surgery.model.patterns.compiled_pattern import CompiledPattern, compile_pattern
from surgery.model.patterns.match import Match, matches

if TYPE_CHECKING:
    from surgery.model.graph.graph import Graph

_GROWTH = 10
"""A pass that fires more often than this per node of the graph is considered not to terminate."""


def rewrite_any(
    graph: Graph, patterns: Iterable[str], function: Callable[..., Any], options: Mapping[str, Any]
) -> None:
    """Rewrite by each pattern in turn, and repeat while a pattern after the first was applied."""
    ways = tuple(patterns)
    settled: set[Node] = set()
    again = True
    while again:
        again = False
        for position, match in enumerate(ways):
            sites = len(graph.sites)
            rewrite(graph, match, function, options, settled)
            again |= position > 0 and any(not site.skipped for site in graph.sites[sites:])
    graph.refusals = list(dict.fromkeys(graph.refusals))


def rewrite(
    graph: Graph,
    match: str,
    function: Callable[..., Any],
    options: Mapping[str, Any],
    settled: set[Node] | None = None,
) -> None:
    """Call `function` for each match of the pattern, and replace the outputs of the pattern by the values it returns.

    Anchors in `settled` are skipped; the anchors of skipped sites are added to it.
    """
    settled = set() if settled is None else settled
    plan = compile_pattern(match)
    if not plan.fits_in({op for op, nodes in graph.index.items() if nodes}):
        return
    anchors = frozenset(plan.anchor_ops)
    queue = deque(graph.nodes(*plan.anchor_ops))
    queued = set(queue)
    limit = _GROWTH * sum(len(nodes) for nodes in graph.index.values()) + 100
    while queue:
        anchor = queue.popleft()
        queued.discard(anchor)
        if anchor.ir.graph is None or anchor in settled or (graph.spared and anchor.label in graph.spared):
            continue
        graph.at = anchor.ir
        before = len(graph.changed_nodes)
        near = _apply(graph, plan, anchor, function, options)
        if near is None:
            continue
        if graph.sites[-1].skipped:
            settled.add(anchor)
        if len(graph.sites) > limit:
            raise PassError(f"pass '{graph.pass_name}' does not terminate", todo="its result matches its own pattern")
        fresh = [Node(graph, node) for node in graph.changed_nodes[before:] if node.graph is not None]
        for candidate in _neighbours(fresh, near, len(plan.nodes), anchors):
            if candidate not in queued:
                queued.add(candidate)
                queue.append(candidate)


def _apply(
    graph: Graph, plan: CompiledPattern, anchor: Node, function: Callable[..., Any], options: Mapping[str, Any]
) -> list[Value] | None:
    """Try the matches at an anchor; return the inputs of the first one that is applied, or None."""
    for match in matches(graph, plan, anchor):
        inputs = [value for node in match.nodes for value in node.inputs if value is not None]
        if apply_match(graph, plan, match, function, options):
            return inputs
    return None


def apply_match(
    graph: Graph, plan: CompiledPattern, match: Match, function: Callable[..., Any], options: Mapping[str, Any]
) -> bool:
    """Rewrite one match as a site and return whether it was applied; a refusal is added to the graph's refusals."""
    try:
        _check_boundary(plan, match)
    except Refusal as refusal:
        graph.refusals.append(Refused(match.root.label, refusal.reason))
        return False
    sites = len(graph.sites)
    with graph.site(match.root) as edit:
        result = function(match, edit, **options)
        replacements = result if isinstance(result, tuple) else (result,)
        _require_values(graph, match, function, replacements)
        for old, new in _pairs(match.outputs, replacements):
            edit.replace(old, new)
    return len(graph.sites) > sites


def _require_values(graph: Graph, match: Match, function: Callable[..., Any], results: tuple[object, ...]) -> None:
    """Raise PassError if a function returned something else than values, or nothing although an output is read."""
    used = [name for name, value in zip(match.output_names, match.outputs) if value is not None and value.is_used]
    strange = [result for result in results if not isinstance(result, Value | None)]
    if not strange and (results != (None,) or not used):
        return
    what = type(strange[0]).__name__ if strange else "nothing"
    names = " and ".join(used or match.output_names)
    code = inspect.unwrap(function).__code__
    raise PassError(
        f"pass '{graph.pass_name}' returned {what} for the match at {match.root.label}",
        where=f"{Path(code.co_filename).name}:{code.co_firstlineno}",
        todo=f"return the value that replaces {names}, or refuse the match with 'require'",
    )


def _pairs(old: list[Value | None], new: tuple[Value | None, ...]) -> Iterator[tuple[Value, Value]]:
    for position, value in enumerate(old):
        replacement = new[position] if position < len(new) else None
        if value is None or (replacement is None and not value.is_used):
            continue
        if replacement is None:
            raise Refusal(f"{value.name} is used, but has no replacement")
        yield value, replacement


def _check_boundary(plan: CompiledPattern, match: Match) -> None:
    """Refuse if an interior value is visible outside, or if the match crosses a subgraph boundary."""
    nodes = {node.ir for node in match.nodes}
    scope = match.root.ir.graph
    if any(node.graph is not scope for node in nodes):
        raise Refusal("the pattern crosses the boundary of a subgraph")
    for name in plan.interior:
        value = match.bound(name)
        if not isinstance(value, Value):
            continue
        if value.is_output:
            raise Refusal(f"{name} is a graph output")
        if any(use.node not in nodes for use in value.ir.uses()):
            raise Refusal(f"{name} is used outside the pattern")
    for name, value in match.inputs():
        if value.ir.producer() in nodes:
            raise Refusal(f"{name} is computed inside the pattern")
    outputs = [value for value in match.outputs if value is not None]
    if len({value.ir.producer() for value in outputs}) > 1 and _leads_back(outputs, nodes):
        raise Refusal("one output of the pattern is computed from another")


def _leads_back(outputs: Iterable[Value], nodes: set[Any]) -> bool:
    """Return whether a matched node depends on a pattern output through nodes outside the match."""
    stack = [consumer for value in outputs for consumer in value.consumers if consumer.ir not in nodes]
    seen = set(stack)
    while stack:
        for value in stack.pop().outputs:
            for consumer in value.consumers:
                if consumer.ir in nodes:
                    return True
                if consumer not in seen:
                    seen.add(consumer)
                    stack.append(consumer)
    return False


def _neighbours(fresh: list[Node], inputs: list[Value], depth: int, anchors: frozenset[str]) -> Iterator[Node]:
    """Yield the anchors at which a change may have created a match.

    They are downstream of the new nodes, or of an input that lost a reader; an input with more readers than the
    pattern has nodes cannot be interior to a match.
    """
    frontier = list(fresh)
    frontier += [consumer for value in inputs if len(value.ir.uses()) <= depth for consumer in value.consumers]
    seen: set[Node] = set()
    for _ in range(depth):
        layer = [node for node in dict.fromkeys(frontier) if node not in seen and node.ir.graph is not None]
        seen.update(layer)
        yield from (node for node in layer if node.op in anchors)
        frontier = [consumer for node in layer for value in node.outputs for consumer in value.consumers]
