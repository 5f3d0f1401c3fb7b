"""Results that are computed twice."""

from collections import Counter
from collections.abc import Container, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from surgery import Graph, Node, Parity, Value, graph_pass

STANDARD = {"", "ai.onnx", "ai.onnx.ml"}
SAMPLES = 64
SMALL = 256
"""Maximum number of elements of constants that are compared by content; larger equal ones are already shared."""


@graph_pass("common-subexpressions", parity=Parity.EXACT)
def common_subexpressions(graph: Graph) -> None:
    """Compute each result once: keep the first of several nodes with the same operation and inputs.

    Right because the operators of the ONNX standard give the same result for the same inputs and attributes, compared
    by bits, and so do functions of such operators. Operands of Add, Mul and other commutative operators may be in
    either order, and small constants are equal if their bits are. Random operators differ between calls, and operators
    of other domains may. A node in a subgraph may read a result from outside if it is computed before the subgraph
    runs.

    Example:
        g (float[2] x, float[2] w) => (float[2] y)
        {
            a = Mul(x, w)
            b = Mul(w, x)
            y = Add(a, b)
        }
    """
    inner = graph.holders()
    operands: dict[Any, Hashable] = {}
    # The key of a tree ensemble may have millions of numbers, and most models have one.
    occurs = Counter(node.op_identifier() for scope in graph.scopes for node in scope)
    repeated = {operator for operator, count in occurs.items() if count > 1}
    for scope in graph.scopes:
        if scope not in inner:
            _merge(graph, scope, operands, repeated)


@dataclass
class _Level:
    """A scope on the path to the current one: the nodes still to visit, and those seen, by what they compute."""

    nodes: Iterator[Node]
    seen: dict[Hashable, list[Node]] = field(default_factory=dict)


def _merge(graph: Graph, scope: Any, operands: dict[Any, Hashable], repeated: Container[Any]) -> None:
    levels = [_nodes(graph, scope)]
    while levels:
        node = next(levels[-1].nodes, None)
        if node is None:
            levels.pop()
        elif node.has_subgraphs:
            # Nodes before this node are computed before its subgraphs run.
            levels.extend(_nodes(graph, subgraph) for subgraph in node.subgraphs)
        elif node.identifier in repeated and not node.is_removed:
            key = _key(node, operands)
            alike = [one for level in levels for one in level.seen.get(key, ())]
            # A kept node is removed if all its readers were copies themselves.
            first = next((one for one in alike if not one.is_removed and _same(one, node)), None)
            if first is None:
                levels[-1].seen.setdefault(key, []).append(node)
            else:
                _replace(graph, node, first)


def _nodes(graph: Graph, scope: Any) -> _Level:
    return _Level(iter([Node(graph, node) for node in scope]))


def _replace(graph: Graph, node: Node, first: Node) -> None:
    pairs = [(old, kept) for old, kept in zip(node.outputs, first.outputs) if old.name]
    with graph.site(node) as new:
        new.require(not node.is_random, "the operator is random")
        new.require(_is_known(graph, node), "the operator is not part of the ONNX standard")
        for old, kept in pairs:
            taken = kept.is_output or kept.scope is not old.scope
            new.require(not (old.is_output and taken), "both results are outputs with different names")
        for old, kept in pairs:
            new.replace(old, kept)


def _is_known(graph: Graph, node: Node) -> bool:
    """Return whether a node calls only standard operators, through functions of the model at any depth."""
    pending, called = [node], set()
    while pending:
        here = pending.pop()
        identifier = here.identifier
        function = graph.functions.get(identifier)
        if function is not None:
            if identifier not in called:
                called.add(identifier)
                pending.extend(Node(graph, inner) for inner in function.all_nodes())
        elif here.domain not in STANDARD:
            return False
    return True


def _key(node: Node, operands: dict[Any, Hashable]) -> Hashable:
    """Return a key for the computation of a node; large tensors contribute only a sample."""
    inputs = list(node.ir.inputs)
    while inputs and inputs[-1] is None:
        inputs.pop()
    described = [_operand(node.graph, value, operands) for value in inputs]
    read = frozenset(described) if node.commutes and len(described) == 2 else tuple(described)
    outputs = tuple(bool(value.name) for value in node.ir.outputs)
    attributes = tuple(sorted((name, _plain(item)) for name, item in node.attributes.data.items()))
    return node.identifier, read, outputs, attributes


def _operand(graph: Any, value: Any, operands: dict[Any, Hashable]) -> Hashable:
    """Return a key for an operand: the bits of a small constant, or the value itself."""
    if value is None:
        return None
    if value not in operands:
        tensor = Value(graph, value).tensor
        if tensor is None or tensor.size > SMALL:
            operands[value] = value
        else:
            operands[value] = str(tensor.dtype), str(tensor.shape), _bytes(tensor).tobytes()
    return operands[value]


def _plain(attribute: Any) -> Any:
    """Return the contents of an attribute as text, in which 0.0 and -0.0 differ."""
    if attribute.is_ref():
        return f"@{attribute.ref_attr_name}"
    match attribute.type.name:
        case "TENSOR":
            return _sample(attribute.value)
        case "TENSORS":
            return repr([_sample(tensor) for tensor in attribute.value])
        case "INT" | "FLOAT" | "STRING" | "INTS" | "FLOATS" | "STRINGS":
            return f"{attribute.type.name} {attribute.value!r}"
    # The rest, sparse tensors and types, are equal only to themselves.
    return f"{attribute.type.name} {id(attribute.value)}"


def _sample(tensor: Any) -> str:
    data = _bytes(tensor)
    picked = data if data.size <= SAMPLES else data[:: -(-data.size // SAMPLES)]
    return f"{tensor.dtype} {list(tensor.shape)} {picked.tobytes()!r}"


def _bytes(tensor: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the bytes of a tensor, as a view of the mapped file if it is stored in one."""
    array = np.asarray(tensor.numpy())
    if array.dtype == object:
        return np.frombuffer(repr(array.tolist()).encode(), dtype=np.uint8)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _same(one: Node, other: Node) -> bool:
    """Return whether the large tensors of two nodes that look alike are equal."""
    for name, attribute in one.attributes.data.items():
        if attribute.is_ref() or attribute.type.name not in ("TENSOR", "TENSORS"):
            continue
        mine, its = attribute.value, other.attributes[name].value
        pairs = [(mine, its)] if attribute.type.name == "TENSOR" else zip(mine, its)
        if not all(a is b or np.array_equal(_bytes(a), _bytes(b)) for a, b in pairs):
            return False
    return True
