"""The shapes to which matrices are reshaped at the end of a region."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from surgery import Builder, Graph, Node, Refusal, Value

from ._rows import Dims


def is_explicit(reshape: Node) -> bool:
    """Return whether the result shape of a Reshape depends only on its shape input and the number of elements."""
    shape = reshape.required_input(1)
    elements = shape.elements or (0,)
    if shape.is_constant:
        return 0 not in elements
    # -1 is ambiguous in combination with an extent that happens to be 0.
    return reshape.opset >= 14 and bool(reshape.attr("allowzero")) and not {0, -1} & set(elements)


class Targets:
    """Creates shapes, each once: constants if at most one dim is dynamic, else computed.

    Dynamic dims are read from the graph inputs and from `first`, the value at the start of the region. The nodes are
    placed before the node `anchor`.
    """

    def __init__(self, graph: Graph, anchor: Node, first: Value, new: Builder) -> None:
        self.new = new
        self.opset = anchor.opset
        inputs = [] if graph.in_function(anchor) else [Value(graph, value) for value in graph.main.inputs]
        self.sources = [(value, value.shape) for value in (*inputs, first)]
        self.made = 0
        self._values: dict[object, Value] = {}

    def constant(self, elements: Dims, kind: DTypeLike = np.int64, name: str = "shape") -> Value:
        """Return a constant with these elements."""
        key = (np.dtype(kind).str, elements)
        if key not in self._values:
            self._values[key] = self.new.constant(np.array(elements, kind), name)
        return self._values[key]

    def of(self, value: Value) -> tuple[Value, int | None]:
        """Return the shape of a value, and the `allowzero` of the Reshape that reads it."""
        dims = tuple(dim for dim in value.shape or () if dim is not None and dim != 0)
        self.new.require(value.rank is not None and len(dims) == value.rank, "the shape at the border is not known")
        dynamic = sum(isinstance(dim, str) for dim in dims)
        if dynamic <= 1:
            return self.constant(tuple(-1 if isinstance(dim, str) else dim for dim in dims)), None
        self.new.require(self.opset >= 15, "before opset 15 Shape gives all dims at once")
        # Without allowzero an extent that happens to be 0 would mean a dim to copy.
        return self._computed(dims), 1

    def _computed(self, dims: Dims) -> Value:
        if dims in self._values:
            return self._values[dims]
        parts, position = [], 0
        while position < len(dims):
            end = position + 1
            if isinstance(dims[position], int):
                while end < len(dims) and isinstance(dims[end], int):
                    end += 1
                parts.append(self.constant(dims[position:end]))
            else:
                part, length = self._read(dims[position:])
                parts.append(part)
                end = position + length
            position = end
        self._values[dims] = parts[0] if len(parts) == 1 else self._node("Concat", *parts, axis=0)
        return self._values[dims]

    def _read(self, dims: Dims) -> tuple[Value, int]:
        """Read dims from a source, as many of the first ones as are adjacent there; return them and their number."""
        for length in range(len(dims), 0, -1):
            for source, shape in self.sources:
                for start in range(len(shape or ())):
                    if shape and shape[start : start + length] == dims[:length]:
                        return self._slice(source, start, start + length), length
        raise Refusal("a dim at the border is neither in a graph input nor at the start of the region")

    def _slice(self, source: Value, start: int, end: int) -> Value:
        key = (source, start, end)
        if key not in self._values:
            self._values[key] = self._node("Shape", source, start=start, end=end)
        return self._values[key]

    def _node(self, op: str, *inputs: Value, **attributes: int) -> Value:
        self.made += 1
        return self.new.node(op, *inputs, attributes=attributes)
