"""Stamping: the lineage of the nodes that one site makes, collected while the site is applied and written at its end.

The origins of the nodes that a site makes at a place are the nodes removed for them: the producers of the replaced
values, and upstream nodes that became dead. A node with a changed input or attribute is also its own origin. If nothing
was removed, the origin of a new node is the node before which it was inserted.

If several nodes are made at one place, the origin of a new Softmax is the removed Softmax.

Two kinds of removed nodes are not origins. A Constant computes nothing. And next to nodes that compute the data of the
model, nodes that compute sizes, indices or conditions (int64 and bool), and nodes that only these read, are mere
operands: the Shape, Gather and Concat before a Reshape. A constant has a lineage only if no new node at its place has
one: a weight that was folded together with its reader is covered by the lineage of that node.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from surgery.base.operators.moving import EXTENTS
from surgery.model.graph.values import Node
from surgery.model.proto import lineage
from surgery.model.proto.lineage import Lineage

if TYPE_CHECKING:
    from surgery.model.graph.edits import Edits
    from surgery.model.graph.state import GraphState

Place = ir.Node | None
"""A place in a site: the node before which something is inserted, or the edited node itself."""

Parent = tuple[str, Lineage]
"""The operator of a node, and the lineage that it passes on."""

_OPERANDS = (ir.DataType.INT64, ir.DataType.BOOL)


class Stamps:
    """The nodes and constants that one site makes, and those removed for them."""

    def __init__(self, graph: GraphState, edits: Edits) -> None:
        self.graph = graph
        self._edited = {node: _label(graph, node) for node, *_ in (*edits.inputs, *edits.attributes, *edits.operators)}
        # A tensor with a name is also used elsewhere in the model.
        self._constants = [
            (value, place)
            for value, _, place in edits.constants
            if value.const_value is not None and not value.const_value.name
        ]
        self._made: dict[ir.Node, tuple[Place, ir.Node | None]] = {}
        self._places = {made.before for made in edits.nodes}
        self._places.update(place for _, place in self._constants)
        self._places.update(self._edited)
        self._only = next(iter(self._places)) if len(self._places) == 1 else None
        self._parents: defaultdict[Place, list[Parent]] = defaultdict(list)
        self._operands: defaultdict[Place, list[Parent]] = defaultdict(list)
        # The values that removed nodes read, with the place of the new nodes.
        self._read_as_data: dict[ir.Value | None, Place] = {}
        self._read_as_operand: dict[ir.Value | None, Place] = {}

    def made(self, node: ir.Node, place: Place, like: ir.Node | None) -> None:
        """Record a new node; `like` is the node that it copies, if any."""
        self._made[node] = place, like

    def place(self, new: ir.Value, place: Place) -> Place:
        """Return the place in the site where a value was made; `place` if the value existed before."""
        producer = new.producer()
        if producer is None:
            return place
        if producer in self._made:
            return self._made[producer][0]
        return producer if producer in self._edited else place

    def gone(self, node: ir.Node, label: str, place: Place) -> None:
        """Record a node that is removed for new nodes at a place; all new nodes must have been recorded before."""
        if not (self._made or self._constants or self._edited) or node in self._made or _is_constant(node):
            return
        # Its readers were removed before it. A node that only a Shape reads is an operand too, whatever it computes.
        is_data = is_operand = False
        for value in node.outputs:
            if value in self._read_as_data:
                is_data, place = True, self._read_as_data[value]
            elif value in self._read_as_operand and not is_data:
                is_operand, place = True, self._read_as_operand[value]
        place = node if node in self._places else place
        is_operand = (is_operand and not is_data) or self._computes_operands(node)
        read = self._read_as_operand if is_operand else self._read_as_data
        for source in node.inputs:
            read[source] = place
        (self._operands if is_operand else self._parents)[self._only or place].append(_of_node(node, label))

    def dropped(self, value: ir.Value, place: Place) -> None:
        """Record a removed initializer; it counts if it has a lineage."""
        tensor = value.const_value
        known = lineage.read(tensor.metadata_props) if tensor is not None else None
        if known is not None and tensor is not None:
            side = self._operands if tensor.dtype in _OPERANDS else self._parents
            side[self._only or place].append(("", known))

    def write(self) -> None:
        """Write the lineage of all nodes and constants that were made or edited and still exist."""
        if not (self._made or self._edited or self._constants):
            return
        shares = self._shares()
        for node, (place, like) in self._made.items():
            own = self._of(like)
            found = self._derive((*own, *self._parents[place])) if own else shares[place, node.op_type]
            found.write(node.metadata_props)
        for node, label in self._edited.items():
            if node.graph is not None:
                parents = (self._operands if self._computes_operands(node) else self._parents)[node]
                self._derive((_of_node(node, label), *parents)).write(node.metadata_props)
        told = {place for place, _ in self._made.values()} | self._edited.keys()
        for value, place in self._constants:
            tensor = value.const_value
            if tensor is not None and value.is_initializer() and place not in told:
                known = self._derive(self._all(place))
                if known.origins:
                    known.write(tensor.metadata_props)

    def _shares(self) -> dict[tuple[Place, str], Lineage]:
        """Distribute the nodes removed at a place as origins among the nodes made there, by operator.

        If at least as many nodes of an operator were removed as made, they are the only origins of the new ones. The
        remaining removed nodes are the origins of new nodes of other operators, or of all if there are no others.
        """
        made: defaultdict[Place, Counter[str]] = defaultdict(Counter)
        for node, (place, _) in self._made.items():
            made[place][node.op_type] += 1
        shares: dict[tuple[Place, str], Lineage] = {}
        for place, came in made.items():
            parents = self._all(place)
            went = Counter(op for op, _ in parents)
            taken = {op for op, count in came.items() if went[op] >= count}
            rest = [parent for parent in parents if parent[0] not in taken]
            for op in came:
                own = [parent for parent in parents if parent[0] == op] if op in taken else []
                more = rest if op not in taken or len(taken) == len(came) else []
                shares[place, op] = self._derive([*own, *more] or parents)
        return shares

    def _all(self, place: Place) -> Sequence[Parent]:
        return self._parents[place] or self._operands[place] or self._of(place)

    def _computes_operands(self, node: ir.Node) -> bool:
        # The types of values made by an earlier site may not be known yet.
        return node.op_type in EXTENTS or all(self._type_of(value) in _OPERANDS for value in node.outputs)

    def _type_of(self, value: ir.Value) -> ir.DataType | None:
        kind = value.type or self.graph.facts.seen(value).type
        return kind.dtype if isinstance(kind, ir.TensorType) else None

    def _of(self, node: ir.Node | None) -> tuple[Parent, ...]:
        return () if node is None or _is_constant(node) else (_of_node(node, _label(self.graph, node)),)

    def _derive(self, parents: Iterable[Parent]) -> Lineage:
        return lineage.derive((known for _, known in parents), self.graph.pass_name)


def _of_node(node: ir.Node, label: str) -> Parent:
    """Return the lineage that a node passes on: its own, or the node itself if it is an original one."""
    return node.op_type, lineage.read(node.metadata_props) or Lineage(origins=(label,))


def _is_constant(node: ir.Node) -> bool:
    return node.op_type == "Constant" and not node.domain


def _label(graph: GraphState, node: ir.Node) -> str:
    return graph.old_labels.get(node) or Node(graph, node).label
