"""Shrink a cut so that it still shows the difference: shorter dims, consistently in all weights and inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.bisection.cuts import Cut
from surgery.bisection.probe import Shown
from surgery.operators.tensors import from_array, to_array

if TYPE_CHECKING:
    import onnx

_SHORTEST = 2
"""The minimum size of a dim; dims of size 1 would broadcast and could hide the difference."""


def shrink(cut: Cut, shown: Shown, show: Callable[[Cut], Shown | None]) -> tuple[Cut, Shown]:
    """Reduce each extent to the smallest power of two that keeps the difference, largest extents first.

    All dims of one extent are reduced together, and so are integer constants of that value, which are usually shapes.
    The original must still run, which shows whether that was correct.
    """
    for extent in sorted(_extents(cut), reverse=True):
        size = _SHORTEST
        while size < extent:
            smaller = _sliced(cut, extent, size)
            again = show(smaller)
            if again is not None and again.is_like(shown):
                cut, shown = smaller, again
                break
            size *= 2
    return cut, shown


def _extents(cut: Cut) -> set[int]:
    shapes = [value.shape for value in cut.feed.values()]
    shapes += [tuple(tensor.dims) for model in (cut.original, cut.changed) for tensor in model.graph.initializer]
    return {extent for shape in shapes for extent in shape if extent > _SHORTEST}


def _sliced(cut: Cut, extent: int, size: int) -> Cut:
    feed = {name: _slice(value, extent, size) for name, value in cut.feed.items()}
    original, changed = (_sliced_model(model, feed, extent, size) for model in (cut.original, cut.changed))
    return replace(cut, original=original, changed=changed, feed=feed)


def _sliced_model(model: onnx.ModelProto, feed: Mapping[str, Any], extent: int, size: int) -> onnx.ModelProto:
    import onnx

    from surgery.proto.extract import describe

    result = deepcopy(model)
    for tensor in result.graph.initializer:
        value = to_array(tensor)
        sliced = _slice(value, extent, size)
        if tensor.data_type == onnx.TensorProto.INT64:
            sliced = np.where(sliced == extent, np.int64(size), sliced)
        if sliced.shape != value.shape or sliced is not value:
            tensor.CopyFrom(from_array(sliced, tensor.name))
    for value_info in result.graph.input:
        if value_info.name in feed:
            value_info.CopyFrom(describe(value_info.name, feed[value_info.name]))
    return result


def _slice(value: Any, extent: int, size: int) -> Any:
    if extent not in value.shape:
        return value
    return np.ascontiguousarray(value[tuple(_ranges(value.shape, extent, size))])


def _ranges(shape: tuple[int, ...], extent: int, size: int) -> Iterator[slice]:
    return (slice(size) if dim == extent else slice(None) for dim in shape)
