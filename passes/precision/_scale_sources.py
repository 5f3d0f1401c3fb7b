"""Producers of a value whose constants can be scaled so that each channel is divided by a factor."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from surgery import RESHAPES, Node, Refusal, Value

from ._scales import Operand, along, groups_of, operand
from ._stored_weights import parameter

SHARED = "the activation has other consumers"
NO_SOURCE = "no producer of the activation can absorb the factors"

NORMALIZATIONS = {
    "LayerNormalization": (1, 2),
    "RMSNormalization": (1,),
    "SimplifiedLayerNormalization": (1,),
    "com.microsoft::SkipLayerNormalization": (2, 3),
    "com.microsoft::SkipSimplifiedLayerNormalization": (2,),
}
"""Normalizations of the last axis, with the positions of the inputs that scale and shift each channel."""

CHANNELS_SECOND = ("BatchNormalization", "GroupNormalization", "InstanceNormalization")
"""Normalizations whose inputs 1 and 2 scale and shift the channels along axis 1."""

PASSING = frozenset(
    {
        *("Identity", "LeakyRelu", "PRelu", "Relu"),
        *("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool"),
    }
)
"""Operators that return c · y for c · x, with any c > 0 for each channel."""

POOLS = ("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool")
LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul", "com.microsoft::FusedMatMul")


@dataclass
class Source:
    """The constants that are divided, the values that change as a result, and the layer that computes the channels."""

    channels: int
    operands: list[Operand] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    layer: Node | None = None

    def take(self, value: Value, axis: int, readers: Collection[Node]) -> None:
        """Find the constants that divide a value with its channels along `axis`, counted from the end, or refuse.

        `readers` are the nodes that may read the value, because they expect it divided.
        """
        node = value.producer
        if value.is_output:
            raise Refusal("the activation is an output of the graph")
        if value.reads != len(readers) or any(each not in readers for each in value.consumers):
            raise Refusal(SHARED)
        if node is None or any(each.scope is not node.scope for each in readers):
            raise Refusal(NO_SOURCE)
        if value != node.outputs[0] or any(other.is_used for other in node.outputs[1:] if node.op == "MaxPool"):
            raise Refusal(NO_SOURCE)
        self.values.append(value)
        self._take_node(node, axis)

    def _take_node(self, node: Node, axis: int) -> None:
        if node.op in NORMALIZATIONS:
            self._normalization(node, NORMALIZATIONS[node.op], axis == -1)
        elif node.op in CHANNELS_SECOND:
            if node.op == "BatchNormalization":
                _require_inference(node)
            grouped = node.op == "GroupNormalization" and node.opset < 21
            self._normalization(node, (1, 2), _is_second(node, axis) and not grouped)
        elif node.op in RESHAPES:
            data = node.required_input(0)
            shapes = data.shape, node.outputs[0].shape
            # Elements keep their order, so they stay in their channels if the last axis keeps its length.
            if axis != -1 or any(not shape or shape[-1] != self.channels for shape in shapes):
                raise Refusal(NO_SOURCE)
            self.take(data, -1, [node])
        elif node.op in PASSING or _is_unbounded(node):
            if node.op in POOLS and not _is_second(node, axis):
                raise Refusal(NO_SOURCE)
            self.take(node.required_input(0), axis, [node])
        else:
            take = _TAKERS.get(node.op)
            if take is None:
                raise Refusal(NO_SOURCE)
            take(self, node, axis)

    def _normalization(self, node: Node, positions: tuple[int, ...], fits: bool) -> None:
        for position in positions:
            parameter = node.input(position)
            if parameter is None and position != positions[0]:
                continue
            if not fits or node.required_input(position).static_shape != (self.channels,):
                raise Refusal(NO_SOURCE)
            self.operands.append(along(node, position, 0))

    def _layer(self, node: Node, axis: int) -> None:
        """Divide the columns of the weight of a layer, and its bias."""
        if node.op in ("Conv", "ConvTranspose"):
            weight, fits = _kernel(node), _is_second(node, axis)
        else:
            if node.attr("transBatchB", 0):
                raise Refusal(NO_SOURCE)
            shape = node.required_input(1).static_shape or ()
            weight, fits = along(node, 1, -2 if node.attr("transB", 0) else -1), axis == -1 and len(shape) > 1
        if not fits or math.prod(weight.spread) != self.channels:
            raise Refusal(NO_SOURCE)
        self.layer = node
        self.operands.append(weight)
        bias = node.input(2) if node.op in ("Conv", "ConvTranspose", "Gemm") else None
        if bias is not None:
            self._vector(node, 2, -1)

    def _vector(self, node: Node, position: int, axis: int, *, is_divided: bool = False) -> None:
        """Divide a constant that is broadcast to the value.

        Single numbers are not expanded, except for the bias of a Gemm: runtimes recognize a Gelu by them.
        """
        shape = node.required_input(position).static_shape or ()
        spread = (self.channels, *[1] * (-axis - 1))
        is_spread = node.op == "Gemm" and math.prod(shape) == 1
        if not is_spread and (len(shape) < -axis or shape[axis] != self.channels):
            raise Refusal("a constant that is added or multiplied is not one number for each channel")
        self.operands.append(operand(node, position, shape, spread, is_divided=is_divided))

    def _sum(self, node: Node, axis: int) -> None:
        """Divide both terms of a sum with one constant term."""
        data = self._broadcast(node)
        self._vector(node, 1 - data, axis)
        self.take(node.required_input(data), axis, [node])

    def _product(self, node: Node, axis: int) -> None:
        """Divide a constant factor or, without one, the first computed factor that can be divided."""
        if any(parameter(node.required_input(position)).is_constant for position in (0, 1)):
            self._vector(node, 1 - self._broadcast(node), axis)
            return
        if not node.is_broadcasting:
            raise Refusal(NO_SOURCE)
        kept = len(self.operands), len(self.values)
        for position in (0, 1):
            factor = node.required_input(position)
            shape = factor.shape
            try:
                if shape is None or len(shape) < -axis or shape[axis] != self.channels:
                    raise Refusal(NO_SOURCE)
                self.take(factor, axis, [node])
            except Refusal:
                del self.operands[kept[0] :], self.values[kept[1] :]
                self.layer = None
            else:
                return
        raise Refusal(NO_SOURCE)

    def _quotient(self, node: Node, axis: int) -> None:
        if self._broadcast(node) != 0:
            self._vector(node, 0, axis)
            return
        self._vector(node, 1, axis, is_divided=True)

    def _broadcast(self, node: Node) -> int:
        """Return the position of the computed operand of a node whose other operand is constant."""
        constant = [parameter(node.required_input(position)).is_constant for position in (0, 1)]
        if not node.is_broadcasting or sum(constant) != 1:
            raise Refusal(NO_SOURCE)
        return constant.index(False)


def _is_second(node: Node, axis: int) -> bool:
    """Return whether an axis counted from the end is axis 1 of the result of a node."""
    rank = node.required_input(1).rank if node.op in ("Conv", "ConvTranspose") else node.required_input(0).rank
    return rank is not None and rank + axis == 1


def _is_unbounded(node: Node) -> bool:
    """Return whether a node is a Clip with no bounds other than zero and infinity."""
    return node.op == "Clip" and node.bounds is not None and all(b == 0 or math.isinf(b) for b in node.bounds)


def _require_inference(node: Node) -> None:
    trains = node.attr("training_mode", 0) or any(output.is_used for output in node.outputs[1:])
    if node.opset < 9 or trains:
        raise Refusal("the BatchNormalization may be in training mode")


def _kernel(node: Node) -> Operand:
    """Return the weight of a convolution with its output channels; ConvTranspose has them along axis 1."""
    group, outer, inner, kernel = groups_of(node)
    spread = (group, outer, 1, 1) if node.op == "Conv" else (group, 1, inner, 1)
    return operand(node, 1, (group, outer, inner, kernel), spread)


_TAKERS: Mapping[str, Callable[[Source, Node, int], None]] = {
    **dict.fromkeys(LAYERS, Source._layer),
    **dict.fromkeys(("Add", "Sub"), Source._sum),
    "Mul": Source._product,
    "Div": Source._quotient,
}


def source_of(value: Value, channels: int, axis: int, readers: Collection[Node]) -> Source:
    """Return the source that can divide the channels of a value that only `readers` read; refuse if there is none."""
    found = Source(channels)
    found.take(value, axis, readers)
    return found
