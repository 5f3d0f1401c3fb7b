"""The criteria of node selectors: one class per kind, one object per key of a mapping."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np

from surgery.model.graph import traversal
from surgery.model.graph.graph import Graph
from surgery.model.graph.values import Node, Refusal
from surgery.model.patterns.compiled_pattern import compile_pattern
from surgery.model.patterns.match import matches
from surgery.model.storage.ir_scopes import nested, subgraphs
from surgery.model.wire.globs import Globs, did_you_mean

Predicate = Callable[[Node], bool]


class Criterion(Protocol):
    """One condition on nodes."""

    def predicate(self, graph: Graph) -> Predicate:
        """Return the test of a node; it analyses the graph once, so that each node is tested in constant time."""

    def absence(self, nodes: Iterable[Node]) -> str:
        """Return the message that none of these nodes meets the criterion, with the closest match."""


def _names(node: Node) -> tuple[str, ...]:
    return (node.label,)


def _operators(node: Node) -> tuple[str, ...]:
    return (node.op,) if node.ir.domain else (node.op, f"ai.onnx::{node.op}")


def _domains(node: Node) -> tuple[str, ...]:
    return (node.ir.domain,) if node.ir.domain else ("", "ai.onnx")


def _makers(node: Node) -> tuple[str, ...]:
    lineage = node.lineage
    return lineage.passes if lineage is not None else ()


def _origins(node: Node) -> tuple[str, ...]:
    """Return the original nodes that a node comes from: the node itself if it has no lineage."""
    lineage = node.lineage
    return lineage.origins if lineage is not None else (node.label,)


WORDS: Mapping[str, tuple[Callable[[Node], tuple[str, ...]], str]] = {
    "name": (_names, "no node has the name {}"),
    "op": (_operators, "no node has the operator {}"),
    "domain": (_domains, "no node has an operator of the domain {}"),
    "made_by": (_makers, "no node was made by {}"),
    "from": (_origins, "no node comes from {}"),
}
"""For each key with texts, the function that returns the compared texts, and the message if nothing matches."""


@dataclass(frozen=True)
class HasWord:
    """A text of the node, such as its name, matches a glob."""

    key: str
    globs: Globs

    def predicate(self, graph: Graph) -> Predicate:
        """See `Criterion`."""
        words = WORDS[self.key][0]
        # There are few distinct operators and passes, and many nodes share them.
        fit = cache(self.globs.fit)
        return lambda node: any(fit(word) for word in words(node))

    def absence(self, nodes: Iterable[Node]) -> str:
        """See `Criterion`."""
        words, template = WORDS[self.key]
        wanted = self.globs.texts[0]
        known = [word for node in nodes for word in words(node)]
        # The long form of a standard operator is suggested only if the user wrote a long form.
        hint = did_you_mean(wanted, [word for word in known if "::" in wanted or not word.startswith("ai.onnx::")])
        return f"{template.format(self.globs)}{f'; {hint}' if hint else ''}"


@dataclass(frozen=True)
class HasAttribute:
    """An attribute has a value, explicitly or by default."""

    name: str
    value: Any

    def predicate(self, graph: Graph) -> Predicate:
        """See `Criterion`."""

        def holds(node: Node) -> bool:
            try:
                return _same(self.value, node.attr(self.name))
            except Refusal:  # a parameter of a function
                return False

        return holds

    def absence(self, nodes: Iterable[Node]) -> str:
        """See `Criterion`."""
        known = list(nodes)
        if any(node.has_attr(self.name) for node in known):
            return f"no node has an attribute {self.name} of {self.value}"
        hint = did_you_mean(self.name, (name for node in known for name in node.ir.attributes))
        return f"no node has an attribute '{self.name}'{f'; {hint}' if hint else ''}"


def _same(wanted: Any, actual: Any) -> bool:
    if isinstance(wanted, list):
        return isinstance(actual, list) and len(wanted) == len(actual) and all(map(_same, wanted, actual))
    if isinstance(actual, float) and isinstance(wanted, int | float):
        return bool(np.float32(wanted) == np.float32(actual))  # attributes are stored as float32
    if isinstance(actual, str) and isinstance(wanted, str):
        return Globs((wanted,)).fit(actual)
    return type(wanted) is type(actual) and bool(wanted == actual)


@dataclass(frozen=True)
class FitsPattern:
    """The node is part of a match of a pattern, even if interior values of the match are read elsewhere."""

    text: str

    def predicate(self, graph: Graph) -> Predicate:
        """See `Criterion`."""
        plan = compile_pattern(self.text)
        found: set[Node] = set()
        for anchor in graph.nodes(*plan.anchor_ops):
            for match in matches(graph, plan, anchor):
                found.update(match.nodes)
        return found.__contains__

    def absence(self, nodes: Iterable[Node]) -> str:
        """See `Criterion`."""
        return f"the pattern '{'; '.join(self.text.strip().splitlines())}' does not match anywhere"


@dataclass(frozen=True)
class LiesBetween:
    """The node lies on a path from some tensors to others, or in a subgraph of such a node."""

    start: tuple[str, ...]
    end: tuple[str, ...]

    def predicate(self, graph: Graph) -> Predicate:
        """See `Criterion`."""
        starts, ends = (
            [value.ir for value in graph.tensors(names)] if names else [] for names in (self.start, self.end)
        )
        found = set(traversal.between(graph.ir.graph, starts, ends))
        found |= {inner for node in found for scope in nested(subgraphs(node)) for inner in scope}
        return lambda node: node.ir in found

    def absence(self, nodes: Iterable[Node]) -> str:
        """See `Criterion`."""
        start, end = (", ".join(f"'{name}'" for name in names) for names in (self.start, self.end))
        return f"no node lies{f' after {start}' if start else ''}{f' before {end}' if end else ''}"
