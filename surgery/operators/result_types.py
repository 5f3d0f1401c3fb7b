"""Which attribute names the element type of a result, or the type that an operator computes in."""

from __future__ import annotations

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

STASHING = {"GroupNormalization": 21}
"""Operators that compute inside in the type that `stash_type` names, since which opset; ONNX Runtime unfolds them."""

BIT_CAST = "BitCast"
"""The operator that means the bits of its input, and not the number."""
