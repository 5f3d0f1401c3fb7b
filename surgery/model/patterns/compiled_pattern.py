"""Compile the lines of a pattern to a search plan: where to start, and how to move between nodes."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import cache

from surgery.base.errors import PatternError
from surgery.model.patterns.pattern_text import NodePattern, parse


@dataclass(frozen=True)
class MatchStep:
    """Find the graph node for the pattern node number `node` through the value named `via`.

    Upstream (`consumer_of` false), it is the producer of that value; downstream, it is one of its consumers.
    """

    node: int
    via: str
    consumer_of: bool


@dataclass(frozen=True)
class CompiledPattern:
    """A compiled pattern. The search starts at `anchor`, the last node."""

    nodes: tuple[NodePattern, ...]
    anchor: int
    steps: tuple[MatchStep, ...]
    interior: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def anchor_ops(self) -> tuple[str, ...]:
        """The operators that a match can start from, in the form that `Graph.nodes` takes."""
        return tuple(f"{domain}::{op}" if domain else op for domain, op in self.nodes[self.anchor].ops)

    def fits_in(self, present: Container[tuple[str, str]]) -> bool:
        """Return whether each line has an operator among those present, given as pairs of domain and operator."""
        return all(any(op in present for op in node.ops) for node in self.nodes)


@cache
def compile_pattern(text: str) -> CompiledPattern:
    """Parse and plan a pattern; raise PatternError if a name is defined twice or a node is disconnected."""
    nodes = parse(text)
    source = text.splitlines()
    producer: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for result in node.results:
            if result.name in producer:
                raise _mistake(f"'{result.name}' is defined twice", node, result.column, source)
            producer[result.name] = index
    read = {name for node in nodes for name in _reads(node)}
    _check_order(nodes, producer, source)
    anchor = len(nodes) - 1
    steps = tuple(_walk(nodes, producer, anchor))
    if len(steps) + 1 < len(nodes):
        reached = {anchor, *(step.node for step in steps)}
        lost = next(index for index in range(len(nodes)) if index not in reached)
        raise _mistake("this is not connected to the last line", nodes[lost], nodes[lost].results[0].column, source)
    return CompiledPattern(
        nodes,
        anchor,
        steps,
        interior=tuple(name for name in producer if name in read),
        outputs=tuple(name for name in producer if name not in read),
    )


def _reads(node: NodePattern) -> Iterator[str]:
    return (operand.name for operand in node.operands if operand.name is not None)


def _check_order(nodes: tuple[NodePattern, ...], producer: dict[str, int], source: list[str]) -> None:
    for index, node in enumerate(nodes):
        for operand in node.operands:
            if operand.name is not None and producer.get(operand.name, -1) >= index:
                raise _mistake(f"'{operand.name}' is read before it is defined", node, operand.column, source)


def _mistake(what: str, node: NodePattern, column: int, source: list[str]) -> PatternError:
    return PatternError(what, line=node.line, column=column, source=source[node.line - 1])


def _walk(nodes: tuple[NodePattern, ...], producer: dict[str, int], anchor: int) -> Iterator[MatchStep]:
    """Yield steps that reach each node from the anchor, upstream if possible: a value has a single producer."""
    reached = {anchor}
    known = [*_reads(nodes[anchor]), *(result.name for result in nodes[anchor].results)]
    while True:
        upstream = next((n for n in known if producer.get(n, anchor) not in reached), None)
        if upstream is not None:
            step = MatchStep(producer[upstream], upstream, consumer_of=False)
        else:
            found = next(
                ((i, n) for n in known for i, node in enumerate(nodes) if i not in reached and n in _reads(node)),
                None,
            )
            if found is None:
                return
            step = MatchStep(found[0], found[1], consumer_of=True)
        yield step
        reached.add(step.node)
        known += [*_reads(nodes[step.node]), *(result.name for result in nodes[step.node].results)]
