"""Rewrite rules of onnxscript: each application is a site, and each match that a rule rejects is a refusal.

The rewriter of onnxscript controls the loop and calls the rules through this module, which keeps the names of new
initializers unique and removes dead nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
from onnxscript.rewriter import MatchingTracer, MatchStatus, RewriteRule, RewriteRuleSet

from surgery.model.graph.graph import Graph
from surgery.model.graph.state import Refused, Site
from surgery.model.graph.values import Node
from surgery.model.proto import lineage
from surgery.model.proto.lineage import Lineage
from surgery.model.storage.ir_scopes import scopes


def rule_of(thing: Any) -> RewriteRule:
    """Return the rule of a `RewriteRuleClassBase` class or instance."""
    if isinstance(thing, type):
        made: RewriteRule = thing.rule()  # type: ignore[attr-defined]
        return made
    return RewriteRule(
        thing.pattern,
        thing.rewrite,
        thing.check,
        name=thing.name,
        remove_nodes=thing.remove_nodes,
        graph_pre_visitor=thing.setup,
        graph_post_visitor=thing.cleanup,
        as_function=thing.as_function,
    )


def rewrite_all(graph: Graph, rules: Sequence[RewriteRule]) -> None:
    """Apply rules to a graph, except at the sites to skip."""
    watch = _Watch(graph)
    dead = {value for scope in scopes(graph.ir) for value in _unread(scope)}
    # The rewriter stores inferred types and contents of constants, even if no rule applies.
    declared = [
        (value, value.type, value.shape, value.const_value)
        for node in graph.nodes("Constant")
        for value in node.ir.outputs
    ]
    RewriteRuleSet([_Watched(rule, watch) for rule in rules]).apply_to_model(graph.ir)
    for value, kind, shape, tensor in declared:
        value.type, value.shape, value.const_value = kind, shape, tensor
    watch.finish()
    for scope in scopes(graph.ir):
        _sweep(scope, dead)
    graph.refresh()


@dataclass
class _Application:
    """A rewrite that a rule returned. Whether it was applied is determined later, by whether its nodes have a graph."""

    number: int
    anchor: str
    removed: tuple[str, ...]
    made: Sequence[ir.Node]
    parents: list[Lineage]


class _Watched(RewriteRule):
    """A rule that reports its rewrites to a watch, and applies only those that the watch accepts."""

    def __init__(self, rule: RewriteRule, watch: _Watch) -> None:
        self.__dict__.update(rule.__dict__)
        self._rule = rule
        self._watch = watch

    def try_rewrite(
        self, model: ir.Model, graph_or_function: Any, node: ir.Node, *, verbose: Any = None, tracer: Any = None
    ) -> Any:
        """Return the rewrite of the rule; if it must not be applied, undo its changes to the model and return None."""
        holders = (graph_or_function, model.graph)
        imports = [dict(holder.opset_imports) for holder in holders]
        made = self._rule.try_rewrite(model, graph_or_function, node, verbose=verbose, tracer=self._watch)
        if made is None or self._watch.take(self._rule, graph_or_function, node, made):
            return made
        for holder, before in zip(holders, imports, strict=True):
            holder.opset_imports.clear()
            holder.opset_imports.update(before)
        for new in made.new_nodes:
            for index in range(len(new.inputs)):
                new.replace_input_with(index, None)
        return None


class _Watch(MatchingTracer):
    """Records what rules do to a graph."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self._graph = graph
        self._applications: list[_Application | Site] = []

    def log(self, rule: RewriteRule, container: Any, node: ir.Node, match: Any, status: MatchStatus) -> None:
        """Record why a rule rejected a match; called by the rewriter."""
        if status in (MatchStatus.CONDITION_FAILED, MatchStatus.REPLACEMENT_FAILED):
            reason = " ".join(str(match.reason).split()) or "it declines"
            self._graph.refusals.append(Refused(self._label(node), f"{rule}: {reason}"))

    def take(self, rule: RewriteRule, scope: Any, node: ir.Node, made: Any) -> bool:
        """Record a rewrite; return False if it must not be applied."""
        if isinstance(scope, ir.Function) and made.new_initializers:
            reason = f"{rule}: it creates initializers, which a function cannot have"
            self._graph.refusals.append(Refused(self._label(node), reason))
            return False
        number, anchor = len(self._applications) + 1, self._label(node)
        if number in self._graph.skip:
            self._applications.append(Site(number, anchor, (), (), skipped=True))
            return False
        for value in made.new_initializers:
            value.name = self._graph.fresh(value.name or "constant")
        removed = tuple(self._label(old) for old in made.match.nodes) if rule.remove_nodes else ()
        parents = [
            lineage.read(old.metadata_props) or Lineage(origins=(self._label(old),))
            for old in made.match.nodes
            if old.op_type != "Constant"
        ]
        self._applications.append(_Application(number, anchor, removed, made.new_nodes, parents))
        return True

    def finish(self) -> None:
        """Write the lineage of the new nodes, and record the sites."""
        for done in self._applications:
            if isinstance(done, Site):
                self._graph.sites.append(done)
                continue
            for node in done.made:
                lineage.derive(done.parents, self._graph.pass_name).write(node.metadata_props)
            added = tuple(self._label(node) for node in done.made if node.graph is not None)
            self._graph.sites.append(Site(done.number, done.anchor, done.removed, added))

    def _label(self, node: ir.Node) -> str:
        return Node(self._graph, node).label


def _unread(scope: ir.Graph) -> list[ir.Value]:
    made = [value for node in scope for value in node.outputs]
    return [value for value in (*scope.initializers.values(), *made) if _is_dead(value)]


def _is_dead(value: ir.Value) -> bool:
    return not value.uses() and not value.is_graph_output() and not value.is_graph_input()


def _sweep(scope: ir.Graph, dead: set[ir.Value]) -> None:
    """Remove nodes and initializers that became unread, but not those that were unread before."""
    for node in reversed(scope):
        if all(_is_dead(value) and value not in dead for value in node.outputs):
            scope.remove(node, safe=True)
    for name, value in list(scope.initializers.items()):
        if _is_dead(value) and value not in dead:
            del scope.initializers[name]
