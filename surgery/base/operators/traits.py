"""Properties of operators: random, commutative, elementwise, recurrent and the like.

Source: the operator schemas of the ONNX specification. Operators that are not listed have none of the properties; names
of operators outside the default domain include the domain.

Needs a row in `RANDOM`, or in `REPEATABLE`, for each operator whose schema has a seed or calls it nondeterministic.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from surgery.base.operators.forms import Schema, allowed_types
from surgery.base.operators.schemas import schema_of

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
"""Operators whose outputs differ between runs; in training mode, Dropout is also random."""

DRAWING = RANDOM | {"Dropout"}
"""Operators that may draw random numbers."""

SEEDED = DRAWING - {"com.microsoft::Sampling"}
"""Operators whose attribute `seed` makes them draw the same numbers in each session."""

REPEATABLE = frozenset(
    {
        "AffineGrid",
        "BlackmanWindow",
        "CausalConvWithState",
        "DepthToSpace",
        "Dropout",
        "HammingWindow",
        "HannWindow",
        "LinearAttention",
        "Range",
        "SpaceToDepth",
        "com.microsoft::MurmurHash3",
    }
)
"""Operators with the same results in each run, although they have a seed, or a release of onnx calls them
nondeterministic; Dropout only outside training mode."""

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
"""Operators whose two inputs may be swapped; Max and Min of 0.0 and -0.0 not bit for bit, see `Node.commutes`."""

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
"""Operators that map each element of their first input independently and keep the shape."""

CONTRIB_UNARY = frozenset({"com.microsoft::FastGelu", "com.microsoft::Gelu", "com.microsoft::QuickGelu"})
"""Unary elementwise operators of ONNX Runtime's own domain; FastGelu only without a bias."""

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
"""Operators that combine the elements of all their inputs after broadcasting (since opset 7, or 8 for more than two
inputs); PRelu never enlarges its first input."""

NORMALIZING = frozenset({"LayerNormalization", "RMSNormalization"})
"""Operators that broadcast scale and bias to the normalized input along the last axes."""

RECURRENT = {"LSTM": (4, 5, 6), "GRU": (4, 5), "RNN": (4, 5)}
"""Recurrent operators, with the inputs that have a batch axis: lengths and initial states."""

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
"""Operators that compute the same function for all sizes: no constant or attribute depends on the number of
positions."""


def without_row(schema: Schema) -> Iterator[str]:
    """Report an operator whose randomness is unknown; operators with subgraphs are as random as these."""
    has_bodies = any(kind.startswith("GRAPH") for kind in schema.attributes.values())
    if schema.draws and schema.key not in RANDOM | REPEATABLE and not has_bodies:
        yield "it may be random"


def slides(op_type: str) -> bool:
    """Return whether an operator slides a window over its first input."""
    return "Conv" in op_type or "Pool" in op_type


def since_version(op_type: str, opset: int, domain: str = "") -> int | None:
    """Return the first opset with the schema that the operator has at `opset`, or None if it has none there."""
    found = schema_of(domain, op_type, opset)
    return None if found is None else int(found.since_version)


@cache
def attribute_default(op_type: str, opset: int, name: str, domain: str = "") -> object:
    """Return the default of an attribute in the schema, or None."""
    import onnx.helper

    found = schema_of(domain, op_type, opset)
    attribute = None if found is None else found.attributes.get(name)
    if attribute is None or not attribute.default_value.name:
        return None
    value = onnx.helper.get_attribute_value(attribute.default_value)
    return value.decode() if isinstance(value, bytes) else value


@cache
def is_integer_by_schema(op_type: str, opset: int, position: int, domain: str = "") -> bool:
    """Return whether an input is always integer, whatever the type of the data: axes, a shape, indices."""
    found = schema_of(domain, op_type, opset)
    if found is None or position >= len(found.inputs):
        return False
    return allowed_types(found, found.inputs[position]) <= {"tensor(int32)", "tensor(int64)"}
