"""The signature of a model: its inputs, outputs, metadata, opsets and functions; and differences between signatures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from surgery.base.errors import first_few
from surgery.base.operators.subgraphs import initializer_names
from surgery.base.promises import Change

if TYPE_CHECKING:
    import onnx

_MOST_LISTED = 8

Dims = tuple[int | str | None, ...]


@dataclass(frozen=True)
class SignaturePort:
    """An input or output of a model: its name, its type ("tensor(float)") and its dims; None if not declared."""

    name: str
    type: str
    dims: Dims | None

    def __str__(self) -> str:
        shape = "" if self.dims is None else "[" + ", ".join("?" if d is None else str(d) for d in self.dims) + "]"
        return f"{self.type}{shape}"


@dataclass(frozen=True)
class Deviation:
    """A difference of two signatures: the change that a pass must declare for it, and its description."""

    change: Change
    text: str


@dataclass(frozen=True)
class Signature:
    """The interface that callers of a model rely on."""

    inputs: tuple[SignaturePort, ...]
    outputs: tuple[SignaturePort, ...]
    metadata: tuple[tuple[str, str], ...]
    opsets: tuple[tuple[str, int], ...]
    functions: tuple[str, ...]

    def differences(self, other: Signature) -> list[str]:
        """Return the differences of another model's inputs, outputs and metadata. Opsets and functions may change."""
        return list(dict.fromkeys(difference.text for difference in self.compare(other)))

    def compare(self, other: Signature, renamed: Mapping[str, str] | None = None) -> list[Deviation]:
        """List the differences; `renamed` maps inputs and outputs of this signature to their names in the other one."""
        found = [
            *_port_differences("input", self.inputs, other.inputs, renamed or {}),
            *_port_differences("output", self.outputs, other.outputs, renamed or {}),
        ]
        mine, theirs = dict(self.metadata), dict(other.metadata)
        texts = [f"metadata '{key}' is missing" for key in mine if key not in theirs]
        texts += [f"metadata '{key}' changed" for key in mine if key in theirs and mine[key] != theirs[key]]
        return [*found, *(Deviation("metadata", text) for text in texts)]


def signature(model: onnx.ModelProto) -> Signature:
    """Read the signature of a model.

    Before IR version 4, each initializer had to be listed as an input; these do not count as inputs.
    """
    hidden = initializer_names(model.graph) if model.ir_version < 4 else set()
    return Signature(
        inputs=tuple(_port(value) for value in model.graph.input if value.name not in hidden),
        outputs=tuple(_port(value) for value in model.graph.output),
        metadata=tuple((entry.key, entry.value) for entry in model.metadata_props),
        opsets=tuple((entry.domain, entry.version) for entry in model.opset_import),
        functions=tuple(f"{function.domain}::{function.name}" for function in model.functions),
    )


def _port(value: onnx.ValueInfoProto) -> SignaturePort:
    text, dims = _type_text(value.type)
    return SignaturePort(value.name, text, dims)


def _type_text(kind: onnx.TypeProto) -> tuple[str, Dims | None]:
    """Return a type in the notation of ONNX Runtime, and the dims of the tensor in it."""
    import onnx

    field = kind.WhichOneof("value")
    if field in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(kind, field)
        number = tensor.elem_type
        element = onnx.TensorProto.DataType.Name(number).lower() if number else "?"
        dims = tuple(_dim(dim) for dim in tensor.shape.dim) if tensor.HasField("shape") else None
        return f"{'sparse_' if field == 'sparse_tensor_type' else ''}tensor({element})", dims
    if field in ("sequence_type", "optional_type"):
        inner, dims = _type_text(getattr(kind, field).elem_type)
        return f"{'seq' if field == 'sequence_type' else 'optional'}({inner})", dims
    if field == "map_type":
        inner, dims = _type_text(kind.map_type.value_type)
        return f"map({onnx.TensorProto.DataType.Name(kind.map_type.key_type).lower()}, {inner})", dims
    return field or "?", None


def _dim(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    field = dim.WhichOneof("value")
    return None if field is None else (dim.dim_value if field == "dim_value" else dim.dim_param or None)


def _port_differences(
    kind: Literal["input", "output"],
    old: tuple[SignaturePort, ...],
    theirs: tuple[SignaturePort, ...],
    renamed: Mapping[str, str],
) -> Iterator[Deviation]:
    some: Change = "inputs" if kind == "input" else "outputs"
    mine = [replace(port, name=renamed.get(port.name, port.name)) for port in old]
    for before, now in zip(old, mine):
        if before.name != now.name:
            yield Deviation("names", f"{kind} '{before.name}' is now called '{now.name}'")
    left, right = {port.name: port for port in mine}, {port.name: port for port in theirs}
    yield from (Deviation(some, f"{kind} '{name}' is missing") for name in left if name not in right)
    yield from (Deviation(some, f"{kind} '{name}' is new") for name in right if name not in left)
    both = [name for name in left if name in right]
    for name in both:
        text = f"{kind} '{name}' is {right[name]}, not {left[name]}"
        if left[name].type != right[name].type:
            yield Deviation("types", text)
        if left[name].dims != right[name].dims:
            yield Deviation("dims", text)
    order = [name for name in right if name in left]
    if both != order:
        listed = first_few(order, _MOST_LISTED)
        yield Deviation("order", f"the {kind}s have another order: {listed}; values are compared by name")
