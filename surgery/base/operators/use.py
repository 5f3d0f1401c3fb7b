"""A model with inlined functions, indexed by the readers of its values, with shapes for one choice of dims."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.base.operators import traits
from surgery.base.operators.dtypes import Array
from surgery.base.operators.message_tensors import to_array
from surgery.base.operators.moving import CARRIES, RESHAPING, VARIADIC
from surgery.base.operators.subgraphs import BODIES, bodies

if TYPE_CHECKING:
    import onnx

Shape = tuple[int, ...]

_SMALL = 4096
"""Maximum number of elements of operands of computed constants."""

_COMPUTED: dict[str, tuple[int, Callable[..., Any]]] = {
    **dict.fromkeys(("Identity", "Cast", "CastLike", "Reshape", "Unsqueeze", "Squeeze", "Expand"), (1, np.asarray)),
    "Neg": (1, np.negative),
    "Reciprocal": (1, np.reciprocal),
    "Sqrt": (1, np.sqrt),
    "Add": (2, np.add),
    "Sub": (2, np.subtract),
    "Mul": (2, np.multiply),
    "Div": (2, lambda a, b: a // b if a.dtype.kind in "iu" else a / b),
}
"""Operators that are evaluated on constants: the number of operands that count, and the function."""


class Index:
    """Readers and small constants of all values of a model, including subgraphs. Names are unique in ONNX.

    `nodes` has every node with the number of enclosing loops, `operators` its operator, and `outputs` the names of its
    outputs.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.consumers: dict[str, list[tuple[onnx.NodeProto, int]]] = defaultdict(list)
        self.producers: dict[str, onnx.NodeProto] = {}
        self.aliases: dict[str, list[str]] = defaultdict(list)
        self.nodes: list[tuple[onnx.NodeProto, int]] = []
        self.operators: list[str] = []
        self.outputs: list[list[str]] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self.element_types = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
        self.element_types |= {tensor.name: tensor.data_type for tensor in model.graph.initializer}
        self.opset = next((item.version for item in model.opset_import if item.domain in ("", "ai.onnx")), 0)
        self._scan(model.graph, 0)

    def _scan(self, graph: onnx.GraphProto, depth: int) -> None:
        self.constants.update((tensor.name, tensor) for tensor in graph.initializer)
        for node in graph.node:
            outputs = list(node.output)
            self.nodes.append((node, depth))
            self.operators.append(node.op_type)
            self.outputs.append(outputs)
            for position, name in enumerate(node.input):
                if name:
                    self.consumers[name].append((node, position))
            for name in outputs:
                if name:
                    self.producers[name] = node
            for attribute in node.attribute:
                if attribute.name == "value" and attribute.HasField("t") and node.op_type == "Constant":
                    self.constants[node.output[0]] = attribute.t
                for body in bodies(attribute):
                    self._alias(node, body)
                    self._scan(body, depth + (node.op_type != "If"))

    def _alias(self, node: onnx.NodeProto, body: onnx.GraphProto) -> None:
        """Record the values that a node passes into a subgraph and out of it."""
        if node.op_type in BODIES:
            _, hidden = BODIES[node.op_type]
            for outer, inner in zip(node.input, body.input):
                self.aliases[outer].append(inner.name)
            for result, outer in zip(body.output[hidden:], node.output):
                self.aliases[result.name].append(outer)


@dataclass(frozen=True)
class TypedIndex:
    """The index with inferred shapes."""

    index: Index
    shapes: Mapping[str, Shape]

    def shape(self, name: str) -> Shape | None:
        """Return the shape of a value if all its dims are known numbers."""
        found = self.shapes.get(name)
        if found is not None:
            return found
        tensor = self.index.constants.get(name)
        return tuple(tensor.dims) if tensor is not None else None

    def constant(self, name: str, depth: int = 4) -> Array | None:
        """Return the elements of a constant that is stored in the model, or computed from stored ones in a few steps.

        The dtype is the one before any Cast, and the shape the one before any Reshape or Expand.
        """
        tensor = self.index.constants.get(name)
        if tensor is not None and not tensor.external_data:
            return to_array(tensor)
        node = self.index.producers.get(name)
        if node is None:
            return None
        if node.op_type in _COMPUTED and depth:
            count, function = _COMPUTED[node.op_type]
            operands: list[Array] = []
            for item in node.input[:count]:
                operand = self.constant(item, depth - 1)
                if operand is None or operand.size > _SMALL:
                    return None
                operands.append(operand)
            with np.errstate(all="ignore"), suppress(ValueError, TypeError):
                computed: Array = np.asarray(function(*operands))
                return computed
        if node.op_type != "Constant":
            return None
        for attribute in node.attribute:
            if attribute.name in ("value_int", "value_float", "value_ints", "value_floats"):
                import onnx.helper

                return np.asarray(onnx.helper.get_attribute_value(attribute))
        return None


@dataclass(frozen=True)
class InputUse:
    """One input of one node, and its elements as a function of those of a graph input: `scale * x + offset`.

    `offset` is an interval. `flat` says whether all elements arrive, in order.
    """

    view: TypedIndex
    node: onnx.NodeProto
    index: int
    scale: int = 1
    offset: tuple[int, int] = (0, 0)
    flat: bool = True

    @property
    def name(self) -> str:
        """The name of the value that is read."""
        return str(self.node.input[self.index])

    def has(self, index: int) -> bool:
        """Return whether the node has an input."""
        return index < len(self.node.input) and bool(self.node.input[index])

    def shape(self, index: int | None = None) -> Shape | None:
        """Return the shape of an input of the node, by default of this one."""
        index = self.index if index is None else index
        return self.view.shape(self.node.input[index]) if self.has(index) else None

    def out(self, index: int = 0) -> Shape | None:
        """Return the shape of an output of the node, if necessary from values downstream with the same shape."""
        if index >= len(self.node.output):
            return None
        name = self.node.output[index]
        for _ in range(_FURTHER):
            found = self.view.shape(name)
            readers = self.view.index.consumers.get(name, [])
            if found is not None or len(readers) != 1:
                return found
            reader, position = readers[0]
            if position or reader.op_type not in _SAME_SHAPE:
                return None
            name = reader.output[0]
        return None

    def constant(self, index: int) -> Array | None:
        """Return the elements of an input of the node if it is constant."""
        return self.view.constant(self.node.input[index]) if self.has(index) else None

    def integers(self, index: int) -> list[int] | None:
        """Return the elements of a constant input as integers."""
        found = self.constant(index)
        return None if found is None else [int(item) for item in found.reshape(-1)]

    def attr(self, name: str, default: Any = None) -> Any:
        """Return an attribute of the node."""
        import onnx.helper

        for attribute in self.node.attribute:
            if attribute.name == name:
                value = onnx.helper.get_attribute_value(attribute)
                return value.decode() if isinstance(value, bytes) else value
        return default

    def axis(self, default: int, rank: int) -> int:
        """Return the attribute `axis`, counted from the front."""
        axis = int(self.attr("axis", default))
        return axis + rank if axis < 0 else axis


_SAME_SHAPE = traits.UNARY_ELEMENTWISE | {"CastLike", "Softmax", "LogSoftmax"}
_FURTHER = 8
_IN_ORDER = RESHAPING | {"Cast", "CastLike"}


def uses(view: TypedIndex, name: str, limit: int = 2000) -> Iterator[InputUse]:
    """Yield the uses of the elements of a graph input, through copies, casts and arithmetic with constants."""
    pending: list[tuple[str, int, tuple[int, int], bool]] = [(name, 1, (0, 0), True)]
    seen: set[tuple[str, int, tuple[int, int]]] = set()
    while pending and len(seen) < limit:
        current, scale, offset, flat = pending.pop(0)
        if (current, scale, offset) in seen:
            continue
        seen.add((current, scale, offset))
        pending.extend((inner, scale, offset, flat) for inner in view.index.aliases.get(current, ()))
        for node, index in view.index.consumers.get(current, ()):
            use = InputUse(view, node, index, scale, offset, flat)
            yield use
            pending.extend(_onward(use))


def _onward(use: InputUse) -> Iterable[tuple[str, int, tuple[int, int], bool]]:
    """Return the outputs to which the elements are passed on, with their new scale, offset and flatness."""
    node, op = use.node, use.node.op_type
    if node.domain not in ("", "ai.onnx") or not node.output:
        return []
    scale, (low, high) = use.scale, use.offset
    if op in VARIADIC or use.index in CARRIES.get(op, ()):
        flat = use.flat and op in _IN_ORDER
        outputs = node.output if op == "Split" else node.output[:1]
        return [(output, scale, (low, high), flat) for output in outputs]
    if op in ("CumSum", "ReduceSum") and use.index == 0:
        size = max(use.shape() or (1,), default=1)
        return [(node.output[0], scale * size, (low * size, high * size), False)]
    if op == "Neg":
        return [(node.output[0], -scale, (-high, -low), use.flat)]
    return [] if op not in ("Add", "Sub", "Mul") or len(node.input) != 2 else _computed(use)


def single_number(constant: np.ndarray[Any, Any] | None) -> float | None:
    """Return the element of a constant if it is a single number."""
    if constant is None or constant.size != 1 or constant.dtype.kind not in "fiu":
        return None
    return float(constant.reshape(-1)[0])


def _computed(use: InputUse) -> list[tuple[str, int, tuple[int, int], bool]]:
    """Return the result of Add, Sub or Mul with a constant other operand, as in `_onward`."""
    node, op = use.node, use.node.op_type
    scale, (low, high) = use.scale, use.offset
    other = use.constant(1 - use.index)
    if other is None or other.size == 0 or other.dtype.kind not in "iu":
        return []
    least, greatest = int(other.min()), int(other.max())
    if op == "Add":
        return [(node.output[0], scale, (low + least, high + greatest), use.flat)]
    if op == "Mul":
        if least != greatest or least == 0:
            return []
        bounds = sorted((low * least, high * least))
        return [(node.output[0], scale * least, (bounds[0], bounds[1]), use.flat)]
    if use.index == 0:
        return [(node.output[0], scale, (low - greatest, high - least), use.flat)]
    return [(node.output[0], -scale, (least - high, greatest - low), use.flat)]
