"""Models that are newer than ONNX Runtime, lowered to its versions where that changes nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from surgery.base.operators.subgraphs import nodes

if TYPE_CHECKING:
    import onnx

_NEWEST = re.compile(r"till opset (\d+)|max supported IR version: (\d+)")


def stamped_down(skeleton: bytes, message: str) -> bytes | None:
    """Return a copy with the newest IR version and opset of the runtime, if the model has the same meaning there.

    The IR version determines how a model is stored, not what it computes. An opset may be lowered if no operator of the
    model has changed since, because both versions then have the same definitions. The model itself keeps its versions.
    """
    import onnx

    if _NEWEST.search(message) is None and "domain_version" not in message:
        return None
    model = onnx.load_model_from_string(skeleton)
    newest_ir, newest_opset = newest()
    model.ir_version = min(model.ir_version, newest_ir)
    for holder in (model, *model.functions):
        for imported in holder.opset_import:
            if imported.domain in ("", "ai.onnx") and imported.version > newest_opset:
                _require_unchanged(model, newest_opset, imported.version)
                imported.version = newest_opset
    stamped: bytes = model.SerializeToString()
    return stamped


def newest() -> tuple[int, int]:
    """Return the newest IR version and opset of the runtime, which its error messages name."""
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    found = []
    for ir_version, opset in ((1 << 20, 1), (10, 1 << 20)):
        graph = onnx.GraphProto(name="probe")
        graph.output.append(onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT64, []))
        graph.initializer.append(onnx.helper.make_tensor("y", onnx.TensorProto.INT64, [], [0]))
        model = onnx.helper.make_model(
            graph, ir_version=ir_version, opset_imports=[onnx.helper.make_opsetid("", opset)]
        )
        try:
            onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
            found.append(1 << 20)
        except Exception as error:
            named = _NEWEST.search(str(error))
            found.append(int(named.group(1) or named.group(2)) if named else 1 << 20)
    return found[0], found[1]


def _require_unchanged(model: onnx.ModelProto, old: int, new: int) -> None:
    """Raise unless each default-domain operator of the model is the same in both opsets."""
    import onnx.defs

    for op in sorted({node.op_type for node in list(nodes(model)) if node.domain in ("", "ai.onnx")}):
        known = onnx.defs.has(op) and new <= onnx.defs.onnx_opset_version()
        if not known or onnx.defs.get_schema(op, new, "").since_version > old:
            raise ValueError(f"No Op registered for {op} with domain_version of {new}")
