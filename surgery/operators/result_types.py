"""Which attribute names the element type of a result, or the type that an operator computes in.

Needs a row in `FLOAT_BY_DEFAULT`, or in `NOT_FLOAT_BY_DEFAULT`, for each of `TYPE_ATTRIBUTES` that may be left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from surgery.operators.forms import Schema

TYPE_ATTRIBUTES = frozenset({"to", "dtype", "output_datatype"})
"""Attributes that name the element type of the output of an operator which makes it from something else."""

FLOAT_BY_DEFAULT = {
    "BlackmanWindow": "output_datatype",
    "HammingWindow": "output_datatype",
    "HannWindow": "output_datatype",
    "MelWeightMatrix": "output_datatype",
    "SequenceEmpty": "dtype",
}
"""Those of them that stand for float32 when they are not there."""

NOT_FLOAT_BY_DEFAULT = frozenset(
    {
        "Bernoulli",
        "EyeLike",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)
"""Operators whose result has another type then, that of an operand mostly, or that are random."""

STASHING = {"GroupNormalization": 21}
"""Operators that compute inside in the type that `stash_type` names, since which opset; ONNX Runtime unfolds them."""

BIT_CAST = "BitCast"
"""The operator that means the bits of its input, and not the number."""


def without_row(schema: Schema) -> Iterator[str]:
    """Yield the attributes that name a type and may be left out, when it is not known what that means."""
    if schema.name not in FLOAT_BY_DEFAULT.keys() | NOT_FLOAT_BY_DEFAULT:
        yield from (f"attribute {name}" for name in sorted(TYPE_ATTRIBUTES & schema.optional.keys()))
