"""Weights that are stored in a narrower float type or transposed, and converted by the model before they are used."""

from __future__ import annotations

from typing import Any

import numpy as np

from surgery import Builder, Node, Value, data_type

_NARROW = (data_type("float16"), data_type("bfloat16"))


def stored(factor: Value) -> tuple[Value, bool]:
    """Return the constant that a factor is computed from by a Cast and a Transpose, and whether its axes are swapped.

    The Cast is one from float16 or bfloat16 to float32, which is exact. Any other value is returned itself.
    """
    value, turned = factor, False
    while not value.is_constant:
        node = value.producer
        if node is None or not (_is_widening(node) or _swaps(node)):
            return factor, False
        turned = turned != _swaps(node)
        value = node.required_input(0)
    return value, turned


def untransposed(factor: Value) -> Value:
    """Return the constant that a factor is cast from, as `stored` does; the factor itself if its axes are swapped."""
    value, turned = stored(factor)
    return factor if turned else value


def parameter(factor: Value) -> Value:
    """Return the constant that a factor is computed from, as `stored` does.

    The factor itself if a copy with its axes swapped would be stored in addition: others read the constant too, as an
    embedding does.
    """
    value, turned = stored(factor)
    return factor if turned and value.reads > 1 else value


def is_own(factor: Value) -> bool:
    """Return whether a factor is constant or computed from a constant as `stored` says, and nothing else reads it."""
    value, constant = factor, stored(factor)[0]
    while value.reads == 1 and not value.is_output:
        if value == constant:
            return value.is_constant
        assert value.producer is not None
        value = value.producer.required_input(0)
    return False


def put(node: Node, position: int, array: np.ndarray[Any, Any], name: str, new: Builder) -> None:
    """Replace the elements of a factor that a node reads, which `is_own`; they are stored as the old ones are."""
    factor = node.required_input(position)
    constant, turned = stored(factor)
    assert constant.dtype is not None
    value, changed = factor, []
    while value != constant:
        assert value.producer is not None
        changed.append(value)
        node, position = value.producer, 0
        value = node.required_input(0)
    made = np.swapaxes(array, -1, -2) if turned else array
    new.set_input(node, position, new.at(node).constant(made.astype(constant.dtype.numpy(), copy=False), name))
    for value in changed:
        if array.shape != factor.static_shape:
            new.outdates(value)
        new.changes(value)


def elements(factor: Value) -> np.ndarray[Any, Any]:
    """Return the elements of a factor that is constant or computed from a constant as `stored` says, in its own type.

    They are views of the file, unless they have to be cast.
    """
    value, turned = stored(factor)
    array = value.constant
    assert array is not None
    if value.dtype != factor.dtype and factor.dtype is not None:
        array = array.astype(factor.dtype.numpy())
    return np.swapaxes(array, -1, -2) if turned else array


def _is_widening(node: Node) -> bool:
    is_wide = node.outputs[0].dtype == data_type("float")
    return node.op == "Cast" and is_wide and node.required_input(0).dtype in _NARROW


def _swaps(node: Node) -> bool:
    """Return whether a node swaps the last two axes."""
    rank = node.required_input(0).rank or 0 if node.op == "Transpose" else 0
    return rank >= 2 and node.attr("perm", [*range(rank)][::-1]) == [*range(rank - 2), rank - 1, rank - 2]
