"""The cost and the problems of a model: operations, memory, weights, dynamic dims, kernels, findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from surgery.base.json_record import Record
from surgery.features.inspection.activations import Activations, activations
from surgery.features.inspection.bound_dims import bind, dynamic_dims, inlined
from surgery.features.inspection.constant_tensors import WeightSummary, weights
from surgery.features.inspection.costs import Costs, costs
from surgery.features.inspection.findings import Finding, findings
from surgery.features.inspection.kernel_gaps import Gap, gaps
from surgery.model import storage
from surgery.model.graph.graph import Graph
from surgery.model.graph.values import Value

__all__ = ["Activations", "Analysis", "Costs", "Dynamic", "Finding", "Gap", "WeightSummary", "analyse"]


@dataclass(frozen=True)
class Dynamic(Record):
    """A dynamic dim: the inputs that have it, such as "x[0]", or the node that computes it from data."""

    name: str
    places: tuple[str, ...]
    made_by: str = ""


@dataclass(frozen=True)
class Analysis(Record, keys="sizes costs activations weights dynamic without_kernel=gaps findings"):
    """The costs of one run, with the dims in `sizes` bound and the others left as names.

    `gaps` is None if ONNX Runtime does not report its kernels.
    """

    sizes: Mapping[str, int]
    costs: Costs
    activations: Activations
    weights: WeightSummary
    dynamic: tuple[Dynamic, ...]
    gaps: tuple[Gap, ...] | None
    findings: tuple[Finding, ...]


def analyse(stored: storage.StoredModel, sizes: Mapping[str, int] | None = None) -> Analysis:
    """Analyse a model; `sizes` binds dynamic dims by name. UsageError if the model has no such dim."""
    proto = stored.proto
    sizes = dict(sizes or {})
    graph = Graph(storage.ir_from_proto(proto, stored.weights), weights=stored.weights)
    held = weights(graph)
    missing = gaps(graph)
    plain = graph
    if sizes or proto.functions:
        plain = Graph(storage.ir_from_proto(inlined(bind(proto, sizes)), stored.weights), weights=stored.weights)
    return Analysis(
        sizes,
        costs(plain),
        activations(plain),
        held,
        tuple(_dynamic(graph, dynamic_dims(proto))),
        None if missing is None else tuple(missing),
        tuple(findings(proto, graph, held, missing)),
    )


def _dynamic(graph: Graph, of_inputs: Mapping[str, list[str]]) -> list[Dynamic]:
    """List the dynamic dims of inputs, and the dims that depend on data."""
    found = [Dynamic(name, tuple(places)) for name, places in of_inputs.items()]
    seen = {dim for value in graph.inputs() for dim in _shape(value) if isinstance(dim, str)}
    for node in graph.nodes():
        for value in node.outputs:
            for axis, dim in enumerate(_shape(value)):
                if isinstance(dim, str) and dim not in seen and graph.facts.is_made_up(dim):
                    seen.add(dim)
                    found.append(Dynamic(dim, (f"{value.name}[{axis}]",), node.label))
    return found


def _shape(value: Value) -> tuple[int | str | None, ...]:
    return value.shape or () if value.name else ()
