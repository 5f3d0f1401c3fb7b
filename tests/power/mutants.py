"""Wrong versions of small models: one operator altered in each, as a careless rewrite would.

A mutant is stated by its model, its kind and a detail, and is the same in every run. None is left out because it is
hard to catch: where an alteration happens to mean the same, the mutant counts as missed. The kinds:

- `activation`: an activation function is replaced by its input;
- `swap`: two neighbouring operands of the same element type are exchanged;
- `attribute`: an attribute is altered, or one that was left to its default is written out and altered;
- `weight`: one element of a constant is altered, or of an operand after the first that the caller gives;
- `operand`: an optional operand of floats after the first is lost, a bias for example.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from power import alterations

KINDS = ("activation", "swap", "attribute", "weight", "operand")
EACH = 2
"""How many mutants of one kind are made of one model at most; which ones is drawn."""

ACTIVATIONS = frozenset(
    [
        "Celu",
        "Clip",
        "Elu",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "Hardmax",
        "LeakyRelu",
        "LogSoftmax",
        "Mish",
        "PRelu",
        "Relu",
        "Selu",
        "Shrink",
        "Sigmoid",
        "Softmax",
        "Softplus",
        "Softsign",
        "Swish",
        "Tanh",
        "ThresholdedRelu",
    ]
)
_COMMUTE = frozenset(
    ["Add", "Mul", "And", "Or", "Xor", "Equal", "Max", "Min", "Sum", "Mean", "BitwiseAnd", "BitwiseOr", "BitwiseXor"]
)
_BY_TYPE = frozenset({"CastLike", "EyeLike", "RandomUniformLike", "RandomNormalLike"})
"""Operators that look at an operand for its type or shape only."""

_FLOATS, _INTEGERS, _BOOL = frozenset({1, 10, 11, 16}), frozenset({2, 3, 4, 5, 6, 7, 12, 13}), 9

Place = tuple[onnx.GraphProto, int]
Alteration = tuple[str, Callable[[onnx.GraphProto, int], None]]
"""What is altered, and a function that does it to the node at a place of a graph."""


@dataclass(frozen=True)
class Mutant:
    """One wrong model. `name` is that of the model it was made from."""

    name: str
    kind: str
    detail: str
    model: bytes

    def __str__(self) -> str:
        return f"{self.name} | {self.kind} | {self.detail}"


def mutants(name: str, data: bytes, kinds: tuple[str, ...] = KINDS) -> Iterator[Mutant]:
    """Yield the mutants of a model, in the order of its nodes."""
    model = onnx.load_model_from_string(data)
    facts = _Facts(model)
    for kind in kinds:
        rng = np.random.default_rng([zlib.crc32(name.encode()), zlib.crc32(kind.encode())])
        found = [
            (site, detail, alter)
            for site, (graph, place) in enumerate(_places(model.graph))
            for detail, alter in _KINDS[kind](facts, graph.node[place], rng)
        ]
        for pick in sorted(rng.permutation(len(found))[:EACH]):
            site, detail, alter = found[pick]
            copy = onnx.load_model_from_string(data)
            graph, place = _places(copy.graph)[site]
            title = f"node {site} {graph.node[place].op_type}: {detail}"
            alter(graph, place)
            if (altered := copy.SerializeToString()) != data:
                yield Mutant(name, kind, title, altered)


def _places(graph: onnx.GraphProto) -> list[Place]:
    """List the nodes of a graph and its subgraphs."""
    found: list[Place] = []
    for place, node in enumerate(graph.node):
        found.append((graph, place))
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                found.extend(_places(inner))
    return found


class _Facts:
    """Element types and shapes of the values of a model, as far as they are known, and what the caller gives."""

    def __init__(self, model: onnx.ModelProto) -> None:
        inferred = onnx.shape_inference.infer_shapes(model)
        self.types: dict[str, int] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        for value in (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output):
            tensor = value.type.tensor_type
            if tensor.elem_type:
                self.types[value.name] = tensor.elem_type
                if tensor.HasField("shape") and all(dim.dim_value > 0 for dim in tensor.shape.dim):
                    self.shapes[value.name] = tuple(dim.dim_value for dim in tensor.shape.dim)
        for tensor in model.graph.initializer:
            self.types[tensor.name] = tensor.data_type
        given = {tensor.name for tensor in model.graph.initializer}
        self.given = {value.name for value in model.graph.input} - given
        self.initializers = {tensor.name: tensor for tensor in model.graph.initializer}
        self.opsets = {entry.domain: entry.version for entry in model.opset_import}

    def rank(self, name: str) -> int | None:
        return len(self.shapes[name]) if name in self.shapes else None

    def schema(self, node: onnx.NodeProto) -> onnx.defs.OpSchema | None:
        try:
            return onnx.defs.get_schema(node.op_type, self.opsets.get(node.domain, 1), node.domain)
        except onnx.defs.SchemaError:
            return None


def _activation(facts: _Facts, node: onnx.NodeProto, rng: np.random.Generator) -> Iterator[Alteration]:
    if node.op_type in ACTIVATIONS and node.domain in ("", "ai.onnx"):
        yield "dropped", _to_identity


def _to_identity(graph: onnx.GraphProto, place: int) -> None:
    node = graph.node[place]
    graph.node[place].CopyFrom(helper.make_node("Identity", node.input[:1], node.output[:1], name=node.name))


def _swap(facts: _Facts, node: onnx.NodeProto, rng: np.random.Generator) -> Iterator[Alteration]:
    if node.op_type in _COMMUTE:
        return
    for index, (first, second) in enumerate(zip(node.input, node.input[1:])):
        kind = facts.types.get(first)
        if first != second and first and second and kind is not None and kind == facts.types.get(second):
            yield f"operands {index} and {index + 1} exchanged", _exchange(index)


def _exchange(index: int) -> Callable[[onnx.GraphProto, int], None]:
    def alter(graph: onnx.GraphProto, place: int) -> None:
        names = graph.node[place].input
        names[index], names[index + 1] = names[index + 1], names[index]

    return alter


def _operand(facts: _Facts, node: onnx.NodeProto, rng: np.random.Generator) -> Iterator[Alteration]:
    schema = facts.schema(node)
    for index in range(1, len(node.input)):
        parameter = schema.inputs[index] if schema is not None and index < len(schema.inputs) else None
        optional = parameter is not None and parameter.option == onnx.defs.OpSchema.FormalParameterOption.Optional
        if optional and facts.types.get(node.input[index]) in _FLOATS:
            yield f"operand {index} lost", _lose(index)


def _lose(index: int) -> Callable[[onnx.GraphProto, int], None]:
    def alter(graph: onnx.GraphProto, place: int) -> None:
        names = graph.node[place].input
        names[index] = ""
        while names and not names[-1]:
            del names[-1]

    return alter


def _attribute(facts: _Facts, node: onnx.NodeProto, rng: np.random.Generator) -> Iterator[Alteration]:
    schema = facts.schema(node)
    there = {attribute.name: attribute for attribute in node.attribute}
    ranks, kinds = [facts.rank(name) for name in node.input], [facts.types.get(name) for name in node.input]
    site = alterations.Site(node, ranks, kinds)
    if schema is not None and node.op_type != "Constant":
        for name, definition in sorted(schema.attributes.items()):
            if name not in there and definition.default_value.type:
                there[name] = definition.default_value
    for name, attribute in there.items():
        for detail, altered in alterations.of_attribute(site, attribute, rng):
            yield f"{name} {detail}", _set(altered)


def _set(attribute: onnx.AttributeProto) -> Callable[[onnx.GraphProto, int], None]:
    def alter(graph: onnx.GraphProto, place: int) -> None:
        node = graph.node[place]
        kept = [item for item in node.attribute if item.name != attribute.name]
        del node.attribute[:]
        node.attribute.extend([*kept, attribute])

    return alter


def _weight(facts: _Facts, node: onnx.NodeProto, rng: np.random.Generator) -> Iterator[Alteration]:
    if node.op_type == "Constant":
        for attribute in node.attribute:
            for detail, altered in alterations.of_constant(attribute, rng):
                yield detail, _set(altered)
    for index, name in enumerate(node.input):
        if name in facts.initializers:
            for detail, tensor in alterations.of_tensor(facts.initializers[name], rng):
                yield f"operand {index}, {detail}", _replace(tensor)
        elif index and name in facts.given and name in facts.shapes and node.op_type not in _BY_TYPE:
            yield from _perturbed_operand(facts, index, name, rng)


def _replace(tensor: onnx.TensorProto) -> Callable[[onnx.GraphProto, int], None]:
    def alter(graph: onnx.GraphProto, place: int) -> None:
        for item in graph.initializer:
            if item.name == tensor.name:
                item.CopyFrom(tensor)

    return alter


def _perturbed_operand(facts: _Facts, index: int, name: str, rng: np.random.Generator) -> Iterator[Alteration]:
    """Alter one element of what the caller gives: floats times 1.1, integers plus 1, bools negated."""
    kind, shape = facts.types[name], facts.shapes[name]
    op = "Mul" if kind in _FLOATS else "Add" if kind in _INTEGERS else "Xor" if kind == _BOOL else None
    if op is None:
        return
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    change = np.full(shape, 1.0 if op == "Mul" else 0).astype(dtype)
    position = int(rng.integers(change.size))
    change.reshape(-1)[position] = 1.1 if op == "Mul" else 1

    def alter(graph: onnx.GraphProto, place: int) -> None:
        node = graph.node[place]
        tensor = numpy_helper.from_array(change, f"{name} change")
        if kind == 16:
            tensor = helper.make_tensor(f"{name} change", kind, shape, change.astype(np.float32).reshape(-1))
        node.input[index] = f"{name} changed"
        nodes = [helper.make_node("Constant", [], [tensor.name], value=tensor)]
        nodes.append(helper.make_node(op, [name, tensor.name], [node.input[index]]))
        for offset, new in enumerate(nodes):
            graph.node.insert(place + offset, new)

    yield f"operand {index}, element {position} altered", alter


_KINDS = {"activation": _activation, "swap": _swap, "attribute": _attribute, "weight": _weight, "operand": _operand}
