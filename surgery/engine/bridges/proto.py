"""The whole model as an `onnx.ModelProto`, weights included."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from surgery.engine.bridges.weight_reuse import KnownWeights
from surgery.model import storage

if TYPE_CHECKING:
    import onnx

    from surgery.model.storage import Weights


def run(skeleton: onnx.ModelProto, weights: Weights, call: Callable[[Any], Any]) -> onnx.ModelProto:
    """Let `call` change the message, and return the result; unchanged weights are references again."""
    model: onnx.ModelProto = call(storage.resolve(skeleton))
    KnownWeights(skeleton, weights).restore(model)
    return model
