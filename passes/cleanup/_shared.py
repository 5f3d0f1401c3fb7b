"""Rules that detect operators that return their input unchanged.

Each rule takes a node and returns the input that equals the first output, or None. Shapes may be symbolic: a
dim "batch" equals a dim "batch". Unknown dims count as different.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from surgery import Match, Node, Refusal, Value

Array = np.ndarray[Any, Any]
Rule = Callable[[Node], Value | None]

_TO_THE_END = 2**31 - 1
"""Minimum end of a Slice that means "to the end": the INT_MAX that the operator's text recommends."""


def _reads(node: Node, name: str, position: int, until: int) -> tuple[int | str, ...] | None:
    """Return the elements of an input that was the attribute `name` up to opset `until`; None if unknown."""
    if node.opset <= until:
        return tuple(node.attr(name, ()))
    value = node.input(position)
    return () if value is None else value.elements


def cast(node: Node) -> Value | None:
    """Return the input of a Cast to its own type."""
    data, target = node.required_input(0), node.attr("to")
    if data.dtype is None:
        raise Refusal("the type of the input is not known")
    # Before opset 6 the type is a string, "FLOAT".
    same = data.dtype.name == target.upper() if isinstance(target, str) else data.dtype.value == target
    return data if same else None


def cast_like(node: Node) -> Value | None:
    """Return the input of a CastLike with a value of the same type."""
    data, like = node.required_input(0), node.required_input(1)
    if data.dtype is None or like.dtype is None:
        raise Refusal("the type of the input is not known")
    return data if data.dtype == like.dtype else None


def reshape(node: Node) -> Value | None:
    """Return the input of a Reshape to its own shape; 0 copies a dim, a single -1 is inferred from the others."""
    data, wanted = node.required_input(0), _reads(node, "shape", 1, until=4)
    dims = data.shape
    if wanted is None or dims is None or len(wanted) != len(dims):
        return None
    zero_is_zero = node.opset >= 14 and node.attr("allowzero")
    inferred = 0
    for item, dim in zip(wanted, dims):
        copies = item == 0 and not zero_is_zero
        inferred += item == -1
        if not copies and item not in (dim, -1):
            return None
    return data if inferred <= 1 else None


def flatten(node: Node) -> Value | None:
    """Return the input if a matrix is flattened at its second axis."""
    data = node.required_input(0)
    return data if data.rank == 2 and node.attr("axis") in (1, -1) else None


def transpose(node: Node) -> Value | None:
    """Return the input of an identity Transpose; without `perm` it reverses the axes, the identity below rank 2."""
    data, perm = node.required_input(0), node.attr("perm")
    if perm:
        return data if perm == list(range(len(perm))) else None
    return data if data.rank is not None and data.rank < 2 else None


def pad(node: Node) -> Value | None:
    """Return the input if all paddings are 0, in any mode."""
    pads = _reads(node, "paddings" if node.opset == 1 else "pads", 1, until=10)
    return node.required_input(0) if pads is not None and all(item == 0 for item in pads) else None


def slice_all(node: Node) -> Value | None:
    """Return the input of a Slice from the first to the last element, with step 1, along each of its axes."""
    data = node.required_input(0)
    starts, ends = _reads(node, "starts", 1, until=9), _reads(node, "ends", 2, until=9)
    axes, steps = _reads(node, "axes", 3, until=9), _reads(node, "steps", 4, until=9)
    if starts is None or ends is None or axes is None or steps is None or len(starts) != len(ends):
        return None
    axes, steps = axes or tuple(range(len(starts))), steps or (1,) * len(starts)
    if len(axes) != len(starts) or any(step != 1 for step in steps):
        return None
    dims = data.shape
    for start, end, axis in zip(starts, ends, axes):
        known = dims is not None and isinstance(axis, int) and -len(dims) <= axis < len(dims)
        dim = dims[int(axis)] if known and dims is not None else None
        if not (_from_the_start(start, dim) and _to_the_end(end, dim)):
            return None
    return data


def _from_the_start(start: int | str, dim: int | str | None) -> bool:
    return start == 0 or (isinstance(start, int) and isinstance(dim, int) and start <= -dim)


def _to_the_end(end: int | str, dim: int | str | None) -> bool:
    if isinstance(end, str):
        return end == dim
    return end >= _TO_THE_END or (isinstance(dim, int) and end >= dim)


def only_input(node: Node) -> Value | None:
    """Return the input if it is the only one."""
    return node.required_input(0) if len(node.inputs) == 1 else None


def split(node: Node) -> Value | None:
    """Return the input of a Split into one part."""
    if len(node.outputs) > 1 or node.attr("num_outputs", 1) != 1:
        return None
    parts = _reads(node, "split", 1, until=12)
    return node.required_input(0) if parts is None or len(parts) < 2 else None


def expand(node: Node) -> Value | None:
    """Return the input of an Expand to its own shape, or to 1 along some axes."""
    data, wanted, dims = node.required_input(0), node.required_input(1).elements, node.required_input(0).shape
    if wanted is None or dims is None or len(wanted) > len(dims):
        return None
    same = all(item in (1, dim) for item, dim in zip(reversed(wanted), reversed(dims)))
    return data if same else None


def tile(node: Node) -> Value | None:
    """Return the input of a Tile with all repeats 1."""
    repeats = node.required_input(1).elements
    return node.required_input(0) if repeats is not None and all(item == 1 for item in repeats) else None


def squeeze(node: Node) -> Value | None:
    """Return the input of a Squeeze without axes if no dim is 1.

    An empty list of axes means "none" in the operator's text and "all that are 1" in ONNX Runtime; here both agree.
    """
    data = node.required_input(0)
    shape = data.static_shape
    squeezes_nothing = _reads(node, "axes", 1, until=12) == () and shape is not None and 1 not in shape
    return data if squeezes_nothing else None


def unsqueeze(node: Node) -> Value | None:
    """Return the input of an Unsqueeze of no axes."""
    return node.required_input(0) if _reads(node, "axes", 1, until=12) == () else None


def reduce_nothing(node: Node) -> Value | None:
    """Return the input of a reduction over no axes if that reduces nothing.

    Only for reductions that do not change a single element: ReduceL1 of one element still takes its absolute value.
    """
    axes = _reads(node, "axes", 1, until=0)
    return node.required_input(0) if node.attr("noop_with_empty_axes") and axes == () else None


def block_of_one(node: Node) -> Value | None:
    """Return the input of DepthToSpace or SpaceToDepth with blocks of one element."""
    return node.required_input(0) if node.attr("blocksize") == 1 else None


COPIES: dict[str, Rule] = {
    "Cast": cast,
    "CastLike": cast_like,
    "Concat": only_input,
    "DepthToSpace": block_of_one,
    "Expand": expand,
    "Flatten": flatten,
    "Max": only_input,
    "Mean": only_input,
    "Min": only_input,
    "Pad": pad,
    "ReduceMax": reduce_nothing,
    "ReduceMean": reduce_nothing,
    "ReduceMin": reduce_nothing,
    "ReduceProd": reduce_nothing,
    "ReduceSum": reduce_nothing,
    "Reshape": reshape,
    "Slice": slice_all,
    "SpaceToDepth": block_of_one,
    "Split": split,
    "Squeeze": squeeze,
    "Sum": only_input,
    "Tile": tile,
    "Transpose": transpose,
    "Unsqueeze": unsqueeze,
}
"""The rule of each operator that may be a copy."""


def _ones(array: Array) -> Any:
    return array == 1


def _zeros(array: Array) -> Any:
    return array == 0


UNITS: dict[str, tuple[Callable[[Array], Any], tuple[int, ...]]] = {
    "Add": (_zeros, (1, 0)),
    "And": (_ones, (1, 0)),
    "BitShift": (_zeros, (1,)),
    "BitwiseAnd": (lambda array: ~array == 0, (1, 0)),
    "BitwiseOr": (_zeros, (1, 0)),
    "BitwiseXor": (_zeros, (1, 0)),
    "Div": (_ones, (1,)),
    "Mul": (_ones, (1, 0)),
    "Or": (_zeros, (1, 0)),
    "Pow": (_ones, (1,)),
    "Sub": (_zeros, (1,)),
    "Xor": (_zeros, (1, 0)),
}
"""Binary operators that have a unit: a test for the unit, and the operand positions where it may be."""


def beside_unit(node: Node) -> tuple[Value, Value] | None:
    """Return the operand that is combined only with units of the operation, and the units, or None."""
    units = [position for position in UNITS[node.op][1] if _is_unit(node, position)]
    if not units:
        return None
    fitting = [position for position in units if _keeps_shape(node, position)]
    if not fitting:
        raise Refusal("the constant may enlarge the result")
    return node.required_input(1 - fitting[0]), node.required_input(fitting[0])


def _is_unit(node: Node, position: int) -> bool:
    array = node.required_input(position).constant
    if array is None or array.size == 0:
        return False
    test, flat = UNITS[node.op][0], array.reshape(-1)
    return bool(test(flat[:1]).all()) and bool(test(flat).all())  # rarely reads all of a large weight


def _keeps_shape(node: Node, position: int) -> bool:
    """Return whether the result is known to have the shape of the other operand."""
    constant, kept = node.required_input(position), node.required_input(1 - position)
    if node.opset < 7:
        # Before opset 7 the second operand is broadcast to the first, and only on request.
        return position == 1 or not node.attr("broadcast")
    return constant.rank == 0 or Match.broadcasts_to(constant, kept)
