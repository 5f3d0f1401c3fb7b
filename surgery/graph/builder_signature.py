"""What a site may do to the inputs and outputs of the model, and say of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from surgery.graph.signature_mappings import End, Pieces, Relation
from surgery.graph.values import Value
from surgery.shapes.facts import Dim

if TYPE_CHECKING:
    from surgery.graph.builder import Edits
    from surgery.graph.graph import Graph


@dataclass(frozen=True)
class Claim:
    """A relation that names values; what new ones are called is known when the site is done."""

    end: End
    port: ir.Value | str
    body: str
    operands: Mapping[str, ir.Value | str]
    constants: Mapping[str, np.ndarray[Any, Any]]
    inverse: str

    def account(self) -> Relation:
        """Give it with names."""
        names = {key: _name_of(operand) for key, operand in self.operands.items()}
        return Relation(self.end, _name_of(self.port), self.body, names, self.constants, self.inverse)


def _name_of(value: ir.Value | str) -> str:
    return value if isinstance(value, str) else value.name or ""


class EndsBuilder:
    """The part of `Builder` that changes the signature, which a pass has to declare by `changes`."""

    _graph: Graph
    edits: Edits

    def node(self, op: str, *inputs: Value | None) -> Value:
        """Add a node and return its first output, see `Builder`."""
        raise NotImplementedError

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
                self.relate_output(name, "y = Identity(x)", x=Value(self._graph, found))
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
        return Value(self._graph, value)

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

        An identifier is the name of a tensor, or what is given for it by keyword: a value, a name, an array. Behind the
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
        self._claim("output", value if isinstance(value, str) else value.ir, text, before, "")

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
        port: ir.Value | str,
        body: str,
        names: Mapping[str, Value | str | np.ndarray[Any, Any]],
        inverse: str,
    ) -> None:
        from surgery.graph.text import parse_nodes

        for part in (body, inverse):
            parse_nodes(part)
        constants = {key: operand for key, operand in names.items() if isinstance(operand, np.ndarray)}
        operands = {
            key: operand.ir if isinstance(operand, Value) else operand
            for key, operand in names.items()
            if not isinstance(operand, np.ndarray)
        }
        self.edits.claims.append(Claim(end, port, body, operands, constants, inverse))

    def name_before(self, value: Value) -> str:
        """Return what a value was called before the pass."""
        first = {now: before for before, now in self._graph.renamed.items()}
        return first.get(value.name, value.name)

    def cut(self, value: Value) -> None:
        """Let the caller give a value of the main graph: an input of its name is read in its place.

        What only that needed goes. Refused for an output, and where the type is not known.
        """
        self.edits.ports.append(("cut", value.ir))
