"""Run a peer that has no command line: `python -m suite.optimize TOOL FROM TO`."""

from __future__ import annotations

import sys


def onnxscript(source: str, target: str) -> None:
    """Fold constants and clean up, then apply the default rewrite rules."""
    import onnx_ir
    from onnxscript import optimizer, rewriter

    model = onnx_ir.load(source)
    optimizer.optimize(model)
    model = rewriter.rewrite(model)
    onnx_ir.save(model, target)


def ort_extended(source: str, target: str) -> None:
    """Save the model at ONNX Runtime's extended level, before it picks layouts for this machine."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = target
    options.log_severity_level = 3
    ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


TOOLS = {"onnxscript": onnxscript, "ort-extended": ort_extended}

if __name__ == "__main__":
    TOOLS[sys.argv[1]](*sys.argv[2:])
