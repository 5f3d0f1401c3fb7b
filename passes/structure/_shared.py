"""Helpers shared by the passes over structure."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from surgery import Graph, Node, Value


def inside_out(graph: Graph, *ops: str) -> Iterator[Node]:
    """Yield the nodes of these operators, inner nodes before the nodes that contain them.

    So inner nodes are copied in final form. Nodes that the caller adds to the graph meanwhile are yielded too.
    """
    seen: set[Node] = set()
    while nodes := [node for node in graph.nodes(*ops) if node not in seen]:
        seen.update(nodes)
        # Inner nodes come after the nodes that contain them.
        yield from (node for node in reversed(nodes) if not node.is_removed)


def known_scalar(value: Value) -> bool | int | None:
    """Return the only element of a value that is the same in every run; None if it is not known."""
    scalar, elements = value.scalar, value.elements
    if scalar is None and elements is not None and len(elements) == 1 and isinstance(elements[0], int):
        scalar = bool(elements[0]) if value.dtype is not None and value.dtype.name == "BOOL" else elements[0]
    return scalar if isinstance(scalar, bool | int) else None


def same_graphs(one: Any, other: Any) -> bool:
    """Return whether two subgraphs are equal node by node, in the same order, with bit-identical constants."""
    return _same_bodies(one, other, {})


def _same_bodies(one: Any, other: Any, twins: dict[Any, Any]) -> bool:
    if len(one) != len(other) or len(one.inputs) != len(other.inputs) or len(one.outputs) != len(other.outputs):
        return False
    twins.update(zip(one.inputs, other.inputs))
    for mine, its in zip(one, other):
        if not _same_nodes(mine, its, twins):
            return False
        twins.update(zip(mine.outputs, its.outputs))
    return all(_same_values(mine, its, twins) for mine, its in zip(one.outputs, other.outputs))


def _same_nodes(one: Any, other: Any, twins: dict[Any, Any]) -> bool:
    if one.op_identifier() != other.op_identifier() or one.attributes.keys() != other.attributes.keys():
        return False
    if len(one.inputs) != len(other.inputs) or [bool(v.name) for v in one.outputs] != [
        bool(v.name) for v in other.outputs
    ]:
        return False
    if not all(_same_values(mine, its, twins) for mine, its in zip(one.inputs, other.inputs)):
        return False
    return all(_same_attributes(held, other.attributes[name], twins) for name, held in one.attributes.items())


def _same_values(one: Any, other: Any, twins: dict[Any, Any]) -> bool:
    if one is other or (one is not None and twins.get(one) is other):
        return True
    if one is None or other is None or one.is_graph_input() or other.is_graph_input():
        return False
    mine, its = one.const_value, other.const_value
    constants = one.is_initializer() and other.is_initializer() and mine is not None and its is not None
    return bool(constants) and _same_tensors(mine, its)


def _same_attributes(one: Any, other: Any, twins: dict[Any, Any]) -> bool:
    if one.type != other.type or one.is_ref() != other.is_ref():
        return False
    if one.is_ref():
        return bool(one.ref_attr_name == other.ref_attr_name)
    match one.type.name:
        case "GRAPH":
            return _same_bodies(one.value, other.value, twins)
        case "TENSOR":
            return _same_tensors(one.value, other.value)
        case "INT" | "FLOAT" | "STRING" | "INTS" | "FLOATS" | "STRINGS":
            # As text, 0.0 and -0.0 differ.
            return repr(one.value) == repr(other.value)
    return one.value is other.value


def _same_tensors(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if one.dtype != other.dtype or tuple(one.shape) != tuple(other.shape):
        return False
    mine, its = np.asarray(one.numpy()), np.asarray(other.numpy())
    if mine.dtype == object:
        return bool(mine.tolist() == its.tolist())
    mine, its = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (mine, its))
    return np.array_equal(mine, its)
