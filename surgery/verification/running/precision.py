"""The precision in which an output is computed, which may be lower than that of its element type.

A float64 that is cast from float32 contains float32 rounding, and gets the tolerance of float32. The precision is that
of the narrowest float type in which an operator between the inputs and the output rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.base.operators.dtypes import dtype_of, is_float
from surgery.base.operators.moving import EXTENTS
from surgery.base.operators.rounding_behavior import EXACT
from surgery.model.proto.dataflow import Flow
from surgery.model.shapes.declarations import element_types

if TYPE_CHECKING:
    import onnx

    from surgery.model.runtime.engine import Engine


def of_outputs(skeleton: bytes, worker: Engine) -> Mapping[str, np.dtype[Any]]:
    """Return the outputs that are computed in a narrower float type than their own, with that type."""
    import onnx

    model = onnx.load_model_from_string(skeleton)
    if not may_be_narrower(model):
        return {}
    return narrowest(model, worker.analyse(element_types, skeleton=skeleton) or {})


def may_be_narrower(model: onnx.ModelProto) -> bool:
    """Return whether an output is declared with a wider float type than another one that the main graph mentions."""
    types = [dtype_of(output.type.tensor_type.elem_type) for output in model.graph.output]
    widths = [dtype.itemsize for dtype in types if dtype is not None and is_float(dtype)]
    return mentions_narrower(model, max(widths, default=0))


def mentions_narrower(model: onnx.ModelProto, width: int) -> bool:
    """Return whether the main graph mentions floats of fewer bytes than `width`."""
    types = [dtype_of(number) for number in set(_mentioned(model.graph))]
    return any(dtype is not None and is_float(dtype) and dtype.itemsize < width for dtype in types)


def _mentioned(graph: onnx.GraphProto) -> Iterator[int]:
    yield from (value.type.tensor_type.elem_type for value in (*graph.input, *graph.output))
    yield from (tensor.data_type for tensor in graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name == "to":
                yield attribute.i
            elif attribute.name == "value":
                yield attribute.t.data_type


def narrowest(model: onnx.ModelProto, types: Mapping[str, int]) -> dict[str, np.dtype[Any]]:
    """Return the precision of each output whose element type is wider than its precision.

    `types` are element types by value, as numbers of `TensorProto.DataType`.
    """
    flow = Flow(model.graph)
    found: dict[str, np.dtype[Any]] = {}
    constants = {tensor.name for tensor in model.graph.initializer}

    def own(name: str) -> np.dtype[Any] | None:
        dtype = dtype_of(types.get(name, 0))
        return dtype if dtype is not None and is_float(dtype) else None

    for number, node in enumerate(flow.nodes):
        reads = flow.reads[number]
        if node.op_type in EXTENTS or all(name in constants for name in reads):
            constants.update(node.output)
            continue
        before = [found[name] for name in reads if name in found]
        for name in node.output:
            dtype = own(name)
            rounds = node.op_type not in EXACT
            if node.op_type == "Cast":
                # A Cast of values that nothing has rounded yet can round them in one way only.
                rounds = bool(before) and _is_narrower(dtype, own(node.input[0]))
            here = [*before, dtype] if rounds and dtype is not None else before
            if here:
                found[name] = min(here, key=lambda one: one.itemsize)
    outputs = ((output.name, own(output.name)) for output in model.graph.output)
    return {name: found[name] for name, dtype in outputs if name in found and _is_narrower(found[name], dtype)}


def _is_narrower(dtype: np.dtype[Any] | None, other: np.dtype[Any] | None) -> bool:
    return dtype is not None and other is not None and dtype.itemsize < other.itemsize
