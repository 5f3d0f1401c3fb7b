"""The nodes of a changed model that compute something new, found only by structure.

Values of both models get numbers such that equal numbers mean equal values: a number stands for an operator with its
attributes and the numbers of its inputs, for an input of the model, or for the content of a constant. An Identity, or a
Transpose that keeps the order, has the number of its input; if only values are numbered, an If with a constant
condition has the numbers of its branch. Names of interior values do not matter, so two equal nodes have the same
number, and so has a weight that is stored elsewhere.

A node of the changed model with a number that the original lacks is *changed*; a node of the original with a number
that the changed model lacks is *removed*. If a changed node produces a value whose name also exists in the original, it
is assumed to equal the value of the original, so that nodes downstream count as unchanged: this assumption must be
verified by comparing the values.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from surgery.base.errors import ModelFileError
from surgery.base.operators import traits
from surgery.base.operators.forms import key_of
from surgery.base.operators.subgraphs import bodies, nested, subgraphs
from surgery.model import storage
from surgery.model.proto.dataflow import Flow, captures
from surgery.model.proto.extract import called, function_key
from surgery.model.wire.stored_lists import digest, is_stored

if TYPE_CHECKING:
    import onnx

_SHORT = 64

_BOOL = 9
"""The number of bool in `TensorProto.DataType`."""


@dataclass
class ModelRelation:
    """The relation of a changed model to its original.

    `changed` and `removed` have the positions of live nodes, that is, nodes that an output depends on. `same` has the
    names of values, inputs and constants that both models compute in the same way from the same inputs, and `common`
    the names of computed values of both main graphs without contradicting declared types. `numbers` has the numbers of
    the values of the original. `related` says whether most of the common names stand for results of the same operators,
    because two exporters may use the same name for different values.
    """

    before: Flow
    after: Flow
    changed: set[int]
    removed: set[int]
    same: set[str]
    common: set[str]
    numbers: Mapping[str, int]
    related: bool


def trace(
    original: onnx.ModelProto, candidate: onnx.ModelProto, renamed: Mapping[str, str] = MappingProxyType({})
) -> ModelRelation:
    """Find the nodes that differ between both models.

    `renamed` maps values of some changed nodes to values of the original, if they have another name there.
    """
    before, after = Flow(original.graph), Flow(candidate.graph)
    numbers = _ValueNumbers()
    old = _number(numbers, original, before.nodes, None)
    numbers.known = len(numbers.table)
    numbers.adopt(original, candidate)
    common = {name for name in before.producers if name in after.producers} - _retyped(original, candidate)
    new = _number(numbers, candidate, after.nodes, {name: old.values[renamed.get(name, name)] for name in common})
    alive, living = before.above(before.outputs), after.above(after.outputs)
    used = {new.nodes[number] for number in living if number in new.nodes}
    changed = living & new.changed
    removed = {number for number in alive if number in old.nodes and old.nodes[number] not in used}
    for name in after.outputs:
        # If an output was only connected to another value, no node of its own has changed.
        if name in old.values and new.values.get(name) != old.values[name]:
            changed |= {after.producers[name]} if name in after.producers else set()
            removed |= {before.producers[name]} if name in before.producers else set()
    return ModelRelation(
        before,
        after,
        changed,
        removed,
        {name for name, number in old.values.items() if new.values.get(name) == number}
        - _touched(before, removed)
        - _touched(after, changed),
        common,
        old.values,
        _related(before, after, common),
    )


def alike(
    first: onnx.ModelProto,
    second: onnx.ModelProto,
    names: Iterable[str],
    equal: Mapping[str, str] = MappingProxyType({}),
) -> set[str]:
    """Return the names of values that two main graphs compute in the same way from the same inputs and constants.

    `equal` maps inputs to computed values of both models that are known to be equal to them.
    """
    mine, theirs = numbered(first, second, equal)
    return {name for name in names if name in mine and mine[name] == theirs.get(name)}


def numbered(
    first: onnx.ModelProto, second: onnx.ModelProto, equal: Mapping[str, str] = MappingProxyType({})
) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Number the values of two main graphs; `equal` is as in `alike`."""
    numbers = _ValueNumbers(enters_branches=True)

    def values(model: onnx.ModelProto) -> Mapping[str, int]:
        return _number(numbers, model, model.graph.node, None).values

    mine = values(first)
    numbers.adopt(first, second)
    theirs = values(second)
    if equal:
        for given, made in equal.items():
            numbers.unite(mine[given], mine[made], theirs[made])
        mine, theirs = values(first), values(second)
    return mine, theirs


def operation(models: Sequence[onnx.ModelProto], nodes: Sequence[onnx.NodeProto]) -> list[tuple[int, list[str]]]:
    """Number the operations of nodes, independent of their operands; return the operands too: inputs, then captures."""
    numbers = _ValueNumbers()
    found = []
    for model, node in zip(models, nodes):
        bare = deepcopy(node)
        places = [position for position, name in enumerate(node.input) if name]
        captured = list(dict.fromkeys(name for body in subgraphs(node) for name in captures(body)))
        values = {f"/{position}": numbers.of(("place", position)) for position in places}
        values |= {name: numbers.of(("captured", position)) for position, name in enumerate(captured)}
        for position in places:
            bare.input[position] = f"/{position}"
        key = _VisibleValues(numbers, model, values, 0)._key(bare)
        found.append((numbers.of(key), [*(node.input[position] for position in places), *captured]))
    return found


def same_but_for_names(first: onnx.ModelProto, second: onnx.ModelProto) -> bool:
    """Return whether two models have the same nodes, constants and declarations, except for names."""
    numbers = _ValueNumbers()
    mine = _parts(numbers, first)
    numbers.adopt(first, second)
    return mine == _parts(numbers, second)


def _parts(numbers: _ValueNumbers, model: onnx.ModelProto) -> tuple[object, ...]:
    """List the parts of a model in a form that does not depend on names."""
    graph = model.graph
    found = _number(numbers, model, graph.node, None)
    values = found.values
    return (
        model.ir_version,
        {entry.domain: entry.version for entry in model.opset_import},
        Counter(_definition(function) for function in model.functions),
        [(value.name, values.get(value.name)) for value in (*graph.input, *graph.output)],
        Counter((node.op_type, tuple(values.get(name) for name in node.output)) for node in graph.node),
        Counter(values.get(tensor.name) for tensor in graph.initializer),
        Counter(
            (values.get(value.name), value.type.SerializeToString(deterministic=True))
            for value in (*graph.input, *graph.output, *graph.value_info)
        ),
    )


def _touched(flow: Flow, numbers: Iterable[int]) -> set[str]:
    """Return the values that nodes, and all nodes downstream of them, produce."""
    own = [name for number in numbers for name in flow.makes(number)]
    return {*own, *(name for number in flow.below(own) for name in flow.makes(number))}


def _related(before: Flow, after: Flow, names: Iterable[str]) -> bool:
    interior = set(names) - set(before.outputs)
    kept = sum(before.nodes[before.producers[n]].op_type == after.nodes[after.producers[n]].op_type for n in interior)
    return 2 * kept >= len(interior)


def _retyped(original: onnx.ModelProto, candidate: onnx.ModelProto) -> set[str]:
    """Return the values that the two models declare with different element types."""
    declared = {value.name: value.type for value in (*original.graph.value_info, *original.graph.output)}
    return {
        value.name
        for value in (*candidate.graph.value_info, *candidate.graph.output)
        if value.name in declared and _form(value.type) != _form(declared[value.name])
    }


def _form(kind: onnx.TypeProto) -> tuple[str | None, int]:
    return kind.WhichOneof("value"), kind.tensor_type.elem_type


@dataclass
class _ValueNumbers:
    """The numbers assigned so far, for both models. Those below `known` were assigned for the original.

    With `enters_branches`, an If with a constant condition is numbered as its branch. The nodes of a branch then have
    no number in the main graph, so this cannot be used to find changed nodes.
    """

    table: dict[Hashable, int] = field(default_factory=dict)
    known: int = 0
    enters_branches: bool = False
    conditions: dict[int, bool] = field(default_factory=dict)
    adopted: dict[Hashable, Hashable] = field(default_factory=dict)
    united: dict[int, int] = field(default_factory=dict)

    def of(self, key: Hashable) -> int:
        number = self.table.setdefault(key, len(self.table))
        return self.united.get(number, number)

    def unite(self, *found: int) -> None:
        """Treat values with different numbers as equal from now on."""
        same = {self.united.get(number, number) for number in found}
        same |= {number for number, other in self.united.items() if other in same}
        self.united.update(dict.fromkeys(same, min(same)))

    def constant(self, tensor: onnx.TensorProto) -> int:
        key = content(tensor)
        number = self.of(self.adopted.get(key, key))
        if tensor.data_type == _BOOL and math.prod(tensor.dims) == 1 and not storage.is_external(tensor):
            self.conditions[number] = any(storage.bytes_of(tensor))
        return number

    def adopt(self, original: onnx.ModelProto, candidate: onnx.ModelProto) -> None:
        """Treat weights of the same name in different files as equal if their bytes are equal."""
        weights = {tensor.name: tensor for tensor in original.graph.initializer if storage.is_external(tensor)}
        for tensor in candidate.graph.initializer:
            mine = weights.get(tensor.name)
            if mine is not None and storage.is_external(tensor):
                old, new = content(mine), content(tensor)
                if old != new and old[:2] == new[:2] and same_bytes(mine, tensor):
                    self.adopted[new] = old


def content(tensor: onnx.TensorProto) -> tuple[Hashable, ...]:
    """Return the identity of a tensor: its type, dims and elements, or the location of an external tensor."""
    data: Hashable
    if storage.is_external(tensor):
        data = tuple(sorted((entry.key, entry.value) for entry in tensor.external_data if entry.key != "checksum"))
    else:
        data = short(storage.bytes_of(tensor))
    return tensor.data_type, tuple(tensor.dims), data


def short(data: bytes) -> bytes:
    """Return short data as they are, and a digest of long data."""
    return data if len(data) <= _SHORT else hashlib.blake2b(data).digest()


def same_bytes(mine: onnx.TensorProto, theirs: onnx.TensorProto) -> bool:
    """Return whether the bytes of two external tensors are equal; False if one cannot be read."""
    with storage.Weights() as files:
        try:
            return storage.same_elements(mine, files, theirs, files)
        except ModelFileError:
            return False


@dataclass
class _Numbered:
    """The numbers of a main graph: those of its values, and of the nodes that compute something."""

    values: dict[str, int]
    nodes: dict[int, int] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)


def _number(
    numbers: _ValueNumbers,
    model: onnx.ModelProto,
    nodes: Iterable[onnx.NodeProto],
    supposed: Mapping[str, int] | None,
) -> _Numbered:
    """Number the values of a main graph; `supposed` has the assumed numbers of outputs of changed nodes, by name."""
    scope = _VisibleValues(numbers, model, {}, 0)
    scope.enter(model.graph)
    found = _Numbered(scope.values)
    for position, node in enumerate(nodes):
        number = scope.add(node)
        if number is None:
            continue
        found.nodes[position] = number
        if supposed is not None and number >= numbers.known:
            found.changed.add(position)
            scope.values.update((name, supposed[name]) for name in node.output if name in supposed)
    return found


class _VisibleValues:
    """The visible values in a graph or subgraph, with their numbers."""

    def __init__(self, numbers: _ValueNumbers, model: onnx.ModelProto, outer: Mapping[str, int], depth: int) -> None:
        self.numbers = numbers
        self.model = model
        self.values = dict(outer)
        self.depth = depth
        self.opsets = {entry.domain: entry.version for entry in model.opset_import}
        self.functions = set(map(function_key, model.functions))

    def enter(self, graph: onnx.GraphProto) -> None:
        """Number the inputs and constants of a graph. Model inputs count by name, subgraph inputs by position."""
        constants = {tensor.name: self.numbers.constant(tensor) for tensor in graph.initializer}
        for sparse in graph.sparse_initializer:
            parts = (self.numbers.constant(sparse.values), self.numbers.constant(sparse.indices), tuple(sparse.dims))
            constants[sparse.values.name] = self.numbers.of(("sparse", *parts))
        for position, value in enumerate(graph.input):
            label = value.name if not self.depth else (self.depth, position)
            self.values[value.name] = self.numbers.of(("input", label, constants.get(value.name)))
        for name, number in constants.items():
            if self.model.ir_version < 4 or name not in {value.name for value in graph.input}:
                self.values[name] = number

    def add(self, node: onnx.NodeProto) -> int | None:
        """Number the outputs of a node; return the number of the node, or None if it computes nothing."""
        if hands_on(node):
            self.values[node.output[0]] = self._value(node.input[0])
            return None
        if node.op_type == "Constant" and not node.domain and node.attribute[0].HasField("t"):
            self.values[node.output[0]] = self.numbers.constant(node.attribute[0].t)
            return None
        branch = self._branch(node) if self.numbers.enters_branches else None
        if branch is not None:
            self.values.update(zip(node.output, branch))
            return None
        number = self.numbers.of(self._key(node))
        self.values.update(
            (name, self.numbers.of(("output", number, position))) for position, name in enumerate(node.output) if name
        )
        return None if node.op_type == "Constant" and not node.domain else number

    def _branch(self, node: onnx.NodeProto) -> list[int] | None:
        """Return the numbers of the outputs of the branch that an If takes; None if unknown, or for other nodes."""
        if node.op_type != "If" or node.domain not in ("", "ai.onnx"):
            return None
        takes = self.numbers.conditions.get(self._value(node.input[0]))
        if takes is None:
            return None
        wanted = "then_branch" if takes else "else_branch"
        graph = next(attribute.g for attribute in node.attribute if attribute.name == wanted)
        # The nodes of the branch, including subgraphs, get the same numbers as outside the branch.
        inner = _VisibleValues(self.numbers, self.model, self.values, self.depth)
        inner.enter(graph)
        for each in graph.node:
            inner.add(each)
        return [inner._value(output.name) for output in graph.output]

    def _value(self, name: str) -> int:
        return self.values[name] if name in self.values else self.numbers.of(("unbound", name))

    def _key(self, node: onnx.NodeProto) -> Hashable:
        inputs = [self._value(name) if name else -1 for name in node.input]
        while inputs and inputs[-1] < 0:
            inputs.pop()
        domain = "" if node.domain == "ai.onnx" else node.domain
        is_call = (node.domain, node.op_type, node.overload) in self.functions
        functions = called(self.model, [node]) if is_call else []
        imported = self.opsets.get(domain, self.opsets.get("ai.onnx", 0) if not domain else 0)
        version = traits.since_version(node.op_type, imported, domain) if imported and not functions else None
        return (
            "node",
            domain,
            node.op_type,
            node.overload,
            imported if version is None else version,
            tuple(inputs),
            tuple(sorted(((a.name, self._attribute(a)) for a in node.attribute), key=lambda pair: pair[0])),
            tuple(_definition(function) for function in functions),
            # Each random node draws its own numbers.
            tuple(node.output) if _draws(node, functions) else len(node.output),
        )

    def _attribute(self, attribute: onnx.AttributeProto) -> Hashable:
        if is_stored(attribute):
            return attribute.type, digest(attribute)
        if attribute.HasField("t"):
            return self.numbers.constant(attribute.t)
        if graphs := bodies(attribute):
            return tuple(self._body(graph) for graph in graphs)
        if attribute.HasField("doc_string"):
            attribute = deepcopy(attribute)
            attribute.ClearField("doc_string")
        # The table of numbers would keep the lists of a tree ensemble.
        return short(attribute.SerializeToString(deterministic=True))

    def _body(self, graph: onnx.GraphProto) -> Hashable:
        """Return the identity of a subgraph: its number of inputs and the numbers of its outputs."""
        inner = _VisibleValues(self.numbers, self.model, self.values, self.depth + 1)
        inner.enter(graph)
        for node in graph.node:
            inner.add(node)
        return len(graph.input), tuple(inner._value(output.name) for output in graph.output)


def hands_on(node: onnx.NodeProto) -> bool:
    """Return whether a node always returns its input unchanged."""
    if node.domain not in ("", "ai.onnx") or len(node.output) != 1:
        return False
    if node.op_type == "Transpose":
        order = next((list(attribute.ints) for attribute in node.attribute if attribute.name == "perm"), None)
        return order is not None and order == list(range(len(order)))
    return node.op_type == "Identity"


def _definition(function: onnx.FunctionProto) -> bytes:
    bare = deepcopy(function)
    for name in ("doc_string", "value_info", "metadata_props"):
        bare.ClearField(name)
    return hashlib.blake2b(bare.SerializeToString(deterministic=True)).digest()


def _draws(node: onnx.NodeProto, functions: Iterable[onnx.FunctionProto]) -> bool:
    """Return whether a node, or a node that it runs, may draw random numbers."""
    return any(
        key_of(inner.domain, inner.op_type) in traits.RANDOM or (inner.op_type == "Dropout" and len(inner.input) > 2)
        for inner in nested([node, *(inner for function in functions for inner in function.node)])
    )
