"""Edits of the inputs and outputs of a model: the checks, and how the edits are applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import onnx_ir as ir

from surgery.base.errors import PassError
from surgery.model.graph.edits import Edits
from surgery.model.graph.rename import rename_dims, rename_node
from surgery.model.graph.signature_mappings import Relation
from surgery.model.graph.values import Refusal, Value
from surgery.model.shapes.facts import Dim, declarable
from surgery.model.storage.ir_scopes import scopes, values

if TYPE_CHECKING:
    from surgery.model.graph.state import GraphState


class SignatureEdits:
    """Applies the edits of one site to inputs, outputs and names."""

    def __init__(self, graph: GraphState, edits: Edits) -> None:
        self.graph = graph
        self.edits = edits
        self._main = graph.ir.graph
        self._dropped = {value for kind, value in edits.ports if kind.startswith("drop")}

    # Checks, before any change

    def check(self) -> None:
        """Refuse edits that cannot be applied."""
        edits = self.edits
        bound = {value for value, _ in edits.bindings}
        for change, value in edits.ports:
            match change:
                case "cut":
                    self._check_cut(value)
                case "add output":
                    self._check_new_output(value)
                case "drop output" if not _among(value, self._main.outputs):
                    raise Refusal(f"{value.name} is not an output of the model")
                case "drop input" if not _among(value, self._main.inputs):
                    raise Refusal(f"{value.name} is not an input of the model")
                case "drop input" if not (value in bound or value.is_initializer()) and self._stays_read(value):
                    raise Refusal(f"{value.name} is still read, but has no other value")
        self._check_names()

    def _check_cut(self, value: ir.Value) -> None:
        """Refuse to cut at a value that cannot become an input."""
        if value.graph is not self._main or value.is_graph_input():
            raise Refusal(f"{value.name} is not a value of the main graph, or already an input")
        if value.is_graph_output() and value not in self._dropped:
            raise Refusal(f"{value.name} is an output of the model")
        if Value(self.graph, value).type is None:
            raise Refusal(f"the type of {value.name} is not known")

    def _check_new_output(self, value: ir.Value) -> None:
        if value in self.edits.made():
            return
        if value.graph is not self._main or value.is_graph_output():
            raise Refusal(f"{value.name} is not a value of the main graph, or already an output")
        if Value(self.graph, value).type is None:
            raise Refusal(f"the type of {value.name} is not known")

    def _stays_read(self, value: ir.Value) -> bool:
        edits = self.edits
        if any(value in made.inputs for made in edits.nodes) or any(new is value for _, new, _ in edits.replacements):
            return True
        return bool(value._uses) and all(old is not value for old, _, _ in edits.replacements)

    def _check_names(self) -> None:
        """Refuse names that other values keep; several values may exchange their names."""
        edits = self.edits
        added = [
            *edits.output_names.values(),
            *(value.name or "" for kind, value in edits.ports if kind == "add input"),
        ]
        if not edits.names and not added:
            return
        given = {value.name: name for value, name in edits.names.items()}
        leaving = {value.name for value in self._dropped}
        staying = {value.name for value in values(scopes(self.graph.ir)) if value.name not in given}
        wanted = [*given.values(), *added]
        free = staying - (leaving if added else set())
        taken = next((name for name in wanted if not name or name in free), None)
        if taken is not None:
            raise Refusal(f"the name '{taken}' is taken")
        if len({*wanted}) < len(wanted):
            raise Refusal("two values would have the same name")

    # Changes

    def change(self) -> list[ir.Value]:
        """Change the inputs, outputs and names; return values that may have become unused."""
        edits, graph = self.edits, self.graph
        if not edits.of_model:
            return []
        before = {end: [value.name for value in self._ends(end)] for end in ("inputs", "outputs")}
        if edits.ports or edits.port_types:
            # Values that were unknown because a caller could set them may be constant now.
            graph.facts.forget()
        for value, tensor in edits.bindings:
            value.const_value = graph.store(tensor)
            self._main.initializers[value.name or ""] = value
        orphans = self._drop()
        for value, kind, dims in edits.port_types:
            value.type = value.type if kind is None else kind
            value.shape = value.shape if dims is None else ir.Shape(declarable(dims))
        self._add()
        self._order(before)
        if edits.names:
            graph.rename_values(edits.names)
        for node, name in edits.node_names.items():
            rename_node(node, name, graph.pass_name)
        if edits.dim_names:
            rename_dims(graph.ir, edits.dim_names)
            graph.facts.forget()
        if edits.orders:
            graph.arrange(edits.orders)
        graph.accounts += [*edits.joins, *edits.pieces, *(claim.settled() for claim in edits.claims)]
        return orphans

    def _ends(self, end: str) -> list[ir.Value]:
        return list(self._main.inputs if end == "inputs" else self._main.outputs)

    def _drop(self) -> list[ir.Value]:
        """Remove inputs and outputs, and apply cuts; rename a dropped value if a new one takes its name."""
        orphans: list[ir.Value] = []
        for change, value in self.edits.ports:
            match change:
                case "drop input":
                    if not value.is_initializer() or self.graph.ir.ir_version >= 4 or not value._uses:
                        self._main.inputs.remove(value)
                    orphans.append(value)
                case "drop output":
                    self._main.outputs.remove(value)
                    orphans.append(value)
                case "cut":
                    orphans.append(self._cut(value))
        wanted = {*self.edits.output_names.values(), *(v.name for kind, v in self.edits.ports if kind == "add input")}
        for value in self._dropped:
            if value.name in wanted and value not in self.edits.names:
                value.name = self.graph.fresh(f"{value.name}_inner")
        return orphans

    def _add(self) -> None:
        self.graph.forget_names()
        for change, value in self.edits.ports:
            if change == "add input":
                self._main.inputs.append(value)
            elif change == "add output":
                self._add_output(value)

    def _add_output(self, value: ir.Value) -> None:
        name = self.edits.output_names.get(value)
        known = Value(self.graph, value)
        kind, dims = known.type, known.shape
        if kind is None:
            raise PassError(
                f"the type of the new output '{name or value.name}' is not known", todo="give it by set_port"
            )
        if name is not None and name != value.name:
            self._named(value, name)
        value.type, value.shape = kind, None if dims is None else ir.Shape(self._declarable(dims))
        self._main.outputs.append(value)

    def _declarable(self, dims: tuple[Dim, ...]) -> list[Dim]:
        """Return the dims without names that inference made up."""
        known = [None if isinstance(dim, str) and self.graph.facts.is_made_up(dim) else dim for dim in dims]
        return declarable(known)

    def _cut(self, value: ir.Value) -> ir.Value:
        """Replace a value by an input of the same name, type and dims; return the value."""
        known, name = Value(self.graph, value), value.name or ""
        port = ir.Value(type=known.type, shape=None if known.shape is None else ir.Shape(self._declarable(known.shape)))
        for node, index in list(value.uses()):
            node.replace_input_with(index, port)
            self.graph.changed_nodes.append(node)
        if value.is_initializer():
            del self._main.initializers[name]
        value.name, port.name = self.graph.fresh(f"{name}_cut"), name
        self._main.inputs.append(port)
        return value

    def _named(self, value: ir.Value, name: str) -> None:
        """Rename a value to the name of an output."""
        if value in self.edits.made():
            value.name = name
        else:
            self.graph.accounts.append(copied(value.name or "", name))
            self.graph.rename_values({value: name})

    def _order(self, before: Mapping[str, list[str | None]]) -> None:
        """Sort inputs and outputs: as requested, or else a new one at the position of its namesake, or last."""
        for end, names in before.items():
            ends = self._main.inputs if end == "inputs" else self._main.outputs
            wanted = self.edits.port_orders.get(end)
            order = [name for _, name in wanted] if wanted else names
            places = {name: place for place, name in reversed(list(enumerate(order)))}
            if wanted:
                places |= {value.name: place for place, (value, _) in enumerate(wanted) if _among(value, ends)}
            now = sorted(ends, key=lambda value: places.get(value.name, len(places)))
            if any(one is not other for one, other in zip(now, ends)):
                ends.clear()
                ends.extend(now)


def copied(old: str, new: str) -> Relation:
    """Return the relation of an output that is a value of the previous model under another name."""
    return Relation("output", new, "y = Identity(x)", {"x": old})


def _among(value: ir.Value, ends: Iterable[ir.Value]) -> bool:
    return any(value is end for end in ends)
