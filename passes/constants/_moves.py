"""Weights after Transpose, Reshape and the like, as views of the weights: nothing is read until it is stored."""

from collections.abc import Callable
from typing import Any

import numpy as np

from surgery import Node, Value

Array = np.ndarray[Any, Any]


def moved(value: Value) -> Array | None:
    """Return the elements of a value that is a constant in another order or shape; otherwise None."""
    path: list[Node] = []
    source = moved_from(value, path)
    array = source.constant if source is not None and path else None
    if array is None or array.dtype == object:
        return None
    try:
        for node in reversed(path):
            array = _MOVES[node.op](node, array)
    except (ValueError, TypeError, IndexError):  # the model is invalid, or uses something that is not known here
        return None
    return array


def moved_from(value: Value, path: list[Node] | None = None) -> Value | None:
    """Return the constant from which a value is moved, or the value itself; `path` collects the nodes, last first."""
    while not value.is_constant:
        node = value.producer
        source = node.input(0) if node is not None and node.op in _MOVES else None
        if node is None or source is None:
            return None
        if path is not None:
            path.append(node)
        value = source
    return value


def _transpose(node: Node, array: Array) -> Array:
    return np.transpose(array, node.attr("perm"))


def _reshape(node: Node, array: Array) -> Array:
    wanted = node.attr("shape") if node.opset < 5 else _integers(node.input(1))
    if not node.attr("allowzero"):
        wanted = [array.shape[axis] if extent == 0 else extent for axis, extent in enumerate(wanted)]
    return array.reshape(wanted)


def _flatten(node: Node, array: Array) -> Array:
    axis = node.attr("axis")
    axis = axis + array.ndim if axis < 0 else axis
    return array.reshape(int(np.prod(array.shape[:axis], dtype=np.int64)), -1)


def _squeeze(node: Node, array: Array) -> Array:
    return np.squeeze(array, _axes(node))


def _unsqueeze(node: Node, array: Array) -> Array:
    axes = _axes(node)
    if axes is None:
        raise TypeError
    return np.expand_dims(array, axes)


def _axes(node: Node) -> tuple[int, ...] | None:
    if node.opset < 13:
        axes = node.attr("axes")
        return None if axes is None else tuple(axes)
    return None if node.input(1) is None else tuple(_integers(node.input(1)))


def _integers(value: Value | None) -> list[int]:
    elements = None if value is None else value.elements
    numbers = [item for item in elements or () if isinstance(item, int)]
    if elements is None or len(numbers) != len(elements):
        raise TypeError
    return numbers


_MOVES: dict[str, Callable[[Node, Array], Array]] = {
    "Flatten": _flatten,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
