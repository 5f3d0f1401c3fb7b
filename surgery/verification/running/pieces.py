"""Runs of a large model piece by piece: one that does not fit into memory, or whose weights a session would copy.

ONNX Runtime packs the weights of quantized products into another layout, in memory of its own, when it creates a
session. Of a model that runs in consecutive pieces, it packs only those of one piece at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from surgery.base.operators.dtypes import dtype_of
from surgery.model.proto.dataflow import Flow
from surgery.model.proto.extract import cut, describe
from surgery.model.runtime.engine import Engine, RunOutcome, most_weights

MANY_WEIGHTS = 512 << 20
"""Bytes of weights from which a model runs in pieces."""

_WEIGHTS_OF_PIECE = 256 << 20

Values = dict[str, Any]
Run = Callable[[bytes, Sequence[Mapping[str, Any]]], RunOutcome]


class PieceEngine(Engine):
    """An engine for models that do not fit into memory: it runs them in pieces, all inputs on one piece at a time."""

    def run(
        self, skeleton: bytes, feeds: Sequence[Mapping[str, Any]], *, keep: bool = False, bare: bool = False
    ) -> RunOutcome:
        """Run a model as `Engine.run` does; `unsupported` if it cannot be divided, and for float64."""
        # Float64 values would have to stay float64 between the pieces.
        found = run_in_pieces(super().run, skeleton, feeds) if self.name != "float64" else None
        if found is None and feeds and _total(onnx.load_model_from_string(skeleton)) >= MANY_WEIGHTS:
            return RunOutcome(unsupported="it does not fit into memory, and cannot run in pieces")
        return found or super().run(skeleton, feeds, keep=keep, bare=bare)

    def run_each(
        self, skeletons: Sequence[bytes], feeds: Sequence[Mapping[str, Any]], *, room: int | None = None
    ) -> list[RunOutcome]:
        """Run models on the same inputs; `room` is not used, since each piece runs on all of them."""
        return [self.run(skeleton, feeds) for skeleton in skeletons]


def too_much(weights: int, memory: int | None) -> str:
    """Return why a model with so many bytes of weights is not run whole, given the memory limit of its process."""
    most = most_weights(memory)
    return f"its weights have {weights / 1e9:.3g} GB, and verification may take {most / 1e9:.3g} GB of memory"


def run_in_pieces(run: Run, skeleton: bytes, feeds: Sequence[Mapping[str, Any]]) -> RunOutcome | None:
    """Run a model on each dict of inputs, in pieces with few weights each; None if that is not possible or no use.

    It is not possible if the nodes are not in topological order, or an optional value crosses from piece to piece.
    `run` runs a piece.
    """
    model = onnx.load_model_from_string(skeleton)
    if not feeds or _total(model) < MANY_WEIGHTS:
        return None
    whole = Whole(model)
    if not whole.can_be_cut():
        return None
    values: list[Values] = [dict(feed) for feed in feeds]
    seconds = [0.0] * len(feeds)
    begin = 0
    weights = {tensor.name: _nbytes(tensor) for tensor in model.graph.initializer}
    for end in whole.ends(weights):
        piece = whole.piece(begin, end, values)
        outcome = run(piece.SerializeToString(), [fed(piece, known) for known in values])
        made = [one for one in outcome.runs if not isinstance(one, str)]
        # The values that cross may take more memory than the outputs of the whole model.
        if outcome.crash is not None or any(value is None for one in made for value in one.values()):
            return None
        if outcome.failure is not None or len(made) < len(feeds):
            return outcome
        values = [whole.needed({**known, **new}, end) for known, new in zip(values, made)]
        seconds = [sum(pair) for pair in zip(seconds, outcome.seconds)]
        begin = end
    return RunOutcome(runs=[{name: known[name] for name in whole.flow.outputs} for known in values], seconds=seconds)


class Whole:
    """A model that is cut into pieces of consecutive nodes. `flow` has its nodes by number."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.flow = flow = Flow(model.graph)
        self._inputs = frozenset(flow.inputs)
        self._last = {name: number for number, read in enumerate(flow.reads) for name in read}
        self._last.update(dict.fromkeys(flow.outputs, len(flow.nodes)))

    def can_be_cut(self) -> bool:
        """Return whether each node follows those whose results it reads, and each output is computed."""
        flow = self.flow
        ordered = all(flow.producers.get(name, -1) < number for number, read in enumerate(flow.reads) for name in read)
        return ordered and all(name in flow.producers for name in flow.outputs)

    def ends(self, weights: Mapping[str, int]) -> Iterator[int]:
        """Yield the number of the first node after each piece. A node is never divided, whatever its weights."""
        total = 0
        for number, read in enumerate(self.flow.reads):
            own = sum(weights.get(name, 0) for name in read)
            if total and total + own > _WEIGHTS_OF_PIECE:
                yield number
                total = 0
            total += own
        yield len(self.flow.nodes)

    def piece(self, begin: int, end: int, values: Sequence[Values]) -> onnx.ModelProto:
        """Cut out the nodes from `begin` to before `end`; `values` are those known at `begin`, for each run."""
        numbers = range(begin, end)
        read = {name for number in numbers for name in self.flow.reads[number]}
        # Inputs of the model keep their declarations, against which the runtime checks what it is given.
        crossing = {
            name: _declared(name, [known[name] for known in values])
            for name in values[0]
            if name in read and name not in self._inputs
        }
        made = {name: None for number in numbers for name in self.flow.makes(number)}
        return cut(self.model, crossing, list(self.needed(made, end)), self.flow)

    def needed(self, values: Values, end: int) -> Values:
        """Return the values that are read from this node on, or are outputs of the model."""
        return {name: value for name, value in values.items() if self._last.get(name, -1) >= end}


def _total(model: onnx.ModelProto) -> int:
    return sum(map(_nbytes, model.graph.initializer))


def _nbytes(tensor: onnx.TensorProto) -> int:
    """Return the size of a tensor in memory, in which an element has at least one byte."""
    dtype = dtype_of(tensor.data_type)
    return 0 if dtype is None else math.prod(tensor.dims) * dtype.itemsize


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


def fed(piece: onnx.ModelProto, known: Values) -> Values:
    """Return the values among the known ones that are inputs of a piece."""
    return {value.name: known[value.name] for value in piece.graph.input if value.name in known}
