"""Recognize unchanged weights in the result of a pass, so that they are not written again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from surgery.model import storage
from surgery.model.wire.same_elements import same_bytes
from surgery.model.wire.stored_lists import put_outside

if TYPE_CHECKING:
    import onnx

    from surgery.model.storage import Reference, Weights


class KnownWeights:
    """The large tensors and the long lists of a model before a pass."""

    def __init__(self, skeleton: onnx.ModelProto, weights: Weights) -> None:
        self.weights = weights
        self._skeleton = skeleton
        self._references: dict[tuple[int, tuple[int, ...]], list[Reference]] = defaultdict(list)
        for tensor in storage.all_tensors(skeleton):
            if storage.is_external(tensor):
                reference = storage.external_reference(tensor)
                self._references[tensor.data_type, tuple(tensor.dims)].append(reference)

    def find(self, data_type: int, dims: Sequence[int], data: bytes | memoryview) -> Reference | None:
        """Return the reference to an existing tensor with these raw bytes, whatever its name, or None."""
        candidates = self._references.get((data_type, tuple(dims)), ())
        return next((found for found in candidates if same_bytes(self.weights.view(found), data)), None)

    def restore(self, model: onnx.ModelProto) -> None:
        """Replace the known large tensors and lists of a model by references."""
        put_outside(model, self._skeleton)
        for tensor in storage.all_tensors(model):
            if tensor.HasField("raw_data"):
                reference = self.find(tensor.data_type, tensor.dims, tensor.raw_data)
                if reference is not None:
                    storage.refer(tensor, reference)
