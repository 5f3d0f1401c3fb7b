"""Operators whose kernels in ONNX Runtime take no empty batch or sequence, although what they replace may.

Measured on the CPU with ONNX Runtime 1.32, each with a batch of 0 and a sequence of 0: Attention raises an error for
both, and GroupQueryAttention divides by the batch, which ends the process with SIGFPE.
"""

from __future__ import annotations

from collections.abc import Mapping

REFUSING_EMPTY: Mapping[str, str] = {
    "Attention": "raises an error",
    "com.microsoft::GroupQueryAttention": "ends the process",
}
"""What happens with an empty batch, by name of the operator."""


def refusing_more(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    """Return the operators of which a changed model has more nodes that take no empty batch or sequence."""
    return [name for name in REFUSING_EMPTY if after.get(name, 0) > before.get(name, 0)]
