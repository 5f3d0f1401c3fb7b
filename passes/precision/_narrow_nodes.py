"""Classification of nodes for the conversion to narrower types."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from surgery import GATHERING, Graph, Node, Value

MOVING = frozenset(
    {
        *("Abs", "CenterCropPad", "Clip", "Compress", "Concat", "DepthToSpace", "Dropout", "Expand", "Flatten"),
        *("Gather", "GatherElements", "GatherND", "GlobalMaxPool", "Identity", "Max", "MaxPool", "Min", "Neg", "Pad"),
        *("ReduceMax", "ReduceMin", "Relu", "Reshape", "ReverseSequence", "Slice", "SpaceToDepth", "Split", "Squeeze"),
        *("Tile", "Transpose", "Trilu", "Unsqueeze", "Where"),
    }
)
"""Operators that pass on elements or a monotonic function of them: rounding their float inputs gives the same as
rounding their results. So they need no type of their own, and take the type of their neighbors."""

EXTENTS = frozenset({"Shape", "Size"})
"""Operators that read no elements."""

INDIFFERENT = EXTENTS | {"ArgMax", "ArgMin", "Cast", "IsInf", "IsNaN", "NonZero"}
"""Operators whose results have another type, and are the same for a number in either float type."""

COMPARISONS = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
"""Operators that give the same for numbers that are exact in either float type."""

QUANTIZING = frozenset({"DequantizeLinear", "DynamicQuantizeLinear", "QuantizeLinear"})
"""Operators with a scale, which is the step between integers."""

_MIXING = frozenset(
    {
        *("Attention", "Conv", "ConvTranspose", "DeformConv", "Einsum", "GRU", "LSTM", "RNN"),
        *("BatchNormalization", "GroupNormalization", "InstanceNormalization", "LayerNormalization"),
        *("MeanVarianceNormalization", "RMSNormalization", "LpNormalization"),
    }
)
_BOUNDED = frozenset({"Cos", "Erf", "HardSigmoid", "LogSoftmax", "Sigmoid", "Sin", "Softmax", "Softsign", "Tanh"})
_WIDE_INTEGERS = frozenset({"INT16", "INT32", "INT64", "UINT16", "UINT32", "UINT64"})
LARGE_MATRIX = 4096
"""Minimum number of elements of a constant factor that is a weight, and not position frequencies."""


def is_float(value: Value | None) -> bool:
    """Return whether a value is a tensor of float32."""
    return value is not None and value.dtype is not None and value.dtype.name == "FLOAT"


def floats(node: Node) -> Iterator[Value]:
    """Yield the inputs that are float32."""
    return (value for value in node.inputs if value is not None and is_float(value))


def is_default(node: Node) -> bool:
    """Return whether the operator is one of ONNX itself."""
    return node.domain in ("", "ai.onnx")


def reads_table(node: Node) -> bool:
    """Return whether a node reads rows of a constant table."""
    table = node.input(0)
    return is_default(node) and node.op in GATHERING and table is not None and table.is_constant


def is_moving(node: Node) -> bool:
    """Return whether a node gives the same results in either type, if its neighbors have that type."""
    return is_default(node) and node.op in MOVING and not node.is_random


def is_widening(node: Node) -> bool:
    """Return whether a node is a Cast to float32."""
    return is_default(node) and node.op == "Cast" and is_float(node.outputs[0])


def counting(graph: Graph) -> set[Value]:
    """Find float values that are computed from integers and constants alone: positions, sizes, lengths, masks.

    A layer with weights, or a function with bounded results such as Sin, ends the chain.
    """
    found: set[Value] = set()
    for node in graph.nodes():
        if _counts(node, found) and not (node.op in _BOUNDED or node.op in _MIXING or _has_matrix(node)):
            found.update(value for value in node.outputs if is_float(value))
    return found


def _counts(node: Node, known: set[Value]) -> bool:
    """Return whether a node converts integers to floats, or computes with such floats and constants alone."""
    if not is_default(node) or node.has_subgraphs:
        return False
    if is_widening(node):
        source = node.input(0)
        return source is not None and source.dtype is not None and source.dtype.name in _WIDE_INTEGERS
    inputs = list(floats(node))
    return any(value in known for value in inputs) and all(value in known or value.is_constant for value in inputs)


def _has_matrix(node: Node) -> bool:
    """Return whether a node multiplies by a constant that is a weight."""
    if node.op not in ("Gemm", "MatMul"):
        return False
    tensors = [value.tensor for value in floats(node)]
    return any(tensor is not None and tensor.size >= LARGE_MATRIX for tensor in tensors)


_SPREADING = MOVING | {"Add", "ConstantOfShape", "Mul", "Sub", "Sum"}
"""Operators that pass a very large number in an operand on to their result."""


def very_large(graph: Graph, overflows: Callable[[Value], bool]) -> set[Value]:
    """Find float values computed from a constant with very large numbers, such as the mask of an attention.

    `overflows` returns whether a constant has such numbers. Bounds of Clip, Max and Min do not count; Softmax or a
    division ends the chain.
    """
    found: set[Value] = set()
    for node in graph.nodes():
        if not is_default(node) or node.op not in _SPREADING:
            continue
        read = floats(node) if node.op != "Clip" else [node.required_input(0)]
        within = node.op not in ("Max", "Min")
        if any(value in found or (within and value.is_constant and overflows(value)) for value in read):
            found.update(value for value in node.outputs if is_float(value))
    return found
