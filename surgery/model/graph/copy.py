"""Copies of graphs and nodes, with substituted values and attributes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count

import onnx_ir as ir

from surgery.model.wire.long_attributes import named


def function_of(
    domain: str,
    name: str,
    nodes: Sequence[ir.Node],
    reads: Sequence[int],
    outputs: Sequence[ir.Value],
    imports: Mapping[str, int],
) -> ir.Function:
    """Return a function whose body consists of copies of nodes without subgraphs.

    `reads` has the number of the function input for each outside value that a node reads, in the order of the nodes
    and their inputs.
    """
    copier = Copier({})
    body = [copier.node(node, declared=False) for node in nodes]
    made: set[ir.Value | None] = {value for node in nodes for value in node.outputs}
    made.add(None)
    places = [(node, index) for node in nodes for index, value in enumerate(node.inputs) if value not in made]
    formals: dict[int, ir.Value] = {}
    copies = dict(zip(nodes, body))
    for (node, index), number in zip(places, reads, strict=True):
        read = node.inputs[index]
        formal = formals.setdefault(number, ir.Value(name=None if read is None else read.name))
        copies[node].replace_input_with(index, formal)
    inputs = [formals[number] for number in sorted(formals)]
    for value, wish in zip(inputs, _unique(value.name or "" for value in inputs)):
        value.name = wish
    results = [value for value in map(copier.read, outputs) if value is not None]
    graph = ir.Graph(inputs, results, nodes=body, opset_imports=dict(imports))
    return ir.Function(domain, name, "", graph=graph, attributes=[])


def _unique(names: Iterable[str]) -> Iterator[str]:
    """Yield names, with a number appended to repeated ones."""
    seen: set[str] = set()
    for name in names:
        free = next(wish for wish in chain([name], (f"{name}_{n}" for n in count(1))) if wish not in seen)
        seen.add(free)
        yield free


class Copier:
    """Copies the contents of a subgraph or of a function body.

    `values` maps values of the original to their replacements, and is extended with each copy; a value that is missing
    comes from outside, and is kept. `attributes` are those of the call, for a function body.
    """

    def __init__(
        self, values: Mapping[ir.Value, ir.Value | None], attributes: Mapping[str, ir.Attr] | None = None
    ) -> None:
        self.values = dict(values)
        self.attributes = attributes

    def read(self, value: ir.Value | None) -> ir.Value | None:
        """Return the replacement of a value that is read."""
        return None if value is None else self.values.get(value, value)

    def made(self, value: ir.Value, *, declared: bool | None = None) -> ir.Value:
        """Make the copy of a computed value, with the same name, if any."""
        # Declarations within a function may not hold for every call.
        if declared is None:
            declared = self.attributes is None
        copy = ir.Value(name=value.name)
        if declared:
            copy.type, copy.shape = value.type, None if value.shape is None else value.shape.copy()
        self.values[value] = copy
        return copy

    def attributes_of(self, node: ir.Node) -> list[ir.Attr]:
        """Return the attributes for the copy of a node, without parameters that the call does not set."""
        copies = (self._attribute(name, attribute) for name, attribute in node.attributes.items())
        return [copy for copy in copies if copy is not None]

    def _attribute(self, name: str, attribute: ir.Attr) -> ir.Attr | None:
        if attribute.is_ref() and self.attributes is not None:
            given = self.attributes.get(attribute.ref_attr_name or "")
            if given is None or (given.value is None and not given.is_ref()):
                return None
            if given.is_ref():
                return ir.RefAttr(name, given.ref_attr_name or "", given.type)
            attribute = named(name, given)
        if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
            return ir.Attr(name, attribute.type, self._graph(attribute.as_graph()))
        if attribute.type == ir.AttributeType.GRAPHS and not attribute.is_ref():
            return ir.Attr(name, attribute.type, [self._graph(graph) for graph in attribute.as_graphs()])
        return attribute

    def _graph(self, graph: ir.Graph) -> ir.Graph:
        inputs = [self.made(value, declared=True) for value in graph.inputs]
        initializers = []
        for value in graph.initializers.values():
            copy = self.values[value] if value.is_graph_input() else self.made(value, declared=True)
            assert copy is not None
            copy.const_value = value.const_value
            initializers.append(copy)
        nodes = [self.node(node) for node in graph]
        outputs = [self.values.get(value) or value for value in graph.outputs]
        for old, new in zip(graph.outputs, outputs):
            if new is not old:
                new.type, new.shape = old.type, old.shape
        return ir.Graph(
            inputs,
            outputs,
            nodes=nodes,
            initializers=initializers,
            opset_imports=dict(graph.opset_imports),
            doc_string=graph.doc_string,
            name=graph.name,
            metadata_props=dict(graph.metadata_props),
        )

    def node(self, node: ir.Node, *, declared: bool | None = None) -> ir.Node:
        """Copy a node; `declared` says whether the declarations of its outputs are copied too, see `made`."""
        inputs = [self.read(value) for value in node.inputs]
        attributes = self.attributes_of(node)
        return ir.Node(
            node.domain,
            node.op_type,
            inputs,
            attributes,
            overload=node.overload,
            outputs=[self.made(value, declared=declared) for value in node.outputs],
            name=node.name,
            doc_string=node.doc_string,
            metadata_props=dict(node.metadata_props),
        )
