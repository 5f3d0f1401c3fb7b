"""The types of values as ONNX Runtime writes them: "tensor(float)", "seq(tensor(int64))"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

FLOATS = frozenset({1, 10, 16})
"""float32, float16 and bfloat16, by their number in `TensorProto.DataType`."""

FLOAT, DOUBLE = 1, 11


@dataclass
class Value:
    """What is known of a value: its type, such as "tensor(float16)", and its dims as far as they are known."""

    kind: str
    dims: list[int | None] | None = None

    @property
    def is_float(self) -> bool:
        """Whether it is one of the floats that become float64, in a sequence or an optional too."""
        return widened(self.kind) != self.kind


def widened(kind: str) -> str:
    """Write a type with float64 as its element type."""
    for name in ("(float16)", "(bfloat16)", "(float)"):
        kind = kind.replace(name, "(double)")
    return kind


def single(kind: str) -> str:
    """Write a type with float32 instead of a narrower float."""
    return kind.replace("(float16)", "(float)").replace("(bfloat16)", "(float)")


def number_of(kind: str) -> int:
    """Return the element type of a tensor of narrow floats as `TensorProto.DataType` numbers it."""
    return {"tensor(float)": 1, "tensor(float16)": 10, "tensor(bfloat16)": 16}[kind]


def declared(graph: onnx.GraphProto) -> dict[str, Value]:
    """List the values whose types a graph states."""
    found = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = _kind_of(value.type)
        if kind:
            found[value.name] = Value(kind, _dims(value.type))
    return found


def _kind_of(kind: onnx.TypeProto) -> str:
    """Write a type as ONNX Runtime does."""
    if kind.HasField("tensor_type"):
        return f"tensor({_element(kind.tensor_type.elem_type)})"
    for name, text in (("sequence_type", "seq"), ("optional_type", "optional")):
        if kind.HasField(name):
            inner = _kind_of(getattr(kind, name).elem_type)
            return f"{text}({inner})"
    return ""


def _element(number: int) -> str:
    import onnx

    return str(onnx.TensorProto.DataType.Name(number)).lower()


def _dims(kind: onnx.TypeProto) -> list[int | None] | None:
    if not kind.tensor_type.HasField("shape"):
        return None
    return [dim.dim_value if dim.WhichOneof("value") == "dim_value" else None for dim in kind.tensor_type.shape.dim]


def value_of_tensor(tensor: onnx.TensorProto) -> Value:
    """Return the known facts about a tensor."""
    return Value(f"tensor({_element(tensor.data_type)})", list(tensor.dims))


def widen_type(kind: onnx.TypeProto) -> None:
    """Make float64 of the narrow floats in a type, in place."""
    for name in ("sequence_type", "optional_type"):
        if kind.HasField(name):
            widen_type(getattr(kind, name).elem_type)
    if kind.HasField("tensor_type") and kind.tensor_type.elem_type in FLOATS:
        kind.tensor_type.elem_type = DOUBLE
