"""Helpers shared by the passes over chains."""

import numpy as np

from surgery import RESHAPES, Builder, Node, Value

MOVEMENTS = ("Transpose", *RESHAPES)
"""Operators that rearrange all elements of their input."""


def is_known_movement(node: Node) -> bool:
    """Return whether a node rearranges elements in a way that is known, because its other inputs are constant."""
    if node.op not in MOVEMENTS or node.opset < 5 or any(attribute.is_ref() for attribute in node.attributes.values()):
        return False
    return node.op in ("Transpose", "Flatten") or axes_of(node) is not None


def axes_of(node: Node) -> tuple[int, ...] | None:
    """Return the constant shape of a Reshape, the axes of Squeeze or Unsqueeze; None if they are not constant."""
    if node.op != "Reshape" and node.opset < 13:
        return tuple(node.attr("axes") or ())
    return constant_ints(node.input(1))


def reduced_axes(node: Node) -> tuple[int, ...] | None:
    """Return the axes that a reduction names; () if it names none, None if they are not constant."""
    by_attribute = node.opset < (13 if node.op == "ReduceSum" else 18)
    return tuple(node.attr("axes") or ()) if by_attribute else constant_ints(node.input(1))


def constant_ints(value: Value | None) -> tuple[int, ...] | None:
    """Return the elements of an integer constant; () for an absent input, None for a value that is not constant."""
    if value is None:
        return ()
    array = None if value.tensor is None or value.tensor.size > 4096 else value.constant
    return None if array is None else tuple(int(item) for item in array.reshape(-1))


def has_parameters(node: Node) -> bool:
    """Return whether an attribute is a parameter of the function around the node, and so has no known value."""
    return any(attribute.is_ref() for attribute in node.attributes.values())


def new_split(source: Value, axis: int, lengths: list[int], opset: int, new: Builder) -> tuple[Value, ...]:
    """Add a Split, whose lengths are an attribute before opset 13 and an input from then on."""
    if opset < 13:
        return new.nodes("Split", source, outputs=len(lengths), axis=axis, split=lengths)
    parts = new.constant(np.array(lengths, np.int64), "split")
    return new.nodes("Split", source, parts, outputs=len(lengths), axis=axis)
