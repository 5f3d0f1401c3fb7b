"""The difference of two models: all results of `surgery diff`, and their assembly."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from surgery.base.errors import counted
from surgery.base.json_record import Record
from surgery.base.views import view
from surgery.features.differences.changes import Change, of_maps, of_one
from surgery.features.differences.constant_differences import Constants
from surgery.features.differences.node_differences import Correspondence
from surgery.features.inspection.inspect import Inspection, Port, inspect_stored
from surgery.model.proto.lineage_entries import function_name
from surgery.model.storage.summary import OperatorCount, histogram
from surgery.model.wire.digests import STATEMENT_KEY

if TYPE_CHECKING:
    import onnx

    from surgery.model.storage import StoredModel
    from surgery.verification.verdict.pair import Pair

_SIZES = {
    "nodes": "nodes",
    "depth": "depth",
    "parameters": "parameters",
    "weight bytes": "weight_bytes",
    "file bytes": "bytes",
}
"""The compared numbers of an inspection: from the reported name to the attribute."""


@dataclass(frozen=True)
class Difference(Record, keys="nodes constants operators signature opsets functions metadata sizes parity"):
    """The result of `surgery diff`. `operators` lists all operators, including those with equal counts.

    `parity` is the result of running both models, if requested.
    """

    before: Inspection
    after: Inspection
    operators: tuple[OperatorCount, ...]
    signature: tuple[Change, ...]
    opsets: tuple[Change, ...]
    functions: tuple[Change, ...]
    metadata: tuple[Change, ...]
    sizes: tuple[Change, ...]
    nodes: Correspondence = field(default_factory=Correspondence)
    constants: Constants = field(default_factory=Constants)
    parity: Pair | None = None

    @property
    def same(self) -> bool:
        """Whether the models differ at most in the names of nodes and inner values and in their storage."""
        parts = (self.signature, self.opsets, self.functions, self.metadata)
        return not any(parts) and self.nodes.same and self.constants.same

    def __repr__(self) -> str:
        """Return a line for a prompt; `to_json` tells more."""
        nodes = f"{self.before.nodes} -> {self.after.nodes} nodes"
        return f"<Difference: {'the same' if self.same else 'not the same'}, {nodes}>"

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as docs/reference/json.md describes them."""
        before, after = ({"path": _path(side), "nodes": side.nodes} for side in (self.before, self.after))
        return {"same": self.same, "before": before, "after": after, **super().to_json()}

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        return view("difference")(self.to_json())


def _path(side: Inspection) -> str | None:
    return str(side.path) if side.path is not None else None


def _metadata(side: Inspection) -> dict[str, str]:
    """Return the metadata to compare; provenance statements always differ and are left out."""
    return {key: text for key, text in side.metadata.items() if key != STATEMENT_KEY}


def with_costs(found: Difference, before: StoredModel, after: StoredModel) -> Difference:
    """Add the MACs and FLOPs of one run to the sizes, each a number or an expression in the names of dims."""
    from surgery.features.inspection.analysis import analyse

    a, b = analyse(before).costs, analyse(after).costs
    costs = of_one("MACs", a.macs.to_json(), b.macs.to_json()) + of_one("FLOPs", a.flops.to_json(), b.flops.to_json())
    return replace(found, sizes=found.sizes + costs)


def compare(before: StoredModel, after: StoredModel, nodes: Correspondence, constants: Constants) -> Difference:
    """Compare the inspections of two models, and combine the result with the differences of nodes and constants."""
    a, b = inspect_stored(before), inspect_stored(after)
    return Difference(
        a,
        b,
        operators=histogram(a.ops, b.ops),
        signature=(
            *_ports("input", a.inputs, b.inputs),
            *_ports("overridable input", a.overridable, b.overridable),
            *_ports("output", a.outputs, b.outputs),
        ),
        opsets=of_maps("opset ", a.opsets, b.opsets) + of_one("IR version", a.ir_version, b.ir_version),
        functions=of_maps("function ", _functions(before.proto), _functions(after.proto)),
        metadata=(*of_maps("metadata ", _metadata(a), _metadata(b)), *of_one("producer", a.producer, b.producer)),
        sizes=tuple(
            change for what, name in _SIZES.items() for change in of_one(what, getattr(a, name), getattr(b, name))
        ),
        nodes=nodes,
        constants=constants,
    )


def _functions(model: onnx.ModelProto) -> dict[str, str]:
    """Return the signature of each function by name: "(a, b; axis) -> (c), 3 nodes"."""
    return {function_name(function): _heading(function) for function in model.functions}


def _heading(function: onnx.FunctionProto) -> str:
    attributes = [*function.attribute, *(attribute.name for attribute in function.attribute_proto)]
    taken = "; ".join(filter(None, (", ".join(function.input), ", ".join(attributes))))
    count = len(function.node)
    return f"({taken}) -> ({', '.join(function.output)}), {counted(count, 'node')}"


def _ports(kind: str, before: tuple[Port, ...], after: tuple[Port, ...]) -> tuple[Change, ...]:
    changes = of_maps(f"{kind} ", {port.name: str(port) for port in before}, {port.name: str(port) for port in after})
    if changes:
        return changes
    return of_one(f"order of {kind}s", [port.name for port in before], [port.name for port in after])
