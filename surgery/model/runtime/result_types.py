"""Attributes that specify the element type of a result, or the type in which an operator computes.

Needs a row in `FLOAT_BY_DEFAULT`, or in `NOT_FLOAT_BY_DEFAULT`, for each optional one of `TYPE_ATTRIBUTES`.
"""

from __future__ import annotations

from collections.abc import Iterator

from surgery.base.operators.forms import Schema

TYPE_ATTRIBUTES = frozenset({"to", "dtype", "output_datatype"})
"""Attributes that specify the element type of an output, independent of the inputs."""

FLOAT_BY_DEFAULT = {
    "BlackmanWindow": "output_datatype",
    "HammingWindow": "output_datatype",
    "HannWindow": "output_datatype",
    "MelWeightMatrix": "output_datatype",
    "SequenceEmpty": "dtype",
}
"""Those of them that default to float32."""

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
"""Operators whose default is another type, usually that of an operand, or that are random."""

STASHING = {"GroupNormalization": 21}
"""Operators that compute internally in the type `stash_type`, with the first such opset; ONNX Runtime expands them."""

BIT_CAST = "BitCast"
"""The operator that reinterprets the bits of its input."""


def without_row(schema: Schema) -> Iterator[str]:
    """Yield the optional attributes that specify a type and whose default is unknown."""
    if schema.name not in FLOAT_BY_DEFAULT.keys() | NOT_FLOAT_BY_DEFAULT:
        yield from (f"attribute {name}" for name in sorted(TYPE_ATTRIBUTES & schema.optional.keys()))
