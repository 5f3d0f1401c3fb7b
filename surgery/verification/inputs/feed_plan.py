"""Legal inputs for a model, found from its graph.

A `Binding` describes one set of inputs completely: the extents of the symbolic dims, the character of the data, the
treatment of integers, the seed. `FeedPlan.feeds` turns it into arrays, always the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.base.operators import traits
from surgery.base.operators.cost import estimate, listing, opening
from surgery.base.operators.deciding import DECIDING, decide
from surgery.base.operators.domain import ANY, MASK, Domain, draw, generator
from surgery.base.operators.dtypes import Array, dtype_of, is_integer
from surgery.base.operators.legal_inputs import SEQUENCE_LENGTH, legal
from surgery.base.operators.subgraphs import initializer_names
from surgery.base.operators.thresholds import marks, sizes, spared
from surgery.base.operators.use import Index, Shape, TypedIndex, uses
from surgery.model.shapes.declarations import Extent
from surgery.model.wire.stored_lists import listed_bytes, with_beginnings
from surgery.verification.inputs.comparisons import elements
from surgery.verification.inputs.dims import Dims, evaluate, free_names
from surgery.verification.inputs.given_values import read_tensors, shape_of
from surgery.verification.inputs.input_port import InputPort
from surgery.verification.inputs.spec import InputsSpec, TensorSpec

if TYPE_CHECKING:
    import onnx

_ALL_THE_SAME = {"ones": 1, "twos": 2, "zeros": 0, "sixteens": 16}
"""Integers that are all the same: durations have to add up, and windows of many frames take large ones."""

PROFILES = ("legal", "binary", *_ALL_THE_SAME)
"""How integers are chosen: by the rules, and where these fall short, as 0 and 1 mixed or all the same."""

_WITHOUT = ("edges", "coarse", "image")
"""Kinds of data in which an optional input is empty."""

UNKNOWN_RANK = (2, 3)
"""The shape of a tensor that declares none."""


DimKey = tuple[tuple[str, int], ...]
"""Dims with their sizes."""


@dataclass(frozen=True)
class Binding:
    """One set of inputs.

    `ports` are the inputs that a kind of data made for guards applies to, with None all; the others have normal data.
    """

    dims: Mapping[str, int] = field(default_factory=dict)
    character: str = "normal"
    seed: int = 0
    profile: str = "legal"
    ports: tuple[str, ...] | None = None

    @property
    def dim_key(self) -> DimKey:
        """The dims, as a key."""
        return tuple(self.dims.items())

    def decides(self, name: str) -> bool:
        """Return whether the kind of data is made for guards and applies to an input."""
        return self.character in DECIDING and (self.ports is None or name in self.ports)

    @property
    def ordinary(self) -> str:
        """The kind of data of inputs that the kind made for guards does not apply to."""
        return "normal" if self.character in DECIDING else self.character

    def as_json(self, refused: str | None = None) -> dict[str, Any]:
        """Return the binding for a report."""
        entry: dict[str, Any] = {"dims": dict(self.dims), "character": self.character, "seed": self.seed}
        return entry if refused is None else {**entry, "refused": refused}


def _convolves(model: onnx.ModelProto) -> bool:
    """Return whether a model slides windows over its inputs, judging by its main graph."""
    return any(traits.slides(node.op_type) for node in model.graph.node)


def _spatial(ports: Sequence[InputPort], names: Sequence[str]) -> tuple[str, ...]:
    """Return the free dims after batch and channels of presumable images: float tensors with four or five dims."""
    images = [port for port in ports if port.dtype is not None and port.dtype.kind == "f" and len(port.dims) in (4, 5)]
    spatial = dict.fromkeys(str(extent) for port in images for extent in port.dims[2:])
    return tuple(name for name in spatial if name in names)


class FeedPlan:
    """The plan for feeding a model: its inputs, its free dims, and the recipe's settings for both."""

    def __init__(self, model: onnx.ModelProto, spec: InputsSpec, inlined: onnx.ModelProto | None = None) -> None:
        self.spec = spec
        self.ports = read_ports(model)
        self._model = model
        # Inputs are drawn near the thresholds of tree ensembles; a few of these are enough.
        self.index = Index(with_beginnings(inlined if inlined is not None else model))
        wishes = {name: tuple(extents) for name, extents in spec.dims.items()}
        names = free_names(extent for port in self.ports for extent in port.dims)
        self.dims = Dims(names, wishes, _spatial(self.ports, names) if _convolves(inlined or model) else ())
        self._files = read_tensors(spec, self.ports, read_defaults(model))
        self._fix_dims()

    @property
    def problem(self) -> str | None:
        """Why no inputs can be made at all; None if they can."""
        for port in self.ports:
            if port.dtype is None or port.kind not in ("tensor", "sequence", "optional"):
                return f"input '{port.name}' has an unsupported type"
        return None

    def shape(self, port: InputPort, point: Mapping[str, int]) -> Shape:
        """Return the shape of an input with the dims bound; the shape of a given file takes precedence."""
        return tuple(evaluate(extent, point) for extent in self._extents(port))

    def _extents(self, port: InputPort) -> tuple[Extent, ...]:
        given = shape_of(self._files.get(port.name))
        return port.dims if given is None else given

    def extents(self) -> dict[str, list[Extent]]:
        """Return the dims of all inputs: numbers, names and expressions over names."""
        return {port.name: list(self._extents(port)) for port in self.ports}

    def shapes(self, point: Mapping[str, int]) -> dict[str, list[int]]:
        """Return the shapes of all inputs with the dims bound, for shape inference."""
        return {port.name: list(self.shape(port, point)) for port in self.ports}

    def domains(self, shapes: Mapping[str, list[int]]) -> dict[str, Domain]:
        """Return the legal domain of each input, given the inferred shapes of all values."""
        view = self._view(shapes)
        return {port.name: self._marked(self._domain(view, port), view, port) for port in self.ports}

    def cost(self, shapes: Mapping[str, list[int]], weights: int) -> float:
        """Estimate the seconds of one run, given the inferred shapes of all values and the bytes of the weights."""
        view = self._view(shapes)
        return estimate(view, weights, (port.name for port in self.ports), elements(view))

    @cached_property
    def listed(self) -> int:
        """The number of bytes of the long lists of the model, see `storage.stored_lists`."""
        return listed_bytes(self._model)

    @property
    def nodes(self) -> int:
        """The number of nodes of the model, including those of its subgraphs."""
        return len(self.index.nodes)

    @property
    def profiles(self) -> tuple[str, ...]:
        """The profiles that make a difference: without integers, only the first one."""
        counts = any(
            port.dtype is not None and (is_integer(port.dtype) or port.dtype.kind == "b") for port in self.ports
        )
        return PROFILES if counts else PROFILES[:1]

    @property
    def opening(self) -> float:
        """The estimated seconds to create a session, without those for long lists."""
        return opening(self.nodes)

    @property
    def listing(self) -> float:
        """The estimated seconds that a session needs in addition for the long lists of the model."""
        return listing(self.listed)

    def lacks(self, shapes: Mapping[str, list[int]], domains: Mapping[str, Domain]) -> bool:
        """Return whether an unknown shape may matter: nothing limits the values of some integer input."""
        unlimited = any(
            port.dtype is not None and is_integer(port.dtype) and not domains[port.name].limited for port in self.ports
        )
        return unlimited and any(
            name and name not in shapes for node, depth in self.index.nodes if not depth for name in node.output
        )

    def _view(self, shapes: Mapping[str, list[int]]) -> TypedIndex:
        return TypedIndex(self.index, {name: tuple(shape) for name, shape in shapes.items()})

    def feeds(self, binding: Binding, domains: Mapping[str, Domain]) -> dict[str, Any]:
        """Return the arrays of a binding."""
        return {port.name: self._feed(port, binding, domains.get(port.name, ANY)) for port in self.ports}

    def _domain(self, view: TypedIndex, port: InputPort) -> Domain:
        domain = ANY
        for use in uses(view, port.name):
            found = legal(use)
            if found is not None:
                domain = found if domain is ANY else domain.meet(found)
        is_count = port.dtype is not None and (is_integer(port.dtype) or port.dtype.kind == "b")
        if domain is ANY and is_count and "mask" in port.name.lower():
            return MASK
        return domain

    @cached_property
    def _small(self) -> tuple[float, ...]:
        """The magnitudes at which an epsilon decides; they follow from constants, not from shapes."""
        return sizes((node for node, _ in self.index.nodes), self._view({}))

    def _marked(self, domain: Domain, view: TypedIndex, port: InputPort) -> Domain:
        """Add the values at which the graph changes its behavior; they do not affect what is legal."""
        if port.dtype is None or port.dtype.kind in "Ob":
            return domain
        also = spared(view, port.name) if is_integer(port.dtype) and domain.draw is None else ()
        return replace(domain, marks=marks(view, port.name), sizes=self._small, also=also)

    def _feed(self, port: InputPort, binding: Binding, domain: Domain) -> Any:
        shape = self.shape(port, binding.dims)
        given = self.spec.tensors.get(port.name)
        if port.name in self._files:
            return self._files[port.name]
        if given is not None:
            domain = _domain_of(given)
        elif binding.profile != "legal":
            domain = _simplified(domain, port, binding.profile)
        if port.kind == "optional" and binding.character in _WITHOUT and self._may_be_empty(port):
            return None
        rng = generator(binding.seed, port.name, binding.ordinary)
        if port.kind == "sequence" or port.inner == "sequence":
            return [self._draw(domain, port, shape, binding, rng) for _ in range(SEQUENCE_LENGTH)]
        if binding.decides(port.name) and port.dtype is not None and given is None:
            own = generator(binding.seed, port.name, binding.ordinary)
            found = decide(binding.character, domain, port.dtype, shape, own, binding.seed)
            if found is not None:
                return found
        return self._draw(domain, port, shape, binding, rng)

    def _may_be_empty(self, port: InputPort) -> bool:
        """Return whether the graph tests if an optional input is present."""
        names = (port.name, *self.index.aliases.get(port.name, ()))
        readers = (node for name in names for node, _ in self.index.consumers.get(name, ()))
        return any(node.op_type == "OptionalHasElement" for node in readers)

    def _draw(self, domain: Domain, port: InputPort, shape: Shape, binding: Binding, rng: np.random.Generator) -> Array:
        assert port.dtype is not None
        return draw(domain, port.dtype, shape, binding.ordinary, rng, binding.seed)

    def _fix_dims(self) -> None:
        """Bind the dims that are determined by the shape of a given file."""
        wishes = dict(self.dims.wishes)
        for port in self.ports:
            for extent, actual in zip(port.dims, shape_of(self._files.get(port.name)) or ()):
                if extent in self.dims.names:
                    wishes[str(extent)] = (actual,)
        self.dims = replace(self.dims, wishes=wishes)


def with_all_values(skeleton: bytes) -> bytes:
    """Copy a model and make every value of its main graph an output, after the existing ones."""
    import onnx

    model = onnx.load_model_from_string(skeleton)
    there = {value.name for value in model.graph.output}
    names = dict.fromkeys(name for node in model.graph.node for name in node.output if name and name not in there)
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    copy: bytes = model.SerializeToString()
    return copy


def read_ports(model: onnx.ModelProto) -> list[InputPort]:
    """Return the inputs to feed: those without an initializer."""
    given = initializer_names(model.graph)
    return [_port(value) for value in model.graph.input if value.name not in given]


def read_defaults(model: onnx.ModelProto) -> list[InputPort]:
    """Return the inputs that may be fed but have a default."""
    if model.ir_version < 4:
        return []
    fed = {port.name for port in read_ports(model)}
    return [_port(value) for value in model.graph.input if value.name not in fed]


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
    inner = kinds[1] if len(kinds) > 1 else kinds[0]
    return InputPort(value.name, kinds[0], dtype, dims, inner, ranked=tensor.HasField("shape"))


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
    """Replace the domain found for an integer input with one that more operators accept."""
    if port.dtype is None or not (is_integer(port.dtype) or port.dtype.kind == "b"):
        return domain
    if profile == "unknown":
        return domain if domain.limited else Domain(choices=(0,))
    return MASK if profile == "binary" else Domain(choices=(_ALL_THE_SAME[profile],))
