"""The nodes that a step leaves alone, and whether the edits of a site touch one of them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

import onnx_ir as ir

from surgery.model.graph.edits import Edits
from surgery.model.graph.traversal import reads
from surgery.model.storage.ir_scopes import subgraphs


def with_inner(nodes: Iterable[ir.Node]) -> frozenset[ir.Node]:
    """Return nodes with the nodes of their subgraphs."""
    return frozenset(inner for node in nodes for inner in _with_inner(node))


def touched(excepted: Container[ir.Node], edits: Edits, anchor: ir.Node | None) -> ir.Node | None:
    """Return an excepted node that the edits of a site touch; None if there is none.

    A site touches a node if it is made for it (the node is its anchor), removes it, also by removing its last reader,
    or changes its operator, attributes, inputs, subgraphs, or a constant that it reads. Where only the source of an
    activation changes, as downstream of an Identity that is removed, the node stays as it is.
    """
    for node in (anchor, *_edited(edits, excepted), *removed(edits)):
        if node in excepted:
            return node
    return None


def _edited(edits: Edits, excepted: Container[ir.Node]) -> Iterator[ir.Node]:
    """Yield nodes that are changed in place; for an edit of an excepted subgraph, one of its nodes."""
    yield from (node for node, *_ in (*edits.inputs, *edits.attributes, *edits.operators))
    yield from (node for value, _ in edits.element_types if (node := value.producer()) is not None)
    changed = [value for value, _ in edits.contents]
    changed += [old for old, _, _ in edits.replacements if old.is_initializer() or old.const_value is not None]
    yield from (node for value in changed for node in value.consumers())
    scopes = {scope for scope, *_ in edits.results}
    scopes.update(made.before.graph for made in edits.nodes if made.before is not None and made.before.graph)
    for scope in scopes:
        if all(node in excepted for node in scope):
            yield from scope


def removed(edits: Edits) -> set[ir.Node]:
    """Return the nodes that a commit of these edits would remove, among them those that lose their last reader."""
    places = {old: before for old, _, before in edits.replacements}
    cut = {value for kind, value in edits.ports if kind in ("drop output", "cut")}
    # Readers that the site adds; a new node elsewhere than the replacement is redirected like an old one.
    added = {
        value
        for made in edits.nodes
        for value in made.inputs
        if value is not None and places.get(value, made.before) is made.before
    }
    added.update(new for _, new, _ in edits.replacements)
    added.update(new for _, _, new in edits.inputs if new is not None)
    added.update(value for _, _, value, _ in edits.results)
    redirected = {(node, index) for node, index, _ in edits.inputs}
    replaced = {(scope, index) for scope, index, _, _ in edits.results}
    gone: set[ir.Node] = set()

    def is_read(value: ir.Value) -> bool:
        if value in added:
            return True
        if value in places:
            return False
        if value.is_graph_output() and value not in cut and not _is_replaced(value, replaced):
            return True
        return any(use.node not in gone and (use.node, use.idx) not in redirected for use in value.uses())

    pending = [value.producer() for value in (*places, *cut, *edits.drops)]
    pending += [scope.outputs[index].producer() for scope, index in replaced]
    pending += [node.inputs[index].producer() for node, index in redirected if _has_input(node, index)]  # type: ignore[union-attr]
    pending += edits.removals
    bodies = [node for function in edits.functions for node in function.all_nodes()]
    gone.update(bodies)
    while pending:
        node = pending.pop()
        if node is None or node in gone or any(map(is_read, node.outputs)):
            continue
        gone.update(_with_inner(node))
        pending += [value.producer() for value in reads(node)]
    return gone


def _is_replaced(value: ir.Value, results: set[tuple[ir.Graph, int]]) -> bool:
    """Return whether a result of a subgraph is replaced wherever it is one."""
    scope = value.graph
    at = [] if scope is None else [index for index, output in enumerate(scope.outputs) if output is value]
    return bool(at) and all((scope, index) in results for index in at)


def _has_input(node: ir.Node, index: int) -> bool:
    return index < len(node.inputs) and node.inputs[index] is not None


def _with_inner(node: ir.Node) -> Iterator[ir.Node]:
    """Yield a node and the nodes of its subgraphs."""
    yield node
    for subgraph in subgraphs(node):
        for inner in subgraph:
            yield from _with_inner(inner)
