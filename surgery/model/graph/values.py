"""Value and Node: read-only views of the onnx-ir objects for passes. `Graph` makes changes.

A view is a pair (graph, underlying object); two views of the same object are equal.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir

from surgery.base.operators import ranges, traits
from surgery.base.operators.forms import key_of
from surgery.base.operators.moving import REARRANGING
from surgery.model.proto import lineage
from surgery.model.proto.lineage import Lineage
from surgery.model.shapes.facts import Dim, dims, symbolic
from surgery.model.storage.ir_scopes import subgraphs
from surgery.model.storage.node_constants import constant_of

if TYPE_CHECKING:
    from surgery.model.graph.state import GraphState


class Refusal(Exception):  # noqa: N818 - not an error: a refusal of a pass, with the reason
    """A rewrite is refused at a site; the reason is a fact that the user can query."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        """The fact, as a report shows it."""


_EXACTLY_COMMUTATIVE = traits.COMMUTATIVE - {"Max", "Min"}
_MOST_VALUES, _DEPTH = 1000, 16
"""Limits of the analysis of signs of zeros: the number of values followed downstream, and the depth upstream."""

_GRAPHS = (onnx_ir.AttributeType.GRAPH, onnx_ir.AttributeType.GRAPHS)


class _View:
    """Base of views, with the identity of the underlying object."""

    __slots__ = ("graph", "ir")

    graph: GraphState
    """The graph that it belongs to."""
    ir: Any
    """The underlying onnx-ir object."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _View) and other.ir is self.ir

    def __hash__(self) -> int:
        return id(self.ir)

    @property
    def metadata(self) -> MutableMapping[str, str]:
        """The metadata that is saved with the object."""
        raise NotImplementedError

    @property
    def lineage(self) -> Lineage | None:
        """The passes that created it, and the original nodes that it comes from; None for an original object."""
        return lineage.read(self.metadata)


class Value(_View):
    """A tensor (or sequence, or optional) in the graph."""

    __slots__ = ()

    ir: onnx_ir.Value

    def __init__(self, graph: GraphState, value: onnx_ir.Value) -> None:
        self.graph = graph
        self.ir = value

    def __repr__(self) -> str:
        return f"Value({self.name})"

    @property
    def name(self) -> str:
        """The name of the value."""
        return self.ir.name or ""

    @property
    def metadata(self) -> MutableMapping[str, str]:
        """The metadata of the tensor of an initializer, or of the producer of a computed value."""
        return {} if self.ir.const_value is None else self.ir.const_value.metadata_props

    @property
    def type(self) -> onnx_ir.TypeProtocol | None:
        """The type, declared or inferred."""
        return self.ir.type if self.ir.type is not None else self.graph.facts.of(self.ir).type

    @property
    def dtype(self) -> onnx_ir.DataType | None:
        """The element type of a tensor; None for other types and if unknown."""
        kind = self.type
        return kind.dtype if isinstance(kind, onnx_ir.TensorType) else None

    @property
    def shape(self) -> tuple[Dim, ...] | None:
        """The dims, inferred ones included: an int, a symbolic expression, or None."""
        tensor = self.ir.const_value
        if tensor is not None and self.ir.is_initializer() and not self.is_overridable:
            return tuple(tensor.shape.numpy())
        found = self.graph.facts.of(self.ir).shape
        return dims(found if found is not None else symbolic(self.ir.shape))

    @property
    def rank(self) -> int | None:
        """The number of dims, if known."""
        shape = self.shape
        return None if shape is None else len(shape)

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The dims if all are numbers, else None."""
        shape = self.shape
        if shape is None or not all(isinstance(dim, int) for dim in shape):
            return None
        return tuple(dim for dim in shape if isinstance(dim, int))

    @property
    def size(self) -> int | None:
        """The number of elements if the shape is static."""
        shape = self.static_shape
        return None if shape is None else int(np.prod(shape, dtype=np.int64))

    @property
    def tensor(self) -> onnx_ir.TensorProtocol | None:
        """The constant tensor, without reading its elements: of a non-overridable initializer, or a Constant."""
        return None if self.is_overridable else constant_of(self.ir)

    @property
    def is_constant(self) -> bool:
        """Whether the value is the same in every run."""
        return self.tensor is not None

    @property
    def constant(self) -> np.ndarray[Any, Any] | None:
        """The elements of a constant (a mapped, read-only array for large weights), else None."""
        tensor = self.tensor
        return None if tensor is None else tensor.numpy()

    @property
    def scalar(self) -> Any:
        """The value of a constant with one element as a Python number, else None."""
        tensor = self.tensor
        if tensor is None or tensor.size != 1 or tensor.dtype == onnx_ir.DataType.STRING:
            return None
        return tensor.numpy().reshape(-1)[0].item()

    @property
    def elements(self) -> tuple[int | str, ...] | None:
        """The elements of a small integer tensor, each a number or a symbolic expression, if known."""
        tensor = self.tensor
        if tensor is not None and tensor.dtype.is_integer() and tensor.size <= 1024:
            return tuple(int(item) for item in tensor.numpy().reshape(-1))
        return self.graph.facts.of(self.ir).data

    @property
    def scope(self) -> onnx_ir.Graph | None:
        """The graph that contains it."""
        return self.ir.graph

    @property
    def held(self) -> onnx_ir.TensorProtocol | None:
        """The tensor of an initializer, which is only a default if it is overridable."""
        return self.ir.const_value

    @property
    def declared_dims(self) -> tuple[int | str | None, ...] | None:
        """The dims that the model declares, None for one without a name; None without a shape."""
        shape = self.ir.shape
        return None if shape is None else tuple(dim if isinstance(dim, int) else dim.value for dim in shape)

    @property
    def is_initializer(self) -> bool:
        """Whether it is an initializer of its graph."""
        return self.ir.is_initializer()

    @property
    def is_input(self) -> bool:
        """Whether it is an input of its graph (the main graph, a subgraph or a function)."""
        return self.ir.is_graph_input()

    @property
    def is_output(self) -> bool:
        """Whether it is an output of its graph."""
        return self.ir.is_graph_output()

    @property
    def is_overridable(self) -> bool:
        """Whether it is an overridable initializer, and so not a constant.

        Since IR version 4 an initializer that is also a graph input is only a default; before it, each initializer
        had to be listed as an input and runtimes treat it as a constant.
        """
        return self.ir.is_initializer() and self.ir.is_graph_input() and self.graph.ir.ir_version >= 4

    @property
    def producer(self) -> Node | None:
        """The node that computes it; None for inputs and initializers."""
        node = self.ir.producer()
        return None if node is None else Node(self.graph, node)

    @property
    def shows_sign_of_zero(self) -> bool:
        """Whether a consumer divides by it, or by a value computed from it that keeps the sign of its zeros.

        Graph outputs do not count: 0.0 and -0.0 are equal there.
        """
        return any(_divides(reader, read) for read, reader in _readers(self, ranges.KEEPING))

    @property
    def is_magnified_near_zero(self) -> bool:
        """Whether a consumer divides by it or takes its logarithm, which magnifies errors of small numbers."""
        readers = _readers(self, ranges.KEEPING)
        return any(_divides(reader, read) or reader.op == "Log" for read, reader in readers)

    @property
    def is_returned(self) -> bool:
        """Whether the caller reads its elements: it is a graph output, or is rearranged into one."""
        rearranging = (reader for _, reader in _readers(self, REARRANGING) if reader.op in REARRANGING)
        return self.is_output or any(output.is_output for reader in rearranging for output in reader.outputs)

    @property
    def is_never_minus_zero(self) -> bool:
        """Whether it provably contains no -0.0: integers, and values computed from non-negative ones."""
        return _is_never_minus_zero(self)

    @property
    def output_index(self) -> int | None:
        """The position among the outputs of its producer."""
        return self.ir.index()

    @property
    def consumers(self) -> list[Node]:
        """The nodes that read it, including those in subgraphs, each once."""
        return [Node(self.graph, node) for node in dict.fromkeys(use.node for use in self.ir.uses())]

    @property
    def reads(self) -> int:
        """The number of node inputs that read it, including those in subgraphs."""
        return len(self.ir._uses)  # `uses()` would copy a long list

    @property
    def is_used(self) -> bool:
        """Whether it has any reader: a node, a subgraph, or the caller."""
        return self.is_output or bool(self.ir._uses)


class Node(_View):
    """An operator call in the graph."""

    __slots__ = ()

    ir: onnx_ir.Node

    def __init__(self, graph: GraphState, node: onnx_ir.Node) -> None:
        self.graph = graph
        self.ir = node

    def __repr__(self) -> str:
        return f"Node({self.label})"

    @property
    def name(self) -> str:
        """The name of the node; may be empty."""
        return self.ir.name or ""

    @property
    def label(self) -> str:
        """The label of the node in messages: its name, or its output."""
        if self.name:
            return self.name
        outputs = ", ".join(value.name or "" for value in self.ir.outputs)
        return f"{self.ir.op_type} -> {outputs}"

    @property
    def metadata(self) -> MutableMapping[str, str]:
        """The metadata of the node."""
        return self.ir.metadata_props

    @property
    def op(self) -> str:
        """The operator: "Conv", or "com.microsoft::FusedConv" outside the default domain."""
        return f"{self.ir.domain}::{self.ir.op_type}" if self.ir.domain else self.ir.op_type

    @property
    def domain(self) -> str:
        """The domain of the operator; empty for the default one."""
        return self.ir.domain

    @property
    def identifier(self) -> onnx_ir.OperatorIdentifier:
        """The identifier of the operator or function: domain, name, overload."""
        return self.ir.op_identifier()

    @property
    def attributes(self) -> Any:
        """The onnx-ir attributes by name; see `attr` for their values."""
        return self.ir.attributes

    @property
    def subgraphs(self) -> Sequence[onnx_ir.Graph]:
        """The graphs in its attributes."""
        return subgraphs(self.ir)

    @property
    def is_removed(self) -> bool:
        """Whether it has been removed from its graph."""
        return self.ir.graph is None

    @property
    def inputs(self) -> list[Value | None]:
        """The inputs; an omitted optional input is None."""
        return [None if value is None else Value(self.graph, value) for value in self.ir.inputs]

    @property
    def outputs(self) -> list[Value]:
        """The outputs; an omitted one has the empty name."""
        return [Value(self.graph, value) for value in self.ir.outputs]

    def input(self, index: int) -> Value | None:
        """Return an input; None if it is omitted or absent."""
        if index >= len(self.ir.inputs):
            return None
        value = self.ir.inputs[index]
        return None if value is None else Value(self.graph, value)

    def required_input(self, index: int) -> Value:
        """Return a required input; refuse if it is absent."""
        value = self.input(index)
        if value is None:
            raise Refusal(f"{self.op} has no input {index}")
        return value

    @property
    def opset(self) -> int:
        """The opset version of the node's domain; 0 if the domain is not imported."""
        return self.graph.opset_of(self.ir)

    def has_attr(self, name: str) -> bool:
        """Return whether the attribute is set."""
        return name in self.ir.attributes

    def attr(self, name: str, default: Any = None) -> Any:
        """Return an attribute as a Python value, else the schema's default, else `default`.

        Refuses inside a function if the attribute is a parameter of the function, because its value is unknown.
        """
        attribute = self.ir.attributes.get(name)
        if attribute is None:
            if default is not None:
                return default
            return traits.attribute_default(self.ir.op_type, self.opset, name, self.ir.domain)
        if attribute.is_ref():
            raise Refusal(f"attribute {name} is a parameter of the function")
        value = attribute.value
        return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value

    @property
    def has_subgraphs(self) -> bool:
        """Whether an attribute contains a graph."""
        return any(attribute.type in _GRAPHS for attribute in self.ir.attributes.data.values())

    @property
    def is_random(self) -> bool:
        """Whether two runs may differ, because of the operator, a subgraph, or the called function."""
        pending = [self]
        called: set[object] = set()
        while pending:
            node = pending.pop()
            if key_of(node.ir.domain, node.ir.op_type) in traits.RANDOM or (not node.ir.domain and node._may_drop()):
                return True
            bodies = list(subgraphs(node.ir))
            function = self.graph.ir.functions.get(node.ir.op_identifier())
            if function is not None and node.ir.op_identifier() not in called:
                called.add(node.ir.op_identifier())
                bodies.append(function.graph)
            pending.extend(Node(self.graph, inner) for body in bodies for inner in body)
        return False

    @property
    def is_unary(self) -> bool:
        """Whether it maps each element of its first input independently; other inputs, if any, are scalars."""
        if self.ir.domain:
            return self.op in traits.CONTRIB_UNARY and len(self.ir.inputs) == 1
        return self.ir.op_type in traits.UNARY_ELEMENTWISE

    @property
    def is_broadcasting(self) -> bool:
        """Whether it combines the elements of all its inputs after broadcasting, according to its opset."""
        if self.ir.domain or self.ir.op_type not in traits.BROADCASTING:
            return False
        return self.opset >= (7 if self.ir.op_type in traits.BINARY_ELEMENTWISE else 8)

    @property
    def commutes(self) -> bool:
        """Whether swapping its two inputs gives a bit-identical result.

        Of 0.0 and -0.0, which are equal, ONNX Runtime's Max and Min give the second.
        """
        return not self.ir.domain and self.ir.op_type in _EXACTLY_COMMUTATIVE

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The bounds of Clip or Relu, infinite if missing; None if one is not constant.

        Until opset 10, the bounds of Clip are attributes, and the numbers of largest magnitude mean no bound.
        """
        if self.op == "Relu":
            return 0.0, math.inf
        if self.op != "Clip":
            return None
        if self.opset < 11:
            low, high = self.attr("min", -math.inf), self.attr("max", math.inf)
            largest = float(np.finfo(np.float32).max)
            return (-math.inf if low <= -largest else low), (math.inf if high >= largest else high)
        given = (self.input(1), -math.inf), (self.input(2), math.inf)
        low, high = (default if bound is None else bound.scalar for bound, default in given)
        return None if low is None or high is None else (low, high)

    def _may_drop(self) -> bool:
        """Return whether this is a Dropout in training mode, or in a mode that is not known.

        The mode is the attribute is_test before opset 7, and the third input since opset 12.
        """
        if self.ir.op_type != "Dropout":
            return False
        if self.opset < 7:
            test = self.ir.attributes.get("is_test")
            return test is None or test.is_ref() or not test.value
        mode = self.input(2)
        return mode is not None and mode.scalar is not False

    @property
    def scope(self) -> onnx_ir.Graph:
        """The graph that contains the node."""
        graph = self.ir.graph
        if graph is None:
            raise Refusal(f"{self.label} was removed from the graph")
        return graph


def _readers(value: Value, operators: Container[str]) -> Iterator[tuple[Value, Node]]:
    """Yield what standard operators read of a value, and of values that `operators` compute from it, up to a limit."""
    pending, seen = [value], {value}
    while pending and len(seen) < _MOST_VALUES:
        current = pending.pop()
        for reader in current.consumers:
            if reader.ir.domain in ("", "ai.onnx"):
                yield current, reader
                if reader.op in operators:
                    pending += [output for output in reader.outputs if output not in seen]
                    seen.update(reader.outputs)


def _divides(reader: Node, value: Value) -> bool:
    if reader.op == "Pow" and reader.input(0) == value:
        exponent = reader.required_input(1).constant
        return exponent is None or bool((exponent < 0).any())
    return reader.op == "Reciprocal" or (reader.op == "Div" and reader.input(1) == value)


def _is_never_minus_zero(value: Value, depth: int = _DEPTH) -> bool:
    """Return whether a value provably contains no -0.0, because it is computed from non-negative values."""
    if value.dtype is not None and not value.dtype.is_floating_point():
        return True
    array = value.constant if value.is_constant else None
    if array is not None:
        return array.dtype.kind in "biuf" and not (array < 0).any() and not _has_minus_zero(array)
    node = value.producer
    if node is None or node.ir.domain not in ("", "ai.onnx") or not depth:
        return False
    if node.op in ranges.NOT_BELOW:
        return True
    if node.op == "Mul" and node.input(0) == node.input(1):
        return True
    if node.op == "Pow":
        exponent = node.required_input(1).constant
        return exponent is not None and bool((exponent % 2 == 0).all())
    if node.op not in ranges.KEEPING_ABOVE:
        return False
    # The other inputs of operators that move elements are shapes and indices.
    data = [each for each in node.inputs if each is not None and (each.dtype is None or not each.dtype.is_integer())]
    return bool(data) and all(_is_never_minus_zero(each, depth - 1) for each in data)


def _has_minus_zero(array: object) -> bool:
    elements = np.asarray(array)
    return elements.dtype.kind == "f" and bool(np.signbit(elements[elements == 0]).any())
