"""Builder: the buffered edit of one site, committed atomically.

It is one class, because passes edit through one name, `new`, and each of its methods records one edit. The rest is
elsewhere: copies of bodies in `copy` and `function_bodies`, declared relations in `claims`, and the effects on the
graph in `commit` and `signature_edits`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from itertools import chain, count
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from surgery.base.operators.empties import REFUSING_EMPTY
from surgery.model.graph.claims import Claim, Operand
from surgery.model.graph.copy import Copier, function_of
from surgery.model.graph.edits import FIRST_WITH_FUNCTIONS, Edits, ModelField, NewNode
from surgery.model.graph.function_bodies import function_of_model
from surgery.model.graph.signature_mappings import Pieces
from surgery.model.graph.values import Node, Refusal, Value
from surgery.model.shapes.facts import Dim
from surgery.model.storage.ir_tensors import converted, joined
from surgery.model.targets import STANDARD, Target
from surgery.model.targets.lacking import lacking

if TYPE_CHECKING:
    from surgery.model.graph.state import GraphState


class Builder:
    """Collects the edits of one site. The graph changes only when the site succeeds.

    New nodes are inserted before the anchor node, in its scope.
    """

    def __init__(self, graph: GraphState, anchor: Node | None) -> None:
        self.graph = graph
        """The graph that is edited."""
        self.anchor = anchor
        """The node before which new nodes are inserted; None at the end of the main graph."""

    def at(self, anchor: Node) -> Builder:
        """Return a builder for another place of the same site: it inserts nodes before `anchor`, in its scope."""
        place = Builder(self.graph, anchor)
        place.edits = self.edits
        return place

    @cached_property
    def edits(self) -> Edits:
        """The pending edits; created lazily, because most sites are refused before they edit anything."""
        return Edits()

    @property
    def target(self) -> Target:
        """The target runtime of the model."""
        return self.graph.target

    @property
    def is_idle(self) -> bool:
        """Whether there are no pending edits."""
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
        if not self.target.has(op, value.dtype):
            raise Refusal(lacking(self.target, op, value.dtype))

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

        Attributes are Python values (or onnx-ir attributes); attributes that are None are omitted. `name` is a
        suggestion; the engine makes it unique.
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
        """Add a node like `node`, and return all of its outputs; those at the positions `omitted` are not computed.

        The node has more outputs, which nothing reads, if the target requires them.
        """
        domain, _, op_type = op.rpartition("::")
        trimmed = list(inputs)
        while trimmed and trimmed[-1] is None:
            trimmed.pop()
        given = {**(attributes or {}), **more_attributes}
        self._require_target(op, len(trimmed), given)
        least = self.target.least_outputs(op) if domain else 1
        new = NewNode(
            op_type,
            domain,
            tuple(None if value is None else value.ir for value in trimmed),
            given,
            tuple(ir.Value() for _ in range(max(outputs, least))),
            name,
            self._before,
            omitted=frozenset(omitted),
        )
        self.edits.nodes.append(new)
        return tuple(Value(self.graph, value) for value in new.outputs[:outputs])

    def _require_target(self, op: str, inputs: int, attributes: Mapping[str, Any]) -> None:
        """Refuse a node that the target does not run; `standard` leaves it to the passes."""
        if self.target is not STANDARD and op != "Constant":
            if not self.target.has(op):
                raise Refusal(lacking(self.target, op))
            held = {name: _plain(value) for name, value in attributes.items()}
            rejected = self.target.rejected(op, inputs, held)
            if rejected is not None:
                raise Refusal(f"{lacking(self.target, op)} with {rejected}")
        if self.graph.keeps_empty:
            self.require(op not in REFUSING_EMPTY, f"{op} takes no empty batch, which the recipe expects to be allowed")

    def inline(
        self,
        body: ir.Graph | ir.Function,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, ir.Attr] | None = None,
    ) -> tuple[Value, ...]:
        """Add copies of all nodes of a subgraph, or of a function body, and return the values of its outputs.

        Its inputs are replaced by `inputs`, with None for omitted ones; `attributes` are those of the function call.
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
        """Add a constant that is not a graph input; before IR version 4, each initializer had to be one."""
        return self.constant(tensor, name) if self.graph.ir.ir_version >= 4 else self.node("Constant", value=tensor)

    def constant(self, array: np.ndarray[Any, Any] | ir.TensorProtocol, name: str = "constant") -> Value:
        """Add an initializer (in a function: a Constant node); `name` is a suggestion."""
        tensor = (
            ir.Tensor(np.ascontiguousarray(array).reshape(array.shape))
            if isinstance(array, np.ndarray)  # checking the protocol is slow
            else array
        )
        value = ir.Value(type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape.numpy()), const_value=tensor)
        self.edits.constants.append((value, name, self._before))
        return Value(self.graph, value)

    def joined(self, arrays: Sequence[np.ndarray[Any, Any]], axis: int, name: str = "constant") -> Value:
        """Add an initializer: the concatenation of arrays of one type, which is not held in memory if it is large."""
        return self.constant(joined(arrays, axis), name)

    def converted(
        self,
        array: np.ndarray[Any, Any],
        convert: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]],
        name: str = "constant",
    ) -> Value:
        """Add an initializer: an array converted by an elementwise function, which gets some elements at a time.

        The result is not held in memory if it is large.
        """
        return self.constant(converted(array, convert), name)

    def replace(self, old: Value, new: Value) -> None:
        """Redirect all consumers of `old`, including the caller, to `new`; dead nodes are removed."""
        self.edits.replacements.append((old.ir, new.ir, self._before))

    def set_input(self, node: Node, index: int, value: Value | None) -> None:
        """Set one input of a node to another value, or to none."""
        self.edits.inputs.append((node.ir, index, None if value is None else value.ir))

    def set_operator(self, node: Node, op: str, outputs: int) -> None:
        """Change the operator of a node, keeping its first outputs; refused if another output is read."""
        self.edits.operators.append((node.ir, op, outputs))

    def set_attribute(self, node: Node, name: str, value: Any) -> None:
        """Set an attribute of a node; None removes it."""
        self.edits.attributes.append((node.ir, name, value))

    def declare(self, value: Value, type: ir.TypeProtocol | None, dims: Sequence[Dim] | None) -> None:  # noqa: A002
        """Declare the type and the dims of an interior value in the model."""
        self.edits.declarations.append((value.ir, type, dims))

    def set_result(self, scope: ir.Graph, index: int, value: Value, dtype: ir.DataType) -> None:
        """Set an output of a subgraph to another value of this element type; `set_element_type` updates the outside.

        An Identity is inserted if the value is not computed in the subgraph, or is already an output of it.
        """
        self.edits.results.append((scope, index, value.ir, dtype))

    def set_element_type(self, value: Value, dtype: ir.DataType) -> None:
        """Change the element type of an input of a subgraph, or of an output of a node with subgraphs.

        Applied last, after `replace`: until then, consumers see the old type, so that a Cast can be inserted.
        """
        self.edits.element_types.append((value.ir, dtype))

    def changes(self, value: Value) -> None:
        """Record that `set_input` or `set_attribute` upstream changed the contents of an interior value.

        It is then renamed, because a name denotes the same contents in the original and in all later models. If it
        replaces a value, it takes over that name.
        """
        self.edits.changed.append(value.ir)

    def outdates(self, value: Value) -> None:
        """Record that the type or dims of a value, and of values computed from it, may have changed.

        Their declarations are inferred again, also those of model outputs, which changes the signature.
        """
        self.edits.outdated.append(value.ir)

    def remove(self, node: Node) -> None:
        """Remove a node without consumers; refused otherwise."""
        self.edits.removals.append(node.ir)

    def drop(self, initializer: Value) -> None:
        """Remove an unused initializer; refused if it has consumers or is overridable."""
        self.edits.drops.append(initializer.ir)

    def set_tensor(self, initializer: Value, tensor: np.ndarray[Any, Any] | ir.TensorProtocol) -> None:
        """Replace the tensor of an initializer; refused if type or dims differ, unless they are outdated."""
        self.edits.contents.append((initializer.ir, ir.Tensor(tensor) if isinstance(tensor, np.ndarray) else tensor))

    def rename(self, value: Value, name: str) -> None:
        """Rename a value; refused if another value has the name and keeps it.

        Renaming inputs and outputs changes the signature.
        """
        self.edits.names[value.ir] = name

    def rename_node(self, node: Node, name: str) -> None:
        """Rename a node."""
        self.edits.node_names[node.ir] = name

    def rename_dims(self, names: Mapping[str, int | str]) -> None:
        """Rename dims, or fix their sizes, wherever they are declared, which may change the signature."""
        self.edits.dim_names.update(names)

    def define(self, function: ir.Function) -> None:
        """Add a model-local function; refused if the model has one of that name."""
        self.edits.definitions.append(function)

    def define_as(
        self, domain: str, name: str, nodes: Sequence[Node], reads: Sequence[int], outputs: Sequence[Value]
    ) -> str:
        """Add a model-local function with copies of nodes as its body, and return its name, based on `name`.

        `reads` has the number of the function input for each outside value that a node reads, constants included, in
        the order of the nodes and their inputs. `inline` is the inverse.
        """
        free = self._free_function(domain, name)
        imports = self.graph.imports_of(nodes[0].ir)
        needed = {domain: imports[domain] for domain in ("", *(node.ir.domain for node in nodes)) if domain in imports}
        body, results = [node.ir for node in nodes], [value.ir for value in outputs]
        self.define(function_of(domain, free, body, reads, results, needed))
        self.raise_ir_version(FIRST_WITH_FUNCTIONS)
        return free

    def arrange(self, scope: ir.Graph, nodes: Sequence[Node], initializers: Sequence[Value]) -> None:
        """Reorder all nodes and initializers of a graph, and the value declarations in the order of the nodes.

        Does nothing if they have this order.
        """
        wanted = [node.ir for node in nodes], [value.ir for value in initializers]
        if wanted != (list(scope), list(scope.initializers.values())) or self.graph.keeps_lists(scope):
            self.edits.orders.append((scope, *wanted))

    def define_body(self, body: GraphState, domain: str, name: str) -> str:
        """Add a model-local function whose body is the graph of a model, and return its name, based on `name`."""
        free = self._free_function(domain, name)
        self.define(function_of_model(body.ir, domain, free))
        return free

    def _free_function(self, domain: str, name: str) -> str:
        known = {*self.graph.ir.functions, *(function.identifier() for function in self.edits.definitions)}
        numbers = (f"{name}_{number}" for number in count(1))
        return next(wish for wish in chain([name], numbers) if (domain, wish, "") not in known)

    def drop_function(self, function: ir.Function) -> None:
        """Remove a model-local function; refused if a node calls it."""
        self.edits.functions.append(function)

    def set_opset(self, version: int, domain: str = "", *, function: ir.Function | None = None) -> None:
        """Import a domain at this version, or remove the import for 0: in the model, or only in the given function."""
        self.edits.opsets.append((function, domain, version))

    def set_metadata(self, key: str, text: str | None) -> None:
        """Set an entry of the metadata of the model; None removes it."""
        self.edits.metadata[key] = text

    def set_model_field(self, name: ModelField, content: str | int | None) -> None:
        """Set a descriptive field of the model; None removes it. The version is a number, other fields are text."""
        self.edits.model_fields[name] = content

    def describe(self, value: Value, text: str | None) -> None:
        """Set the doc string of a value; None removes it."""
        self.edits.docs[value.ir] = text

    def strip_lineage(self, thing: Node | Value) -> None:
        """Remove the lineage of a node or constant."""
        self.edits.stripped.append(thing)

    def raise_ir_version(self, version: int) -> None:
        """Raise the IR version of the model to at least this one."""
        self.edits.ir_version = max(self.edits.ir_version, version)

    def lower_ir_version(self, version: int) -> None:
        """Lower the IR version to at most this one, from 4 on; before, each initializer had to be an input."""
        if self.graph.ir.ir_version > version >= 4:
            self.edits.ir_limit = version

    # The signature, whose changes a pass must declare by `changes`

    def drop_input(self, value: Value, elements: np.ndarray[Any, Any] | None = None) -> None:
        """Remove an input of the model, so that its initializer becomes a constant; refused if it has no value.

        With `elements`, it is bound to these values.

        Like the following methods, it changes the signature, which the pass must declare by `changes`: here "inputs".
        """
        if elements is not None:
            self.edits.bindings.append((value.ir, ir.Tensor(elements)))
        self.edits.ports.append(("drop input", value.ir))

    def drop_output(self, value: Value) -> None:
        """Remove an output of the model; dead nodes are removed. Declare "outputs"."""
        self.edits.ports.append(("drop output", value.ir))

    def add_output(self, value: Value, name: str | None = None) -> Value:
        """Make a value of the main graph an output of the model, under its name or another; declare "outputs".

        It becomes the last one, or replaces a dropped output of the same name. An Identity is inserted if an input, a
        constant or another output gets a new name. Verification finds the value in the previous model by its name; the
        result of a new node is compared by `relate_output` only.
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
        """Add an input of the model, a tensor, and return it; declare "inputs". Dims are None if the rank is unknown.

        It becomes the last one, or replaces a dropped input of the same name. Refused if anything else has the name.
        Verification finds the value of that name in the previous model and feeds it to the changed model; any other new
        input needs `relate_input`, unless nothing depends on it.
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

        A data type makes it a tensor. None keeps the current value. This only changes declarations: the pass must add
        Casts, and call `outdates` for values inside. Verification compares through Casts.
        """
        kind = ir.TensorType(type) if isinstance(type, ir.DataType) else type
        self.edits.port_types.append((value.ir, kind, dims))

    def order_ports(self, inputs: Sequence[Value] | None = None, outputs: Sequence[Value] | None = None) -> None:
        """Move these inputs or outputs of the model to the front, in this order; declare "order".

        The others follow in their order. New ones are also moved, and so are replacements by `replace`.
        """
        for end, values in (("inputs", inputs), ("outputs", outputs)):
            if values is not None:
                self.edits.port_orders[end] = [(value.ir, value.ir.name) for value in values]

    def relate_input(self, value: Value | str, text: str, *, inverse: str = "", **names: Operand) -> None:
        """Define how an input of the previous model is computed from the new inputs; declare the change.

        `text` has nodes as ONNX text, in the opset of the model; the last line computes the input. Dtype, layout or
        range may differ:

            new.relate_input(x, "x = Transpose<perm=[0, 3, 1, 2]>(now)", now=new_input)

        An identifier is the name of a tensor, or is given by keyword as a value, a name or an array. Verification
        prepends these nodes to the previous model, never to the changed one, and draws inputs that are legal for both.
        `inverse`, in the same form, computes the new inputs from the old ones, for input sets of the user; without it,
        these sets are not used.
        """
        port = value if isinstance(value, str) else self.name_before(value)
        self.edits.claims.append(Claim("input", port, text, names, inverse))

    def relate_output(self, value: Value | str, text: str, **names: Operand) -> None:
        """Define how a new output is computed from values of the previous model; declare the change.

        The reverse of `relate_input`: the last line computes the output, and `text` reads outputs or inner values of
        the previous model:

            new.relate_output(top, "top, i = TopK(y, k)", y=scores, k=np.array([5]))

        where the first value of the last line counts.
        """
        before = {
            key: self.name_before(operand) if isinstance(operand, Value) else operand for key, operand in names.items()
        }
        self.edits.claims.append(Claim("output", value, text, before))

    def relate_pieces(self, inputs: Mapping[str, int], outputs: Mapping[str, int], count: int) -> None:
        """Declare that the model computes each part of a batch independently; declare "dims".

        If the inputs are split into `count` pieces of the size that the previous model takes, the outputs are the
        concatenated outputs of the previous model for these pieces. `inputs` and `outputs` give the batch axis by name;
        every piece receives all other inputs whole.
        """
        self.edits.pieces.append(Pieces(dict(inputs), dict(outputs), count))

    def name_before(self, value: Value) -> str:
        """Return the name of a value before the pass."""
        first = {now: before for before, now in self.graph.renamed.items()}
        return first.get(value.name, value.name)

    def cut(self, value: Value) -> None:
        """Turn a value of the main graph into an input of the same name.

        Nodes that only it needed are removed. Refused for an output, and if the type is unknown.
        """
        self.edits.ports.append(("cut", value.ir))


def _plain(attribute: Any) -> Any:
    """Return the value of an attribute; None if it is that of a function."""
    if isinstance(attribute, ir.Attr):
        return None if attribute.is_ref() else attribute.value
    return attribute
