"""The definition of each value of a main graph, so that two models can be compared value by value.

A value is defined by its node and the names that the node reads, by the content of its initializer, or as an input. Two
models in which all values with the same name have the same definition compute the same. Where a definition differs, the
values that it is computed from have to be compared.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import TYPE_CHECKING

from surgery.base.operators import traits
from surgery.base.operators.forms import plain_domain
from surgery.base.operators.moving import GATHERING
from surgery.model.proto.dataflow import Flow, ends_of
from surgery.model.proto.extract import called
from surgery.verification.comparing.fingerprint import content, same_bytes, short

if TYPE_CHECKING:
    import onnx

_LABELS = ("name", "doc_string", "metadata_props")
"""Fields of a node that do not change what it computes."""


class Definitions:
    """The definitions in the main graph of one model, given as a skeleton.

    `constants` are the names of initializers that no caller can override. `last` is a model that probably shares most
    of the nodes: what is known about these is reused.
    """

    def __init__(self, skeleton: bytes, last: Definitions | None = None) -> None:
        import onnx

        self.skeleton = skeleton
        self.model = onnx.load_model_from_string(skeleton)
        graph = self.model.graph
        self.nodes = [short(node.SerializeToString(deterministic=True)) for node in graph.node]
        known = dict(zip(last.nodes, last.flow.ends)) if last is not None else {}
        self.flow: Flow = Flow(graph, [known.get(raw) or ends_of(node) for raw, node in zip(self.nodes, graph.node)])
        self.initializers = {tensor.name: tensor for tensor in graph.initializer}
        overridable = set(self.flow.inputs) if self.model.ir_version >= 4 else set()
        self.inputs = {name for name in self.flow.inputs if name in overridable or name not in self.flow.constants}
        self.constants = self.flow.constants - self.inputs
        self.opsets = {plain_domain(item.domain): item.version for item in self.model.opset_import}

    def text(self, number: int) -> bytes:
        """Return a node without its labels, serialized."""
        bare = type(self.flow.nodes[number])()
        bare.CopyFrom(self.flow.nodes[number])
        for field in _LABELS:
            bare.ClearField(field)
        data: bytes = bare.SerializeToString(deterministic=True)
        return data

    def read_for(self, name: str) -> list[str]:
        """Return the names that a value's producer reads; an empty list if no node produces the value."""
        number = self.flow.producers.get(name)
        return self.flow.reads[number] if number is not None else []

    def is_constant(self, name: str) -> bool:
        """Return whether a value is stored in the model."""
        if name in self.constants:
            return True
        number = self.flow.producers.get(name)
        return number is not None and self.flow.nodes[number].op_type == "Constant"

    def is_gathered(self, name: str) -> bool:
        """Return whether a node reads few elements of a value, chosen by indices."""
        readers = [self.flow.nodes[number] for number in self.flow.readers.get(name, ())]
        return any(node.op_type in GATHERING and node.input[0] == name for node in readers)

    def steers(self, name: str, number: int) -> bool:
        """Return whether a node reads a value only at inputs that are integers by schema: axes, a shape, indices."""
        node = self.flow.nodes[number]
        domain = plain_domain(node.domain)
        opset = self.opsets.get(domain, 0)
        places = [position for position, read in enumerate(node.input) if read == name]
        return bool(places) and all(traits.is_integer_by_schema(node.op_type, opset, at, domain) for at in places)


def differing(before: Definitions, after: Definitions) -> set[str]:
    """Return the names of values of both models whose definitions differ."""
    same_opsets = before.opsets == after.opsets
    functions = _changed_functions(before, after)
    found = set()
    for name, number in after.flow.producers.items():
        mine = before.flow.producers.get(name)
        if mine is None:
            if name in before.flow:
                found.add(name)
            continue
        node, other = after.flow.nodes[number], before.flow.nodes[mine]
        same = before.nodes[mine] == after.nodes[number]
        same = same or (node.op_type == other.op_type and before.text(mine) == after.text(number))
        if same and not same_opsets:
            same = _version(before, other) == _version(after, node)
        if not same or (functions and functions & (_calls(before, other) | _calls(after, node))):
            found.add(name)
    return found | set(_differing_constants(before, after))


def is_replaced(name: str, before: Definitions, after: Definitions, differing: Container[str]) -> bool:
    """Return whether stored numbers of the same name are numbers of their own in each model.

    That is so if no value that both models compute from them is assumed to be equal: a pass that scales a weight may
    store it under the old name. Such numbers are compared by what is computed from them, unless that is a few of them.
    """
    if not (before.is_constant(name) and after.is_constant(name)):
        return False
    sides = (before, after), (after, before)
    if any(name in side.flow.outputs or side.is_gathered(name) for side in (before, after)):
        return False
    return not any(
        made in other.flow and made not in differing
        for side, other in sides
        for number in side.flow.readers.get(name, ())
        for made in side.flow.makes(number)
    )


def _differing_constants(before: Definitions, after: Definitions) -> Iterator[str]:
    for name in after.flow.constants | after.inputs:
        if name not in before.flow:
            continue
        if (name in before.inputs) != (name in after.inputs) or name in before.flow.producers:
            yield name
            continue
        mine, theirs = before.initializers.get(name), after.initializers.get(name)
        if mine is None and theirs is None:
            sparse = [
                [item.SerializeToString() for item in side.model.graph.sparse_initializer if item.values.name == name]
                for side in (before, after)
            ]
            if sparse[0] != sparse[1]:
                yield name
        elif mine is None or theirs is None or not same_content(mine, theirs):
            yield name


def same_content(mine: onnx.TensorProto, theirs: onnx.TensorProto) -> bool:
    """Return whether two tensors have the same type, dims and elements, wherever they are stored."""
    first, second = content(mine), content(theirs)
    if first == second:
        return True
    outside = mine.EXTERNAL
    stored = mine.data_location == outside and theirs.data_location == outside
    return stored and first[:2] == second[:2] and same_bytes(mine, theirs)


def _version(side: Definitions, node: onnx.NodeProto) -> object:
    domain = plain_domain(node.domain)
    imported = side.opsets.get(domain, 0)
    found = traits.since_version(node.op_type, imported, domain) if imported else None
    return imported if found is None else found


def _changed_functions(before: Definitions, after: Definitions) -> set[tuple[str, str, str]]:
    """Return the model-local functions that differ, by domain, name and overload."""
    sides = [
        {(f.domain, f.name, f.overload): f.SerializeToString(deterministic=True) for f in side.model.functions}
        for side in (before, after)
    ]
    return {key for key in {*sides[0], *sides[1]} if sides[0].get(key) != sides[1].get(key)}


def _calls(side: Definitions, node: onnx.NodeProto) -> set[tuple[str, str, str]]:
    own = (node.domain, node.op_type, node.overload)
    return {own, *((f.domain, f.name, f.overload) for f in called(side.model, [node]))}
