"""A model while it is made wrong: what a careless pass would use to look around and to edit."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

T = TypeVar("T")
Type = tuple[int, tuple[int | str | None, ...] | None]
FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)


class Unfit(Exception):  # noqa: N818 - says that a kind has nothing to do in a model, no error
    """The model has no place for this kind of rewrite."""


class Draft:
    """A copy of a model, with tables of its names, types and constants, and a seeded choice of places."""

    def __init__(self, model: onnx.ModelProto, types: dict[str, Type], seed: int, *salt: str) -> None:
        self.model = onnx.ModelProto()
        self.model.CopyFrom(model)
        self.graph = self.model.graph
        self.types = types
        self.rng = np.random.default_rng([seed, *(zlib.crc32(word.encode()) for word in salt)])
        self._tensors = {tensor.name: tensor for tensor in self.graph.initializer}
        self._given = {value.name for value in self.graph.input}
        self._constants = {
            node.output[0]: node.attribute[0].t
            for node in self.graph.node
            if node.op_type == "Constant" and node.attribute[0].type == onnx.AttributeProto.TENSOR
        }
        self._fresh = 0

    @property
    def opset(self) -> int:
        return next((item.version for item in self.model.opset_import if item.domain in ("", "ai.onnx")), 1)

    def nodes(self, *ops: str) -> list[NodeProto]:
        return [node for node in self.graph.node if not ops or (node.op_type in ops and not node.domain)]

    def producer(self, name: str) -> NodeProto | None:
        return next((node for node in self.graph.node if name and name in node.output), None)

    def users(self, name: str) -> list[NodeProto]:
        return [node for node in self.graph.node if name in node.input]

    def dtype(self, name: str) -> int:
        return self.types.get(name, (0, None))[0]

    def shape(self, name: str) -> tuple[int | str | None, ...] | None:
        return self.types.get(name, (0, None))[1]

    def alike(self, first: str, second: str) -> bool:
        """Whether two values have the same known type and shape."""
        one, other = self.types.get(first), self.types.get(second)
        return one == other and one is not None and one[1] is not None

    # Constants

    def constant(self, name: str) -> np.ndarray | None:
        tensor = self._constants.get(name)
        if tensor is None and name not in self._given:
            tensor = self._tensors.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def constants(self) -> list[str]:
        """List the constants of the main graph that something reads, in the order of their first use."""
        read = dict.fromkeys(name for node in self.graph.node for name in node.input)
        return [name for name in read if name in self._constants or name in self._tensors.keys() - self._given]

    def weights(self, least: int = 16, rank: int = 1) -> list[str]:
        """List the float constants of at least `least` elements and this rank."""
        found = []
        for name in self.constants():
            tensor = self._constants.get(name) or self._tensors[name]
            if tensor.data_type in FLOATS and len(tensor.dims) >= rank and np.prod(tensor.dims) >= least:
                found.append(name)
        return found

    def set_constant(self, name: str, value: np.ndarray) -> None:
        tensor = self._constants[name] if name in self._constants else self._tensors[name]
        tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(value), tensor.name))

    def add_constant(self, value: np.ndarray) -> str:
        name = self.fresh("constant")
        self.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    # Edits

    def choose(self, items: Iterable[T]) -> T:
        listed = list(items)
        if not listed:
            raise Unfit
        return listed[int(self.rng.integers(len(listed)))]

    def fresh(self, wish: str) -> str:
        self._fresh += 1
        return f"mutant_{wish}_{self._fresh}"

    def insert(self, position: int, *nodes: NodeProto) -> None:
        for offset, node in enumerate(nodes):
            self.graph.node.insert(position + offset, node)

    def place(self, node: NodeProto) -> int:
        """Return the position of a node, found by its outputs."""
        return next(i for i, other in enumerate(self.graph.node) if other.output == node.output)

    def before(self, node: NodeProto, slot: int, op: str, *more: str, **attributes: Any) -> None:
        """Put an operator into one input of a node: `op(value, *more)`."""
        made = self.fresh(op)
        name = node.input[slot]
        node.input[slot] = made
        self.insert(self.place(node), helper.make_node(op, [name, *more], [made], **attributes))

    def after(self, node: NodeProto, slot: int, op: str, *more: str, **attributes: Any) -> None:
        """Let all readers of an output read `op(output, *more)`; the name stays with the result."""
        name = node.output[slot]
        inner = self.fresh("inner")
        place = self.place(node)
        node.output[slot] = inner
        self.insert(place + 1, helper.make_node(op, [inner, *more], [name], **attributes))

    def bypass(self, node: NodeProto, slot: int = 0) -> None:
        """Let all readers of the first output read an input instead."""
        source, place = node.input[slot], self.place(node)
        # The name may be a graph output or be read in a subgraph.
        self.graph.node[place].CopyFrom(helper.make_node("Identity", [source], [node.output[0]]))

    def output_names(self) -> list[str]:
        return [output.name for output in self.graph.output]


def attribute(node: NodeProto, name: str, default: Any = None) -> Any:
    for item in node.attribute:
        if item.name == name:
            return helper.get_attribute_value(item)
    return default


def set_attribute(node: NodeProto, name: str, value: Any) -> None:
    drop_attribute(node, name)
    node.attribute.append(helper.make_attribute(name, value))


def drop_attribute(node: NodeProto, name: str) -> None:
    kept = [item for item in node.attribute if item.name != name]
    del node.attribute[:]
    node.attribute.extend(kept)


def infer(model: onnx.ModelProto) -> dict[str, Type]:
    """Return the types and shapes of the values of the main graph, as far as inference knows them."""
    with contextlib.suppress(Exception):
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    graph = model.graph
    types = {tensor.name: (tensor.data_type, tuple(tensor.dims)) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.HasField("tensor_type"):
            kind = value.type.tensor_type
            types[value.name] = (kind.elem_type, _dims(kind) if kind.HasField("shape") else None)
    return types


def _dims(kind: onnx.TypeProto.Tensor) -> tuple[int | str | None, ...]:
    return tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in kind.shape.dim)


def bodies(nodes: Iterable[NodeProto]) -> Iterator[onnx.GraphProto]:
    """Yield the subgraphs of nodes, one level deep."""
    for node in nodes:
        for item in node.attribute:
            if item.type == onnx.AttributeProto.GRAPH:
                yield item.g


def pairs(items: Sequence[T]) -> list[tuple[T, T]]:
    return [(a, b) for i, a in enumerate(items) for b in items[i + 1 :]]
