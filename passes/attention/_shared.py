"""What the passes over attention build alike."""

from collections.abc import Sequence

import numpy as np

from surgery import Builder, Value


def split(value: Value, axis: int, sizes: Sequence[int], new: Builder, opset: int) -> tuple[Value, ...]:
    """Split a value into parts of these sizes; they became an input in opset 13."""
    if opset < 13:
        return new.nodes("Split", value, outputs=len(sizes), axis=axis, split=list(sizes))
    return new.nodes("Split", value, new.constant(np.array(sizes, np.int64), "sizes"), outputs=len(sizes), axis=axis)
