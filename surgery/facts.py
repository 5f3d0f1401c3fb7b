"""What shape inference knows about the values of a model, kept beside the model.

The engine is onnx-shape-inference: symbolic dims (sympy) and the symbolic contents of shape tensors. It writes
into the IR as it goes (it also names the anonymous dims of graph inputs), so its findings are harvested into a
table and the IR is put back as it was: knowing a shape never changes a model. The pass `infer-shapes` writes
the findings down on purpose.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import onnx_ir as ir

Dim = int | str | None
"""One dim: an extent, a symbolic expression such as "batch" or "2*sequence", or nothing known."""


@dataclass(frozen=True)
class Fact:
    """What is known of one value: its type, its shape, the elements of a small integer tensor."""

    type: ir.TypeProtocol | None = None
    shape: ir.Shape | None = None
    data: tuple[int | str, ...] | None = None


NOTHING = Fact()


def scopes(model: ir.Model) -> Iterator[ir.Graph]:
    """Yield the main graph, its subgraphs at any depth, and the bodies of functions with theirs."""
    yield model.graph
    yield from model.graph.subgraphs()
    for function in model.functions.values():
        yield function.graph
        yield from function.graph.subgraphs()


def values(graphs: Iterable[ir.Graph]) -> Iterator[ir.Value]:
    """Yield each value of the graphs once: inputs, initializers, node outputs."""
    for graph in graphs:
        yield from graph.inputs
        for value in graph.initializers.values():
            if not value.is_graph_input():
                yield value
        for node in graph:
            yield from node.outputs


def dims(shape: ir.Shape | None) -> tuple[Dim, ...] | None:
    """Give the dims of a shape as plain values."""
    if shape is None:
        return None
    return tuple(dim if isinstance(dim, int) else dim.value for dim in shape)


class Facts:
    """A table from value to `Fact`, filled on first use and extended when nodes are added."""

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self._table: dict[ir.Value, Fact] = {}
        self._inferred = False

    def of(self, value: ir.Value) -> Fact:
        """Return what is known of a value, inferring once for the whole model when something is missing."""
        fact = self._table.get(value)
        if fact is not None:
            return fact
        if not self._inferred:
            self._infer()
            return self._table.get(value, NOTHING)
        producer = value.producer()
        if producer is None:
            return NOTHING
        self._infer_node(producer)
        return self._table.setdefault(value, NOTHING)

    def merge(self, value: ir.Value, other: ir.Value) -> None:
        """Let `value` inherit what is known of `other`, which it replaces."""
        fact = self._table.get(other)
        if fact is not None:
            self._table.setdefault(value, fact)
        if value.type is None:
            value.type = other.type
        if value.shape is None and other.shape is not None:
            value.shape = other.shape.copy()

    def forget(self) -> None:
        """Drop everything, because the model was edited behind the table's back."""
        self._table.clear()
        self._inferred = False

    def _infer(self) -> None:
        from onnx_shape_inference import infer_symbolic_shapes

        self._inferred = True
        everything = list(values(scopes(self._model)))
        before = [_State.of(value) for value in everything]
        try:
            infer_symbolic_shapes(self._model, warn_on_missing=False)
        except Exception:
            pass
        for value, state in zip(everything, before):
            self._harvest(value, state)

    def _infer_node(self, node: ir.Node) -> None:
        """Infer the outputs of one node, made after the model was inferred."""
        from onnx_shape_inference import ShapeInferenceContext, registry

        registry.collect()
        version = self._model.opset_imports.get(node.domain, 1)
        infer = registry.get(node.domain, node.op_type, version=version)
        if infer is None:
            return
        inputs = [value for value in node.inputs if value is not None]
        facts = [self.of(value) for value in inputs]
        touched = list(dict.fromkeys([*inputs, *node.outputs]))
        before = [_State.of(value) for value in touched]
        context = ShapeInferenceContext(self._model.opset_imports)
        for value, fact in zip(inputs, facts):
            value.type, value.shape = fact.type or value.type, fact.shape or value.shape
            if fact.data is not None:
                context.set_symbolic_value(
                    value, [item if isinstance(item, int) else ir.SymbolicDim(item) for item in fact.data]
                )
        try:
            infer(context, node)
        except Exception:
            pass
        for value, state in zip(touched, before):
            self._harvest(value, state)

    def _harvest(self, value: ir.Value, before: _State) -> None:
        from onnx_shape_inference import SYM_DATA_KEY

        data = value.metadata_props.pop(SYM_DATA_KEY, None)
        found = Fact(value.type, value.shape, tuple(json.loads(data)) if data else None)
        if value not in self._table or found.data is not None:
            self._table[value] = found
        before.restore(value)


@dataclass(frozen=True)
class _State:
    """The parts of a value that inference writes to."""

    type: ir.TypeProtocol | None
    shape: ir.Shape | None
    constant: ir.TensorProtocol | None

    @classmethod
    def of(cls, value: ir.Value) -> _State:
        return cls(value.type, value.shape, value.const_value)

    def restore(self, value: ir.Value) -> None:
        value.type, value.shape = self.type, self.shape
        if value.const_value is not self.constant:
            value.const_value = self.constant
