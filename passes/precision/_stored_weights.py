"""Weights that are stored in a narrower float type or transposed, and converted by the model before they are used."""

from __future__ import annotations

from typing import Any

import numpy as np

from surgery import Node, Value, data_type

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
