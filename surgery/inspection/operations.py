"""What one node computes: multiply-accumulates, and single operations on elements.

A multiply-accumulate (MAC) is a product that is added to a sum, as in Conv, MatMul and Gemm. Everything else is counted
by its definition in the ONNX specification, an Exp or a Sqrt like an addition: a Softmax subtracts, exponentiates and
divides each element, and goes through all of them twice for the maximum and the sum, which makes five. What only moves
data (Reshape, Gather, Transpose, Cast, Where) counts nothing. Vectors that are a row of the whole (the variance of a
norm) are left out; they are below a thousandth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from surgery.graph.values import Node, Value
from surgery.inspection.amounts import Amount, UnknownDim
from surgery.operators.traits import BINARY_ELEMENTWISE, UNARY_ELEMENTWISE
from surgery.shapes.facts import Dim

Dims = tuple[Dim, ...]


@dataclass
class Work:
    """The multiply-accumulates and the other operations of a node."""

    macs: Amount
    others: Amount


def work(node: Node) -> Work | None:
    """Count what a node computes; None for an operator that is not known, or dims that are not."""
    rule = _PRODUCTS.get(node.op)
    result = Work(Amount(), Amount())
    try:
        if rule is not None:
            rule(node, result)
        elif node.op in _EACH:
            result.others.add(_EACH[node.op], *_dims(node.outputs[0]))
        elif node.op in _EACH_READ:
            result.others.add(_EACH_READ[node.op], *_operand(node, 0))
        elif node.op in ("Max", "Mean", "Min", "Sum"):
            result.others.add(max(len(node.inputs) - 1, 0), *_dims(node.outputs[0]))
        elif node.op not in MOVING:
            return None
    except UnknownDim:
        return None
    return result


def _dims(value: Value) -> Dims:
    shape = value.shape
    if shape is None:
        raise UnknownDim
    return shape


def _operand(node: Node, index: int) -> Dims:
    value = node.input(index)
    if value is None:
        raise UnknownDim
    return _dims(value)


def _matmul(first: int, second: int) -> Callable[[Node, Work], None]:
    """Each element of the result is a sum over the last dim of the first operand."""

    def count(node: Node, into: Work) -> None:
        left = _operand(node, first)
        length = left[-1] if left else 1
        if length is None:
            right = _operand(node, second)
            length = right[-2] if len(right) > 1 else right[0]
        if node.attr("transA", 0) and len(left) > 1:
            length = left[-2]
        into.macs.add(length, *_dims(node.outputs[0]))

    return count


def _gemm(node: Node, into: Work) -> None:
    left = _operand(node, 0)
    into.macs.add(left[0] if node.attr("transA", 0) else left[1], *_dims(node.outputs[0]))
    if node.input(2) is not None:
        into.others.add(*_dims(node.outputs[0]))


def _conv(weight: int, bias: int) -> Callable[[Node, Work], None]:
    """Each element of the result is a sum over the channels of a group and the kernel."""

    def count(node: Node, into: Work) -> None:
        result = _dims(node.outputs[0])
        into.macs.add(*result, *_operand(node, weight)[1:])
        if node.input(bias) is not None:
            into.others.add(*result)

    return count


def _conv_transpose(node: Node, into: Work) -> None:
    """Each element of the operand is spread over the channels of a group and the kernel."""
    into.macs.add(*_operand(node, 0), *_operand(node, 1)[1:])
    if node.input(2) is not None:
        into.others.add(*_dims(node.outputs[0]))


def _einsum(node: Node, into: Work) -> None:
    """All labels together are what the loops run over; each operand beyond the first one is a factor."""
    terms = str(node.attr("equation", "")).replace(" ", "").split("->")[0].split(",")
    extents: dict[str, Dim] = {}
    for index, term in enumerate(terms):
        dims = _operand(node, index)
        spread = len(dims) - len(term.replace("...", ""))
        head, dots, tail = term.partition("...")
        labels = [*head, *(f"...{at}" for at in range(-spread, 0) if dots), *tail]
        for label, extent in zip(labels, dims):
            if extents.get(label, 1) == 1:
                extents[label] = extent
    kind = into.macs if len(terms) > 1 else into.others
    kind.add(max(len(terms) - 1, 1), *extents.values())


def _attention(node: Node, into: Work) -> None:
    """Queries times keys and weights times values: for each query each key, past ones included."""
    queries, keys = _operand(node, 0), _operand(node, 1)
    past = node.input(4)
    lengths = [keys[-2], *([_dims(past)[-2]] if past is not None else [])]
    for length in lengths:
        into.macs.add(*queries, length)
        into.macs.add(*_dims(node.outputs[0]), length)
        heads: Dims = (node.attr("q_num_heads", 1),) if len(queries) == 3 else (queries[1],)
        into.others.add(5, queries[0], *heads, queries[-2], length)


def _recurrent(gates: int) -> Callable[[Node, Work], None]:
    """Each step multiplies the operand and the hidden state by the weights of all gates."""

    def count(node: Node, into: Work) -> None:
        sequence, batch, _ = _operand(node, 0)
        for index in (1, 2):
            into.macs.add(sequence, batch, *_operand(node, index))
        hidden = _operand(node, 2)
        into.others.add(4 * gates, sequence, batch, hidden[0], hidden[-1])

    return count


def _pool(node: Node, into: Work) -> None:
    into.others.add(*_dims(node.outputs[0]), *node.attr("kernel_shape", ()))


def _resize(node: Node, into: Work) -> None:
    """Each element is a weighted sum over 2 neighbours (linear) or 4 (cubic) in each dim that is resized."""
    taps = {"linear": 2, "cubic": 4}.get(str(node.attr("mode", "nearest")))
    before, after = _operand(node, 0), _dims(node.outputs[0])
    if taps is not None:
        resized = sum(a != b for a, b in zip(before, after))
        into.macs.add(taps**resized, *after)


def _grid_sample(node: Node, into: Work) -> None:
    taps = {"linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}.get(str(node.attr("mode", "linear")))
    after = _dims(node.outputs[0])
    if taps is not None:
        into.macs.add(taps ** (len(after) - 2), *after)


def _matmul_n_bits(node: Node, into: Work) -> None:
    """The weight is packed: its extents stand in attributes."""
    into.macs.add(node.attr("K", 0), *_dims(node.outputs[0]))


def _skip_norm(node: Node, into: Work) -> None:
    into.others.add(9, *_operand(node, 0))


def _local_response(node: Node, into: Work) -> None:
    into.others.add(int(node.attr("size", 1)) * 2 + 4, *_operand(node, 0))


_PRODUCTS: dict[str, Callable[[Node, Work], None]] = {
    "MatMul": _matmul(0, 1),
    "MatMulInteger": _matmul(0, 1),
    "QLinearMatMul": _matmul(0, 3),
    "Gemm": _gemm,
    "Conv": _conv(1, 2),
    "ConvInteger": _conv(1, 9),
    "QLinearConv": _conv(3, 8),
    "DeformConv": _conv(1, 3),
    "ConvTranspose": _conv_transpose,
    "Einsum": _einsum,
    "Attention": _attention,
    "LSTM": _recurrent(4),
    "GRU": _recurrent(3),
    "RNN": _recurrent(1),
    "AveragePool": _pool,
    "LpPool": _pool,
    "MaxPool": _pool,
    "Resize": _resize,
    "Upsample": _resize,
    "GridSample": _grid_sample,
    "LRN": _local_response,
    "com.microsoft::FusedConv": _conv(1, 2),
    "com.microsoft::FusedGemm": _gemm,
    "com.microsoft::FusedMatMul": _matmul(0, 1),
    "com.microsoft::MatMulIntegerToFloat": _matmul(0, 1),
    "com.microsoft::DynamicQuantizeMatMul": _matmul(0, 1),
    "com.microsoft::MatMulNBits": _matmul_n_bits,
    "com.microsoft::SkipLayerNormalization": _skip_norm,
    "com.microsoft::SkipSimplifiedLayerNormalization": _skip_norm,
}

MOVING = frozenset(
    {
        "Bernoulli",
        "BitCast",
        "Cast",
        "CastLike",
        "CenterCropPad",
        "Compress",
        "Concat",
        "ConcatFromSequence",
        "Constant",
        "ConstantOfShape",
        "DepthToSpace",
        "Dropout",
        "Expand",
        "EyeLike",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "Identity",
        "MaxRoiPool",
        "MaxUnpool",
        "Multinomial",
        "NonMaxSuppression",
        "NonZero",
        "OneHot",
        "Optional",
        "OptionalGetElement",
        "OptionalHasElement",
        "Pad",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Range",
        "Reshape",
        "ReverseSequence",
        "RoiAlign",
        "Scatter",
        "ScatterElements",
        "ScatterND",
        "SequenceAt",
        "SequenceConstruct",
        "SequenceEmpty",
        "SequenceErase",
        "SequenceInsert",
        "SequenceLength",
        "Shape",
        "Size",
        "Slice",
        "SpaceToDepth",
        "Split",
        "SplitToSequence",
        "Squeeze",
        "StringConcat",
        "StringNormalizer",
        "StringSplit",
        "TensorScatter",
        "TfIdfVectorizer",
        "Tile",
        "TopK",
        "Transpose",
        "Trilu",
        "Unique",
        "Unsqueeze",
        "Where",
    }
)
"""Operators that move, make or choose data and compute no element from others."""

_EACH: dict[str, int] = {
    **dict.fromkeys((BINARY_ELEMENTWISE | UNARY_ELEMENTWISE) - MOVING, 1),
    "BatchNormalization": 2,  # a scale and a shift, once the statistics are folded
    "Celu": 5,
    "Clip": 2,
    "DequantizeLinear": 2,
    "DynamicQuantizeLinear": 4,
    "Elu": 3,
    "Gelu": 5,
    "GroupNormalization": 8,
    "HardSigmoid": 4,
    "HardSwish": 5,
    "Hardmax": 2,
    "InstanceNormalization": 8,
    "LayerNormalization": 8,
    "LeakyRelu": 2,
    "LogSoftmax": 5,
    "LpNormalization": 3,
    "MeanVarianceNormalization": 6,
    "Mish": 5,
    "PRelu": 2,
    "QuantizeLinear": 3,
    "RMSNormalization": 4,
    "RotaryEmbedding": 3,
    "Selu": 4,
    "Sigmoid": 4,
    "Softmax": 5,
    "Softplus": 3,
    "Softsign": 3,
    "Swish": 5,
    "com.microsoft::BiasGelu": 6,
    "com.microsoft::FastGelu": 8,
    "com.microsoft::Gelu": 5,
    "com.microsoft::QuickGelu": 5,
    "com.microsoft::RotaryEmbedding": 3,
}
"""Operations for each element of the result."""

_EACH_READ: dict[str, int] = {
    "ArgMax": 1,
    "ArgMin": 1,
    "CumProd": 1,
    "CumSum": 1,
    "Det": 1,
    "GlobalAveragePool": 1,
    "GlobalLpPool": 2,
    "GlobalMaxPool": 1,
    "ReduceL1": 2,
    "ReduceL2": 2,
    "ReduceLogSum": 1,
    "ReduceLogSumExp": 3,
    "ReduceMax": 1,
    "ReduceMean": 1,
    "ReduceMin": 1,
    "ReduceProd": 1,
    "ReduceSum": 1,
    "ReduceSumSquare": 2,
}
"""Operations for each element that is read."""
