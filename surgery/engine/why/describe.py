"""Descriptions of nodes and values for messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from surgery.base.errors import first_few
from surgery.model.graph.values import Node, Value
from surgery.model.shapes.facts import Dim

_SHOWN = 4
"""Maximum number of elements shown of a constant."""


def typed(value: Value) -> str:
    """Format type and dims, such as `float[batch,4]`; `?` stands for an unknown type or dim."""
    dtype = value.dtype
    if dtype is None:
        return "?" if value.type is None else str(value.type)
    return f"{dtype.name.lower()}{extents(value.shape)}"


def extents(shape: Sequence[Dim] | None) -> str:
    """Format the dims of a shape: empty for a scalar, " of unknown shape" if the rank is unknown."""
    if shape is None:
        return " of unknown shape"
    return f"[{','.join('?' if dim is None else str(dim) for dim in shape)}]" if shape else ""


def contents(value: Value) -> str:
    """Format the elements of a constant: `0.5`, `{1, 2}`, `{0.1, 0.2, 0.3, 0.4, …}`; empty if it is not constant."""
    tensor = value.tensor
    if tensor is None:
        return ""
    flat = tensor.numpy().reshape(-1)
    shown = ", ".join(str(item) for item in flat[:_SHOWN])
    if not tensor.shape.numpy():
        return shown
    return f"{{{shown}{', …' if flat.size > _SHOWN else ''}}}"


def is_small(value: Value) -> bool:
    """Return whether a value is a constant of which `contents` shows all elements, unlike the weights of a layer."""
    return value.is_constant and (tensor := value.tensor) is not None and tensor.size <= _SHOWN


def source(value: Value | None) -> str:
    """Describe a value by its origin."""
    if value is None:
        return "nothing"
    if value.is_constant:
        return contents(value)
    if value.is_overridable:
        return f"'{value.name}', an overridable initializer"
    producer = value.producer
    if producer is not None:
        return f"the result of {named(producer)}"
    return f"graph input '{value.name}'" if value.is_input else f"'{value.name}'"


def named(node: Node) -> str:
    """Format the name of a node with its operator: `Exp 'n1'`."""
    return f"{node.op} '{node.label}'" if node.name else f"'{node.label}'"


def listed(nodes: Iterable[Node], most: int = 3) -> str:
    """Format the names of the first nodes, and the number of further ones."""
    return first_few(map(named, nodes), most)
