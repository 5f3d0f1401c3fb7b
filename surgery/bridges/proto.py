"""Passes over `onnx.ModelProto`: the whole model goes out, weights included, and what comes back is taken over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import onnx

from surgery import storage
from surgery.errors import PassError

if TYPE_CHECKING:
    from surgery.graph import Graph
    from surgery.registry import Pass
    from surgery.storage import Reference, Weights


def apply(declared: Pass, graph: Graph, options: Mapping[str, Any]) -> None:
    """Let a function change the model as a message."""
    with storage.Weights() as own:
        weights = graph.weights if graph.weights is not None else own
        skeleton = storage.proto_from_ir(graph.ir, weights)
        known = _Known(skeleton, weights)
        given = storage.resolve(skeleton)
        returned = declared.function(given, **options)
        model = given if returned is None else returned
        if not isinstance(model, onnx.ModelProto):
            kind = type(model).__name__
            raise PassError(f"pass '{declared.name}' returned a {kind}", todo="let it return the onnx.ModelProto")
        known.restore(model)
        graph.adopt(storage.ir_from_proto(model, weights))


class _Known:
    """The large tensors of the model as it was, so that those that come back as they were are not written again."""

    def __init__(self, skeleton: onnx.ModelProto, weights: Weights) -> None:
        self.weights = weights
        self.references: dict[tuple[int, tuple[int, ...], int], list[Reference]] = defaultdict(list)
        for tensor in storage.all_tensors(skeleton):
            if storage.is_external(tensor):
                reference = storage.external_reference(tensor)
                self.references[tensor.data_type, tuple(tensor.dims), reference.length].append(reference)

    def restore(self, model: onnx.ModelProto) -> None:
        """Put references in the place of large tensors that the model had before, whatever they are called now."""
        for tensor in storage.all_tensors(model):
            if tensor.HasField("raw_data"):
                for reference in self._candidates(tensor):
                    if self.weights.view(reference) == tensor.raw_data:
                        tensor.ClearField("raw_data")
                        storage.refer(tensor, reference)
                        break

    def _candidates(self, tensor: onnx.TensorProto) -> Iterator[Reference]:
        yield from self.references.get((tensor.data_type, tuple(tensor.dims), len(tensor.raw_data)), ())
