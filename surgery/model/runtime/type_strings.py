"""The types of values in the notation of ONNX Runtime: "tensor(float)", "seq(tensor(int64))"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from surgery.model.targets.kernels import widened

if TYPE_CHECKING:
    import onnx

FLOATS = frozenset({1, 10, 16})
"""float32, float16 and bfloat16, by number in `TensorProto.DataType`."""

FLOAT, DOUBLE = 1, 11


@dataclass
class TypedValue:
    """The known facts about a value: its type, such as "tensor(float16)", and its dims, if known."""

    kind: str
    dims: list[int | None] | None = None

    @property
    def is_float(self) -> bool:
        """Whether its element type is a float that becomes float64, including in a sequence or an optional."""
        return widened(self.kind) != self.kind


def single(kind: str) -> str:
    """Return a type with float32 instead of a narrower float."""
    return kind.replace("(float16)", "(float)").replace("(bfloat16)", "(float)")


def number_of(kind: str) -> int:
    """Return the number in `TensorProto.DataType` of the element type of a tensor of narrow floats."""
    return {"tensor(float)": 1, "tensor(float16)": 10, "tensor(bfloat16)": 16}[kind]


def declared(graph: onnx.GraphProto) -> dict[str, TypedValue]:
    """Return the values whose types a graph declares, by name."""
    found = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = _kind_of(value.type)
        if kind:
            found[value.name] = TypedValue(kind, _dims(value.type))
    return found


def _kind_of(kind: onnx.TypeProto) -> str:
    """Return a type in the notation of ONNX Runtime."""
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


def value_of_tensor(tensor: onnx.TensorProto) -> TypedValue:
    """Return the known facts about a tensor."""
    return TypedValue(f"tensor({_element(tensor.data_type)})", list(tensor.dims))


def widen_type(kind: onnx.TypeProto) -> None:
    """Replace the narrow floats in a type by float64, in place."""
    for name in ("sequence_type", "optional_type"):
        if kind.HasField(name):
            widen_type(getattr(kind, name).elem_type)
    if kind.HasField("tensor_type") and kind.tensor_type.elem_type in FLOATS:
        kind.tensor_type.elem_type = DOUBLE
