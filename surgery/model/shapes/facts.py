"""Known facts about one value: its type, its shape, its elements; and dims as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

Dim = int | str | None
"""One dim: an extent, a symbolic expression such as "batch" or "2*sequence", or None if unknown."""


Doubt = tuple[int, ...] | None
"""The axes whose inferred dims a run contradicts; None if it contradicts the rank."""

Doubts = Mapping[str, Doubt]
"""Doubts by the name of the value."""

NO_DOUBTS: Doubts = {}


@dataclass(frozen=True)
class Fact:
    """The known facts about one value: its type, its shape, the elements of a small integer tensor."""

    type: ir.TypeProtocol | None = None
    shape: ir.Shape | None = None
    data: tuple[int | str, ...] | None = None


NOTHING = Fact()


def symbolic(shape: ir.Shape | None, *, arithmetic: bool = False) -> ir.Shape | None:
    """Return a declared shape with symbols for the names of dims, which may be any text; -1 and "?" mean nothing.

    With `arithmetic`, names are expressions.
    """
    if shape is None or not any(_is_odd(dim) for dim in shape):
        return shape
    from surgery.model.shapes.symbols import opaque

    def given(dim: int | ir.SymbolicDim) -> int | ir.SymbolicDim:
        if isinstance(dim, int):
            return dim if dim >= 0 else ir.SymbolicDim(None)
        return dim if arithmetic else ir.SymbolicDim(opaque(dim.value))

    return ir.Shape([given(dim) for dim in shape])


def declarable(found: Sequence[Dim]) -> list[Dim]:
    """Return dims in the form that a model may declare: with the model's own names."""
    if not any(isinstance(dim, str) and "dim_x" in dim for dim in found):
        return [*found]
    from surgery.model.shapes.symbols import shown

    return [shown(dim) if isinstance(dim, str) else dim for dim in found]


def _is_odd(dim: int | ir.SymbolicDim) -> bool:
    if isinstance(dim, int):
        return dim < 0
    name = dim.value
    return name is not None and not (name.isascii() and name.isidentifier() and not name.startswith("dim_x"))


def dims(shape: ir.Shape | None) -> tuple[Dim, ...] | None:
    """Return the dims of a shape as plain values."""
    if shape is None:
        return None
    return tuple(dim if isinstance(dim, int) else dim.value for dim in shape)
