"""The shapes of all values for given inputs, also after operators of ONNX Runtime. In a worker process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from surgery.shapes.declarations import Declared, bound, declare

DOMAIN = "com.microsoft"


def declare_contrib(skeleton: bytes, dims: Mapping[str, Sequence[int]]) -> Declared:
    """Infer like `declare`, and by our rules what follows from operators that onnx does not know."""
    import onnx_ir as ir

    from surgery.shapes.inference import Inference
    from surgery.storage import ir_from_proto

    found: dict[str, tuple[int, list[int]]] = {}
    for value, fact in Inference(ir_from_proto(bound(skeleton, dims))).everything().items():
        if value.name and isinstance(fact.type, ir.TensorType) and fact.shape is not None and fact.shape.is_static():
            found[value.name] = int(fact.type.dtype), [int(extent) for extent in fact.shape.numpy()]
    return {**found, **declare(skeleton, dims)}
