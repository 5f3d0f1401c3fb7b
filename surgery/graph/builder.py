"""Builder: the buffered edit of one site, committed as a whole or not at all."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from itertools import chain, count
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from surgery.graph.copy import Copier, function_of
from surgery.graph.edits import FIRST_WITH_FUNCTIONS, Edits, ModelField, NewNode
from surgery.graph.function_bodies import function_of_model
from surgery.graph.signature_mappings import End, Pieces, Relation
from surgery.graph.values import Node, Refusal, Value
from surgery.shapes.facts import Dim
from surgery.targets import STANDARD, Target

if TYPE_CHECKING:
    from surgery.graph.state import GraphState


class Builder:
    """Collects the edits of one site. Nothing happens to the graph until the site ends well.

    New nodes stand before the anchor node, in the anchor's scope.
    """

    def __init__(self, graph: GraphState, anchor: Node | None) -> None:
        self.graph = graph
        self.anchor = anchor

    def at(self, anchor: Node) -> Builder:
        """Return a builder for another place of the same site: what it makes stands before `anchor`, in its scope."""
        place = Builder(self.graph, anchor)
        place.edits = self.edits
        return place

    @cached_property
    def edits(self) -> Edits:
        """What is to be done; made when first asked for, for most sites are refused before they do anything."""
        return Edits()

    @property
    def target(self) -> Target:
        """The runtime that the model is made for."""
        return self.graph.target

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

    def require_operator(self, op: str, value: Value) -> None:
        """Refuse this site unless the target runs `op` ("com.microsoft::BiasGelu") in the element type of a value."""
        self.require(value.dtype is not None, "the element type is unknown")
        self.require(self.target.has(op, value.dtype), f"the target does not run {op} in this type")

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
        omitted: Collection[int] = (),
        name: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        **more_attributes: Any,
    ) -> tuple[Value, ...]:
        """Add a node like `node`, and return all of its outputs; those at the positions `omitted` are not computed."""
        domain, _, op_type = op.rpartition("::")
        trimmed = list(inputs)
        while trimmed and trimmed[-1] is None:
            trimmed.pop()
        self._require_target(op)
        new = NewNode(
            op_type,
            domain,
            tuple(None if value is None else value.ir for value in trimmed),
            {**(attributes or {}), **more_attributes},
            tuple(ir.Value() for _ in range(outputs)),
            name,
            self._before,
            omitted=frozenset(omitted),
        )
        self.edits.nodes.append(new)
        return tuple(Value(self.graph, value) for value in new.outputs)

    def _require_target(self, op: str) -> None:
        """Refuse a node that the target does not run; `standard` leaves it to the passes."""
        if self.target is not STANDARD and op != "Constant":
            self.require(self.target.has(op), f"the target does not run {op}")

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
            raise Refusal("an output is an omitted operand")
        return tuple(Value(self.graph, value) for value in outputs if value is not None)

    def _kept(self, tensor: ir.TensorProtocol, name: str) -> Value:
        """Add a constant that is no input of the graph: until IR version 4 each initializer had to be one."""
        return self.constant(tensor, name) if self.graph.ir.ir_version >= 4 else self.node("Constant", value=tensor)

    def constant(self, array: np.ndarray[Any, Any] | ir.TensorProtocol, name: str = "constant") -> Value:
        """Add an initializer (in a function: a Constant node); `name` is a wish."""
        tensor = (
            ir.Tensor(np.ascontiguousarray(array).reshape(array.shape))
            if isinstance(array, np.ndarray)  # to ask for the protocol is slow
            else array
        )
        value = ir.Value(type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape.numpy()), const_value=tensor)
        self.edits.constants.append((value, name, self._before))
        return Value(self.graph, value)

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

    def set_result(self, scope: ir.Graph, index: int, value: Value, dtype: ir.DataType) -> None:
        """Let an output of a subgraph be another value, of this element type; `set_element_type` says so outside.

        An Identity hands on what is no result of a node of the subgraph, or is an output of it already.
        """
        self.edits.results.append((scope, index, value.ir, dtype))

    def set_element_type(self, value: Value, dtype: ir.DataType) -> None:
        """Let an input of a subgraph, or what a node with subgraphs gives, be a tensor of another element type.

        It is done last, after `replace`: what reads the value still takes the type of before until then, so that a Cast
        can be put between the two.
        """
        self.edits.element_types.append((value.ir, dtype))

    def changes(self, value: Value) -> None:
        """Record that what `set_input` or `set_attribute` did upstream gives an interior value other contents.

        It is then renamed, for a name stands for the same contents in the original and in every later model.
        Where it replaces a value it gets the name of that.
        """
        self.edits.changed.append(value.ir)

    def outdates(self, value: Value) -> None:
        """Record that a value may have another type or other dims from now on, and what is computed from it too.

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

    def rename(self, value: Value, name: str) -> None:
        """Rename a value; refused when the name is taken by one that keeps it.

        Other names of inputs and outputs change the signature.
        """
        self.edits.names[value.ir] = name

    def rename_node(self, node: Node, name: str) -> None:
        """Rename a node."""
        self.edits.node_names[node.ir] = name

    def rename_dims(self, names: Mapping[str, int | str]) -> None:
        """Rename dims, or fix their sizes, wherever they are declared; at ports it changes the signature."""
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
        free = self._free_function(domain, name)
        imports = self.graph.imports_of(nodes[0].ir)
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
        if wanted != (list(scope), list(scope.initializers.values())) or self.graph.keeps_lists(scope):
            self.edits.orders.append((scope, *wanted))

    def define_body(self, body: GraphState, domain: str, name: str) -> str:
        """Add a model-local function whose body is the graph of a model, and return its name, which is like `name`."""
        free = self._free_function(domain, name)
        self.define(function_of_model(body.ir, domain, free))
        return free

    def _free_function(self, domain: str, name: str) -> str:
        known = {*self.graph.ir.functions, *(function.identifier() for function in self.edits.definitions)}
        numbers = (f"{name}_{number}" for number in count(1))
        return next(wish for wish in chain([name], numbers) if (domain, wish, "") not in known)

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
        if self.graph.ir.ir_version > version >= 4:
            self.edits.ir_limit = version

    # The signature, whose changes a pass has to declare by `changes`

    def drop_input(self, value: Value, elements: np.ndarray[Any, Any] | None = None) -> None:
        """Take an input of the model away: an initializer is a constant from then on; refused when it has no value.

        With `elements` it is bound to these for good.

        Like what follows, it changes the signature, and the pass has to say so by `changes`: here "inputs".
        """
        if elements is not None:
            self.edits.bindings.append((value.ir, ir.Tensor(elements)))
        self.edits.ports.append(("drop input", value.ir))

    def drop_output(self, value: Value) -> None:
        """Take an output of the model away; what becomes dead goes. Declare "outputs"."""
        self.edits.ports.append(("drop output", value.ir))

    def add_output(self, value: Value, name: str | None = None) -> Value:
        """Let a value of the main graph be an output of the model, under its name or another; declare "outputs".

        It is the last one, or stands in the place of an output that this site drops and that had its name. An input, a
        constant or another output is handed on by an Identity where it gets a new name. Verification finds the value
        in the model before by its name; what a new node computes is compared by `relate_output` alone.
        """
        found = value.ir
        if name is not None and name != found.name:
            if found.is_graph_input() or found.is_initializer() or found.is_graph_output():
                value = self.node("Identity", value)
                self.relate_output(name, "y = Identity(x)", x=Value(self.graph, found))
            self.edits.output_names[value.ir] = name
        self.edits.ports.append(("add output", value.ir))
        return value

    def add_input(self, name: str, dtype: ir.DataType, dims: Sequence[Dim] | None) -> Value:
        """Add an input of the model, a tensor, and return it; declare "inputs". Dims are None where the rank is open.

        It is the last one, or stands in the place of an input that this site drops and that had its name. Refused when
        the name is taken by anything else. Verification finds a value of that name in the model before, and gives the
        changed model what that has; any other new input needs `relate_input`, unless nothing depends on it.
        """
        value = ir.Value(name=name, type=ir.TensorType(dtype), shape=None if dims is None else ir.Shape(dims))
        self.edits.ports.append(("add input", value))
        return Value(self.graph, value)

    def set_port(
        self,
        value: Value,
        type: ir.TypeProtocol | ir.DataType | None = None,  # noqa: A002
        dims: Sequence[Dim] | None = None,
    ) -> None:
        """Declare another type or other dims of an input or output of the model; declare "types" or "dims".

        A data type makes a tensor of it. What is None stays. Nothing is computed otherwise by that: a Cast is for the
        pass to add, and what is declared of values inside is for `outdates`. Verification compares through Casts.
        """
        kind = ir.TensorType(type) if isinstance(type, ir.DataType) else type
        self.edits.port_types.append((value.ir, kind, dims))

    def order_ports(self, inputs: Sequence[Value] | None = None, outputs: Sequence[Value] | None = None) -> None:
        """Put these inputs or outputs of the model first, in this order; declare "order".

        The others follow as they stand. New ones are put in place too, and what `replace` put in the place of one.
        """
        for end, values in (("inputs", inputs), ("outputs", outputs)):
            if values is not None:
                self.edits.port_orders[end] = [(value.ir, value.ir.name) for value in values]

    def relate_input(
        self, value: Value | str, text: str, *, inverse: str = "", **names: Value | str | np.ndarray[Any, Any]
    ) -> None:
        """Say how an input that the model had before follows from inputs that it has now; declare what changed.

        `text` are nodes as ONNX text, in the opset of the model; what the last line makes is the input. It may be
        another dtype, layout or range:

            new.relate_input(x, "x = Transpose<perm=[0, 3, 1, 2]>(now)", now=new_input)

        An identifier is the name of a tensor, or what is given for it by keyword: a value, a name, an array. After the
        last line of `text` nothing of the changed model is run: verification puts these nodes before the model as it
        was, and draws inputs that are legal for both. `inverse`, in the same words, makes the inputs of now from those
        before, for sets of inputs that a user gives; without it those are left out.
        """
        port = value if isinstance(value, str) else self.name_before(value)
        self._claim("input", port, text, names, inverse)

    def relate_output(self, value: Value | str, text: str, **names: Value | str | np.ndarray[Any, Any]) -> None:
        """Say how an output that the model has now follows from values of the model before; declare what changed.

        As `relate_input`, the other way round: what the last line makes is the output, and what `text` reads are
        outputs of the model before, or values inside it:

            new.relate_output(top, "top, i = TopK(y, k)", y=scores, k=np.array([5]))

        where the first value of the last line counts.
        """
        before = {
            key: self.name_before(operand) if isinstance(operand, Value) else operand for key, operand in names.items()
        }
        self._claim("output", value, text, before, "")

    def relate_pieces(self, inputs: Mapping[str, int], outputs: Mapping[str, int], count: int) -> None:
        """Say that the model computes each piece of a batch by itself; declare "dims".

        What it gives for inputs cut into `count` pieces of the size that the model before takes is what that gives for
        each piece, put together. `inputs` and `outputs` are the axes of the batch, by name; all other inputs go into
        each piece whole.
        """
        self.edits.pieces.append(Pieces(dict(inputs), dict(outputs), count))

    def _claim(
        self,
        end: End,
        port: Value | str,
        body: str,
        names: Mapping[str, Value | str | np.ndarray[Any, Any]],
        inverse: str,
    ) -> None:
        from surgery.graph.text import parse_nodes

        for part in (body, inverse):
            parse_nodes(part)
        constants = {key: operand for key, operand in names.items() if isinstance(operand, np.ndarray)}

        def settled() -> Relation:
            """Give it with the names that new values have when the site is done."""
            operands = {key: _name_of(operand) for key, operand in names.items() if not isinstance(operand, np.ndarray)}
            return Relation(end, _name_of(port), body, operands, constants, inverse)

        self.edits.claims.append(settled)

    def name_before(self, value: Value) -> str:
        """Return what a value was called before the pass."""
        first = {now: before for before, now in self.graph.renamed.items()}
        return first.get(value.name, value.name)

    def cut(self, value: Value) -> None:
        """Let the caller give a value of the main graph: an input of its name is read in its place.

        What only that needed goes. Refused for an output, and where the type is not known.
        """
        self.edits.ports.append(("cut", value.ir))


def _name_of(operand: Value | str) -> str:
    return operand if isinstance(operand, str) else operand.name
