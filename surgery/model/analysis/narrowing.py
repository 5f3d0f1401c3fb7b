"""Which inputs and outputs of a node may be of a narrower float type; see `operator_narrowing`."""

from __future__ import annotations

from functools import cache

import onnx_ir as ir

from surgery.base.errors import SurgeryError
from surgery.base.workers import Worker
from surgery.model.analysis.misfits import misfit_narrowed
from surgery.model.analysis.operator_narrowing import Narrowing, Runtime, Tables, failing_attribute
from surgery.model.analysis.operator_narrowing import narrowing as of_operator
from surgery.model.graph.values import Node, Value


def narrowing(node: Node, to: ir.DataType, runtime: Runtime = "cpu") -> Narrowing | str:
    """Return which float32 inputs and outputs of a node may be `to` instead, or the reason why none may.

    They must all change together. `runtime` is "cpu" if ONNX Runtime must have a CPU kernel for the changed node, and
    "any" if only the schema decides. A node that the target runs in float32 must run there in the narrower type too.
    """
    attribute = failing_attribute(node.domain, node.ir.op_type) if runtime == "cpu" else None
    if attribute is not None and node.attr(attribute, "none") != "none":
        return f"the kernel of {node.op} in ONNX Runtime fails in {to.name.lower()} with {attribute}"
    unknown = next((value for value in (*node.inputs, *node.outputs) if value and value.name and not value.type), None)
    if unknown is not None:
        return f"the type of {unknown.name} is not known"
    inputs = tuple("" if value is None else _text(value) for value in node.inputs)
    outputs = tuple(_text(value) for value in node.outputs)
    name, target = to.name.lower(), node.graph.target
    ways = of_operator(node.domain, node.ir.op_type, node.opset, inputs, outputs, name, _tables(), runtime)
    if isinstance(ways, str):
        return ways
    reasons = [misfit_narrowed(node, target, name, way.inputs, way.outputs) for way in ways]
    chosen = next((way for way, reason in zip(ways, reasons) if reason is None), None)
    return chosen or f"the target runs {node.op} in float32 only, not in {name}"


def _text(value: Value) -> str:
    kind = value.type
    return f"tensor({kind.dtype.name.lower()})" if isinstance(kind, ir.TensorType) else ""


@cache
def _tables() -> Tables:
    """Return the tables of the runtime, which are read once per process."""
    try:
        with Worker(timeout=60) as worker:
            return Tables.of(*worker.call("surgery.model.analysis.operator_narrowing:listed"))
    except SurgeryError:
        return Tables(None, {})
