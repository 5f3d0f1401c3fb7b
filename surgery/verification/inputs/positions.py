"""The positions that windows have on an image: with few of them, padding is all that most taps of a kernel see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from surgery.base.operators import traits
from surgery.base.operators.use import Index

_LEAST = 5
"""The smallest number of positions along an axis that is enough."""

Shapes = Mapping[str, Sequence[int]]


def leaves_positions(index: Index, first: Shapes, second: Shapes) -> bool:
    """Return whether in two runs each window has enough positions along every axis that differs between the runs."""
    for node, _ in index.nodes:
        if traits.slides(node.op_type) and not node.op_type.startswith("Global"):
            axes = _moved(node.input[0], first, second)
            results = [shapes.get(node.output[0], ()) for shapes in (first, second)]
            if not axes or any(
                len(shape) <= axes[-1] or min(shape[axis] for axis in axes) < _LEAST for shape in results
            ):
                return False
    return True


def _moved(name: str, first: Shapes, second: Shapes) -> list[int]:
    """Return the axes of an image, without batch and channels, that differ between two runs."""
    one, other = first.get(name, ()), second.get(name, ())
    return [axis for axis in range(2, len(one)) if len(one) == len(other) and one[axis] != other[axis]]
