"""Properties of operators: random, commutative, elementwise, recurrent and the like.

Source: the operator schemas of the ONNX specification. What is not listed has none of the properties; operators of
another domain than the default have it in their names.

Needs a row in `RANDOM`, or in `REPEATABLE`, for each operator whose schema has a seed or calls it nondeterministic.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from surgery.operators.forms import Schema
from surgery.operators.schemas import schema_of

RANDOM = frozenset(
    {
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "com.microsoft::Sampling",
    }
)
"""Operators whose outputs differ from run to run. Dropout joins them in training mode."""

REPEATABLE = frozenset(
    {
        "AffineGrid",
        "CausalConvWithState",
        "DepthToSpace",
        "Dropout",
        "LinearAttention",
        "SpaceToDepth",
        "com.microsoft::MurmurHash3",
    }
)
"""Operators that compute the same in each run, although they have a seed, or onnx calls them nondeterministic: Dropout
outside of training mode."""

COMMUTATIVE = frozenset(
    {
        "Add",
        "And",
        "BitwiseAnd",
        "BitwiseOr",
        "BitwiseXor",
        "Equal",
        "Max",
        "Mean",
        "Min",
        "Mul",
        "Or",
        "Sum",
        "Xor",
    }
)
"""Operators whose two inputs may be exchanged; Max and Min of 0.0 and -0.0 not bit for bit, see `Node.commutes`."""

UNARY_ELEMENTWISE = frozenset(
    {
        "Abs",
        "Acos",
        "Acosh",
        "Asin",
        "Asinh",
        "Atan",
        "Atanh",
        "BitwiseNot",
        "Cast",
        "Ceil",
        "Celu",
        "Clip",
        "Cos",
        "Cosh",
        "Elu",
        "Erf",
        "Exp",
        "Floor",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "Identity",
        "IsInf",
        "IsNaN",
        "LeakyRelu",
        "Log",
        "Mish",
        "Neg",
        "Not",
        "Reciprocal",
        "Relu",
        "Round",
        "Selu",
        "Shrink",
        "Sigmoid",
        "Sign",
        "Sin",
        "Sinh",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Swish",
        "Tan",
        "Tanh",
        "ThresholdedRelu",
    }
)
"""Operators that map each element of their first input by itself; the shape stays."""

CONTRIB_UNARY = frozenset({"com.microsoft::FastGelu", "com.microsoft::Gelu", "com.microsoft::QuickGelu"})
"""Those of ONNX Runtime's own domain; FastGelu where it has no bias."""

BINARY_ELEMENTWISE = frozenset(
    {
        "Add",
        "And",
        "BitShift",
        "BitwiseAnd",
        "BitwiseOr",
        "BitwiseXor",
        "Div",
        "Equal",
        "Greater",
        "GreaterOrEqual",
        "Less",
        "LessOrEqual",
        "Mod",
        "Mul",
        "Or",
        "PRelu",
        "Pow",
        "Sub",
        "Xor",
    }
)
"""Operators that map pairs of elements after numpy-style broadcasting (since opset 7)."""

BROADCASTING = BINARY_ELEMENTWISE | {"Max", "Mean", "Min", "Sum", "Where"}
"""Operators that combine the elements of all their inputs after broadcasting (since opset 7, those of more than two
inputs since 8); PRelu never enlarges its first one."""

NORMALIZING = frozenset({"LayerNormalization", "RMSNormalization"})
"""Operators that broadcast scale and bias to what they normalize along the last axes."""

SEQUENCES = frozenset(
    {"SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceMap", "SplitToSequence"}
)
"""Operators whose result is a sequence."""

RECURRENT = {"LSTM": (4, 5, 6), "GRU": (4, 5), "RNN": (4, 5)}
"""Recurrent operators, and which inputs have a batch: lengths and initial states."""

UNIFORM = (
    UNARY_ELEMENTWISE
    | BROADCASTING
    | NORMALIZING
    | {
        "BiasGelu",
        "CastLike",
        "Concat",
        "Constant",
        "FastGelu",
        "FusedMatMul",
        "Gemm",
        "LogSoftmax",
        "MatMul",
        "QuickGelu",
        "ReduceL2",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceSum",
        "ReduceSumSquare",
        "SimplifiedLayerNormalization",
        "SkipLayerNormalization",
        "Softmax",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    }
)
"""Operators that compute the same function whatever the extents are: they know no number of positions, neither by a
constant nor by an attribute."""


def without_row(schema: Schema) -> Iterator[str]:
    """Report that an operator may be random when nothing here decides that. Those with subgraphs are as these are."""
    has_bodies = any(kind.startswith("GRAPH") for kind in schema.attributes.values())
    if schema.draws and schema.key not in RANDOM | REPEATABLE and not has_bodies:
        yield "it may be random"


def slides(op_type: str) -> bool:
    """Return whether an operator slides a window over its first input."""
    return "Conv" in op_type or "Pool" in op_type


def since_version(op_type: str, opset: int, domain: str = "") -> int | None:
    """Return the opset in which the operator took the form it has at `opset`, or None when it has none there."""
    found = schema_of(domain, op_type, opset)
    return None if found is None else int(found.since_version)


@cache
def attribute_default(op_type: str, opset: int, name: str, domain: str = "") -> object:
    """Return the default that the schema gives an attribute, or None."""
    import onnx.helper

    found = schema_of(domain, op_type, opset)
    attribute = None if found is None else found.attributes.get(name)
    if attribute is None or not attribute.default_value.name:
        return None
    value = onnx.helper.get_attribute_value(attribute.default_value)
    return value.decode() if isinstance(value, bytes) else value


@cache
def is_integer_by_schema(op_type: str, opset: int, position: int, domain: str = "") -> bool:
    """Return whether an input is an integer whatever the data is: axes, a shape, indices."""
    found = schema_of(domain, op_type, opset)
    inputs = [] if found is None else found.inputs
    return position < len(inputs) and set(inputs[position].types) <= {"tensor(int32)", "tensor(int64)"}
