"""Figures of nodes to color a graph by: their cost, their time in a run, and what executes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from surgery.base.errors import UsageError
from surgery.features.inspection import node_costs
from surgery.verification.benchmarking import bench

if TYPE_CHECKING:
    from collections.abc import Mapping

    from surgery.model.storage import StoredModel

HeatKind = Literal["flops", "bytes", "seconds", "executed"]


@dataclass(frozen=True)
class Heat:
    """The figures of nodes of the main graph by name: numbers, or for "executed" the names of providers.

    `made` are the executed nodes that the runtime made of others. `note` says how the figures were found.
    """

    kind: HeatKind
    values: Mapping[str, float] = field(default_factory=dict)
    providers: Mapping[str, str] = field(default_factory=dict)
    made: tuple[str, ...] = ()
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**vars(self), "values": dict(self.values), "providers": dict(self.providers), "made": list(self.made)}


def heat_of(model: StoredModel, kind: str, settings: Mapping[str, Any]) -> Heat:
    """Return the figures of the nodes of a model. `settings` are fields of `BenchSpec`, for what has to run.

    Raises UsageError for an unknown kind, or if the model does not run.
    """
    if kind == "flops":
        costs = node_costs.node_costs(model)
        known = {name: cost.flops for name, cost in costs.items() if cost.flops is not None}
        unknown = len(costs) - len(known)
        more = f"; {unknown} nodes of unknown cost" if unknown else ""
        return Heat("flops", known, note=f"one run with dynamic dims of 1{more}")
    if kind == "bytes":
        moved = {name: cost.bytes for name, cost in node_costs.node_costs(model).items()}
        return Heat("bytes", moved, note="operands and results, with dynamic dims of 1")
    if kind == "seconds":
        note = "measured without optimizations of the runtime, on one thread and generated inputs"
        return Heat("seconds", bench.profile_nodes(model, {}, settings), note=note)
    if kind == "executed":
        executed = bench.profile_executed(model, settings)
        names = {node.name for node in model.proto.graph.node}
        made = tuple(name for name in executed if name not in names)
        note = f"with optimizations: {len(executed)} nodes executed, {len(made)} of them made by the runtime"
        return Heat("executed", {}, {name: executed[name] for name in executed if name in names}, made, note)
    raise UsageError(f"there are no figures '{kind}'", todo=f"there are {', '.join(get_args(HeatKind))}")
