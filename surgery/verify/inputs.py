"""Legal inputs for a model, found from its graph.

A `Binding` says everything about one set of inputs: the extents of the symbolic dims, the character of the data,
how integers are treated, the seed. `Plan.feeds` turns it into arrays, always into the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.errors import UsageError
from surgery.recipe.schema import InputsSpec, TensorSpec
from surgery.verify.dims import Dims, Extent, evaluate, free_names
from surgery.verify.domain import ANY, MASK, Domain, draw, generator
from surgery.verify.elements import Array, dtype_of, is_integer
from surgery.verify.rules import SEQUENCE_LENGTH, legal
from surgery.verify.view import Index, Shape, View, uses

if TYPE_CHECKING:
    import onnx

PROFILES = ("legal", "binary", "ones", "twos", "zeros")
"""How integers are chosen: by the rules, and where they fall short 0 and 1 mixed, or all the same."""

UNKNOWN_RANK = (2, 3)
"""The shape of a tensor that declares none."""


@dataclass(frozen=True)
class InputPort:
    """One input to feed. `kind` is "tensor", "sequence" or "optional"; dims are extents, names or expressions."""

    name: str
    kind: str
    dtype: np.dtype[Any] | None
    dims: tuple[Extent, ...]
    inner: str = "tensor"


@dataclass(frozen=True)
class Binding:
    """One set of inputs."""

    dims: Mapping[str, int] = field(default_factory=dict)
    character: str = "normal"
    seed: int = 0
    profile: str = "legal"

    def as_json(self, refused: str | None = None) -> dict[str, Any]:
        """Give the binding for a report."""
        entry: dict[str, Any] = {"dims": dict(self.dims), "character": self.character, "seed": self.seed}
        return entry if refused is None else {**entry, "refused": refused}


def _convolves(model: onnx.ModelProto) -> bool:
    """Tell whether a model slides windows over its inputs, as far as its main graph shows."""
    return any("Conv" in node.op_type or "Pool" in node.op_type for node in model.graph.node)


def _spatial(ports: Sequence[InputPort], names: Sequence[str]) -> tuple[str, ...]:
    """List the free dims behind batch and channels of what look like images: float tensors of four or five dims."""
    images = [port for port in ports if port.dtype is not None and port.dtype.kind == "f" and len(port.dims) in (4, 5)]
    behind = dict.fromkeys(str(extent) for port in images for extent in port.dims[2:])
    return tuple(name for name in behind if name in names)


class Plan:
    """What to feed a model: its inputs, its free dims, and what the recipe says of both."""

    def __init__(self, model: onnx.ModelProto, spec: InputsSpec, inlined: onnx.ModelProto | None = None) -> None:
        self.spec = spec
        self.ports = read_ports(model)
        self.index = Index(inlined if inlined is not None else model)
        wishes = {name: tuple(extents) for name, extents in spec.dims.items()}
        names = free_names(extent for port in self.ports for extent in port.dims)
        self.dims = Dims(names, wishes, _spatial(self.ports, names) if _convolves(inlined or model) else ())
        self._check_spec()
        self._files = {name: _read_file(item.file, name) for name, item in spec.tensors.items() if item.file}
        self._fix_dims()

    @property
    def problem(self) -> str | None:
        """Why no inputs can be made at all, None when they can."""
        for port in self.ports:
            if port.dtype is None or port.kind not in ("tensor", "sequence", "optional"):
                return f"input '{port.name}' has a type that cannot be fed"
        return None

    def shape(self, port: InputPort, point: Mapping[str, int]) -> Shape:
        """Return the shape of an input with the dims bound; a file's own shape wins."""
        if port.name in self._files:
            return tuple(int(extent) for extent in self._files[port.name].shape)
        return tuple(evaluate(extent, point) for extent in port.dims)

    def shapes(self, point: Mapping[str, int]) -> dict[str, list[int]]:
        """Return the shapes of all inputs with the dims bound, for shape inference."""
        return {port.name: list(self.shape(port, point)) for port in self.ports}

    def domains(self, shapes: Mapping[str, list[int]]) -> dict[str, Domain]:
        """Find what is legal in each input, given the inferred shapes of all values."""
        view = View(self.index, {name: tuple(shape) for name, shape in shapes.items()})
        return {port.name: self._domain(view, port) for port in self.ports}

    def feeds(self, binding: Binding, domains: Mapping[str, Domain]) -> dict[str, Any]:
        """Make the arrays of a binding."""
        return {port.name: self._feed(port, binding, domains.get(port.name, ANY)) for port in self.ports}

    def _domain(self, view: View, port: InputPort) -> Domain:
        domain = ANY
        for use in uses(view, port.name):
            found = legal(use)
            if found is not None:
                domain = found if domain is ANY else domain.meet(found)
        is_count = port.dtype is not None and (is_integer(port.dtype) or port.dtype.kind == "b")
        if domain is ANY and is_count and "mask" in port.name.lower():
            return MASK
        return domain

    def _feed(self, port: InputPort, binding: Binding, domain: Domain) -> Any:
        shape = self.shape(port, binding.dims)
        given = self.spec.tensors.get(port.name)
        if port.name in self._files:
            return self._files[port.name].astype(port.dtype)
        if given is not None:
            domain = _domain_of(given)
        elif binding.profile != "legal":
            domain = _simplified(domain, port, binding.profile)
        rng = generator(binding.seed, port.name, binding.character)
        assert port.dtype is not None
        if port.kind == "sequence" or port.inner == "sequence":
            return [draw(domain, port.dtype, shape, binding.character, rng) for _ in range(SEQUENCE_LENGTH)]
        return draw(domain, port.dtype, shape, binding.character, rng)

    def _check_spec(self) -> None:
        """Refuse hints for what the model does not have."""
        names = {port.name for port in self.ports}
        for name in self.spec.tensors:
            if name not in names:
                known = ", ".join(sorted(names)) or "none"
                raise UsageError(f"inputs: the model has no input '{name}'", todo=f"its inputs are {known}")

    def _fix_dims(self) -> None:
        """Bind the dims that the shape of a given file decides."""
        wishes = dict(self.dims.wishes)
        for port in self.ports:
            array = self._files.get(port.name)
            if array is None:
                continue
            if len(port.dims) != array.ndim:
                raise UsageError(f"inputs: the file for '{port.name}' has rank {array.ndim}, not {len(port.dims)}")
            for extent, actual in zip(port.dims, array.shape):
                if extent in self.dims.names:
                    wishes[str(extent)] = (actual,)
        self.dims = replace(self.dims, wishes=wishes)


def read_ports(model: onnx.ModelProto) -> list[InputPort]:
    """List the inputs to feed: those that no initializer gives a value."""
    given = {tensor.name for tensor in model.graph.initializer}
    given |= {tensor.values.name for tensor in model.graph.sparse_initializer}
    return [_port(value) for value in model.graph.input if value.name not in given]


def _port(value: onnx.ValueInfoProto) -> InputPort:
    kinds = []
    proto = value.type
    while (field_name := proto.WhichOneof("value")) in ("sequence_type", "optional_type"):
        kinds.append(str(field_name).removesuffix("_type"))
        proto = getattr(proto, str(field_name)).elem_type
    kinds.append({"tensor_type": "tensor"}.get(str(field_name), str(field_name)))
    tensor = proto.tensor_type
    dims: tuple[Extent, ...] = UNKNOWN_RANK
    if tensor.HasField("shape"):
        dims = tuple(_extent(dim, f"{value.name}[{axis}]") for axis, dim in enumerate(tensor.shape.dim))
    dtype = dtype_of(tensor.elem_type) if kinds[-1] == "tensor" else None
    return InputPort(value.name, kinds[0], dtype, dims, inner=kinds[1] if len(kinds) > 1 else kinds[0])


def _extent(dim: onnx.TensorShapeProto.Dimension, anonymous: str) -> Extent:
    if dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0:
        return dim.dim_value
    return dim.dim_param or anonymous


def _domain_of(spec: TensorSpec) -> Domain:
    if spec.values is not None:
        return Domain(choices=tuple(spec.values))
    low, high = spec.range or (0.0, 1.0)
    return Domain(low, high)


def _simplified(domain: Domain, port: InputPort, profile: str) -> Domain:
    """Replace what was found for an integer input by something that more operators accept."""
    if port.dtype is None or not (is_integer(port.dtype) or port.dtype.kind == "b"):
        return domain
    return MASK if profile == "binary" else Domain(choices=({"ones": 1, "twos": 2, "zeros": 0}[profile],))


def _read_file(path: Path, name: str) -> Array:
    """Read the array for an input from a `.npy`, or by its name (or alone) from a `.npz`."""
    try:
        loaded = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise UsageError(f"inputs: the file for '{name}' cannot be read: {error}", where=str(path)) from error
    if isinstance(loaded, np.ndarray):
        return loaded
    with loaded:
        if name not in loaded.files and len(loaded.files) != 1:
            raise UsageError(f"inputs: no array '{name}' in it", where=str(path), todo=f"it has {loaded.files}")
        array: Array = loaded[name if name in loaded.files else loaded.files[0]]
        return array
