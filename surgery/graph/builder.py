"""Builder: the buffered edit of one site, committed as a whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import onnx_ir as ir

from surgery.graph.builder_signature import Claim, EndsBuilder
from surgery.graph.copy import Copier, function_of
from surgery.graph.signature_mappings import Joined, Pieces
from surgery.graph.values import Node, Refusal, Value
from surgery.shapes.facts import Dim

if TYPE_CHECKING:
    from surgery.graph.graph import Graph
    from surgery.graph.merge import Other


FIRST_WITH_FUNCTIONS = 8
"""The IR version that introduced model-local functions."""

ModelField = Literal["producer_name", "producer_version", "domain", "model_version", "doc_string"]
"""What a model says of itself beside its metadata."""


@dataclass(frozen=True)
class NewNode:
    """A node that does not exist yet; its outputs are values that nothing produces so far."""

    op: str
    domain: str
    inputs: tuple[ir.Value | None, ...]
    attributes: Mapping[str, Any]
    outputs: tuple[ir.Value, ...]
    name: str | None
    before: ir.Node | None = None
    like: ir.Node | None = None
    """The node that it is a copy of."""


PortEdit = Literal["add input", "drop input", "drop output", "add output", "cut"]


@dataclass
class Edits:
    """What a site wants to do, in the order in which it is done."""

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
        """Whether they concern the inputs and outputs, names, or the order of things, beside nodes and constants."""
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

    def __bool__(self) -> bool:
        if self.replacements:  # as at most places that a pass changes
            return True
        # A constant or a function that nothing uses changes nothing.
        idle = ("constants", "definitions", "outdated", "claims", "joins")
        return any(edits for kind, edits in vars(self).items() if kind not in idle)

    def made(self) -> set[ir.Value]:
        """Return the values that new nodes compute."""
        return {value for node in self.nodes for value in node.outputs}


class Builder(EndsBuilder):
    """Collects the edits of one site. Nothing happens to the graph until the site ends well.

    New nodes stand before the anchor node, in the anchor's scope.
    """

    def __init__(self, graph: Graph, anchor: Node | None) -> None:
        self._graph = graph
        self.anchor = anchor

    def at(self, anchor: Node) -> Builder:
        """Return a builder for another place of the same site: what it makes stands before `anchor`, in its scope."""
        place = Builder(self._graph, anchor)
        place.edits = self.edits
        return place

    @cached_property
    def edits(self) -> Edits:  # type: ignore[override]  # can be set all the same
        """What is to be done; made when first asked for, for most sites are refused before they do anything."""
        return Edits()

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to be done."""
        return "edits" not in vars(self) or not self.edits

    @property
    def _before(self) -> ir.Node | None:
        return None if self.anchor is None else self.anchor.ir

    def require(self, condition: object, reason: str) -> None:
        """Refuse this site for `reason` unless the condition holds."""
        if not condition:
            raise Refusal(reason)

    def node(
        self,
        op: str,
        *inputs: Value | None,
        outputs: int = 1,
        name: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        **more_attributes: Any,
    ) -> Value:
        """Add a node and return its first output; `op` may carry a domain ("com.microsoft::FusedConv").

        Attributes are Python values (or onnx-ir attributes); one whose value is None is left out.
        `name` is a wish; the engine makes it unique.
        """
        return self.nodes(op, *inputs, outputs=outputs, name=name, attributes=attributes, **more_attributes)[0]

    def nodes(
        self,
        op: str,
        *inputs: Value | None,
        outputs: int = 1,
        name: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        **more_attributes: Any,
    ) -> tuple[Value, ...]:
        """Add a node like `node`, and return all of its outputs."""
        domain, _, op_type = op.rpartition("::")
        trimmed = list(inputs)
        while trimmed and trimmed[-1] is None:
            trimmed.pop()
        new = NewNode(
            op_type,
            domain,
            tuple(None if value is None else value.ir for value in trimmed),
            {**(attributes or {}), **more_attributes},
            tuple(ir.Value() for _ in range(outputs)),
            name,
            self._before,
        )
        self.edits.nodes.append(new)
        return tuple(Value(self._graph, value) for value in new.outputs)

    def inline(
        self,
        body: ir.Graph | ir.Function,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, ir.Attr] | None = None,
    ) -> tuple[Value, ...]:
        """Add copies of all nodes of a subgraph, or of the body of a function, and return what its outputs become.

        Its inputs become `inputs`, None where one is omitted; `attributes` are those of the call of a function.
        """
        pairs = zip(body.inputs, inputs)
        copier = Copier({formal: None if value is None else value.ir for formal, value in pairs}, attributes)
        for value in body.initializers.values() if isinstance(body, ir.Graph) else ():
            if value.const_value is not None and value not in copier.values:
                copier.values[value] = self._kept(value.const_value, value.name or "constant").ir
        for node in body:
            inner = tuple(copier.read(value) for value in node.inputs)
            held = {attribute.name: attribute for attribute in copier.attributes_of(node)}
            made = tuple(copier.made(value) for value in node.outputs)
            self.edits.nodes.append(
                NewNode(node.op_type, node.domain, inner, held, made, node.name, self._before, like=node)
            )
        outputs = [copier.read(value) for value in body.outputs]
        if any(value is None for value in outputs):
            raise Refusal("an output is an operand that is omitted")
        return tuple(Value(self._graph, value) for value in outputs if value is not None)

    def _kept(self, tensor: ir.TensorProtocol, name: str) -> Value:
        """Add a constant that is no input of the graph: until IR version 4 each initializer had to be one."""
        return self.constant(tensor, name) if self._graph.ir.ir_version >= 4 else self.node("Constant", value=tensor)

    def constant(self, array: np.ndarray[Any, Any] | ir.TensorProtocol, name: str = "constant") -> Value:
        """Add an initializer (in a function: a Constant node); `name` is a wish."""
        tensor = (
            ir.Tensor(np.ascontiguousarray(array).reshape(array.shape))
            if isinstance(array, np.ndarray)  # to ask for the protocol is slow
            else array
        )
        value = ir.Value(type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape.numpy()), const_value=tensor)
        self.edits.constants.append((value, name, self._before))
        return Value(self._graph, value)

    def replace(self, old: Value, new: Value) -> None:
        """Let everything that reads `old`, the caller included, read `new`; what becomes dead goes."""
        self.edits.replacements.append((old.ir, new.ir, self._before))

    def set_input(self, node: Node, index: int, value: Value | None) -> None:
        """Let one input of a node read another value, or none."""
        self.edits.inputs.append((node.ir, index, None if value is None else value.ir))

    def set_operator(self, node: Node, op: str, outputs: int) -> None:
        """Let a node be of another operator, with its first outputs; refused when another output is read."""
        self.edits.operators.append((node.ir, op, outputs))

    def set_attribute(self, node: Node, name: str, value: Any) -> None:
        """Set an attribute of a node; None removes it."""
        self.edits.attributes.append((node.ir, name, value))

    def declare(self, value: Value, type: ir.TypeProtocol | None, dims: Sequence[Dim] | None) -> None:  # noqa: A002
        """Write the type and the dims of an interior value into the model."""
        self.edits.declarations.append((value.ir, type, dims))

    def changes(self, value: Value) -> None:
        """Say that what `set_input` or `set_attribute` did upstream gives an interior value other contents.

        It is then called otherwise, for a name stands for the same contents in the original and in every later model.
        Where it replaces a value it gets the name of that.
        """
        self.edits.changed.append(value.ir)

    def outdates(self, value: Value) -> None:
        """Say that a value may have another type or other dims from now on, and what is computed from it too.

        What is declared of them is inferred anew, and of outputs of the model too, which changes the signature.
        """
        self.edits.outdated.append(value.ir)

    def remove(self, node: Node) -> None:
        """Remove a node whose outputs nothing reads; refused when something does."""
        self.edits.removals.append(node.ir)

    def drop(self, initializer: Value) -> None:
        """Remove an initializer that nothing reads; refused when something does or a caller can set it."""
        self.edits.drops.append(initializer.ir)

    def set_tensor(self, initializer: Value, tensor: np.ndarray[Any, Any] | ir.TensorProtocol) -> None:
        """Let an initializer hold another tensor; refused where type or dims are others, unless they are outdated."""
        self.edits.contents.append((initializer.ir, ir.Tensor(tensor) if isinstance(tensor, np.ndarray) else tensor))

    def embed(self, other: Other, connect: Mapping[str, Value]) -> tuple[Value, ...]:
        """Add the nodes of another model, with its weights and functions, and return what its outputs become.

        `connect` says which value goes into which input of the other; a further input keeps its default. UsageError
        where both import other opsets.
        """
        from surgery.graph.merge import embed

        return embed(self, self._graph, other, connect)

    def join(self, other: Other, connect: Mapping[str, Value], prefix: str = "") -> tuple[Value, ...]:
        """Add another model, and return its outputs, which are some of this model; declare "outputs" and "inputs".

        `connect` says which value of the model before goes into which input of the other; its further inputs are new
        ones of this model, and those with a default keep that. All names of it get the prefix. It is compared with
        both models, composed. UsageError where both have a value of one name, or import other opsets.
        """
        from surgery.graph.merge import join

        return join(self, self._graph, other, connect, prefix)

    def rename(self, value: Value, name: str) -> None:
        """Call a value otherwise; refused when the name is taken by one that keeps it.

        Other names of inputs and outputs change the signature.
        """
        self.edits.names[value.ir] = name

    def rename_node(self, node: Node, name: str) -> None:
        """Call a node otherwise."""
        self.edits.node_names[node.ir] = name

    def rename_dims(self, names: Mapping[str, int | str]) -> None:
        """Call dims otherwise, or fix their sizes, wherever they are declared; at ports it changes the signature."""
        self.edits.dim_names.update(names)

    def define(self, function: ir.Function) -> None:
        """Add a model-local function; refused when the model has one of that name."""
        self.edits.definitions.append(function)

    def define_as(
        self, domain: str, name: str, nodes: Sequence[Node], reads: Sequence[int], outputs: Sequence[Value]
    ) -> str:
        """Add a model-local function whose body are copies of nodes, and return its name, which is like `name`.

        `reads` numbers the input for each value that a node reads from outside, constants included, in the order of
        the nodes and of their inputs. `inline` is the inverse.
        """
        known = {*self._graph.ir.functions, *(function.identifier() for function in self.edits.definitions)}
        numbers = (f"{name}_{number}" for number in count(1))
        free = next(wish for wish in chain([name], numbers) if (domain, wish, "") not in known)
        imports = self._graph.imports_of(nodes[0].ir)
        needed = {domain: imports[domain] for domain in ("", *(node.ir.domain for node in nodes)) if domain in imports}
        body, results = [node.ir for node in nodes], [value.ir for value in outputs]
        self.define(function_of(domain, free, body, reads, results, needed))
        self.raise_ir_version(FIRST_WITH_FUNCTIONS)
        return free

    def arrange(self, scope: ir.Graph, nodes: Sequence[Node], initializers: Sequence[Value]) -> None:
        """Put all nodes and initializers of a graph in this order, and what is declared of values in that of the nodes.

        Nothing is to be done where they stand like that.
        """
        wanted = [node.ir for node in nodes], [value.ir for value in initializers]
        if wanted != (list(scope), list(scope.initializers.values())) or self._graph.keeps_lists(scope):
            self.edits.orders.append((scope, *wanted))

    def drop_function(self, function: ir.Function) -> None:
        """Remove a model-local function; refused when a node calls it."""
        self.edits.functions.append(function)

    def set_opset(self, version: int, domain: str = "", *, function: ir.Function | None = None) -> None:
        """Import a domain at this version, or not at all for 0: in the model, or in the one function that is given."""
        self.edits.opsets.append((function, domain, version))

    def set_metadata(self, key: str, text: str | None) -> None:
        """Set an entry of the metadata of the model; None removes it."""
        self.edits.metadata[key] = text

    def set_model_field(self, name: ModelField, content: str | int | None) -> None:
        """Set what the model says of itself; None removes it. The version is a number, all else is text."""
        self.edits.model_fields[name] = content

    def describe(self, value: Value, text: str | None) -> None:
        """Set the doc string of a value; None removes it."""
        self.edits.docs[value.ir] = text

    def strip_lineage(self, thing: Node | Value) -> None:
        """Remove from a node, or from a constant, the account of where it comes from."""
        self.edits.stripped.append(thing)

    def raise_ir_version(self, version: int) -> None:
        """Let the model have at least this IR version."""
        self.edits.ir_version = max(self.edits.ir_version, version)

    def lower_ir_version(self, version: int) -> None:
        """Let the model have at most this IR version, from 4 on: before, each initializer had to be an input."""
        if self._graph.ir.ir_version > version >= 4:
            self.edits.ir_limit = version
