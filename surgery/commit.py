"""Commit: the buffered edits of one site, done to the graph as a whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from surgery.edits import Edits, NewNode
from surgery.facts import subgraphs, values
from surgery.lineage import strip
from surgery.lineage.stamping import Place, Stamps
from surgery.views import Node, Refusal, Value

if TYPE_CHECKING:
    from surgery.graph import Graph

_HANDING_THROUGH = ("Identity", "Dropout")


class Commit:
    """Does the edits of one site to a graph. What cannot be done whole is refused before anything is done."""

    def __init__(self, graph: Graph, edits: Edits) -> None:
        self.graph = graph
        self.edits = edits
        self.stamps = Stamps(graph, edits)

    def run(self) -> tuple[list[str], list[ir.Node]]:
        """Return the labels of the nodes that went and the nodes that came. Raises `Refusal`."""
        edits = self.edits
        self._check(edits)
        self._set_versions(edits)
        self._define(edits.definitions)
        for value, wish, before in edits.constants:
            self._add_constant(value, wish, self._scope(before), before)
        places: dict[Place, dict[ir.Node, None]] = defaultdict(dict)
        for made in edits.nodes:
            places[made.before][self._add_node(made, self._scope(made.before), made.before)] = None
        added = [node for nodes in places.values() for node in nodes]
        orphans = self._adjust(edits)
        self._rename_changed(edits)
        for old, new, before in edits.replacements:
            # What stands at another place of the site read `old` only because it was there first.
            added += self._replace(old, new, places[before])
            orphans.append((old, self.stamps.place(new, before)))
        removed = self._remove(edits.removals) + self._drop_functions(edits.functions)
        orphans += [(value, None) for value in self._change_ports(edits)]
        orphans += [(value, None) for value in edits.drops]
        orphans += [(value, None) for node in added for value in node.outputs]
        for value, place in reversed(orphans):
            removed += self._sweep((value,), place)
        for value, _, _ in edits.constants:
            if not value.uses():
                self._drop(value, None)
        self.stamps.write()
        for thing in edits.stripped:
            strip(thing.metadata)
        return removed, added

    def _adjust(self, edits: Edits) -> list[tuple[ir.Value, Place]]:
        """Set inputs, attributes and declarations of nodes that stay; return what lost a reader, and the reader."""
        orphans: list[tuple[ir.Value, Place]] = []
        for node, index, replacement in edits.inputs:
            previous = node.inputs[index] if index < len(node.inputs) else None
            if index >= len(node.inputs):
                node.resize_inputs(index + 1)
            node.replace_input_with(index, replacement)
            orphans += [(previous, node)] if previous is not None else []
            self.graph.changed_nodes.append(node)
            self.graph.facts.drop(node)
        for node in dict.fromkeys(node for node, _, _ in edits.inputs):
            while node.inputs and node.inputs[-1] is None:
                node.resize_inputs(len(node.inputs) - 1)
        for node, name, content in edits.attributes:
            if name in node.attributes:
                del node.attributes[name]
            if content is not None:
                node.attributes[name] = _attribute(name, content)
            self.graph.changed_nodes.append(node)
            self.graph.facts.drop(node)
        for value, kind, dims in edits.declarations:
            value.type, value.shape = kind, None if dims is None else ir.Shape(dims)
        return orphans

    def _rename_changed(self, edits: Edits) -> None:
        """Call values otherwise that hold something else from now on."""
        names = {new: old for old, new, _ in edits.replacements}
        for value in dict.fromkeys(edits.changed):
            old = names.get(value)
            if old is None:
                value.name = self.graph.fresh(f"{value.name}_changed")
            elif not old.is_graph_output():
                value.name, old.name = old.name, self.graph.fresh(f"{old.name}_replaced")

    def _change_ports(self, edits: Edits) -> list[ir.Value]:
        """Change the inputs and outputs of the model; return the values that the caller reads no more."""
        main = self.graph.ir.graph
        orphans: list[ir.Value] = []
        if edits.ports:
            # What was unknown, because a caller could set it, may be constant by now.
            self.graph.facts.forget()
        for change, value in edits.ports:
            match change:
                case "drop input":
                    main.inputs.remove(value)
                    orphans.append(value)
                case "drop output":
                    main.outputs.remove(value)
                    orphans.append(value)
                case "add output":
                    known = Value(self.graph, value)
                    kind, dims = known.type, known.shape
                    value.type, value.shape = kind, None if dims is None else ir.Shape(dims)
                    main.outputs.append(value)
        for value, name in edits.names:
            self.graph.rename(value, name)
        if edits.orders:
            self.graph.arrange(edits.orders)
        return orphans

    def _check_ports(self, edits: Edits) -> None:
        """Refuse changes of inputs and outputs that cannot be made."""
        main, taken = self.graph.ir.graph, {name for _, name in edits.names}
        for change, value in edits.ports:
            ends = main.outputs if change == "drop output" else main.inputs if change == "drop input" else ()
            if change == "add output":
                if value.graph is not main or value.is_graph_output():
                    raise Refusal(f"{value.name} is no value of the main graph, or an output already")
                if Value(self.graph, value).type is None:
                    raise Refusal(f"the type of {value.name} is not known")
            elif not any(value is end for end in ends):
                raise Refusal(f"{value.name} is no {change.removeprefix('drop ')} of the model")
            elif change == "drop input" and not value.is_initializer() and Value(self.graph, value).is_used:
                raise Refusal(f"{value.name} is still read, and has no value of its own")
        for value, name in edits.names:
            if not any(value is port for port in (*main.inputs, *main.outputs)):
                raise Refusal(f"{value.name} is no input or output of the model")
            if not name or not self.graph.is_free(name):
                raise Refusal(f"the name '{name}' is taken")
        if len(taken) < len(edits.names):
            raise Refusal("two inputs or outputs would have the same name")

    def _scope(self, before: ir.Node | None) -> ir.Graph:
        scope = None if before is None else before.graph
        return self.graph.ir.graph if scope is None else scope

    def _set_versions(self, edits: Edits) -> None:
        """Set the versions that a site asks for."""
        for function, domain, version in edits.opsets:
            imports = self.graph.ir.opset_imports if function is None else function.opset_imports
            imports[domain] = version
            if not version:
                del imports[domain]
        if self.graph.ir.ir_version < 4 <= edits.ir_version:
            # Until IR version 4 each initializer had to be listed as an input; from then on, to be listed means
            # that callers may override it. A constant stays one.
            listed = [value for value in self.graph.ir.graph.inputs if value.is_initializer()]
            for value in listed:
                self.graph.ir.graph.inputs.remove(value)
        self.graph.ir.ir_version = max(self.graph.ir.ir_version, edits.ir_version)

    def _define(self, functions: list[ir.Function]) -> None:
        for function in functions:
            self.graph.ir.functions[function.identifier()] = function
            self.graph.take_in(function)

    def _check(self, edits: Edits) -> None:
        """Refuse what cannot be done as a whole, while nothing is done yet."""
        for function in edits.definitions:
            if function.identifier() in self.graph.ir.functions:
                raise Refusal(f"the model has a function {function.domain}::{function.name} already")
        for old, new, _ in edits.replacements:
            self._check_replacement(old, new)
        leaving = set(edits.removals)
        replaced = {old for old, _, _ in edits.replacements}

        def is_read(value: ir.Value) -> bool:
            if value in replaced:
                return False
            return value.is_graph_output() or any(use.node not in leaving for use in value.uses())

        for node in edits.removals:
            if any(is_read(value) for value in node.outputs):
                raise Refusal(f"{Node(self.graph, node).label} is still read")
        for value in edits.drops:
            if is_read(value) or Value(self.graph, value).is_overridable:
                raise Refusal(f"{value.name} is still read, or a caller can set it")
        self._check_ports(edits)

    def _check_replacement(self, old: ir.Value, new: ir.Value) -> None:
        if old is new:
            raise Refusal("a value would replace itself")
        before, after = Value(self.graph, old), Value(self.graph, new)
        if new.producer() is None and not (new.is_graph_input() or new.is_initializer() or new.const_value):
            return
        producer = old.producer()
        # What is handed through keeps its type, so that nothing needs to be inferred.
        handed = producer is not None and producer.op_type in _HANDING_THROUGH and producer.inputs[:1] == (new,)
        if not handed and before.dtype is not None and after.dtype is not None and before.dtype != after.dtype:
            raise Refusal(f"a {after.dtype.name} would replace a {before.dtype.name}")
        if (
            old.is_graph_output()
            and not self._may_take_over(old, new)
            and producer is not None
            and producer.op_type == "Identity"
            and producer.domain == ""
        ):
            raise Refusal("the graph output needs an Identity: what it copies has a name that must stay")

    @staticmethod
    def _may_take_over(old: ir.Value, new: ir.Value) -> bool:
        """Whether `new` can become the graph output `old`, under its name."""
        return new.producer() is not None and new.graph is old.graph and not new.is_graph_output()

    def _replace(self, old: ir.Value, new: ir.Value, added: Container[ir.Node]) -> list[ir.Node]:
        """Redirect the readers of `old`; at an output, rename `new` or stand an Identity in between."""
        extra: list[ir.Node] = []
        readers = [use for use in old.uses() if use.node not in added]
        scope = old.graph
        if old.is_graph_output() and scope is not None:
            if not self._may_take_over(old, new):
                identity = NewNode("Identity", "", (new,), {}, (ir.Value(),), None)
                extra.append(self._add_node(identity, scope, old.producer()))
                new = identity.outputs[0]
            name = old.name
            if (producer := old.producer()) is not None:
                self.graph.old_labels[producer] = Node(self.graph, producer).label
            old.name = self.graph.fresh(f"{name}_replaced")
            new.name = name
            new.type, new.shape = old.type, old.shape
            new.metadata_props.update(old.metadata_props)
            for index, output in enumerate(scope.outputs):
                if output is old:
                    scope.outputs[index] = new
        facts, producer = self.graph.facts, new.producer()
        changed = producer not in added and facts.differ(new, old)
        if not changed:
            facts.merge(new, old)
        for node, index in readers:
            node.replace_input_with(index, new)
            self.graph.changed_nodes.append(node)
        if changed:
            facts.settle(dict.fromkeys(node for node, _ in readers))
        return extra

    def _add_node(self, new: NewNode, scope: ir.Graph, before: Place) -> ir.Node:
        anchor_name = before.name if before is not None and before.name else ""
        name = self.graph.fresh(new.name or (f"{anchor_name}/{new.op}" if anchor_name else new.op))
        for position, value in enumerate(new.outputs):
            if new.like is not None and not (new.like.outputs[position].name or ""):
                value.name = ""
            elif new.like is not None or not value.name:
                value.name = self.graph.fresh(value.name or f"{name}_output_{position}")
        metadata = dict(before.metadata_props) if before is not None else {}
        metadata.update(new.like.metadata_props if new.like is not None else {})
        strip(metadata)
        node = ir.Node(
            new.domain,
            new.op,
            new.inputs,
            [_attribute(key, content) for key, content in new.attributes.items() if content is not None],
            overload=new.like.overload if new.like is not None else "",
            outputs=new.outputs,
            name=name,
            doc_string=new.like.doc_string if new.like is not None else None,
            metadata_props=metadata,
        )
        if before is not None:
            scope.insert_before(before, node)
        else:
            scope.append(node)
        self.graph.index[node.domain, node.op_type][node] = None
        self.graph.changed_nodes.append(node)
        self.stamps.made(node, before, new.like)
        for subgraph in subgraphs(node):
            self._enter(subgraph, scope)
        return node

    def _enter(self, subgraph: ir.Graph, around: ir.Graph) -> None:
        """Take note of a new subgraph, at any depth, and name what it holds: names outside must not be hidden."""
        self.graph.enter(subgraph, around)
        for value in list(values([subgraph])):
            if value.name:
                value.name = self.graph.fresh(value.name)
        for node in subgraph:
            self.graph.index[node.domain, node.op_type][node] = None
            node.name = self.graph.fresh(node.name) if node.name else node.name
            for inner in subgraphs(node):
                self._enter(inner, subgraph)

    def _add_constant(self, value: ir.Value, wish: str, scope: ir.Graph, before: ir.Node | None) -> None:
        value.name = self.graph.fresh(wish)
        if value.const_value is not None:
            value.const_value = self.graph.store(value.const_value)
        if scope in self.graph.function_scopes:
            tensor = value.const_value
            value.const_value = None
            self._add_node(NewNode("Constant", "", (), {"value": tensor}, (value,), None), scope, before)
            return
        scope.register_initializer(value)
        if self.graph.ir.ir_version < 4 and scope is self.graph.ir.graph:
            scope.inputs.append(value)

    def _remove(self, nodes: Iterable[ir.Node]) -> list[str]:
        removed: list[str] = []
        for node in nodes:
            if node.graph is not None:
                removed += self._sweep(node.outputs, None, node)
        return removed

    def _drop_functions(self, functions: list[ir.Function]) -> list[str]:
        """Remove functions, which may call each other but must not be called from elsewhere."""
        leaving = {function.identifier() for function in functions}
        staying: list[ir.Graph | ir.Function] = [self.graph.ir.graph]
        staying += [body for key, body in self.graph.ir.functions.items() if key not in leaving]
        if leaving and any(node.op_identifier() in leaving for body in staying for node in body.all_nodes()):
            raise Refusal("the function is still called")
        for function in functions:
            del self.graph.ir.functions[function.identifier()]
            for node in function.all_nodes():
                self.graph.index[node.domain, node.op_type].pop(node, None)
        return ["::".join(part for part in function.identifier() if part) for function in functions]

    def _sweep(self, orphans: Iterable[ir.Value], place: Place, *nodes: ir.Node) -> list[str]:
        """Remove the producers of values that nothing reads, and so on upwards; return their labels.

        They give way to what the site makes at `place`.
        """
        removed: list[str] = []
        stack = list(orphans)
        pending = list(nodes)
        while stack or pending:
            if pending:
                node = pending.pop()
            else:
                value = stack.pop()
                if value._uses or value.is_graph_output():  # `uses()` would copy a long list for a short answer
                    continue
                producer = value.producer()
                if producer is None:
                    self._drop(value, place)
                    continue
                node = producer
            graph = node.graph
            if graph is None or any(value._uses or value.is_graph_output() for value in node.outputs):
                continue
            removed.append(self.graph.old_labels.pop(node, "") or Node(self.graph, node).label)
            self.stamps.gone(node, removed[-1], place)
            stack.extend(dict.fromkeys(reads(node)))
            self._detach(node)
            graph.remove(node)
        return removed

    def _detach(self, node: ir.Node) -> None:
        """Let a node, and the nodes of its subgraphs, read nothing any more."""
        self.graph.index[node.domain, node.op_type].pop(node, None)
        for index in range(len(node.inputs)):
            node.replace_input_with(index, None)
        for subgraph in subgraphs(node):
            for inner in subgraph:
                self._detach(inner)

    def _drop(self, value: ir.Value, place: Place) -> None:
        """Remove an initializer that nothing reads, unless a caller can set it."""
        scope = value.graph
        if not value.is_initializer() or scope is None or value.name is None or value.uses() or value.is_graph_output():
            return
        if value.is_graph_input():
            if self.graph.ir.ir_version >= 4:
                return
            scope.inputs.remove(value)
        del scope.initializers[value.name]
        self.stamps.dropped(value, place)


def discard(edits: Edits) -> None:
    """Let the copies of subgraphs that a site made read nothing, for they will not be part of the graph."""
    copies = [attribute for made in edits.nodes if made.like is not None for attribute in made.attributes.values()]
    pending = [graph for attribute in copies for graph in _graphs(attribute)]
    while pending:
        for node in pending.pop():
            for index in range(len(node.inputs)):
                node.replace_input_with(index, None)
            pending.extend(subgraphs(node))


def _graphs(attribute: ir.Attr) -> list[ir.Graph]:
    if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
        return [attribute.as_graph()]
    return list(attribute.as_graphs()) if attribute.type == ir.AttributeType.GRAPHS and not attribute.is_ref() else []


def _attribute(name: str, content: Any) -> ir.Attr:
    if isinstance(content, ir.Attr):
        return content
    if isinstance(content, np.ndarray):
        content = ir.Tensor(content)
    return ir.convenience.convert_attribute(name, content)


def reads(node: ir.Node) -> Iterator[ir.Value]:
    """Yield the values that a node and its subgraphs read (those made inside the subgraphs too)."""
    yield from (value for value in node.inputs if value is not None)
    for subgraph in subgraphs(node):
        for inner in subgraph:
            yield from reads(inner)
