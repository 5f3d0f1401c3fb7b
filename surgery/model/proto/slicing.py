"""Shorter dims: all that have one extent are cut to another size, in inputs, constants and shapes alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.base.operators.message_tensors import from_array, to_array
from surgery.model.proto.extract import describe

if TYPE_CHECKING:
    import onnx


def sliced_model(model: onnx.ModelProto, feed: Mapping[str, Any], extent: int, size: int) -> onnx.ModelProto:
    """Return a copy of a model with all dims of an extent cut to a size, for inputs that were cut already.

    Integer constants of that value are replaced, too: they are usually shapes.
    """
    import onnx

    result = deepcopy(model)
    for tensor in result.graph.initializer:
        value = to_array(tensor)
        shorter = sliced(value, extent, size)
        if tensor.data_type == onnx.TensorProto.INT64:
            shorter = np.where(shorter == extent, np.int64(size), shorter)
        if shorter is not value:
            tensor.CopyFrom(from_array(shorter, tensor.name))
    for value_info in result.graph.input:
        if value_info.name in feed:
            value_info.CopyFrom(describe(value_info.name, feed[value_info.name]))
    return result


def sliced(value: Any, extent: int, size: int) -> Any:
    """Return an array with all dims of an extent cut to a size; the array itself if it has none."""
    if extent not in value.shape:
        return value
    return np.ascontiguousarray(value[tuple(_ranges(value.shape, extent, size))])


def _ranges(shape: tuple[int, ...], extent: int, size: int) -> Iterator[slice]:
    return (slice(size) if dim == extent else slice(None) for dim in shape)
