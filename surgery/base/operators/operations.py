"""Operation counts of nodes: multiply-accumulates, and single operations on elements.

A multiply-accumulate (MAC) is a product that is added to a sum, as in Conv, MatMul and Gemm. All other operations are
counted by their definition in the ONNX specification, with an Exp or a Sqrt counted like an addition: a Softmax
subtracts, exponentiates and divides each element, and reads all of them twice for the maximum and the sum, which makes
five. Operators that only move data (Reshape, Gather, Transpose, Cast, Where) count as zero. Operations per row instead
of per element (the variance of a norm) are omitted; they are below a thousandth.

Needs a row for each operator, if only in `UNCOUNTED`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Protocol

from surgery.base.operators.forms import Schema
from surgery.base.operators.moving import FORM_ONLY, REARRANGING
from surgery.base.operators.subgraphs import BODIES
from surgery.base.operators.traits import BINARY_ELEMENTWISE, UNARY_ELEMENTWISE

Dim = int | str | None
Dims = Sequence[Dim]

MACS, OTHERS = "macs", "others"
"""Multiply-accumulates, and operations of any other kind."""

Term = tuple[str, Dims]
"""The kind of operations, and the factors of their count: numbers and named dims."""


class UnknownDim(Exception):  # noqa: N818 - not an error: the amount is unknown
    """A dim is unknown."""


class CountedValue(Protocol):
    """An input or an output of a node."""

    @property
    def shape(self) -> tuple[Dim, ...] | None:
        """Its dims; None if even the rank is unknown."""


class CountedCall(Protocol):
    """The parts of a node that determine the number of its operations."""

    @property
    def op(self) -> str:
        """The operator, with its domain if it is not the default domain."""

    @property
    def inputs(self) -> Sequence[CountedValue | None]:
        """The inputs."""

    @property
    def outputs(self) -> Sequence[CountedValue]:
        """The outputs."""

    def attr(self, name: str, default: Any = None) -> Any:
        """Return an attribute."""


Rule = Callable[[CountedCall], Iterator[Term]]


def terms(node: CountedCall) -> Iterator[Term] | None:
    """Return the operation counts of a node; None for an unknown operator. Raises `UnknownDim`."""
    rule = _PRODUCTS.get(node.op)
    if rule is not None:
        return rule(node)
    if node.op in _EACH:
        return iter([(OTHERS, (_EACH[node.op], *_dims(node.outputs[0])))])
    if node.op in _EACH_READ:
        return iter([(OTHERS, (_EACH_READ[node.op], *_operand(node, 0)))])
    if node.op in _FOLDING:
        return iter([(OTHERS, (max(len(node.inputs) - 1, 0), *_dims(node.outputs[0])))])
    return iter(()) if node.op in MOVING else None


def has_products(op: str) -> bool:
    """Return whether the operations of an operator are counted by a rule instead of a number per element."""
    return op in _PRODUCTS


def without_row(schema: Schema) -> Iterator[str]:
    """Report an operator whose operations are unknown."""
    tables: list[Collection[str]] = [_PRODUCTS, _EACH, _EACH_READ, _FOLDING, MOVING, UNCOUNTED, BODIES]
    if not any(schema.key in table for table in tables):
        yield "operations"


def _dims(value: CountedValue) -> Dims:
    shape = value.shape
    if shape is None:
        raise UnknownDim
    return shape


def _operand(node: CountedCall, index: int) -> Dims:
    value = _given(node, index)
    if value is None:
        raise UnknownDim
    return _dims(value)


def _given(node: CountedCall, index: int) -> CountedValue | None:
    return node.inputs[index] if index < len(node.inputs) else None


def _matmul(first: int, second: int) -> Rule:
    """Return a rule: each result element is a sum over the last dim of the first operand."""

    def count(node: CountedCall) -> Iterator[Term]:
        left = _operand(node, first)
        length = left[-1] if left else 1
        if length is None:
            right = _operand(node, second)
            length = right[-2] if len(right) > 1 else right[0]
        if node.attr("transA", 0) and len(left) > 1:
            length = left[-2]
        yield MACS, (length, *_dims(node.outputs[0]))

    return count


def _gemm(node: CountedCall) -> Iterator[Term]:
    left = _operand(node, 0)
    yield MACS, (left[0] if node.attr("transA", 0) else left[1], *_dims(node.outputs[0]))
    if _given(node, 2) is not None:
        yield OTHERS, _dims(node.outputs[0])


def _conv(weight: int, bias: int) -> Rule:
    """Return a rule: each result element is a sum over the channels of a group and the kernel."""

    def count(node: CountedCall) -> Iterator[Term]:
        result = _dims(node.outputs[0])
        yield MACS, (*result, *_operand(node, weight)[1:])
        if _given(node, bias) is not None:
            yield OTHERS, result

    return count


def _conv_transpose(node: CountedCall) -> Iterator[Term]:
    """Count a product of each operand element with the channels of a group and the kernel."""
    yield MACS, (*_operand(node, 0), *_operand(node, 1)[1:])
    if _given(node, 2) is not None:
        yield OTHERS, _dims(node.outputs[0])


def _einsum(node: CountedCall) -> Iterator[Term]:
    """Count the loops over all labels; each operand after the first one is a factor."""
    subscripts = str(node.attr("equation", "")).replace(" ", "").split("->")[0].split(",")
    extents: dict[str, Dim] = {}
    for index, term in enumerate(subscripts):
        dims = _operand(node, index)
        spread = len(dims) - len(term.replace("...", ""))
        head, dots, tail = term.partition("...")
        labels = [*head, *(f"...{at}" for at in range(-spread, 0) if dots), *tail]
        for label, extent in zip(labels, dims):
            if extents.get(label, 1) == 1:
                extents[label] = extent
    yield MACS if len(subscripts) > 1 else OTHERS, (max(len(subscripts) - 1, 1), *extents.values())


def _attention(node: CountedCall) -> Iterator[Term]:
    """Count queries times keys and weights times values, for each query and each key, including past keys."""
    queries, keys = _operand(node, 0), _operand(node, 1)
    past = _given(node, 4)
    lengths = [keys[-2], *([_dims(past)[-2]] if past is not None else [])]
    for length in lengths:
        yield MACS, (*queries, length)
        yield MACS, (*_dims(node.outputs[0]), length)
        heads: Dims = (node.attr("q_num_heads", 1),) if len(queries) == 3 else (queries[1],)
        yield OTHERS, (5, queries[0], *heads, queries[-2], length)


def _recurrent(gates: int) -> Rule:
    """Return a rule: each step multiplies the operand and the hidden state by the weights of all gates."""

    def count(node: CountedCall) -> Iterator[Term]:
        sequence, batch, _ = _operand(node, 0)
        for index in (1, 2):
            yield MACS, (sequence, batch, *_operand(node, index))
        hidden = _operand(node, 2)
        yield OTHERS, (4 * gates, sequence, batch, hidden[0], hidden[-1])

    return count


def _pool(node: CountedCall) -> Iterator[Term]:
    yield OTHERS, (*_dims(node.outputs[0]), *node.attr("kernel_shape", ()))


def _resize(node: CountedCall) -> Iterator[Term]:
    """Count a weighted sum over 2 neighbors (linear) or 4 (cubic) in each resized dim, for each element."""
    taps = {"linear": 2, "cubic": 4}.get(str(node.attr("mode", "nearest")))
    before, after = _operand(node, 0), _dims(node.outputs[0])
    if taps is not None:
        resized = sum(a != b for a, b in zip(before, after))
        yield MACS, (taps**resized, *after)


def _grid_sample(node: CountedCall) -> Iterator[Term]:
    taps = {"linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}.get(str(node.attr("mode", "linear")))
    after = _dims(node.outputs[0])
    if taps is not None:
        yield MACS, (taps ** (len(after) - 2), *after)


def _matmul_n_bits(node: CountedCall) -> Iterator[Term]:
    """Count the products with a packed weight, whose dims are in attributes."""
    yield MACS, (node.attr("K", 0), *_dims(node.outputs[0]))


def _skip_norm(node: CountedCall) -> Iterator[Term]:
    yield OTHERS, (9, *_operand(node, 0))


def _local_response(node: CountedCall) -> Iterator[Term]:
    yield OTHERS, (int(node.attr("size", 1)) * 2 + 4, *_operand(node, 0))


_PRODUCTS: dict[str, Rule] = {
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

MOVING = (
    REARRANGING
    | FORM_ONLY
    | {
        "Bernoulli",
        "BitCast",
        "Cast",
        "CastLike",
        "CenterCropPad",
        "Compress",
        "ConcatFromSequence",
        "Constant",
        "ConstantOfShape",
        "Dropout",
        "MaxRoiPool",
        "MaxUnpool",
        "Multinomial",
        "NonMaxSuppression",
        "NonZero",
        "OneHot",
        "Optional",
        "OptionalGetElement",
        "Pad",
        "RandomNormal",
        "RandomUniform",
        "Range",
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
        "SplitToSequence",
        "StringConcat",
        "StringNormalizer",
        "StringSplit",
        "TensorScatter",
        "TfIdfVectorizer",
        "TopK",
        "Trilu",
        "Unique",
        "Where",
    }
)
"""Operators that move, create or select data without computing elements from others."""

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
"""Operations per result element."""

_FOLDING = frozenset({"Max", "Mean", "Min", "Sum"})
"""Operators whose number of operations per result element is the number of operands minus one."""

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
"""Operations per input element."""

UNCOUNTED = frozenset(
    {
        "AffineGrid",
        "BlackmanWindow",
        "CausalConvWithState",
        "Col2Im",
        "DFT",
        "HammingWindow",
        "HannWindow",
        "ImageDecoder",
        "LinearAttention",
        "MelWeightMatrix",
        "NegativeLogLikelihoodLoss",
        "RegexFullMatch",
        "STFT",
        "SoftmaxCrossEntropyLoss",
        "SwiGLU",
        "ai.onnx.ml::ArrayFeatureExtractor",
        "ai.onnx.ml::Binarizer",
        "ai.onnx.ml::CastMap",
        "ai.onnx.ml::CategoryMapper",
        "ai.onnx.ml::DictVectorizer",
        "ai.onnx.ml::FeatureVectorizer",
        "ai.onnx.ml::Imputer",
        "ai.onnx.ml::LabelEncoder",
        "ai.onnx.ml::LinearClassifier",
        "ai.onnx.ml::LinearRegressor",
        "ai.onnx.ml::Normalizer",
        "ai.onnx.ml::OneHotEncoder",
        "ai.onnx.ml::SVMClassifier",
        "ai.onnx.ml::SVMRegressor",
        "ai.onnx.ml::Scaler",
        "ai.onnx.ml::TreeEnsemble",
        "ai.onnx.ml::ZipMap",
        "com.microsoft::Attention",
        "com.microsoft::AttnLSTM",
        "com.microsoft::BeamSearch",
        "com.microsoft::BifurcationDetector",
        "com.microsoft::BranchwiseRMSNorm",
        "com.microsoft::CDist",
        "com.microsoft::CausalConvWithState",
        "com.microsoft::ConvTransposeWithDynamicPads",
        "com.microsoft::CropAndResize",
        "com.microsoft::DecoderMaskedMultiHeadAttention",
        "com.microsoft::DequantizeLinear",
        "com.microsoft::DynamicQuantizeLSTM",
        "com.microsoft::DynamicTimeWarping",
        "com.microsoft::EmbedLayerNormalization",
        "com.microsoft::EngramGate",
        "com.microsoft::ExpandDims",
        "com.microsoft::GatedAdd",
        "com.microsoft::GatedDeltaNet",
        "com.microsoft::GatedRMSNorm",
        "com.microsoft::GatherBlockQuantized",
        "com.microsoft::GatherND",
        "com.microsoft::GatherPacked",
        "com.microsoft::GreedySearch",
        "com.microsoft::GridSample",
        "com.microsoft::GroupQueryAttention",
        "com.microsoft::HyperConnectionPostMix",
        "com.microsoft::HyperConnectionPreMix",
        "com.microsoft::Inverse",
        "com.microsoft::LinearAttention",
        "com.microsoft::LinearAttentionGate",
        "com.microsoft::MRotaryEmbedding",
        "com.microsoft::MatMulBnb4",
        "com.microsoft::MatMulFpQ4",
        "com.microsoft::MatMulInteger16",
        "com.microsoft::MaxpoolWithMask",
        "com.microsoft::MoE",
        "com.microsoft::MoEGroupRouter",
        "com.microsoft::MultiHeadAttention",
        "com.microsoft::MurmurHash3",
        "com.microsoft::NGramHashMapping",
        "com.microsoft::NGramRepeatBlock",
        "com.microsoft::NhwcMaxPool",
        "com.microsoft::Pad",
        "com.microsoft::QAttention",
        "com.microsoft::QEmbedLayerNormalization",
        "com.microsoft::QGemm",
        "com.microsoft::QLinearAdd",
        "com.microsoft::QLinearAveragePool",
        "com.microsoft::QLinearConcat",
        "com.microsoft::QLinearConv",
        "com.microsoft::QLinearGlobalAveragePool",
        "com.microsoft::QLinearLeakyRelu",
        "com.microsoft::QLinearMul",
        "com.microsoft::QLinearSigmoid",
        "com.microsoft::QLinearSoftmax",
        "com.microsoft::QLinearWhere",
        "com.microsoft::QMoE",
        "com.microsoft::QuantizeLinear",
        "com.microsoft::Range",
        "com.microsoft::SampleOp",
        "com.microsoft::Sampling",
        "com.microsoft::ScaledSiLU",
        "com.microsoft::SparseAttention",
        "com.microsoft::SparseToDenseMatMul",
        "com.microsoft::Tokenizer",
        "com.microsoft::TransposeMatMul",
        "com.microsoft::Trilu",
        "com.microsoft::UnfoldTensor",
        "com.microsoft::Unique",
        "com.microsoft::VarlenCausalConvWithState",
        "com.microsoft::VarlenNGramHashMapping",
        "com.microsoft::WhisperBeamSearch",
        "com.microsoft::WordConvEmbedding",
    }
)
"""Operators whose operations are not counted, because they depend on data or are rare; reports name them."""
