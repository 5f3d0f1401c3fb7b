"""Copies of graphs and of their nodes, with values and attributes put in the place of those that they name."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir


class Copier:
    """Copies what stands in a subgraph or in the body of a function.

    `values` says what stands for a value of the original, and is extended by what is copied; a value that it does not
    have is one from outside, and stays. `attributes` are those of the call, for the body of a function.
    """

    def __init__(
        self, values: Mapping[ir.Value, ir.Value | None], attributes: Mapping[str, ir.Attr] | None = None
    ) -> None:
        self.values = dict(values)
        self.attributes = attributes

    def read(self, value: ir.Value | None) -> ir.Value | None:
        """Return what stands for a value that is read."""
        return None if value is None else self.values.get(value, value)

    def made(self, value: ir.Value, *, declared: bool | None = None) -> ir.Value:
        """Make what stands for a value that is computed; it has no name yet where it had none."""
        # What a function declares of its values need not hold in every call.
        if declared is None:
            declared = self.attributes is None
        copy = ir.Value(name=value.name)
        if declared:
            copy.type, copy.shape = value.type, None if value.shape is None else value.shape.copy()
        self.values[value] = copy
        return copy

    def attributes_of(self, node: ir.Node) -> list[ir.Attr]:
        """Return the attributes for the copy of a node; a parameter that the call does not give is left out."""
        copies = (self._attribute(name, attribute) for name, attribute in node.attributes.items())
        return [copy for copy in copies if copy is not None]

    def _attribute(self, name: str, attribute: ir.Attr) -> ir.Attr | None:
        if attribute.is_ref() and self.attributes is not None:
            given = self.attributes.get(attribute.ref_attr_name or "")
            if given is None or (given.value is None and not given.is_ref()):
                return None
            if given.is_ref():
                return ir.RefAttr(name, given.ref_attr_name or "", given.type)
            attribute = ir.Attr(name, given.type, given.value)
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
        nodes = [self._node(node) for node in graph]
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

    def _node(self, node: ir.Node) -> ir.Node:
        inputs = [self.read(value) for value in node.inputs]
        attributes = self.attributes_of(node)
        return ir.Node(
            node.domain,
            node.op_type,
            inputs,
            attributes,
            overload=node.overload,
            outputs=[self.made(value) for value in node.outputs],
            name=node.name,
            doc_string=node.doc_string,
            metadata_props=dict(node.metadata_props),
        )
