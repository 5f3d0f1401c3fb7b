"""Graph: the editing surface that passes see. The only module that changes a graph.

It owns what no pass should have to think of: fresh names, graph outputs and their names, values captured by
subgraphs, initializers that a caller can override, sweeping of what became dead, the stamp on new nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from surgery.edits import Builder, Edits, NewNode
from surgery.errors import PassError
from surgery.facts import Facts, scopes, values
from surgery.storage import Weights, spill_tensor
from surgery.views import Node, Refusal, Value

if TYPE_CHECKING:
    import networkx

PASS_KEY = "surgery.pass"
FROM_KEY = "surgery.from"

SCRATCH_FROM = 1 << 16
"""New tensors of at least this many bytes do not stay in memory."""


@dataclass(frozen=True)
class Site:
    """One application of a pass. `number` counts from 1 in the order of application."""

    number: int
    anchor: str
    removed: tuple[str, ...]
    added: tuple[str, ...]
    skipped: bool = False


@dataclass(frozen=True)
class Refused:
    """One place where a pass looked and declined."""

    anchor: str
    reason: str


class Graph:
    """A model while passes work on it: the main graph, its subgraphs and the bodies of functions.

    `ir` is the `onnx_ir.Model` below. `sites` lists what was applied and `refusals` what was declined, both by
    the pass that runs; `skip` holds numbers of sites that must not be applied.
    """

    def __init__(
        self,
        model: ir.Model,
        *,
        weights: Weights | None = None,
        pass_name: str = "",
        skip: frozenset[int] = frozenset(),
    ) -> None:
        self.ir = model
        self.weights = weights
        self.facts = Facts(model)
        self.begin(pass_name, skip)
        self.refresh()

    def begin(self, pass_name: str, skip: frozenset[int] = frozenset()) -> None:
        """Start the account of another pass."""
        self.pass_name = pass_name
        self.skip = skip
        self.sites: list[Site] = []
        self.refusals: list[Refused] = []
        self.changed_nodes: list[ir.Node] = []

    def refresh(self) -> None:
        """Look at the model afresh, after it was edited through `ir`."""
        self._index: dict[tuple[str, str], dict[ir.Node, None]] = defaultdict(dict)
        self._opsets: dict[ir.Graph, Mapping[str, int]] = {}
        self._functions: set[ir.Graph] = set()
        self._names: set[str] | None = None
        self._suffixes: dict[str, int] = {}
        self._old_labels: dict[ir.Node, str] = {}
        self.facts.forget()
        for function in self.ir.functions.values():
            for scope in (function.graph, *function.graph.subgraphs()):
                self._opsets[scope] = function.opset_imports
                self._functions.add(scope)
        for scope in scopes(self.ir):
            self._opsets.setdefault(scope, self.ir.opset_imports)
            for node in scope:
                self._index[node.domain, node.op_type][node] = None

    # Reading

    @property
    def opset(self) -> int:
        """The opset version of the default domain, 0 when it is not imported."""
        return self.ir.opset_imports.get("", 0)

    def opset_of(self, node: ir.Node) -> int:
        """Return the opset version that the operator of a node is taken from, 0 when it is not imported."""
        return self.imports_of(node).get(node.domain, 0)

    def imports_of(self, node: ir.Node) -> Mapping[str, int]:
        """Return the opset imports that hold for a node: those of the model, or of its function."""
        graph = node.graph
        return self.ir.opset_imports if graph is None else self._opsets.get(graph, self.ir.opset_imports)

    @property
    def scopes(self) -> list[ir.Graph]:
        """The main graph, subgraphs at any depth, function bodies."""
        return list(scopes(self.ir))

    def nodes(self, *ops: str) -> list[Node]:
        """List the nodes of these operators ("Relu", "com.microsoft::Gelu"), all nodes when none is named.

        The list is taken when called. Iterating over it leaves out the nodes that were removed since.
        """
        if not ops:
            return _Nodes(Node(self, node) for scope in scopes(self.ir) for node in scope)
        found = _Nodes()
        for op in ops:
            domain, _, op_type = op.rpartition("::")
            found.extend(Node(self, node) for node in self._index.get((domain, op_type), ()))
        return found

    def holders(self) -> dict[ir.Graph, Node]:
        """Return for each subgraph the node that holds it, whose scope is the one around it."""
        return {inner: Node(self, node) for scope in scopes(self.ir) for node in scope for inner in _subgraphs(node)}

    def constants(self) -> list[Value]:
        """List the initializers that no caller can override, of all scopes."""
        found = (Value(self, value) for scope in scopes(self.ir) for value in scope.initializers.values())
        return [value for value in found if not value.is_overridable]

    def in_function(self, node: Node) -> bool:
        """Tell whether a node stands in the body of a model-local function."""
        return node.scope in self._functions

    def to_networkx(self) -> networkx.MultiDiGraph[Any]:
        """Give the nodes of the main graph as a networkx multigraph; an edge carries the value's name."""
        import networkx

        result: networkx.MultiDiGraph[Any] = networkx.MultiDiGraph()
        for node in self.ir.graph:
            result.add_node(node, op=node.op_type, domain=node.domain, name=node.name)
        for node in self.ir.graph:
            for value in _reads(node):
                producer = value.producer()
                if producer is not None and producer.graph is self.ir.graph:
                    result.add_edge(producer, node, value=value.name)
        return result

    # Editing

    def store(self, tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        """Move a large new tensor out of memory, into the scratch file of the model, if it has one."""
        return tensor if self.weights is None else spill_tensor(tensor, self.weights, SCRATCH_FROM)

    @contextmanager
    def site(self, anchor: Node | None = None) -> Iterator[Builder]:
        """Open a site: one application of the pass, applied whole when the block ends, or not at all.

        A refusal inside the block (by `require`, or because the engine cannot keep a boundary) ends the block
        quietly and is recorded with its reason. New nodes are put before `anchor`.
        """
        builder = Builder(self, anchor)
        try:
            yield builder
            if anchor is not None and anchor.ir.graph is None:
                raise Refusal("the node was removed by an earlier site")
            self._commit(builder)
        except Refusal as refusal:
            self.refusals.append(Refused(anchor.label if anchor is not None else "", refusal.reason))

    def replace(self, old: Value, new: Value) -> None:
        """Let everything that reads `old` read `new`, as a site of its own; refused at a boundary, with the reason."""
        with self.site(old.producer) as edit:
            edit.replace(old, new)

    def remove(self, node: Node) -> None:
        """Remove a node that nothing reads, as a site of its own."""
        with self.site(node) as edit:
            edit.remove(node)

    def fresh(self, wish: str) -> str:
        """Return a name like `wish` that no value and no node of the model has."""
        if self._names is None:
            self._names = {value.name for value in values(scopes(self.ir)) if value.name}
            self._names.update(node.name for scope in scopes(self.ir) for node in scope if node.name)
            for scope in scopes(self.ir):
                self._names.update(use.name for node in scope for use in node.inputs if use is not None and use.name)
        name = wish
        while name in self._names:
            self._suffixes[wish] = self._suffixes.get(wish, 0) + 1
            name = f"{wish}_{self._suffixes[wish]}"
        self._names.add(name)
        return name

    def finish(self) -> None:
        """End the pass: restore topological order where an edit broke it, import the domains that new nodes use."""
        for scope in {node.graph: None for node in self.changed_nodes if node.graph is not None}:
            if not _in_order(scope):
                try:
                    scope.sort()
                except ValueError as error:
                    raise PassError(
                        f"pass '{self.pass_name}' made a cycle", todo="its replacement reads itself"
                    ) from error
        for node in self.changed_nodes:
            imports = self.ir.opset_imports if node.graph is None else self._opsets.get(node.graph)
            if node.domain and isinstance(imports, dict):
                imports.setdefault(node.domain, 1)
                self.ir.opset_imports.setdefault(node.domain, 1)

    def _commit(self, builder: Builder) -> None:
        edits, anchor = builder.edits, builder.anchor
        if not edits:
            return
        number = len(self.sites) + 1
        label = anchor.label if anchor is not None else ""
        if number in self.skip:
            self.sites.append(Site(number, label, (), (), skipped=True))
            return
        self._check(edits)
        self._stamp(edits)
        for value, wish, before in edits.constants:
            self._add_constant(value, wish, self._scope(before), before)
        origins: dict[ir.Node | None, list[ir.Node]] = defaultdict(list)
        places: dict[ir.Node | None, list[ir.Node]] = defaultdict(list)
        for old, _, before in edits.replacements:
            origins[before] += [producer for producer in (before, old.producer()) if producer is not None]
        for made in edits.nodes:
            origin = origins[made.before] or ([made.before] if made.before is not None else [])
            places[made.before].append(self._add_node(made, self._scope(made.before), made.before, origin))
        added = [node for nodes in places.values() for node in nodes]
        orphans = self._adjust(edits)
        for old, new, before in edits.replacements:
            # What stands at another place of the site read `old` only because it was there first.
            added += self._replace(old, new, places[before], origins[before])
            orphans.append(old)
        removed = self._remove(edits.removals) + self._drop_functions(edits.functions)
        removed += self._sweep([*orphans, *edits.drops, *(value for node in added for value in node.outputs)])
        for value, _, _ in edits.constants:
            if not value.uses():
                self._drop(value)
        self.sites.append(Site(number, label, tuple(removed), tuple(node.name or "" for node in added)))

    def _adjust(self, edits: Edits) -> list[ir.Value]:
        """Set inputs, attributes and declarations of nodes that stay; return the values that lost a reader."""
        orphans: list[ir.Value] = []
        for node, index, replacement in edits.inputs:
            previous = node.inputs[index] if index < len(node.inputs) else None
            if index >= len(node.inputs):
                node.resize_inputs(index + 1)
            node.replace_input_with(index, replacement)
            orphans += [previous] if previous is not None else []
            self.changed_nodes.append(node)
            self.facts.drop(node)
        for node in dict.fromkeys(node for node, _, _ in edits.inputs):
            while node.inputs and node.inputs[-1] is None:
                node.resize_inputs(len(node.inputs) - 1)
        for node, name, content in edits.attributes:
            if name in node.attributes:
                del node.attributes[name]
            if content is not None:
                node.attributes[name] = _attribute(name, content)
            self.changed_nodes.append(node)
            self.facts.drop(node)
        for value, kind, dims in edits.declarations:
            value.type, value.shape = kind, None if dims is None else ir.Shape(dims)
        return orphans

    def _scope(self, before: ir.Node | None) -> ir.Graph:
        scope = None if before is None else before.graph
        return self.ir.graph if scope is None else scope

    def _stamp(self, edits: Edits) -> None:
        """Set the versions that a site asks for."""
        for function, domain, version in edits.opsets:
            imports = self.ir.opset_imports if function is None else function.opset_imports
            imports[domain] = version
        if self.ir.ir_version < 4 <= edits.ir_version:
            # Until IR version 4 each initializer had to be listed as an input; from then on, to be listed means
            # that callers may override it. A constant stays one.
            listed = [value for value in self.ir.graph.inputs if value.is_initializer()]
            for value in listed:
                self.ir.graph.inputs.remove(value)
        self.ir.ir_version = max(self.ir.ir_version, edits.ir_version)

    def _check(self, edits: Edits) -> None:
        """Refuse what cannot be done as a whole, while nothing is done yet."""
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
                raise Refusal(f"{Node(self, node).label} is still read")
        for value in edits.drops:
            if is_read(value) or Value(self, value).is_overridable:
                raise Refusal(f"{value.name} is still read, or a caller can set it")

    def _check_replacement(self, old: ir.Value, new: ir.Value) -> None:
        if old is new:
            raise Refusal("a value would replace itself")
        before, after = Value(self, old), Value(self, new)
        if new.producer() is None and not (new.is_graph_input() or new.is_initializer() or new.const_value):
            return
        if before.dtype is not None and after.dtype is not None and before.dtype != after.dtype:
            raise Refusal(f"a {after.dtype.name} would replace a {before.dtype.name}")
        producer = old.producer()
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

    def _replace(self, old: ir.Value, new: ir.Value, added: list[ir.Node], origin: list[ir.Node]) -> list[ir.Node]:
        """Redirect the readers of `old`; at an output, rename `new` or stand an Identity in between."""
        extra: list[ir.Node] = []
        readers = [use for use in old.uses() if use.node not in added]
        scope = old.graph
        if old.is_graph_output() and scope is not None:
            if not self._may_take_over(old, new):
                identity = NewNode("Identity", "", (new,), {}, (ir.Value(),), None)
                extra.append(self._add_node(identity, scope, old.producer(), origin))
                new = identity.outputs[0]
            name = old.name
            if (producer := old.producer()) is not None:
                self._old_labels[producer] = Node(self, producer).label
            old.name = self.fresh(f"{name}_replaced")
            new.name = name
            new.type, new.shape = old.type, old.shape
            new.metadata_props.update(old.metadata_props)
            for index, output in enumerate(scope.outputs):
                if output is old:
                    scope.outputs[index] = new
        self.facts.merge(new, old)
        for node, index in readers:
            node.replace_input_with(index, new)
            self.changed_nodes.append(node)
        return extra

    def _add_node(self, new: NewNode, scope: ir.Graph, before: ir.Node | None, origin: list[ir.Node]) -> ir.Node:
        anchor_name = before.name if before is not None and before.name else ""
        name = self.fresh(new.name or (f"{anchor_name}/{new.op}" if anchor_name else new.op))
        for position, value in enumerate(new.outputs):
            if not value.name:
                value.name = self.fresh(f"{name}_output_{position}")
        metadata = dict(before.metadata_props) if before is not None else {}
        metadata[PASS_KEY] = self.pass_name
        metadata[FROM_KEY] = ", ".join(dict.fromkeys(Node(self, node).label for node in origin))
        node = ir.Node(
            new.domain,
            new.op,
            new.inputs,
            [_attribute(key, content) for key, content in new.attributes.items() if content is not None],
            outputs=new.outputs,
            name=name,
            metadata_props=metadata,
        )
        if before is not None:
            scope.insert_before(before, node)
        else:
            scope.append(node)
        self._index[node.domain, node.op_type][node] = None
        self.changed_nodes.append(node)
        return node

    def _add_constant(self, value: ir.Value, wish: str, scope: ir.Graph, before: ir.Node | None) -> None:
        value.name = self.fresh(wish)
        if value.const_value is not None:
            value.const_value = self.store(value.const_value)
        if scope in self._functions:
            tensor = value.const_value
            value.const_value = None
            self._add_node(NewNode("Constant", "", (), {"value": tensor}, (value,), None), scope, before, [])
            return
        scope.register_initializer(value)
        if self.ir.ir_version < 4 and scope is self.ir.graph:
            scope.inputs.append(value)

    def _remove(self, nodes: Iterable[ir.Node]) -> list[str]:
        removed: list[str] = []
        for node in nodes:
            if node.graph is not None:
                removed += self._sweep(node.outputs, node)
        return removed

    def _drop_functions(self, functions: list[ir.Function]) -> list[str]:
        """Remove functions, which may call each other but must not be called from elsewhere."""
        leaving = {function.identifier() for function in functions}
        staying: list[ir.Graph | ir.Function] = [self.ir.graph]
        staying += [body for key, body in self.ir.functions.items() if key not in leaving]
        if leaving and any(node.op_identifier() in leaving for body in staying for node in body.all_nodes()):
            raise Refusal("the function is still called")
        for function in functions:
            del self.ir.functions[function.identifier()]
            for node in function.all_nodes():
                self._index[node.domain, node.op_type].pop(node, None)
        return ["::".join(part for part in function.identifier() if part) for function in functions]

    def _sweep(self, orphans: Iterable[ir.Value], *nodes: ir.Node) -> list[str]:
        """Remove the producers of values that nothing reads, and so on upwards; return their labels."""
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
                    self._drop(value)
                    continue
                node = producer
            graph = node.graph
            if graph is None or any(value._uses or value.is_graph_output() for value in node.outputs):
                continue
            removed.append(self._old_labels.pop(node, "") or Node(self, node).label)
            stack.extend(dict.fromkeys(_reads(node)))
            self._detach(node)
            graph.remove(node)
        return removed

    def _detach(self, node: ir.Node) -> None:
        """Let a node, and the nodes of its subgraphs, read nothing any more."""
        self._index[node.domain, node.op_type].pop(node, None)
        for index in range(len(node.inputs)):
            node.replace_input_with(index, None)
        for subgraph in _subgraphs(node):
            for inner in subgraph:
                self._detach(inner)

    def _drop(self, value: ir.Value) -> None:
        """Remove an initializer that nothing reads, unless a caller can set it."""
        scope = value.graph
        if not value.is_initializer() or scope is None or value.name is None or value.uses() or value.is_graph_output():
            return
        if value.is_graph_input():
            if self.ir.ir_version >= 4:
                return
            scope.inputs.remove(value)
        del scope.initializers[value.name]


class _Nodes(list[Node]):
    """A list of nodes that can be edited away while it is walked."""

    def __iter__(self) -> Iterator[Node]:
        return (node for node in super().__iter__() if node.ir.graph is not None)


def _attribute(name: str, content: Any) -> ir.Attr:
    if isinstance(content, ir.Attr):
        return content
    if isinstance(content, np.ndarray):
        content = ir.Tensor(content)
    return ir.convenience.convert_attribute(name, content)


def _subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    for attribute in node.attributes.values():
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def _reads(node: ir.Node) -> Iterator[ir.Value]:
    """Yield the values that a node and its subgraphs read (those made inside the subgraphs too)."""
    yield from (value for value in node.inputs if value is not None)
    for subgraph in _subgraphs(node):
        for inner in subgraph:
            yield from _reads(inner)


def _in_order(scope: ir.Graph) -> bool:
    """Tell whether each node stands behind the producers, within the scope, of what it reads."""
    seen: set[ir.Node] = set()
    for node in scope:
        for value in _reads(node):
            producer = value.producer()
            if producer is not None and producer.graph is scope and producer not in seen:
                return False
        seen.add(node)
    return True
