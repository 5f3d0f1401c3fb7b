"""Results of shape inference about the values of a model, stored separately from the model.

The engine is onnx-shape-inference: symbolic dims (sympy) and the symbolic contents of shape tensors; see
`surgery.model.shapes.inference`. It writes into the IR, so its results are collected in a table and the IR is restored:
inferring a shape never changes a model. The pass `infer-shapes` writes the results into the model on purpose.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

import onnx_ir as ir

from surgery.model.shapes.facts import NO_DOUBTS, NOTHING, Doubts, Fact, dims, symbolic

if TYPE_CHECKING:
    from surgery.model.shapes.inference import Inference


class ShapeTable:
    """A table from value to `Fact`, filled on first use and extended when nodes are added.

    Dims of which there are `doubts`, because a run contradicted them, are not known.
    """

    def __init__(self, model: ir.Model, doubts: Doubts = NO_DOUBTS) -> None:
        self.doubts = doubts
        self._model = model
        self._table: dict[ir.Value, Fact] = {}
        self._inference: Inference | None = None

    def of(self, value: ir.Value) -> Fact:
        """Return the facts about a value; infer the whole model once if something is missing."""
        fact = self._table.get(value)
        if fact is not None:
            return fact
        if value.producer() is None and value.graph is None:
            # A site may ask about a value that it has not added yet; more is known about it later.
            return Fact(value.type, symbolic(value.shape))
        if self._inference is None:
            self._infer()
            fact = self._table.get(value)
        return fact if fact is not None else self._extend(value)

    def seen(self, value: ir.Value) -> Fact:
        """Return the facts found about a value so far, without running inference."""
        return self._table.get(value, NOTHING)

    def merge(self, value: ir.Value, other: ir.Value) -> None:
        """Let a new `value` inherit the facts about `other`, which it replaces."""
        fact = self._table.get(other)
        if fact is not None:
            self._table.setdefault(value, fact)
        if value.type is None:
            value.type = other.type
        if value.shape is None and other.shape is not None:
            value.shape = other.shape.copy()

    def differ(self, value: ir.Value, other: ir.Value) -> bool:
        """Return whether two values are known to have different shapes, as before and after an Expand."""
        known = self._inference is not None
        here, there = (dims(self.of(one).shape if known else symbolic(one.shape)) for one in (value, other))
        return here is not None and there is not None and here != there

    def learns(self, value: ir.Value, other: ir.Value) -> bool:
        """Return whether the shape of `value` is known, and that of `other`, which it replaces, was found unknown."""
        fact = self._table.get(other)
        return self._inference is not None and fact is not None and fact.shape is None and self._is_known(value)

    def _is_known(self, value: ir.Value) -> bool:
        found = self.of(value)
        return found.shape is not None and found.type is not None

    def agree(self, value: ir.Value, other: ir.Value) -> bool:
        """Return whether two values are known to have the same type and the same dims."""
        mine, its = self.of(value), self.of(other)
        known = mine.type is not None and mine.shape is not None
        return known and mine.type == its.type and dims(mine.shape) == dims(its.shape)

    def settle(self, nodes: Iterable[ir.Node]) -> None:
        """Infer nodes again that read a value whose shape has changed, and nodes downstream as far as shapes change.

        A shape that was unknown and becomes known counts as changed. The declared shape of a graph output stays.
        """
        pending = deque(nodes)
        while pending:
            node = pending.popleft()
            before = {value: (self._table.pop(value, None), value.shape) for value in node.outputs}
            for value, (fact, declared) in before.items():
                shape = symbolic(declared) if fact is None else fact.shape
                if self._inference is None and (shape is None or value.is_graph_output()):
                    continue
                readers = dict.fromkeys(use.node for use in value.uses())
                value.shape = None
                found = dims(self.of(value).shape)
                if found == dims(shape):
                    value.shape = declared
                    # A graph output may have been known by its declaration alone, which its readers did not see.
                    readers = {node: None for node in readers if value.is_graph_output() and self._lacks_shape(node)}
                elif value.is_graph_output():
                    value.shape = declared
                    if found is None:
                        del self._table[value]
                pending.extend(readers)

    def _lacks_shape(self, node: ir.Node) -> bool:
        return any(self.seen(value).shape is None for value in node.outputs)

    def shapes(self) -> dict[str, ir.Shape]:
        """Return the shapes found so far of values of the main graph, by name, without running inference."""
        main = self._model.graph
        return {
            value.name: fact.shape
            for value, fact in self._table.items()
            if value.name and fact.shape is not None and value.graph is main
        }

    def drop(self, node: ir.Node) -> None:
        """Forget the facts about a node's outputs, because its inputs or attributes have changed."""
        for value in node.outputs:
            self._table.pop(value, None)

    def is_made_up(self, dim: str) -> bool:
        """Return whether a dim is known only by a symbol that inference generated, like the size of a NonZero."""
        return self._inference is not None and self._inference.is_made_up(dim)

    def forget(self) -> None:
        """Drop everything, because the model was edited without the table's knowledge."""
        self._table.clear()
        self._inference = None

    def _infer(self) -> None:
        from surgery.model.shapes.inference import Inference

        self._inference = Inference(self._model, doubts=self.doubts)
        self._table.update(self._inference.everything())

    def _extend(self, value: ir.Value) -> Fact:
        """Infer the producer of a value that was added after the inference, and before that the nodes it depends on."""
        assert self._inference is not None
        stack = [value]
        while stack:
            producer = stack[-1].producer()
            missing = [] if producer is None else [v for v in producer.inputs if v is not None and v not in self._table]
            if stack[-1] in self._table:
                stack.pop()
            elif missing and len(stack) < 100_000:
                stack.extend(missing)
            else:
                made = stack.pop()
                if producer is not None:
                    self._table.update(self._inference.one(producer, self._known))
                self._table.setdefault(made, Fact(made.type, symbolic(made.shape)))
        return self._table[value]

    def _known(self, value: ir.Value) -> Fact:
        return self._table.get(value, NOTHING)
