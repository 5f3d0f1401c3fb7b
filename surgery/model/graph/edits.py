"""The buffered edits of one site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import onnx_ir as ir

from surgery.base.promises import Change
from surgery.model.graph.claims import Claim
from surgery.model.graph.signature_mappings import Joined, Pieces
from surgery.model.graph.values import Node, Value
from surgery.model.shapes.facts import Dim

FIRST_WITH_FUNCTIONS = 8
"""The IR version that introduced model-local functions."""


ModelField = Literal["producer_name", "producer_version", "domain", "model_version", "doc_string"]
"""Descriptive fields of a model besides its metadata."""


@dataclass(frozen=True)
class NewNode:
    """A node that does not exist yet; its outputs are values without a producer so far."""

    op: str
    domain: str
    inputs: tuple[ir.Value | None, ...]
    attributes: Mapping[str, Any]
    outputs: tuple[ir.Value, ...]
    name: str | None
    before: ir.Node | None = None
    like: ir.Node | None = None
    """The node that is copied, if any."""
    omitted: frozenset[int] = frozenset()
    """The positions of omitted optional outputs."""


PortEdit = Literal["add input", "drop input", "drop output", "add output", "cut"]


@dataclass
class Edits:
    """The edits of a site, by kind, in the order in which the site made them."""

    constants: list[tuple[ir.Value, str, ir.Node | None]] = field(default_factory=list)
    nodes: list[NewNode] = field(default_factory=list)
    inputs: list[tuple[ir.Node, int, ir.Value | None]] = field(default_factory=list)
    attributes: list[tuple[ir.Node, str, Any]] = field(default_factory=list)
    operators: list[tuple[ir.Node, str, int]] = field(default_factory=list)
    replacements: list[tuple[ir.Value, ir.Value, ir.Node | None]] = field(default_factory=list)
    removals: list[ir.Node] = field(default_factory=list)
    drops: list[ir.Value] = field(default_factory=list)
    opsets: list[tuple[ir.Function | None, str, int]] = field(default_factory=list)
    functions: list[ir.Function] = field(default_factory=list)
    definitions: list[ir.Function] = field(default_factory=list)
    declarations: list[tuple[ir.Value, ir.TypeProtocol | None, Sequence[Dim] | None]] = field(default_factory=list)
    ports: list[tuple[PortEdit, ir.Value]] = field(default_factory=list)
    results: list[tuple[ir.Graph, int, ir.Value, ir.DataType]] = field(default_factory=list)
    element_types: list[tuple[ir.Value, ir.DataType]] = field(default_factory=list)
    port_types: list[tuple[ir.Value, ir.TypeProtocol | None, Sequence[Dim] | None]] = field(default_factory=list)
    port_orders: dict[str, list[tuple[ir.Value, str | None]]] = field(default_factory=dict)
    output_names: dict[ir.Value, str] = field(default_factory=dict)
    claims: list[Claim] = field(default_factory=list)
    joins: list[Joined] = field(default_factory=list)
    pieces: list[Pieces] = field(default_factory=list)
    bindings: list[tuple[ir.Value, ir.TensorProtocol]] = field(default_factory=list)
    contents: list[tuple[ir.Value, ir.TensorProtocol]] = field(default_factory=list)
    names: dict[ir.Value, str] = field(default_factory=dict)
    node_names: dict[ir.Node, str] = field(default_factory=dict)
    dim_names: dict[str, int | str] = field(default_factory=dict)
    orders: list[tuple[ir.Graph, Sequence[ir.Node], Sequence[ir.Value]]] = field(default_factory=list)
    metadata: dict[str, str | None] = field(default_factory=dict)
    model_fields: dict[ModelField, Any] = field(default_factory=dict)
    docs: dict[ir.Value, str | None] = field(default_factory=dict)
    stripped: list[Node | Value] = field(default_factory=list)
    changed: list[ir.Value] = field(default_factory=list)
    outdated: list[ir.Value] = field(default_factory=list)
    ir_version: int = 0
    ir_limit: int = 0

    @property
    def of_model(self) -> bool:
        """Whether any edit concerns inputs, outputs, names or orders, and not only nodes and constants."""
        return any(
            (
                self.ports,
                self.port_types,
                self.port_orders,
                self.bindings,
                self.names,
                self.node_names,
                self.dim_names,
                self.orders,
                self.joins,
                self.pieces,
                self.claims,
            )
        )

    def signature_changes(self) -> set[Change]:
        """Return the parts of the signature that may change by them."""
        ends = {change for change, _ in self.ports}
        found: dict[Change, bool] = {
            "inputs": bool(ends & {"add input", "drop input", "cut"} or self.bindings),
            "outputs": bool(ends & {"add output", "drop output"}),
            "names": bool(self.names),
            "order": bool(self.port_orders),
            "types": bool(self.port_types or self.outdated or self.element_types),
            "dims": bool(self.port_types or self.outdated or self.dim_names),
            "metadata": bool(self.metadata or self.model_fields or self.docs),
        }
        return {change for change, may in found.items() if may}

    def __bool__(self) -> bool:
        if self.replacements:  # the case at most sites
            return True
        # An unused constant or function changes nothing.
        idle = ("constants", "definitions", "outdated", "claims", "joins")
        return any(edits for kind, edits in vars(self).items() if kind not in idle)

    def made(self) -> set[ir.Value]:
        """Return the values that new nodes compute."""
        return {value for node in self.nodes for value in node.outputs}
