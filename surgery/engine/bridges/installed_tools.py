"""The features of the installed tools, queried in a worker, so that the tools are not imported in this process.

Only onnx, which this process has imported anyway, is asked in it.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

from surgery.base.errors import WorkerError
from surgery.base.workers import Worker
from surgery.engine.registry import discovery
from surgery.engine.registry.passes import suggestion

_OPTIMIZER = "onnxoptimizer"
_SECONDS = 60


@cache
def optimizer_passes() -> tuple[str, ...]:
    """List the passes of the installed onnxoptimizer; empty if it is not installed or cannot be loaded."""
    if not discovery.is_installed(_OPTIMIZER):
        return ()
    try:
        with Worker(timeout=_SECONDS) as worker:
            return tuple(worker.call("surgery.engine.bridges.tool_calls:optimizer_passes")["all"])
    except WorkerError:
        return ()


@cache
def converter_keeps_references() -> bool:
    """Return whether the version converter of onnx keeps references to files, which that of onnx 1.17 drops."""
    import onnx
    from onnx import TensorProto, helper
    from onnx.version_converter import convert_version

    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="w.data")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y"))
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    made: onnx.ModelProto = convert_version(model, 15)
    return [tensor.data_location for tensor in made.graph.initializer] == [TensorProto.EXTERNAL]


class PassOfOptimizer:
    """Marks text as the name of a pass of onnxoptimizer, checked against the installed version."""

    type_name = "pass of onnxoptimizer"

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(_known, handler(source))

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        names = list(optimizer_passes())
        return {"type": "string", "enum": names} if names else {"type": "string"}


OptimizerPass = Annotated[str, PassOfOptimizer()]
"""The name of a pass of onnxoptimizer."""


def _known(name: str) -> str:
    names = optimizer_passes()
    if names and name not in names:
        raise ValueError(f"{discovery.version(_OPTIMIZER)} has no pass '{name}'{suggestion(name, names)}")
    return name
