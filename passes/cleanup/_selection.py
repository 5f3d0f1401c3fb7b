"""Rules for operators that select elements if they select all of them; of the same form as those in `_shared`."""

import numpy as np

from surgery import Match, Node, Value

from ._shared import UNITS, Array, Rule

MOST = 1 << 16
"""Maximum number of elements of a constant that is examined."""


def gather_all(node: Node) -> Value | None:
    """Return the data if a Gather takes all positions of an axis, in order."""
    data, indices = node.required_input(0), _small(node.required_input(1))
    axis = node.attr("axis", 0)
    shape = data.shape
    if indices is None or indices.ndim != 1 or shape is None or not -len(shape) <= axis < len(shape):
        return None
    extent = shape[axis]
    return data if isinstance(extent, int) and extent > 0 and _counts(indices % extent, extent) else None


def where_decided(node: Node) -> Value | None:
    """Return the selected value of a constant condition; the other operands must not enlarge it."""
    condition = _small(node.required_input(0))
    if condition is None or condition.size == 0 or condition.any() != condition.all():
        return None
    chosen, other = (1, 2) if condition.all() else (2, 1)
    return _unless_enlarged(node.required_input(chosen), node.required_input(0), node.required_input(other))


def where_same(node: Node) -> Value | None:
    """Return the value if both branches are the same."""
    value = node.required_input(1)
    return _unless_enlarged(value, node.required_input(0)) if value == node.required_input(2) else None


def where(node: Node) -> Value | None:
    """Return the value selected in any case; None for floats, because ONNX Runtime's Where turns -0.0 into 0.0."""
    kind = node.outputs[0].dtype
    return None if kind is None or kind.is_floating_point() else where_of_floats(node)


def where_of_floats(node: Node) -> Value | None:
    """Return the value selected in any case, ignoring the sign of zeros."""
    return where_same(node) or where_decided(node)


def _unless_enlarged(value: Value, *others: Value) -> Value | None:
    return value if all(Match.broadcasts_to(other, value) for other in others) else None


def scatter_rows(node: Node) -> Value | None:
    """Return the updates if they overwrite all rows of a tensor, in order."""
    data, indices, updates = (node.required_input(position) for position in range(3))
    shape, places = data.static_shape, _small(indices)
    if shape is None or updates.static_shape != shape or places is None or node.attr("reduction", "none") != "none":
        return None
    rows = shape[0] if shape else 0
    return updates if rows > 0 and places.shape == (rows, 1) and _counts(places[:, 0] % rows, rows) else None


def scatter_elements(node: Node) -> Value | None:
    """Return the updates if they overwrite all elements of a tensor, in order."""
    data, indices, updates = (node.required_input(position) for position in range(3))
    shape, places = data.static_shape, _small(indices)
    if not shape or updates.static_shape != shape or places is None or node.attr("reduction", "none") != "none":
        return None
    axis = node.attr("axis", 0)
    if places.shape != shape or places.size == 0:
        return None
    along = np.moveaxis(places % shape[axis], axis, -1)
    return updates if (along == np.arange(shape[axis])).all() else None


def resize_by_one(node: Node) -> Value | None:
    """Return the data of a Resize by 1, which ONNX Runtime copies in every mode."""
    if node.attr("coordinate_transformation_mode") == "tf_crop_and_resize" or node.attr("antialias"):
        return None
    if node.op == "Upsample" and node.opset < 9:
        scales = np.array(node.attr("scales", ()))
    else:
        given = node.input(1 if node.op == "Upsample" or node.opset < 11 else 2)
        small = None if given is None else _small(given)
        scales = np.zeros(0) if small is None else small
    data = node.required_input(0)
    return data if scales.size > 0 and data.rank == scales.size and (scales == 1).all() else None


def reduce_one(node: Node) -> Value | None:
    """Return the data if only axes of one element are reduced, and kept; a sum may turn -0.0 into 0.0."""
    data, shape = node.required_input(0), node.required_input(0).shape
    axes = node.attr("axes") if node.opset < (13 if node.op == "ReduceSum" else 18) else _axes(node)
    if not axes or shape is None or not node.attr("keepdims") or not all(-len(shape) <= a < len(shape) for a in axes):
        return None
    return data if all(shape[axis] == 1 for axis in axes) else None


def _axes(node: Node) -> list[int]:
    given = node.input(1)
    small = None if given is None else _small(given)
    return [] if small is None else [int(axis) for axis in small.reshape(-1)]


def einsum_as_is(node: Node) -> Value | None:
    """Return the operand of an Einsum that keeps its subscripts, each of which occurs once."""
    before, _, after = node.attr("equation", "").replace(" ", "").partition("->")
    plain = before == after and before.isalpha() and len(set(before)) == len(before)
    return node.required_input(0) if plain and len(node.inputs) == 1 else None


def same_operands(node: Node) -> Value | None:
    """Return the operand if all operands are the same value, which the operator returns."""
    inputs = set(node.inputs)
    return node.required_input(0) if len(inputs) == 1 and None not in inputs else None


def absorbed(node: Node) -> Value | None:
    """Return the constant operand if it decides the result: False in And, all bits in BitwiseOr."""
    if node.opset < 7:
        return None  # Before opset 7 the second operand is broadcast to the first, and only on request.
    for position in (0, 1):
        constant = node.required_input(position)
        array = _small(constant)
        decides = array is not None and array.size > 0 and bool(UNITS[_DUALS[node.op]][0](array).all())
        if decides and Match.broadcasts_to(node.required_input(1 - position), constant):
            return constant
    return None


def absorbed_or_same(node: Node) -> Value | None:
    """Return the operand that is the result because both are the same, or because it decides the result."""
    return same_operands(node) or absorbed(node)


_DUALS = {"And": "Or", "BitwiseAnd": "BitwiseOr", "BitwiseOr": "BitwiseAnd", "Or": "And"}
"""For each operator, the operator whose unit decides its result."""


def _small(value: Value) -> Array | None:
    tensor = value.tensor
    return value.constant if tensor is not None and tensor.size <= MOST else None


def _counts(indices: Array, extent: int) -> bool:
    return bool(np.array_equal(indices, np.arange(extent)))


SELECTIONS: dict[str, Rule] = {
    "And": absorbed_or_same,
    "BitwiseAnd": absorbed_or_same,
    "BitwiseOr": absorbed_or_same,
    "Einsum": einsum_as_is,
    "Gather": gather_all,
    "Max": same_operands,
    "Min": same_operands,
    "Or": absorbed_or_same,
    "ReduceMax": reduce_one,
    "ReduceMin": reduce_one,
    "ReduceProd": reduce_one,
    "Resize": resize_by_one,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_rows,
    "Upsample": resize_by_one,
    "Where": where,
}
"""The rule of each operator that may return one of its inputs."""

UP_TO_SIGN: dict[str, Rule] = {"ReduceMean": reduce_one, "ReduceSum": reduce_one, "Where": where_of_floats}
"""The rule of each operator that may return one of its inputs, except for the sign of zeros."""
