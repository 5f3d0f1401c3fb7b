"""Commit: the buffered edits of one site, applied to the graph atomically."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from surgery.model.graph.edits import Edits, NewNode
from surgery.model.graph.refresh_declarations import RefreshedDeclarations
from surgery.model.graph.signature_edits import SignatureEdits
from surgery.model.graph.stamping import Place, Stamps
from surgery.model.graph.traversal import reads
from surgery.model.graph.values import Node, Refusal, Value
from surgery.model.proto.lineage import strip
from surgery.model.shapes.facts import declarable
from surgery.model.storage.ir_scopes import bodies, nested, subgraphs, values

if TYPE_CHECKING:
    from surgery.model.graph.state import GraphState

_HANDING_THROUGH = ("Identity", "Dropout")
_PLAIN = (
    *(ir.AttributeType.INT, ir.AttributeType.FLOAT, ir.AttributeType.STRING),
    *(ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS),
)
"""Types of attributes that are compared by value."""


class Commit:
    """Applies the edits of one site to a graph. Edits that cannot all be applied are refused before any change."""

    def __init__(self, graph: GraphState, edits: Edits) -> None:
        self.graph = graph
        self.edits = edits
        self.ports = SignatureEdits(graph, edits)
        self.stamps = Stamps(graph, edits)

    def run(self) -> tuple[list[str], list[ir.Node]]:
        """Apply the edits; return the labels of the removed nodes, and the added nodes. Raises `Refusal`."""
        edits = self.edits
        self.check()
        # From here on nothing is refused: a site is applied as a whole, or not at all.
        self._set_versions(edits)
        self._define(edits.definitions)
        for value, wish, before in edits.constants:
            self._add_constant(value, wish, self._scope(before), before)
        places: dict[Place, dict[ir.Node, None]] = defaultdict(dict)
        for made in edits.nodes:
            places[made.before][self._add_node(made, self._scope(made.before), made.before)] = None
        added = [node for nodes in places.values() for node in nodes]
        # Types and dims are compared as they are known before the edits.
        declarations = self._redeclaration(edits)
        orphans = self._adjust(edits)
        self._rename_changed(edits)
        for old, new, before in edits.replacements:
            # New nodes at other places of the site read `old` only because it existed before; they are redirected too.
            added += self._replace(old, new, places[before])
            orphans.append((old, self.stamps.place(new, before)))
        orphans += self._set_boundaries(edits)
        removed = self._remove(edits.removals) + self._drop_functions(edits.functions)
        orphans += [(value, None) for value in self.ports.change()]
        orphans += [(value, None) for value in edits.drops]
        orphans += [(value, None) for node in added for value in node.outputs]
        # New nodes that nothing reads go first, for they still read old values.
        for value, place in reversed(orphans):
            removed += self._sweep((value,), place)
        for value, _, _ in edits.constants:
            if not value.uses():
                self._drop(value, None)
        if declarations is not None:
            declarations.finish({old: new for old, new, _ in edits.replacements})
        if edits.opsets:
            self.graph.facts.forget()  # the table has the shape rules of the previous versions
        self._describe(edits)
        # Only now is it known which new nodes have stayed, and what they replace.
        self.stamps.write()
        for thing in edits.stripped:
            strip(thing.metadata)
        return removed, added

    def _redeclaration(self, edits: Edits) -> RefreshedDeclarations | None:
        """Prepare to refresh outdated declarations; return None if all replacements have the same types and dims."""
        replaced = {old: new for old, new, _ in edits.replacements}
        facts = self.graph.facts
        stale = [value for value in edits.outdated if value not in replaced or not facts.agree(replaced[value], value)]
        return RefreshedDeclarations(self.graph, stale) if stale else None

    def _adjust(self, edits: Edits) -> list[tuple[ir.Value, Place]]:
        """Set inputs, attributes and declarations of nodes; return the values that lost a reader, with that node."""
        orphans = self._set_inputs(edits)
        self._set_operators(edits)
        for value, tensor in edits.contents:
            tensor.name = value.name
            value.const_value = self.graph.store(tensor)
            if value in edits.outdated:
                value.type, value.shape = ir.TensorType(tensor.dtype), ir.Shape(tensor.shape.numpy())
            self.graph.facts.forget()
        for value, kind, dims in edits.declarations:
            value.type, value.shape = kind, None if dims is None else ir.Shape(declarable(dims))
        return orphans

    def _set_inputs(self, edits: Edits) -> list[tuple[ir.Value, Place]]:
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
        return orphans

    def _set_operators(self, edits: Edits) -> None:
        for node, op, outputs in edits.operators:
            self.graph.index[node.domain, node.op_type].pop(node, None)
            node.domain, _, node.op_type = op.rpartition("::")
            node.overload = ""
            node.resize_outputs(outputs)
            self.graph.index[node.domain, node.op_type][node] = None
            self.graph.changed_nodes.append(node)
            self.graph.facts.drop(node)
        for node, name, content in edits.attributes:
            if name in node.attributes:
                del node.attributes[name]
            if content is not None:
                node.attributes[name] = _attribute(name, content)
                for subgraph in subgraphs(node):
                    self.graph.enter(subgraph, self._scope(node))
            self.graph.changed_nodes.append(node)
            self.graph.facts.drop(node)

    def _set_boundaries(self, edits: Edits) -> list[tuple[ir.Value, Place]]:
        """Set outputs of subgraphs, and the types of their inputs and results; return the former outputs."""
        orphans: list[tuple[ir.Value, Place]] = []
        for scope, index, value, dtype in edits.results:
            old = scope.outputs[index]
            if value.producer() is None or value.graph is not scope or value.is_graph_output():
                identity = NewNode("Identity", "", (value,), {}, (ir.Value(),), None)
                self._add_node(identity, scope, None)
                value = identity.outputs[0]
            value.type, value.shape = ir.TensorType(dtype), None if old.shape is None else old.shape.copy()
            scope.outputs[index] = value
            orphans.append((old, None))
        for value, dtype in edits.element_types:
            value.type = ir.TensorType(dtype)
        if edits.results or edits.element_types:
            self.graph.facts.forget()
        return orphans

    def _rename_changed(self, edits: Edits) -> None:
        """Rename values whose contents changed."""
        names = {new: old for old, new, _ in edits.replacements}
        for value in dict.fromkeys(edits.changed):
            old = names.get(value)
            if old is None:
                value.name = self.graph.fresh(f"{value.name}_changed")
            elif not old.is_graph_output():
                value.name, old.name = old.name, self.graph.fresh(f"{old.name}_replaced")

    def _describe(self, edits: Edits) -> None:
        """Set the metadata and descriptive fields of the model, and the doc strings of its values."""
        model = self.graph.ir
        for key, text in edits.metadata.items():
            model.metadata_props.pop(key, None)
            model.metadata_props.update({} if text is None else {key: text})
        for name, content in edits.model_fields.items():
            setattr(model, name, content)
        for value, text in edits.docs.items():
            value.doc_string = text

    def _scope(self, before: ir.Node | None) -> ir.Graph:
        scope = None if before is None else before.graph
        return self.graph.ir.graph if scope is None else scope

    def _set_versions(self, edits: Edits) -> None:
        """Set the opset and IR versions that a site requests."""
        for function, domain, version in edits.opsets:
            imports = self.graph.ir.opset_imports if function is None else function.opset_imports
            imports[domain] = version
            if not version:
                del imports[domain]
        if self.graph.ir.ir_version < 4 <= edits.ir_version:
            # Before IR version 4, each initializer had to be listed as an input; since then, a listed one is
            # overridable. A constant must remain a constant.
            listed = [value for value in self.graph.ir.graph.inputs if value.is_initializer()]
            for value in listed:
                self.graph.ir.graph.inputs.remove(value)
        self.graph.ir.ir_version = max(self.graph.ir.ir_version, edits.ir_version)
        if edits.ir_limit:
            self.graph.ir.ir_version = min(self.graph.ir.ir_version, edits.ir_limit)

    def _define(self, functions: list[ir.Function]) -> None:
        for function in functions:
            self.graph.ir.functions[function.identifier()] = function
            self.graph.take_in(function)

    def check(self) -> None:
        """Refuse edits that cannot all be applied, before any change."""
        edits = self.edits
        for function in edits.definitions:
            if function.identifier() in self.graph.ir.functions:
                raise Refusal(f"the model already has a function {function.domain}::{function.name}")
        for old, new, _ in edits.replacements:
            self._check_replacement(old, new)
        self._check_unread(edits)
        for value, tensor in edits.contents:
            known = value.const_value
            alike = known is not None and (known.dtype, list(known.shape)) == (tensor.dtype, list(tensor.shape))
            if not alike and (known is None or value not in edits.outdated):
                raise Refusal(f"{value.name} is not an initializer, or has another type or other dims")
        self.ports.check()

    def _check_unread(self, edits: Edits) -> None:
        """Refuse to remove values that are still read."""
        leaving = set(edits.removals)
        replaced = {old for old, _, _ in edits.replacements}

        def is_read(value: ir.Value) -> bool:
            if value in replaced:
                return False
            return value.is_graph_output() or any(use.node not in leaving for use in value.uses())

        for node in edits.removals:
            if any(is_read(value) for value in node.outputs):
                raise Refusal(f"{Node(self.graph, node).label} is still read")
        for node, _, outputs in edits.operators:
            lost = next((value for value in node.outputs[outputs:] if is_read(value)), None)
            if lost is not None:
                raise Refusal(f"{lost.name} is still read")
        for value in edits.drops:
            if is_read(value) or Value(self.graph, value).is_overridable:
                raise Refusal(f"{value.name} is still read, or is overridable")

    def _check_replacement(self, old: ir.Value, new: ir.Value) -> None:
        if old is new:
            raise Refusal("a value would replace itself")
        before, after = Value(self.graph, old), Value(self.graph, new)
        if new.producer() is None and not (new.is_graph_input() or new.is_initializer() or new.const_value):
            return
        producer = old.producer()
        # Where the types are equal by construction, nothing needs to be inferred.
        handed = producer is not None and producer.op_type in _HANDING_THROUGH and producer.inputs[:1] == (new,)
        same = handed or _are_twins(old, new)
        if not same and before.dtype is not None and after.dtype is not None and before.dtype != after.dtype:
            raise Refusal(f"a {after.dtype.name} would replace a {before.dtype.name}")
        if (
            old.is_graph_output()
            and not self._may_take_over(old, new)
            and producer is not None
            and producer.op_type == "Identity"
            and producer.domain == ""
        ):
            raise Refusal("the graph output needs an Identity: the value that it copies must keep its name")
        maker = new.producer()
        if old.is_graph_output() and maker is not None and _is_sparse_constant(maker):
            raise Refusal("the graph output is a tensor, but a runtime returns a sparse constant as it is stored")

    @staticmethod
    def _may_take_over(old: ir.Value, new: ir.Value) -> bool:
        """Return whether `new` can become the graph output `old`, under its name."""
        return new.producer() is not None and new.graph is old.graph and not new.is_graph_output()

    def _replace(self, old: ir.Value, new: ir.Value, added: Container[ir.Node]) -> list[ir.Node]:
        """Redirect the readers of `old`; at a graph output, rename `new` or insert an Identity; return nodes added."""
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
            new.doc_string = old.doc_string or new.doc_string
            for index, output in enumerate(scope.outputs):
                if output is old:
                    scope.outputs[index] = new
        facts, producer = self.graph.facts, new.producer()
        changed = producer not in added and facts.differ(new, old)
        learned = facts.learns(new, old)
        if not changed:
            facts.merge(new, old)
        for node, index in readers:
            node.replace_input_with(index, new)
            self.graph.changed_nodes.append(node)
        if changed or learned:
            facts.settle(dict.fromkeys(node for node, _ in readers))
        return extra

    def _add_node(self, new: NewNode, scope: ir.Graph, before: Place) -> ir.Node:
        anchor_name = before.name if before is not None and before.name else ""
        name = self.graph.fresh(new.name or (f"{anchor_name}/{new.op}" if anchor_name else new.op))
        for position, value in enumerate(new.outputs):
            if position in new.omitted or (new.like is not None and not (new.like.outputs[position].name or "")):
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
        """Register a new subgraph and those nested in it, with unique names: they must not shadow outer names."""
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
        # Before IR version 4, an initializer had to be an input, and the inputs of a body are supplied by its node.
        in_body = self.graph.ir.ir_version < 4 and scope is not self.graph.ir.graph
        if in_body or scope in self.graph.function_scopes:
            tensor = value.const_value
            value.const_value = None
            self._add_node(NewNode("Constant", "", (), {"value": tensor}, (value,), None), scope, before)
            return
        scope.register_initializer(value)
        if self.graph.ir.ir_version < 4:
            scope.inputs.append(value)

    def _remove(self, nodes: Iterable[ir.Node]) -> list[str]:
        removed: list[str] = []
        for node in nodes:
            if node.graph is not None:
                removed += self._sweep(node.outputs, None, node)
        return removed

    def _drop_functions(self, functions: list[ir.Function]) -> list[str]:
        """Remove functions and return their names; they may call each other but must not be called from elsewhere."""
        if not functions:
            return []
        leaving = {function.identifier() for function in functions}
        staying: list[ir.Graph | ir.Function] = [self.graph.ir.graph]
        staying += [body for key, body in self.graph.ir.functions.items() if key not in leaving]
        if any(node.op_identifier() in leaving for body in staying for node in body.all_nodes()):
            raise Refusal("the function is still called")
        for function in functions:
            del self.graph.ir.functions[function.identifier()]
            for node in function.all_nodes():
                self.graph.index[node.domain, node.op_type].pop(node, None)
        return ["::".join(part for part in function.identifier() if part) for function in functions]

    def _sweep(self, orphans: Iterable[ir.Value], place: Place, *nodes: ir.Node) -> list[str]:
        """Remove the producers of unread values, and then their unread inputs, going upstream; return the node labels.

        The removed nodes are recorded as replaced by the new nodes of the site at `place`.
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
        """Disconnect the inputs of a node and of the nodes of its subgraphs."""
        self.graph.index[node.domain, node.op_type].pop(node, None)
        for index in range(len(node.inputs)):
            node.replace_input_with(index, None)
        for subgraph in subgraphs(node):
            for inner in subgraph:
                self._detach(inner)

    def _drop(self, value: ir.Value, place: Place) -> None:
        """Remove an unread initializer, unless it is overridable."""
        scope = value.graph
        if not value.is_initializer() or scope is None or value.name is None or value.uses() or value.is_graph_output():
            return
        if value.is_graph_input():
            if self.graph.ir.ir_version >= 4:
                return
            scope.inputs.remove(value)
        del scope.initializers[value.name]
        self.stamps.dropped(value, place)


def _is_sparse_constant(node: ir.Node) -> bool:
    """Return whether a node is a Constant with a sparse tensor."""
    return node.op_type == "Constant" and not node.domain and "sparse_value" in node.attributes


def _are_twins(one: ir.Value, other: ir.Value) -> bool:
    """Return whether two values are the same output of the same operator, with inputs equal except for constants."""
    mine, its = one.producer(), other.producer()
    if mine is None or its is None or one.index() != other.index() or mine.op_identifier() != its.op_identifier():
        return False
    if len(mine.inputs) != len(its.inputs) or mine.attributes.data.keys() != its.attributes.data.keys():
        return False
    operands = zip(mine.inputs, its.inputs)
    options = ((held, its.attributes.data[name]) for name, held in mine.attributes.data.items())
    return all(here is there or _are_constants_of_a_type(here, there) for here, there in operands) and all(
        here.type == there.type and not here.is_ref() and _make_one_type(here, there) for here, there in options
    )


def _are_constants_of_a_type(one: ir.Value | None, other: ir.Value | None) -> bool:
    mine, its = (None if value is None else value.const_value for value in (one, other))
    return mine is not None and its is not None and mine.dtype == its.dtype


def _make_one_type(one: ir.Attr, other: ir.Attr) -> bool:
    if one.type == ir.AttributeType.TENSOR:
        return bool(one.value.dtype == other.value.dtype)
    return one.type in _PLAIN and bool(one.value == other.value)


def discard(edits: Edits) -> None:
    """Disconnect the copies of subgraphs that a site made, because they will not become part of the graph."""
    copies = [attribute for made in edits.nodes if made.like is not None for attribute in made.attributes.values()]
    for node in [node for attribute in copies for graph in nested(bodies(attribute)) for node in graph]:
        for index in range(len(node.inputs)):
            node.replace_input_with(index, None)


def _attribute(name: str, content: Any) -> ir.Attr:
    if isinstance(content, ir.Attr):
        return content
    if isinstance(content, np.ndarray):
        content = ir.Tensor(content)
    return ir.convenience.convert_attribute(name, content)
