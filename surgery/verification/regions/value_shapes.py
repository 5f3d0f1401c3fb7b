"""Shapes of values at chosen dims, also inferred from the contents of shape tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from surgery.model.shapes.declarations import Declared, bound
from surgery.verification.inputs.dims import calculate

if TYPE_CHECKING:
    import onnx_ir as ir


def follow(skeleton: bytes, choices: Sequence[Mapping[str, list[int]]]) -> list[Declared]:
    """Infer the types and shapes of values for several choices of dims, also from the contents of shape tensors.

    All choices are inferred at once: a dim is a symbol where its extents differ, the same symbol where they are equal.
    May run in any process.
    """
    import onnx_ir as ir

    from surgery.model.shapes.inference import Inference
    from surgery.model.storage import ir_from_proto

    if not all(extent > 0 for dims in choices for shape in dims.values() for extent in shape) and len(choices) > 1:
        # A symbol stands for at least 1.
        return [follow(skeleton, [dims])[0] for dims in choices]
    first = bound(skeleton, choices[0])
    if first.graph.value_info and len(choices) > 1:
        return [follow(skeleton, [dims])[0] for dims in choices]
    model = ir_from_proto(first)
    symbols: dict[tuple[int, ...], str] = {}
    for value in model.graph.inputs:
        extents = [tuple(column) for column in zip(*(dims.get(value.name or "", ()) for dims in choices))]
        if extents:
            value.shape = ir.Shape(
                one[0] if len(set(one)) == 1 else ir.SymbolicDim(symbols.setdefault(one, f"extent{len(symbols)}"))
                for one in extents
            )
    facts = Inference(model).everything()
    result: list[Declared] = []
    for number in range(len(choices)):
        bound_to = {symbol: each[number] for each, symbol in symbols.items()}
        found: dict[str, tuple[int, list[int]]] = {}
        evaluated: dict[str | None, int | ir.SymbolicDim] = {}
        for value, fact in facts.items():
            if value.name and isinstance(fact.type, ir.TensorType) and fact.shape is not None:
                shape = [_evaluate(dim, bound_to, evaluated) for dim in fact.shape]
                if all(isinstance(dim, int) for dim in shape):
                    found[value.name] = int(fact.type.dtype), shape
        result.append(found)
    return result


def _evaluate(
    dim: int | ir.SymbolicDim, extents: Mapping[str, int], known: dict[str | None, int | ir.SymbolicDim]
) -> Any:
    if isinstance(dim, int):
        return dim
    if dim.value not in known:
        known[dim.value] = _calculated(dim, extents)
    return known[dim.value]


def _calculated(dim: ir.SymbolicDim, extents: Mapping[str, int]) -> int | ir.SymbolicDim:
    """Evaluate an expression; only for rare ones, sympy is imported, which is slow."""
    if dim.value is not None:
        with suppress(ValueError, SyntaxError, ZeroDivisionError):
            return calculate(dim.value, extents)
    return dim.evaluate(extents)
