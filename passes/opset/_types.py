"""The types of a call: those that its version allows, those of its results, and wider types with the same results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery import Refusal

from . import _forms, _schemas

if TYPE_CHECKING:
    from ._calls import Call

_FLOATS = ("bfloat16", "float16", "float", "double")
_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")

_WIDER = {
    "bool": ("uint8", "int32", "int64", "float"),
    "int8": ("int16", "int32", "int64", "float16", "float", "double"),
    "uint8": ("uint16", "int32", "int64", "float16", "float", "double"),
    "int16": ("int32", "int64", "float", "double"),
    "uint16": ("int32", "int64", "float", "double"),
    "int32": ("int64", "double"),
    "uint32": ("int64", "uint64", "double"),
    "float16": ("float", "double"),
    "bfloat16": ("float", "double"),
    "float": ("double",),
}
"""Types that hold every number of a type, the narrowest first."""

_MOVING = frozenset(
    {
        *("Compress", "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND"),
        *("Identity", "OneHot", "Pad", "Reshape", "ReverseSequence", "Scatter", "ScatterElements", "ScatterND"),
        *("Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "TopK", "Transpose", "Trilu", "Unsqueeze", "Where"),
    }
)
"""Operators that only move elements, possibly by comparing them."""

_COMPARING = frozenset(
    {
        *("ArgMax", "ArgMin", "Clip", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
        *("Max", "MaxPool", "Min", "NonZero", "ReduceMax", "ReduceMin", "Relu", "Sign"),
    }
)

_RING = frozenset({"Abs", "Add", "CumSum", "Div", "Mod", "Mul", "Neg", "ReduceProd", "ReduceSum", "Sub", "Sum"})
"""Operators whose result in a wider integer type, truncated to the bits of the narrow type, is right in that type.

A Cast between integer types drops the higher bits (text of Cast 13).
"""

_QUANTIZING = frozenset({"DequantizeLinear", "QuantizeLinear", "QLinearConv", "QLinearMatMul", "DynamicQuantizeLinear"})

NUMPY: dict[str, Any] = {
    "float": np.float32,
    "double": np.float64,
    "float16": np.float16,
    "bool": np.bool_,
    **{name: np.dtype(name).type for name in _INTEGERS},
}


def spelt(kind: Any) -> str | None:
    """Return an onnx-ir type as the schemas write it; None for a type that they do not have."""
    if kind is None:
        return None
    outer = {"TensorType": "tensor", "SparseTensorType": "sparse_tensor"}.get(type(kind).__name__)
    if outer is not None:
        return f"{outer}({kind.dtype.name.lower()})"
    inner = spelt(getattr(kind, "elem_type", None))
    outer = {"SequenceType": "seq", "OptionalType": "optional"}.get(type(kind).__name__)
    return None if inner is None or outer is None else f"{outer}({inner})"


def element(kind: str) -> str:
    """Return the element type of a tensor type: "float" for "tensor(float)"."""
    return kind.removeprefix("tensor(").removesuffix(")")


def numpy_type(kind: str) -> Any:
    """Return the NumPy type of a tensor type; refuse if NumPy has none."""
    found = NUMPY.get(element(kind))
    if found is None:
        raise Refusal(f"constants of {kind} are not supported")
    return found


@dataclass(frozen=True)
class _Group:
    """Inputs that share a type."""

    allowed: frozenset[str]
    positions: tuple[int, ...]
    parameter: str


def _groups(call: Call) -> Iterator[_Group]:
    form = _forms.form(call.op, call.version)
    shared: dict[str, list[int]] = {}
    for index, value in enumerate(call.inputs):
        if value is None or not form.inputs:
            continue
        parameter = form.inputs[min(index, len(form.inputs) - 1)]
        if parameter.is_variadic and not parameter.is_homogeneous:
            yield _Group(form.allowed(parameter), (index,), "")
        else:
            shared.setdefault(parameter.type, []).append(index)
    for name, positions in shared.items():
        yield _Group(form.types.get(name, frozenset({name})), tuple(positions), name)


def casts(call: Call, kinds: Sequence[str | None], opset: int) -> dict[int, str]:
    """Return, by position, the wider types in which a call computes the same; refuse if there are none.

    `kinds` holds the types of the inputs as far as they are known; unknown types are assumed to be allowed.
    """
    found: dict[int, str] = {}
    for group in _groups(call):
        known = {kinds[index] for index in group.positions} - {None}
        wrong = known - group.allowed
        if not wrong:
            continue
        kind = str(next(iter(wrong)))
        wide = _wide(call.op, kind, group.allowed) if len(known) == 1 else None
        if wide is None:
            raise Refusal(f"{call.op} of opset {opset} does not take {kind}")
        found.update(dict.fromkeys(group.positions, wide))
    return found


def _wide(op: str, kind: str, allowed: frozenset[str]) -> str | None:
    name = element(kind)
    if name in _FLOATS:
        fits = op not in _QUANTIZING and op != "Cast"
        candidates = _WIDER.get(name, ())
    else:
        fits = op in _MOVING | _COMPARING | _RING and (name != "bool" or op in _MOVING | _COMPARING)
        # A floating-point result, cast back, is not the result of integers.
        inexact = op in _RING
        candidates = tuple(wide for wide in _WIDER.get(name, ()) if not (inexact and wide in _FLOATS))
    return next((f"tensor({wide})" for wide in candidates if fits and f"tensor({wide})" in allowed), None)


def require_known(call: Call, kinds: Sequence[str | None], opset: int) -> None:
    """Refuse an input of unknown type if the version of a call allows fewer types than that of `opset`."""
    own = _schemas.version_at(call.op, opset)
    wide = set() if own is None else {kind for types in _forms.form(call.op, own).types.values() for kind in types}
    for group in _groups(call):
        if any(kinds[index] is None for index in group.positions) and wide - group.allowed:
            raise Refusal("the type of an input is not known")


def require_results(call: Call, kinds: Sequence[str | None], opset: int) -> None:
    """Refuse an output whose type no input shares and the version of a call lacks."""
    form = _forms.form(call.op, call.version)
    bound = {group.parameter for group in _groups(call)}
    for index, kind in enumerate(kinds):
        parameter = form.outputs[min(index, len(form.outputs) - 1)]
        if kind is not None and parameter.type not in bound and kind not in form.allowed(parameter):
            raise Refusal(f"{call.op} of opset {opset} does not produce {kind}")


def results(call: Call, kinds: Sequence[str | None]) -> list[str | None]:
    """Return the types of the outputs as far as the schema, or an attribute that names a type, determines them."""
    return [_result(call, kinds, index) for index in range(call.outputs)]


def _result(call: Call, kinds: Sequence[str | None], index: int) -> str | None:
    form = _forms.form(call.op, call.version)
    named = _named(call)
    if named is not None:
        return named
    parameter = form.outputs[min(index, len(form.outputs) - 1)]
    if parameter.type not in form.types:
        return parameter.type
    bound = next((group for group in _groups(call) if group.parameter == parameter.type), None)
    if bound is not None:
        return next((kinds[position] for position in bound.positions if kinds[position] is not None), None)
    allowed = form.types[parameter.type]
    return next(iter(allowed)) if len(allowed) == 1 else None


def _named(call: Call) -> str | None:
    """Return the type of the result if an attribute specifies it; otherwise None."""
    if call.op == "Cast":
        return _forms.type_name(int(call.attr("to")))
    if call.op in ("EyeLike", "RandomNormalLike", "RandomUniformLike", "RandomNormal", "RandomUniform"):
        number = call.attr("dtype")
        return None if not number else _forms.type_name(int(number))
    if call.op in ("Constant", "ConstantOfShape"):
        held = call.attr("value")
        dtype = getattr(held, "dtype", None)
        # A tensor of onnx-ir names its type; a NumPy array has a NumPy type.
        name = getattr(dtype, "name", None) if not isinstance(dtype, np.dtype) else _NAMES.get(dtype.name)
        return "tensor(float)" if held is None and call.op == "ConstantOfShape" else _tensor(name)
    return None


_NAMES = {np.zeros(0, dtype=kind).dtype.name: name for name, kind in NUMPY.items()}


def _tensor(name: str | None) -> str | None:
    return None if name is None else f"tensor({name.lower()})"


_KEEPING = frozenset({"Cast", "Exp", "Log", "Neg", "Abs", "Sqrt", "Tanh", "Sigmoid", "Relu", "Erf", "Transpose"})
_BROADCASTING = frozenset({"Add", "Div", "Mul", "Or", "Sub", "Where"})


def rank(call: Call, ranks: Sequence[int | None]) -> int | None:
    """Return the rank of the result of a call, for the few operators for which parts need it."""
    if call.op in _BROADCASTING:
        known = [found for found in ranks if found is not None]
        return max(known) if len(known) == len(ranks) else None
    keeps = call.op in _KEEPING or (call.op.startswith("Reduce") and bool(call.attr("keepdims", 1)))
    return ranks[0] if keeps else None
