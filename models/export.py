"""Both exporters of PyTorch, as a user of the zoo wants them: unoptimized, dynamic, one file."""

from __future__ import annotations

import inspect
import re
import warnings
from pathlib import Path
from typing import Any

import onnx
import torch
from torch.onnx import TrainingMode

from .spec import Built, Exporter

STACK_TRACE = "pkg.torch.onnx.stack_trace"


def export(
    built: Built, path: Path, exporter: Exporter, opset: int, *, training: bool = False, metadata: bool = True
) -> None:
    """Write `built` to `path` as one file with its weights inside.

    `metadata=False` leaves out what the dynamo exporter writes at each node: the stack trace, the module's class and
    place, the traced call.
    """
    built.module.train(training)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part")
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            if exporter == "dy":
                _export_dynamo(built, temporary, opset)
            else:
                _export_torchscript(built, temporary, opset, training=training)
        _scrub(temporary, metadata=metadata)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _export_dynamo(built: Built, path: Path, opset: int) -> None:
    shapes = _dynamic_shapes(built)
    program = torch.onnx.export(
        built.module,
        built.args,
        dynamo=True,
        optimize=False,
        dynamic_shapes=shapes,
        input_names=list(built.inputs),
        output_names=list(built.outputs),
        opset_version=opset,
        verbose=False,
    )
    assert program is not None
    program.save(str(path), external_data=False)


def _dynamic_shapes(built: Built) -> tuple[Any, ...]:
    """Describe the dynamic dims as the module's signature groups its arguments.

    A dim that is the sum of two others cannot be declared; the exporter finds it where all go by name.
    """
    dims = sorted({name for axes in built.inputs.values() for name in axes.values()})
    free = all(name.isidentifier() for name in dims)
    symbols = {name: torch.export.Dim(name) if free else name for name in dims}
    shapes = [{axis: symbols[name] for axis, name in axes.items()} for axes in built.inputs.values()]
    return tuple(inspect.signature(built.module.forward).bind(*shapes).arguments.values())


def _export_torchscript(built: Built, path: Path, opset: int, *, training: bool) -> None:
    torch.onnx.export(
        built.module,
        built.args,
        str(path),
        dynamo=False,
        do_constant_folding=False,
        training=TrainingMode.TRAINING if training else TrainingMode.EVAL,
        dynamic_axes={**built.inputs, **built.outputs},
        input_names=list(built.inputs),
        output_names=list(built.outputs),
        opset_version=opset,
    )


def _scrub(path: Path, *, metadata: bool) -> None:
    """Drop the node metadata, or make the paths in its stack traces relative and leave out the quoted source lines."""
    model = onnx.load(path)
    noted = [node for node in model.graph.node if node.metadata_props]
    for node in noted:
        if not metadata:
            del node.metadata_props[:]
            continue
        for entry in node.metadata_props:
            if entry.key == STACK_TRACE:
                entry.value = _relative(entry.value)
    if noted:
        onnx.save(model, path)


def _relative(trace: str) -> str:
    """Keep the frames of a stack trace, their files relative to the folder of packages or of this project."""
    frames = [line.strip() for line in trace.splitlines() if line.strip().startswith("File ")]
    return "\n".join(re.sub(r'"[^"]*/(?:site-packages/|(?=models/[a-z]+\.py"))', '"', line) for line in frames)
