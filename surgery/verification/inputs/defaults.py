"""Inputs with a default: initializers that a caller may override.

Runs that leave them out do not show a change that treats a default as a constant. So such a model is verified a second
time without the defaults: each is then an input like any other, for which legal values are found by its uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

_LARGEST = 1 << 22
"""Largest default, in bytes, for which other values are drawn."""

_MOST = 1 << 26
"""Largest sum of defaults, in bytes, for which other values are drawn."""


def overridable(skeleton: bytes) -> frozenset[str]:
    """Return the inputs that have a default, except large ones.

    Before IR version 4, each initializer had to be listed as an input; such initializers do not count as inputs.
    """
    import onnx

    model = onnx.load_model_from_string(skeleton)
    if model.ir_version < 4:
        return frozenset()
    inputs = {port.name for port in model.graph.input}
    found = []
    total = 0
    for tensor in model.graph.initializer:
        size = _bytes(tensor)
        if tensor.name in inputs and size <= _LARGEST and total + size <= _MOST:
            found.append(tensor.name)
            total += size
    return frozenset(found)


def listed_weights(model: onnx.ModelProto) -> int:
    """Count the initializers of a skeleton that are also inputs, of any size."""
    inputs = {port.name for port in model.graph.input}
    return sum(tensor.name in inputs for tensor in model.graph.initializer) if model.ir_version >= 4 else 0


def without_defaults(skeleton: bytes, names: frozenset[str]) -> bytes:
    """Copy a model without the initializers of these names, so that a caller must provide them."""
    import onnx

    model = onnx.load_model_from_string(skeleton)
    kept = [tensor for tensor in model.graph.initializer if tensor.name not in names]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    stripped: bytes = model.SerializeToString(deterministic=True)
    return stripped


def _bytes(tensor: onnx.TensorProto) -> int:
    for entry in tensor.external_data:
        if entry.key == "length":
            return int(entry.value)
    size: int = tensor.ByteSize()
    return size
