"""Layers: operators whose result is linear in constants, so that they can absorb a factor and a shift after them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from surgery import Builder, Node, Refusal, Value

from ._shared import (
    ROUNDOFF,
    SMALL,
    Array,
    as_weight,
    batch_norm_affine,
    by_channel,
    fit,
    fit_each,
    own_constant,
    require_inference,
    wide,
)

CONVOLUTIONS = ("Conv", "ConvTranspose")
CHANNELS_SECOND = (*CONVOLUTIONS, "BatchNormalization", "GroupNormalization", "InstanceNormalization")
"""Operators whose results have their channels along axis 1."""
CHANNELS_LAST = ("Gemm", "LayerNormalization", "MatMul", "RMSNormalization")
NO_BIAS = ("MatMul", "RMSNormalization")
ELEMENTWISE = ("Add", "Div", "Mul", "Neg", "Sub")


@dataclass(frozen=True)
class Affine:
    """The effect of a node on its only computed input: y = factor·x + shift, broadcast from the last axis."""

    node: Node
    data: Value
    factor: Array
    shift: Array

    @property
    def scales(self) -> bool:
        """Whether it multiplies."""
        return bool((self.factor != 1).any())

    @property
    def shifts(self) -> bool:
        """Whether it adds."""
        return bool((self.shift != 0).any())


def affine(node: Node) -> Affine | None:
    """Read a node as factor and shift; return None if it has another form or no constant operand."""
    if node.op == "BatchNormalization":
        data = node.required_input(0)
        factor, shift = batch_norm_affine(node)
        if data.rank is None or data.rank < 2:
            return None
        spread = (-1, *[1] * (data.rank - 2))
        return Affine(node, data, factor.reshape(spread), shift.reshape(spread))
    first, second = node.input(0), node.input(1)
    if node.op == "Neg" and first is not None:
        return Affine(node, first, np.array(-1.0), np.array(0.0))
    if node.op not in ELEMENTWISE or first is None or second is None or first.is_constant == second.is_constant:
        return None
    data, constant = (second, first) if first.is_constant else (first, second)
    array = constant.constant
    if array is None or array.dtype.name not in ROUNDOFF or node.opset < 7 or (node.op == "Div" and data == second):
        return None
    with np.errstate(all="ignore"):
        factor, shift = _operands(node.op, wide(array), constant == first)
    return Affine(node, data, factor, shift)


def _operands(op: str, constant: Array, is_first: bool) -> tuple[Array, Array]:
    one, zero = np.array(1.0), np.array(0.0)
    match op:
        case "Mul":
            return constant, zero
        case "Div":
            return 1 / constant, zero
        case "Add":
            return one, constant
        case _:
            return (-one, constant) if is_first else (one, -constant)


@dataclass(frozen=True)
class Layer:
    """A MatMul, Gemm, convolution or normalization; `add` is the Add of a constant after a MatMul."""

    node: Node
    add: Node | None = None

    @property
    def result(self) -> Value:
        """The result of the layer."""
        return (self.add or self.node).outputs[0]

    @property
    def values(self) -> tuple[Value, ...]:
        """The intermediate value of the layer, if any, and its result."""
        return tuple(node.outputs[0] for node in (self.node, self.add) if node is not None)

    @property
    def weight(self) -> Value:
        """The weight, by which the data is multiplied."""
        return self.node.required_input(1)

    @property
    def bias(self) -> Value | None:
        """The bias, if any."""
        if self.add is None:
            return self.node.input(2)
        return next(value for value in self.add.inputs if value is not None and value != self.node.outputs[0])

    @cached_property
    def extents(self) -> tuple[int, ...]:
        """The dims along which results have separate factors: the number of channels, or the normalized dims."""
        shape = self.weight.static_shape
        if shape is None or not shape or (self.node.op == "MatMul" and len(shape) < 2):
            raise Refusal("the number of channels is not known")
        match self.node.op:
            case "Gemm":
                return (shape[0] if self.node.attr("transB") else shape[1],)
            case "ConvTranspose":
                return (shape[1] * self.node.attr("group"),)
            case "LayerNormalization" | "RMSNormalization":
                return shape
        return (shape[-1 if self.node.op == "MatMul" else 0],)

    @property
    def rank(self) -> int | None:
        """The number of dims of the result."""
        if self.node.op in CONVOLUTIONS:
            return self.weight.rank
        return 2 if self.node.op == "Gemm" else self.result.rank

    def _reaches(self, array: Array) -> bool:
        """Return whether an operand has no more axes than the result."""
        return array.ndim <= len(self.extents) or (self.rank is not None and array.ndim <= self.rank)

    def by_channel(self, array: Array) -> Array:
        """Return an operand that is broadcast to the result as one number, or one for each channel; else refuse."""
        if array.size == 1 and (array.ndim == 0 or self._reaches(array)):
            return array.reshape(1)
        if self.node.op in CHANNELS_SECOND and self._reaches(array) and self.rank is not None:
            full = (*[1] * (self.rank - array.ndim), *array.shape)
            if full[1] == array.size == self.extents[0]:
                return array.reshape(-1)
        wanted = len(self.extents)
        if self.node.op in CHANNELS_LAST and self._reaches(array) and set(array.shape[:-wanted]) <= {1}:
            own = array.reshape(array.shape[-wanted:])
            if all(dim in (1, extent) for dim, extent in zip(own.shape[::-1], self.extents[::-1])):
                return np.broadcast_to(own, self.extents).reshape(-1)
        raise Refusal("the constant is not one number for each channel")


def layer_above(value: Value) -> Layer | None:
    """Find the layer that computes a value, or None."""
    producer = value.producer
    if producer is None:
        return None
    if producer.op in (*CHANNELS_SECOND, *CHANNELS_LAST):
        return Layer(producer) if producer.outputs[0] == value and _is_float(producer) else None
    if producer.op != "Add":
        return None
    for data, other in (producer.inputs, producer.inputs[::-1]):
        node = None if data is None else data.producer
        if node is None or data is None or other is None or not other.is_constant or node.op != "MatMul":
            continue
        if data.reads == 1 and not data.is_output and node.scope is producer.scope and _is_float(node):
            return Layer(node, producer)
    return None


def _is_float(node: Node) -> bool:
    """Return whether a layer has a floating-point weight; in GroupNormalization it is per group until opset 20."""
    if node.op == "GroupNormalization" and node.opset < 21:
        return False
    weight = node.input(1)
    kind = None if weight is None else weight.dtype
    return kind is not None and kind.name in ("BFLOAT16", "DOUBLE", "FLOAT", "FLOAT16")


def take_in(layer: Layer, factor: Array, shift: Array, new: Builder) -> None:
    """Make a layer compute factor·y + shift, both given by channel; refuse if its constants cannot absorb them."""
    if layer.node.op == "BatchNormalization":
        require_inference(layer.node)
    if (factor != 1).any():
        new.set_input(layer.node, 1, new.constant(_scaled_weight(layer, factor), layer.weight.name))
    if layer.bias is not None or (shift != 0).any():
        _change_bias(layer, factor, shift, new)


def shift_behind(layer: Layer, vector: Array) -> Array:
    """Reshape a shift by channel into the operand of an Add after a layer without a bias."""
    return fit_each(_spread(layer, vector), _weight_like(layer))


def _scaled_weight(layer: Layer, factor: Array) -> Array:
    node, weight = layer.node, own_constant(layer.weight, "the weight is not constant")
    match node.op:
        case "Conv" | "ConvTranspose":
            return as_weight(node, fit(by_channel(node, weight), factor, weight), weight.shape)
        case "Gemm" if node.attr("transB"):
            return fit_weight(node, weight, factor[:, None])
        case "Gemm" | "MatMul":
            return fit_weight(node, weight, factor)
    return fit_weight(node, weight, _spread(layer, factor))


def fit_weight(node: Node, weight: Array, factor: Array) -> Array:
    """Multiply a weight by a broadcast factor, and round it to its type; losses are checked per output channel."""
    factors = np.broadcast_to(factor, weight.shape)
    match node.op:
        case "Conv" | "ConvTranspose":
            return as_weight(node, fit(by_channel(node, weight), by_channel(node, factors), weight), weight.shape)
        case "Gemm" if node.attr("transB"):
            return fit(weight.T, factors.T, weight).T
        case "Gemm" | "MatMul":
            columns = weight.reshape(-1, weight.shape[-1])
            return fit(columns, factors.reshape(columns.shape), weight).reshape(weight.shape)
    return fit(weight.reshape(1, -1), factors.reshape(1, -1), weight).reshape(weight.shape)


def _change_bias(layer: Layer, factor: Array, shift: Array, new: Builder) -> None:
    node, bias = layer.node, layer.bias
    if bias is None and node.op in NO_BIAS:
        raise Refusal("the layer has no bias")
    like = None if bias is None else own_constant(bias, "the bias is not constant")
    beta = node.attr("beta", 1.0) if node.op == "Gemm" and (shift != 0).any() else 1.0
    with np.errstate(all="ignore"):
        exact = _spread(layer, shift)
        if like is not None:
            exact = wide(like) * (beta * _spread(layer, factor)) + exact
    if node.op not in ("Gemm", "MatMul"):
        exact = np.broadcast_to(exact, layer.extents)
    if like is not None and exact.nbytes > max(like.size * 8, SMALL):
        raise Refusal("the bias would make the file grow")
    kind = like if like is not None else _weight_like(layer)
    constant = new.constant(fit_each(exact, kind), f"{layer.weight.name}_bias" if bias is None else bias.name)
    if node.op == "Gemm" and beta != 1.0:
        new.set_attribute(node, "beta", 1.0)
    reader = layer.add or node
    new.set_input(reader, 2 if layer.add is None else list(reader.inputs).index(bias), constant)


def _spread(layer: Layer, vector: Array) -> Array:
    """Reshape numbers by channel to the last axes of a bias."""
    return vector.reshape(layer.extents if vector.size > 1 else ())


def _weight_like(layer: Layer) -> Array:
    kind = layer.weight.dtype
    if kind is None:
        raise Refusal("the type of the weight is not known")
    return np.empty(0, kind.numpy())
