"""What converts a model to another opset: surgery's pass, onnx's converter and onnxscript's, each as it is called.

A converter is taken at its word, and `corpus_opsets.py` judges it; only "verified" is surgery with its own
parity run after the pass. "stamp" is no converter: it holds `surgery opset` to what it says.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import onnx

Converter = Callable[[onnx.ModelProto, int], onnx.ModelProto]


class Refused(Exception):  # noqa: N818 - an answer, not a mistake
    """The converter says that it cannot."""


def surgery(model: onnx.ModelProto, target: int) -> onnx.ModelProto:
    """Run the bare pass, up or down, without the parity run that would follow it."""
    from surgery.base.errors import BlockedError, UsageError
    from surgery.engine.bridges.run_pass import run_pass
    from surgery.engine.registry.catalog import catalog
    from surgery.model import storage
    from surgery.model.graph.graph import Graph

    declared = catalog.find("upgrade-opset" if target > opset(model) else "downgrade-opset")
    stored = storage.from_proto(model)
    graph = Graph(storage.ir_from_proto(stored.proto, stored.weights), weights=stored.weights)
    try:
        made = run_pass(declared, graph, {"to": target}, contained=False)
    except (BlockedError, UsageError) as error:
        raise Refused(" ".join(str(error).split())) from None
    if made.proto is None:
        raise Refused("; ".join(f"{one.anchor}: {one.reason}" for one in made.refusals))
    return storage.resolve(made.proto, stored.weights)


def verified(model: onnx.ModelProto, target: int) -> onnx.ModelProto:
    """Run the pass as a step of a recipe, which is refused where parity fails or cannot be told."""
    from surgery.engine.pipeline import runner
    from surgery.engine.recipe.loader import single_step

    name = "upgrade-opset" if target > opset(model) else "downgrade-opset"
    result = runner.apply(model, single_step(name, {"to": target}))
    if result.failure is not None:
        raise Refused(" ".join(result.failure.message.split()))
    with tempfile.TemporaryDirectory() as folder:
        result.save(Path(folder, "model.onnx"))
        return onnx.load(Path(folder, "model.onnx"))


def onnx_converter(model: onnx.ModelProto, target: int) -> onnx.ModelProto:
    """Run onnx's converter; whatever it raises is its way to refuse."""
    from onnx import version_converter

    try:
        return version_converter.convert_version(model, target)
    except (RuntimeError, ValueError, version_converter.ConvertError) as problem:
        raise Refused(" ".join(str(problem).split())) from None


def onnxscript_converter(model: onnx.ModelProto, target: int) -> onnx.ModelProto:
    """Run onnxscript's converter on its own representation: given a ModelProto, it leaves the opset as it was."""
    import onnx_ir
    from onnxscript import version_converter

    held = onnx_ir.from_proto(model)
    try:
        version_converter.convert_version(held, target)
    except Exception as problem:
        raise Refused(f"{type(problem).__name__}: {' '.join(str(problem).split())}") from None
    return onnx_ir.to_proto(held)


def stamp(model: onnx.ModelProto, target: int) -> onnx.ModelProto:
    """Write down an opset that `surgery opset` says the model can have as is, and change nothing else."""
    from surgery.features.inspection.opsets import study
    from surgery.model import storage

    found = study(storage.from_proto(model))
    if found.lowest is None or not found.lowest <= target <= found.opset or found.functions:
        raise Refused(f"not before opset {found.lowest}")
    for entry in model.opset_import:
        entry.version = target if entry.domain in ("", "ai.onnx") else entry.version
    return model


TOOLS: dict[str, Converter] = {
    "surgery": surgery,
    "verified": verified,
    "onnx": onnx_converter,
    "onnxscript": onnxscript_converter,
    "stamp": stamp,
}


def opset(model: onnx.ModelProto) -> int:
    """Return the opset of the default domain, 0 when the model does not import it."""
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)


def serve(channel: Connection) -> None:
    """Answer (tool, model, target) with the converted model or with the reason why there is none."""
    import logging

    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    while True:
        tool, model, target = channel.recv()
        try:
            made = TOOLS[tool](onnx.load_model_from_string(model), target)
            answer: bytes | str = made.SerializeToString()
            if opset(made) != target:
                answer = f"stays at opset {opset(made)}"
        except Refused as refusal:
            answer = str(refusal) or "refused without a reason"
        except Exception as problem:
            channel.send((False, f"{type(problem).__name__}: {' '.join(str(problem).split())}"))
            continue
        channel.send((True, answer))
