"""Value and Node: what a pass sees of the onnx-ir objects. Reading only; `Graph` changes things.

A view is a pair (graph, object below); two views of the same object are equal.
"""

from __future__ import annotations

import math
from collections.abc import MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir

from surgery.graph import lineage
from surgery.graph.lineage import Lineage
from surgery.operators import ranges, traits
from surgery.operators.forms import key_of
from surgery.shapes.facts import Dim, dims, symbolic
from surgery.storage.constants import constant_of
from surgery.storage.scopes import subgraphs

if TYPE_CHECKING:
    from surgery.graph.state import GraphState


class Refusal(Exception):  # noqa: N818 - not an error: a pass that declines, with the reason
    """A rewrite declines to fire; the reason is a fact that the user can ask for."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


_EXACTLY_COMMUTATIVE = traits.COMMUTATIVE - {"Max", "Min"}
_MOST_VALUES, _DEPTH = 1000, 16
"""How many values are followed downstream to see where the sign of a zero shows, and how deep upstream."""

_GRAPHS = (onnx_ir.AttributeType.GRAPH, onnx_ir.AttributeType.GRAPHS)


class _View:
    """Identity of a view: the object below it."""

    __slots__ = ("graph", "ir")

    graph: GraphState
    ir: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _View) and other.ir is self.ir

    def __hash__(self) -> int:
        return id(self.ir)

    @property
    def metadata(self) -> MutableMapping[str, str]:
        """The metadata that go into the file with it."""
        raise NotImplementedError

    @property
    def lineage(self) -> Lineage | None:
        """Which passes made it, and of which nodes of the original; None for what is of the original itself."""
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
        """The metadata of the tensor of an initializer; of what a node computes, those of the node tell."""
        return {} if self.ir.const_value is None else self.ir.const_value.metadata_props

    @property
    def type(self) -> onnx_ir.TypeProtocol | None:
        """The type, declared or inferred."""
        return self.ir.type if self.ir.type is not None else self.graph.facts.of(self.ir).type

    @property
    def dtype(self) -> onnx_ir.DataType | None:
        """The element type of a tensor; None for other types and when nothing is known."""
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
        """The number of dims, when known."""
        shape = self.shape
        return None if shape is None else len(shape)

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The dims when each is a number, else None."""
        shape = self.shape
        if shape is None or not all(isinstance(dim, int) for dim in shape):
            return None
        return tuple(dim for dim in shape if isinstance(dim, int))

    @property
    def size(self) -> int | None:
        """The number of elements when the shape is static."""
        shape = self.static_shape
        return None if shape is None else int(np.prod(shape, dtype=np.int64))

    @property
    def tensor(self) -> onnx_ir.TensorProtocol | None:
        """The constant tensor, its elements unread: of an initializer that no caller can override, or a Constant."""
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
        """The one element of a constant of one element as a Python number, else None."""
        tensor = self.tensor
        if tensor is None or tensor.size != 1 or tensor.dtype == onnx_ir.DataType.STRING:
            return None
        return tensor.numpy().reshape(-1)[0].item()

    @property
    def elements(self) -> tuple[int | str, ...] | None:
        """The elements of a small integer tensor, each a number or a symbolic expression, when known."""
        tensor = self.tensor
        if tensor is not None and tensor.dtype.is_integer() and tensor.size <= 1024:
            return tuple(int(item) for item in tensor.numpy().reshape(-1))
        return self.graph.facts.of(self.ir).data

    @property
    def scope(self) -> onnx_ir.Graph | None:
        """The graph that it belongs to."""
        return self.ir.graph

    @property
    def held(self) -> onnx_ir.TensorProtocol | None:
        """The tensor of an initializer, which is only a default where a caller can override it."""
        return self.ir.const_value

    @property
    def declared_shape(self) -> onnx_ir.Shape | None:
        """The shape that the model declares."""
        return self.ir.shape

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
        """Whether it is an initializer that a caller may replace, so not a constant.

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
        """Whether something divides by it, or by what is computed from it with the sign of its zeros kept."""
        return _shows_sign(self)

    @property
    def is_magnified_near_zero(self) -> bool:
        """Whether something divides by it or takes its logarithm, which magnifies small errors of small numbers."""
        return _shows_sign(self, logarithms=True)

    @property
    def is_never_minus_zero(self) -> bool:
        """Whether it surely holds no -0.0: an integer, and what is computed from nothing below 0.0."""
        return _is_never_minus_zero(self)

    @property
    def output_index(self) -> int | None:
        """The position among the outputs of its producer."""
        return self.ir.index()

    @property
    def consumers(self) -> list[Node]:
        """The nodes that read it, those in subgraphs included, each once."""
        return [Node(self.graph, node) for node in dict.fromkeys(use.node for use in self.ir.uses())]

    @property
    def reads(self) -> int:
        """How many inputs of nodes it is, in subgraphs too."""
        return len(self.ir._uses)  # `uses()` would copy a long list

    @property
    def is_used(self) -> bool:
        """Whether anything reads it: a node, a subgraph, the caller."""
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
        """How to speak of the node: its name, or what it computes."""
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
        """What the operator or function is found by: domain, name, overload."""
        return self.ir.op_identifier()

    @property
    def attributes(self) -> Any:
        """The attributes as onnx-ir has them, by name; see `attr` for their values."""
        return self.ir.attributes

    @property
    def subgraphs(self) -> Sequence[onnx_ir.Graph]:
        """The graphs that its attributes hold."""
        return subgraphs(self.ir)

    @property
    def is_removed(self) -> bool:
        """Whether it stands in no graph any more."""
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
        """Return an input, None when it is omitted or absent."""
        if index >= len(self.ir.inputs):
            return None
        value = self.ir.inputs[index]
        return None if value is None else Value(self.graph, value)

    def required_input(self, index: int) -> Value:
        """Return an input that the operator cannot do without; refuse when it is absent all the same."""
        value = self.input(index)
        if value is None:
            raise Refusal(f"{self.op} has no input {index}")
        return value

    @property
    def opset(self) -> int:
        """The opset version that the node's operator is taken from, 0 when its domain is not imported."""
        return self.graph.opset_of(self.ir)

    def has_attr(self, name: str) -> bool:
        """Return whether the attribute is given."""
        return name in self.ir.attributes

    def attr(self, name: str, default: Any = None) -> Any:
        """Return an attribute as a Python value, else the schema's default, else `default`.

        Refuses inside a function when the attribute is a parameter of the function, for its value is not known.
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
        """Whether an attribute holds a graph."""
        return any(attribute.type in _GRAPHS for attribute in self.ir.attributes.data.values())

    @property
    def is_random(self) -> bool:
        """Whether two runs may differ: by the operator, in a subgraph of the node, in the function that it calls."""
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
        """Whether it maps each element of its first input by itself; other inputs, if any, are single numbers."""
        if self.ir.domain:
            return self.op in traits.CONTRIB_UNARY and len(self.ir.inputs) == 1
        return self.ir.op_type in traits.UNARY_ELEMENTWISE

    @property
    def is_broadcasting(self) -> bool:
        """Whether it combines the elements of all its inputs after broadcasting, as its opset has it."""
        if self.ir.domain or self.ir.op_type not in traits.BROADCASTING:
            return False
        return self.opset >= (7 if self.ir.op_type in traits.BINARY_ELEMENTWISE else 8)

    @property
    def commutes(self) -> bool:
        """Whether exchanging the inputs, when there are two, changes no bit of the result.

        Of 0.0 and -0.0, which are equal, ONNX Runtime's Max and Min give the second.
        """
        return not self.ir.domain and self.ir.op_type in _EXACTLY_COMMUTATIVE

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The bounds that Clip or Relu moves elements to, infinite where there is none; None when one is not constant.

        Until opset 10 those of Clip are attributes, and the numbers of the largest size are no bounds.
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
        """The graph that the node stands in."""
        graph = self.ir.graph
        if graph is None:
            raise Refusal(f"{self.label} was removed from the graph")
        return graph


def _shows_sign(value: Value, logarithms: bool = False) -> bool:
    """Return whether something divides by a value, or by what is computed from it with the sign of a zero kept.

    Graph outputs do not count: 0.0 and -0.0 are equal there. With `logarithms` those count too, which have no sign of a
    zero, but magnify what is close to it as much.
    """
    pending, seen = [value], {value}
    while pending and len(seen) < _MOST_VALUES:
        current = pending.pop()
        for reader in current.consumers:
            if reader.ir.domain not in ("", "ai.onnx"):
                continue
            if _divides(reader, current) or (logarithms and reader.op == "Log"):
                return True
            if reader.op in ranges.KEEPING:
                pending += [output for output in reader.outputs if output not in seen]
                seen.update(reader.outputs)
    return False


def _divides(reader: Node, value: Value) -> bool:
    if reader.op == "Pow" and reader.input(0) == value:
        exponent = reader.required_input(1).constant
        return exponent is None or bool((exponent < 0).any())
    return reader.op == "Reciprocal" or (reader.op == "Div" and reader.input(1) == value)


def _is_never_minus_zero(value: Value, depth: int = _DEPTH) -> bool:
    """Return whether a value surely has no -0.0, since nothing that it is computed from is below 0.0."""
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
    # The other inputs of what moves elements are shapes and places.
    data = [each for each in node.inputs if each is not None and not _holds_integers(each)]
    return bool(data) and all(_is_never_minus_zero(each, depth - 1) for each in data)


def _holds_integers(value: Value) -> bool:
    return value.dtype is not None and value.dtype.is_integer()


def _has_minus_zero(array: object) -> bool:
    elements = np.asarray(array)
    return elements.dtype.kind == "f" and bool(np.signbit(elements[elements == 0]).any())
