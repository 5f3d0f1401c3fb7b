"""What shape inference knows about the values of a model, kept beside the model.

The engine is onnx-shape-inference: symbolic dims (sympy) and the symbolic contents of shape tensors; see
`surgery.shapes.inference`. It writes into the IR as it goes, so its findings are harvested into a table and the IR is
put back as it was: knowing a shape never changes a model. The pass `infer-shapes` writes the findings down on
purpose.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

if TYPE_CHECKING:
    from surgery.shapes.inference import Inference

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
    pending = [model.graph, *(function.graph for function in model.functions.values())][::-1]
    while pending:
        scope = pending.pop()
        yield scope
        pending += [inner for node in scope for inner in subgraphs(node)][::-1]


def subgraphs(node: ir.Node) -> Sequence[ir.Graph]:
    """List the graphs that the attributes of a node hold."""
    attributes = node.attributes.data
    if not attributes:  # asked of every node, over and over
        return ()
    found: list[ir.Graph] = []
    for attribute in attributes.values():
        kind = attribute.type
        if (kind == ir.AttributeType.GRAPH or kind == ir.AttributeType.GRAPHS) and not attribute.is_ref():
            found += [attribute.as_graph()] if kind == ir.AttributeType.GRAPH else attribute.as_graphs()
    return found


def values(graphs: Iterable[ir.Graph]) -> Iterator[ir.Value]:
    """Yield each value of the graphs once: inputs, initializers, node outputs."""
    for graph in graphs:
        yield from graph.inputs
        for value in graph.initializers.values():
            if not value.is_graph_input():
                yield value
        for node in graph:
            yield from node.outputs


def symbolic(shape: ir.Shape | None, *, arithmetic: bool = False) -> ir.Shape | None:
    """Give a declared shape with a symbol for the name of each dim, which may be any text; -1 and "?" say nothing.

    With `arithmetic`, names are expressions.
    """
    if shape is None or not any(_is_odd(dim) for dim in shape):
        return shape
    from surgery.shapes.symbols import opaque

    def given(dim: int | ir.SymbolicDim) -> int | ir.SymbolicDim:
        if isinstance(dim, int):
            return dim if dim >= 0 else ir.SymbolicDim(None)
        return dim if arithmetic else ir.SymbolicDim(opaque(dim.value))

    return ir.Shape([given(dim) for dim in shape])


def declarable(found: Sequence[Dim]) -> list[Dim]:
    """Give dims as they may be declared in a model: with the names that it has for them."""
    if not any(isinstance(dim, str) and "dim_x" in dim for dim in found):
        return [*found]
    from surgery.shapes.symbols import shown

    return [shown(dim) if isinstance(dim, str) else dim for dim in found]


def _is_odd(dim: int | ir.SymbolicDim) -> bool:
    if isinstance(dim, int):
        return dim < 0
    name = dim.value
    return name is not None and not (name.isascii() and name.isidentifier() and not name.startswith("dim_x"))


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
        self._inference: Inference | None = None

    def of(self, value: ir.Value) -> Fact:
        """Return what is known of a value, inferring once for the whole model when something is missing."""
        fact = self._table.get(value)
        if fact is not None:
            return fact
        if value.producer() is None and value.graph is None:
            # A site may ask of what it has not added yet; more is known of that later.
            return Fact(value.type, symbolic(value.shape))
        if self._inference is None:
            self._infer()
            fact = self._table.get(value)
        return fact if fact is not None else self._extend(value)

    def seen(self, value: ir.Value) -> Fact:
        """Return what was found out of a value so far, without a look at the model."""
        return self._table.get(value, NOTHING)

    def merge(self, value: ir.Value, other: ir.Value) -> None:
        """Let a new `value` inherit what is known of `other`, which it replaces."""
        fact = self._table.get(other)
        if fact is not None:
            self._table.setdefault(value, fact)
        if value.type is None:
            value.type = other.type
        if value.shape is None and other.shape is not None:
            value.shape = other.shape.copy()

    def differ(self, value: ir.Value, other: ir.Value) -> bool:
        """Tell whether two values are known to have different shapes, as before and behind an Expand."""
        known = self._inference is not None
        here, there = (dims(self.of(one).shape if known else symbolic(one.shape)) for one in (value, other))
        return here is not None and there is not None and here != there

    def agree(self, value: ir.Value, other: ir.Value) -> bool:
        """Tell whether two values are known to be of one type and of the same dims."""
        mine, its = self.of(value), self.of(other)
        known = mine.type is not None and mine.shape is not None
        return known and mine.type == its.type and dims(mine.shape) == dims(its.shape)

    def settle(self, nodes: Iterable[ir.Node]) -> None:
        """Look anew at nodes that read a value of another shape than before, and behind them as far as that reaches."""
        pending = deque(nodes)
        while pending:
            node = pending.popleft()
            before = {value: (self._table.pop(value, None), value.shape) for value in node.outputs}
            for value, (fact, declared) in before.items():
                shape = symbolic(declared) if fact is None else fact.shape
                if shape is None or value.is_graph_output():
                    continue
                value.shape = None
                if dims(self.of(value).shape) == dims(shape):
                    value.shape = declared
                else:
                    pending.extend(dict.fromkeys(use.node for use in value.uses()))

    def drop(self, node: ir.Node) -> None:
        """Forget what a node computes, because it reads something else or has other attributes than before."""
        for value in node.outputs:
            self._table.pop(value, None)

    def is_made_up(self, dim: str) -> bool:
        """Tell whether a dim is known only by a symbol that inference made up, as the size of a NonZero."""
        return self._inference is not None and self._inference.is_made_up(dim)

    def forget(self) -> None:
        """Drop everything, because the model was edited behind the table's back."""
        self._table.clear()
        self._inference = None

    def _infer(self) -> None:
        from surgery.shapes.inference import Inference

        self._inference = Inference(self._model)
        self._table.update(self._inference.everything())

    def _extend(self, value: ir.Value) -> Fact:
        """Infer the node that makes a value, made after the model was inferred, and what it needs before it."""
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
