"""Facts about one model, from its weightless form: no weight is read."""

from __future__ import annotations

import graphlib
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.base.json_record import Record
from surgery.base.operators.subgraphs import nodes, reads, subgraphs
from surgery.base.views import view
from surgery.engine.provenance import statement_summary
from surgery.model import storage
from surgery.model.proto.lineage_entries import function_name
from surgery.model.storage.summary import data_files, operators
from surgery.model.wire.descriptions import DescriptionBytes, description_bytes
from surgery.model.wire.digests import STATEMENT_KEY
from surgery.model.wire.garbage_collection import collection_paused

if TYPE_CHECKING:
    import onnx

    from surgery.model.storage.loading import Model


@dataclass(frozen=True)
class Port(Record):
    """An input or output of a model. A dim is a number, a name, or None if it is not declared."""

    name: str
    type: str
    shape: tuple[int | str | None, ...] | None

    def __str__(self) -> str:
        if self.shape is None:
            return self.type
        return f"{self.type}[{', '.join('?' if dim is None else str(dim) for dim in self.shape)}]"


@dataclass(frozen=True)
class Inspection(Record):
    """The result of `surgery inspect`.

    `bytes` is the size of the files, `weight_bytes` that of constant tensors, and `metadata_bytes` that of metadata and
    doc strings of all parts of the model. `metadata` has the entries of the model itself.
    """

    path: Path | None
    ir_version: int
    producer: str
    opsets: dict[str, int]
    inputs: tuple[Port, ...]
    overridable: tuple[Port, ...]
    outputs: tuple[Port, ...]
    nodes: int
    depth: int
    ops: dict[str, int]
    domains: dict[str, int]
    functions: dict[str, int]
    parameters: int
    parameters_by_type: dict[str, int]
    weight_bytes: int
    bytes: int | None
    metadata: dict[str, str] = field(default_factory=dict)
    metadata_bytes: DescriptionBytes = field(default_factory=DescriptionBytes)

    def provenance(self) -> dict[str, Any] | None:
        """Return what the provenance statement in the model says, unchecked; None without a statement of surgery."""
        return statement_summary.read_summary(self.metadata.get(STATEMENT_KEY, ""))

    def __repr__(self) -> str:
        """Return a line for a prompt."""
        name = repr(self.path.name) if self.path is not None else "a model in memory"
        return f"<Inspection of {name}: {self.nodes} nodes, {self.parameters:,} parameters>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        return view("inspection")(
            name=self.path.name if self.path is not None else "a model in memory",
            nodes=self.nodes,
            parameters=self.parameters,
            weight_bytes=self.weight_bytes,
            opsets=self.opsets,
            inputs={port.name: str(port) for port in self.inputs},
            outputs={port.name: str(port) for port in self.outputs},
            ops=self.ops,
        )


def inspect(model: Model) -> Inspection:
    """Describe a model: inputs and outputs, operators, opsets, parameters and bytes.

    Raises ModelFileError if the model cannot be read, and TransferError if a connection breaks.
    """
    return inspect_stored(storage.opened(model))


def histogram(model: Model) -> dict[str, int]:
    """Return the number of nodes of each operator of a model, in all graphs, the most frequent first.

    Raises ModelFileError if the model cannot be read, and TransferError if a connection breaks.
    """
    counts = inspect(model).ops
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


@collection_paused()
def inspect_stored(stored: storage.StoredModel) -> Inspection:
    """Inspect a loaded model."""
    proto = stored.proto
    initialized = {tensor.name for tensor in proto.graph.initializer}
    inputs = [(_port(value), value.name in initialized) for value in proto.graph.input]
    parameters = _parameters(proto)
    return Inspection(
        path=stored.path,
        ir_version=proto.ir_version,
        producer=" ".join(part for part in (proto.producer_name, proto.producer_version) if part),
        opsets={entry.domain or "ai.onnx": entry.version for entry in proto.opset_import},
        inputs=tuple(port for port, default in inputs if not default),
        overridable=tuple(port for port, default in inputs if default and proto.ir_version >= 4),
        outputs=tuple(_port(value) for value in proto.graph.output),
        nodes=sum(1 for _ in nodes(proto)),
        depth=_depth(proto.graph),
        ops=operators(proto),
        domains=dict(Counter(node.domain or "ai.onnx" for node in nodes(proto)).most_common()),
        functions={function_name(function): len(function.node) for function in proto.functions},
        parameters=sum(parameters.values()),
        parameters_by_type=parameters,
        weight_bytes=storage.weight_bytes(proto),
        bytes=sum(path.stat().st_size for path in data_files(stored)) if stored.path else None,
        metadata={entry.key: entry.value for entry in proto.metadata_props},
        metadata_bytes=description_bytes(proto),
    )


def _parameters(proto: onnx.ModelProto) -> dict[str, int]:
    """Count the elements of the initializers of all scopes, by element type."""
    import math

    import onnx

    graphs = [proto.graph]
    for node in nodes(proto):
        graphs += subgraphs(node)
    counts: Counter[str] = Counter()
    for graph in graphs:
        for tensor in graph.initializer:
            counts[onnx.TensorProto.DataType.Name(tensor.data_type).lower()] += math.prod(tensor.dims)
        for sparse in graph.sparse_initializer:
            counts[onnx.TensorProto.DataType.Name(sparse.values.data_type).lower()] += math.prod(sparse.values.dims)
    return dict(counts.most_common())


def _port(value: onnx.ValueInfoProto) -> Port:
    type_name, shape = describe_type(value.type)
    return Port(value.name, type_name, shape)


def describe_type(proto: onnx.TypeProto) -> tuple[str, tuple[int | str | None, ...] | None]:
    """Return a type as text ("float", "sequence(float)") and, for tensors, the dims."""
    import onnx

    kind = proto.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(proto, kind)
        name = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
        if kind == "sparse_tensor_type":
            name = f"sparse({name})"
        if not tensor.HasField("shape"):
            return name, None
        return name, tuple(
            dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in tensor.shape.dim
        )
    if kind in ("sequence_type", "optional_type"):
        inner, shape = describe_type(getattr(proto, kind).elem_type)
        dims = f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]" if shape is not None else ""
        return f"{kind.removesuffix('_type')}({inner}{dims})", None
    if kind == "map_type":
        key = onnx.TensorProto.DataType.Name(proto.map_type.key_type).lower()
        return f"map({key}, {describe_type(proto.map_type.value_type)[0]})", None
    return "?", None


def _depth(graph: onnx.GraphProto) -> int:
    """Return the number of nodes on the longest path through a graph; 0 if it has a cycle."""
    makers = {name: number for number, node in enumerate(graph.node) for name in node.output if name}
    above = [{makers[name] for name in reads(node) if name in makers} for node in graph.node]
    depths: dict[int, int] = {}
    try:
        for number in _sorted(above):
            depths[number] = 1 + max((depths[other] for other in above[number]), default=0)
    except graphlib.CycleError:
        return 0
    return max(depths.values(), default=0)


def _sorted(above: Sequence[Set[int]]) -> Iterable[int]:
    """Return node numbers in topological order. CycleError if there is none."""
    if all(max(others, default=-1) < number for number, others in enumerate(above)):
        return range(len(above))  # sorted, as ONNX requires
    return graphlib.TopologicalSorter(dict(enumerate(above))).static_order()
