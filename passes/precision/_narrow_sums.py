"""Sums inside operators that overflow in a narrower type though the results do not."""

from __future__ import annotations

import math
from collections.abc import Mapping

from surgery import Node

from ._narrow_ranges import Range

SUMS: Mapping[str, str] = {
    **dict.fromkeys(("AveragePool", "GlobalAveragePool", "ReduceMean", "ReduceLogSum"), "elements"),
    **dict.fromkeys(("GlobalLpPool", "InstanceNormalization", "LpNormalization"), "mean-square"),
    **dict.fromkeys(("MeanVarianceNormalization", "ReduceL2"), "mean-square"),
}
"""What operators sum up where it is not known how the target does it."""


def sum_inside(node: Node, ranges: Mapping[str, Range]) -> float:
    """Return a bound of the largest number that a kernel of the target stores on the way to the result of a node.

    `ranges` are those of the inputs and outputs, by name; 0 if nothing is known.
    """
    sums = node.graph.target.rounded_sums
    kind = (SUMS if sums is None else sums).get(node.op)
    if kind is None:
        return 0.0
    first, last = ranges.get(node.required_input(0).name), ranges.get(node.outputs[0].name)
    if kind == "mean-square":
        return 0.0 if first is None else first.largest**2 if sums is None else _joint_square(node, ranges)
    if last is None:
        return 0.0
    if kind == "squares":
        return last.largest**2
    count = _summands(node, first, last)
    # The number of elements is rounded, too, before the sum is divided by it.
    return math.exp(min(last.largest, 700.0)) if node.op == "ReduceLogSum" else max(last.largest * count, count)


def _joint_square(node: Node, ranges: Mapping[str, Range]) -> float:
    """Return a bound of the mean of squares of the sum of the tensors that a node normalizes.

    Roots of means of squares obey the triangle inequality. The factors and shifts of the norm, which are vectors, are
    counted too.
    """
    found = [ranges[value.name] for value in node.inputs if value is not None and value.name in ranges]
    return sum(min(math.sqrt(one.square), one.largest) for one in found) ** 2


def _summands(node: Node, first: Range | None, last: Range) -> float:
    """Return the number of elements that a mean is taken over; 1 if it is not known."""
    if node.op == "AveragePool":
        return float(math.prod(node.attr("kernel_shape") or [1]))
    dims = _reduced(node)
    if dims is not None and all(isinstance(dim, int) for dim in dims):
        return float(math.prod(dim for dim in dims if isinstance(dim, int)))
    before, after = first.count if first is not None else 0, last.count
    return max(1.0, before / after) if after else 1.0


def _reduced(node: Node) -> list[int | str | None] | None:
    """Return the dims over which a node takes a mean; None if the axes are not known."""
    shape = node.required_input(0).shape
    if shape is None:
        return None
    if node.op == "GlobalAveragePool":
        return list(shape[2:])
    given = node.input(1)
    axes = node.attr("axes") if given is None else given.elements
    if given is not None and axes is None:
        return None
    if not axes:
        return list(shape)
    return [shape[axis] for axis in axes if isinstance(axis, int) and -len(shape) <= axis < len(shape)]
