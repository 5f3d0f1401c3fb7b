"""Released tools as steps of a recipe, called as their own documentation says, with nothing but the model.

Each takes the option `copy`, a file that gets what the tool was given and what it made of it, for a second opinion.
A tool that imports ONNX Runtime is imported in its step, so that the process of the tests stays free of it.
"""

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import onnx
import onnx.version_converter
import onnx_graphsurgeon as gs
import onnxoptimizer
import onnxscript.optimizer
import onnxscript.rewriter
import onnxslim

from surgery import graph_pass


def _call(tool: Callable[[onnx.ModelProto], onnx.ModelProto], model: onnx.ModelProto, copy: str) -> onnx.ModelProto:
    """Run a tool; its warnings are its own business."""
    given = model.SerializeToString()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = tool(model)
    if copy:
        Path(copy).with_suffix(".given").write_bytes(given)
        Path(copy).with_suffix(".made").write_bytes(made.SerializeToString())
    return made


@graph_pass("tool-onnxsim")
def simplify(model: onnx.ModelProto, *, copy: str = "") -> onnx.ModelProto:
    """Run onnxsim with its defaults."""

    def tool(model: onnx.ModelProto) -> onnx.ModelProto:
        import onnxsim

        return onnxsim.simplify(model)[0]

    return _call(tool, model, copy)


@graph_pass("tool-onnxoptimizer")
def optimize(model: onnx.ModelProto, *, passes: list[str], copy: str = "") -> onnx.ModelProto:
    """Run passes of onnxoptimizer by their names."""
    return _call(lambda model: onnxoptimizer.optimize(model, passes), model, copy)


@graph_pass("tool-graphsurgeon-fold")
def fold(model: onnx.ModelProto, *, copy: str = "") -> onnx.ModelProto:
    """Fold constants with onnx-graphsurgeon, and clean up."""
    return _call(lambda model: gs.export_onnx(gs.import_onnx(model).fold_constants().cleanup()), model, copy)


@graph_pass("tool-graphsurgeon-cleanup")
def clean_up(model: onnx.ModelProto, *, copy: str = "") -> onnx.ModelProto:
    """Clean up and sort with onnx-graphsurgeon."""
    return _call(lambda model: gs.export_onnx(gs.import_onnx(model).cleanup().toposort()), model, copy)


@graph_pass("tool-converter")
def convert(model: onnx.ModelProto, *, to: int, copy: str = "") -> onnx.ModelProto:
    """Convert the opset with onnx's version converter."""
    return _call(lambda model: onnx.version_converter.convert_version(model, to), model, copy)


@graph_pass("tool-onnxruntime")
def optimize_for_runtime(model: onnx.ModelProto, *, level: str, copy: str = "") -> onnx.ModelProto:
    """Let ONNX Runtime optimize at a level ("BASIC", "EXTENDED" or "ALL") and take the model that it writes."""

    def tool(model: onnx.ModelProto) -> onnx.ModelProto:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
        with tempfile.TemporaryDirectory() as folder:
            options.optimized_model_filepath = f"{folder}/optimized.onnx"
            onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
            return onnx.load(options.optimized_model_filepath)

    return _call(tool, model, copy)


@graph_pass("tool-onnxscript-optimize")
def optimize_script(model: onnx.ModelProto, *, copy: str = "") -> onnx.ModelProto:
    """Run the optimizer of onnxscript."""
    return _call(onnxscript.optimizer.optimize, model, copy)


@graph_pass("tool-onnxscript-rewrite")
def rewrite_script(model: onnx.ModelProto, *, copy: str = "") -> onnx.ModelProto:
    """Apply the default rules of onnxscript's rewriter."""
    return _call(onnxscript.rewriter.rewrite, model, copy)


@graph_pass("tool-onnxslim")
def slim(model: onnx.ModelProto, *, copy: str = "") -> onnx.ModelProto:
    """Run OnnxSlim with its defaults."""
    return _call(onnxslim.slim, model, copy)
