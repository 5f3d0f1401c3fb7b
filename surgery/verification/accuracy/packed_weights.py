"""Runs of a large model piece by piece, for runtimes that copy the weights of a whole session.

ONNX Runtime packs the weights of quantized products into another layout, in memory of its own, when it creates a
session. Of a model that runs in consecutive pieces, it packs only those of one piece at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from surgery.operators.dtypes import dtype_of
from surgery.proto.dataflow import Flow
from surgery.proto.extract import cut, describe
from surgery.runtime.engine import Engine, Outcome

MANY_WEIGHTS = 512 << 20
"""Bytes of weights from which a model runs in pieces."""

_WEIGHTS_OF_PIECE = 256 << 20

Values = dict[str, Any]


def run_in_pieces(engine: Engine, skeleton: bytes, feeds: Sequence[Mapping[str, Any]]) -> Outcome | None:
    """Run a model on each dict of inputs, in pieces with few weights each; None if that is not possible or no use.

    It is not possible if the nodes are not in topological order, or an optional value crosses from piece to piece.
    """
    model = onnx.load_model_from_string(skeleton)
    weights = {tensor.name: _nbytes(tensor) for tensor in model.graph.initializer}
    if sum(weights.values()) < MANY_WEIGHTS:
        return None
    flow = Flow(model.graph)
    if not feeds or not _in_order(flow) or any(name not in flow.producers for name in flow.outputs):
        return None
    values: list[Values] = [dict(feed) for feed in feeds]
    seconds = [0.0] * len(feeds)
    begin = 0
    for end in _ends(weights, flow):
        piece = _piece(model, flow, begin, end, values)
        outcome = engine.run(piece.SerializeToString(), [_of(piece, known) for known in values])
        made = [run for run in outcome.runs if not isinstance(run, str)]
        # The values that cross may take more memory than the outputs of the whole model.
        if outcome.crash is not None or any(one is None for run in made for one in run.values()):
            return None
        if outcome.failure is not None or len(made) < len(feeds):
            return outcome
        needed = _needed(flow, end)
        values = [{k: v for k, v in {**known, **run}.items() if k in needed} for known, run in zip(values, made)]
        seconds = [sum(pair) for pair in zip(seconds, outcome.seconds)]
        begin = end
    return Outcome(runs=[{name: known[name] for name in flow.outputs} for known in values], seconds=seconds)


def _in_order(flow: Flow) -> bool:
    return all(flow.producers.get(name, -1) < number for number, read in enumerate(flow.reads) for name in read)


def _nbytes(tensor: onnx.TensorProto) -> int:
    """Return the size of a tensor in memory, in which an element has at least one byte."""
    dtype = dtype_of(tensor.data_type)
    return 0 if dtype is None else math.prod(tensor.dims) * dtype.itemsize


def _ends(weights: Mapping[str, int], flow: Flow) -> Iterator[int]:
    """Yield the number of the first node after each piece. A node is never divided, whatever its weights."""
    total = 0
    for number, read in enumerate(flow.reads):
        own = sum(weights.get(name, 0) for name in read)
        if total and total + own > _WEIGHTS_OF_PIECE:
            yield number
            total = 0
        total += own
    yield len(flow.nodes)


def _needed(flow: Flow, end: int) -> set[str]:
    """Return the values that are read from this node on, or are outputs of the model."""
    return {name for read in flow.reads[end:] for name in read} | set(flow.outputs)


def _piece(model: onnx.ModelProto, flow: Flow, begin: int, end: int, values: Sequence[Values]) -> onnx.ModelProto:
    """Cut out the nodes from `begin` to before `end`; `values` are those known at its begin, for each run."""
    read = {name for number in range(begin, end) for name in flow.reads[number]}
    crossing = {name: _declared(name, [known[name] for known in values]) for name in values[0] if name in read}
    needed = _needed(flow, end)
    outputs = [name for number in range(begin, end) for name in flow.makes(number) if name in needed]
    return cut(model, crossing, outputs)


def _declared(name: str, values: Sequence[Any]) -> onnx.ValueInfoProto:
    """Declare a value with its type, and the dims that it has in all runs."""
    result = describe(name, values[0], shape=False)
    arrays = [value for value in values if isinstance(value, np.ndarray)]
    if len({value.ndim for value in arrays}) == 1:
        shape = result.type.tensor_type.shape
        shape.SetInParent()
        for extents in zip(*(value.shape for value in arrays)):
            dim = shape.dim.add()
            if len(set(extents)) == 1:
                dim.dim_value = extents[0]
    return result


def _of(piece: onnx.ModelProto, known: Values) -> Values:
    return {value.name: known[value.name] for value in piece.graph.input if value.name in known}
