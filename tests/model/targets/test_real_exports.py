"""Real exports that a target does not run, and the recipe that makes them fit, verified."""

from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest
from support import ROOT
from support.lacking import computes_types, skip_unmultiplied

import surgery
from surgery.engine import recipe as recipes
from surgery.engine.pipeline.records import Result
from surgery.features.inspection.fit import fit
from surgery.model import storage
from surgery.model.analysis.misfits import misfits
from surgery.model.graph.graph import Graph
from surgery.model.targets import shipped

QNN = "steps: [{set-dims: {rebatch: 1}}, {upgrade-opset: {to: 20}}, {use: default}, decompose]"
PLAIN = "steps: [{use: default}, decompose]"
BERT_ON_QNN = (
    "steps: [{set-dims: {dims: {batch: 1, sequence: 16}}}, {upgrade-opset: {to: 20}}, {use: default}, decompose]"
)


def off(model: Path | Result, target: str) -> dict[str, int]:
    """Count what does not fit, by operator; what is wrong with the model as a whole is under its kind."""
    stored = storage.load(model) if isinstance(model, Path) else model.stored
    proto = stored.proto if isinstance(model, Path) else model.proto
    graph = Graph(storage.ir_from_proto(proto, stored.weights), weights=stored.weights)
    return {one.reason.op or one.reason.kind: one.count for one in misfits(graph, shipped.find(target))}


def made(model: Path, target: str, steps: str) -> Result:
    text = f"target: {target}\n{steps}\nexpect: {{target: {target}}}\n"
    result = surgery.apply(model, recipes.parse(text))
    assert result.ok
    assert result.target == target
    assert [one.what for one in result.expectations][-1] == f"target: {target}"
    assert all(step.verdict is None or step.verdict.passed for step in result.steps if step.status == "committed")
    return result


def test_a_resnet_has_batch_normalizations_that_coreml_lacks() -> None:
    model = ROOT / "models" / "resnet-tiny.onnx"
    assert off(model, "coreml") == {"BatchNormalization": 53, "Flatten": 1}
    result = made(model, "coreml", PLAIN)
    assert off(result, "coreml") == {}


def test_a_vision_transformer_on_an_npu_of_opset_13(short_models: Path) -> None:
    model = short_models / "vit-tiny.onnx"
    found = off(model, "rknn-like")
    assert {"opset", "dims", "LayerNormalization", "Reshape"} <= set(found)
    result = surgery.apply(model, "npu")
    assert result.ok
    assert [entry.version for entry in result.proto.opset_import] == [13]
    assert result.proto.ir_version <= 8
    assert off(result, "rknn-like") == {}


@pytest.mark.slow
def test_a_vision_transformer_on_qnn_has_to_have_gelus(short_models: Path) -> None:
    model = short_models / "vit-tiny.onnx"
    assert "Erf" in off(model, "qnn")
    result = made(model, "qnn", QNN)
    assert off(result, "qnn") == {}
    assert "Gelu" in {node.op_type for node in result.proto.graph.node}


@dataclass(frozen=True)
class Export:
    """An export, an operator in it that the target does not run, and the steps that make it fit."""

    target: str
    name: str
    lacks: str
    steps: str = PLAIN


EXPORTS = [
    Export("openvino", "t5-enc-tiny", "Sqrt"),
    Export("tensorrt", "gpt2-tiny", "SplitToSequence"),
    Export("ort-cuda", "gpt2-tiny", "SplitToSequence", "steps: [sequences-to-split]"),
    Export("coreml", "mobilenet-tiny", "BatchNormalization"),
    Export("qnn", "bert-tiny.dy", "Erf", BERT_ON_QNN),
]


@pytest.mark.slow
@pytest.mark.parametrize("export", EXPORTS, ids=lambda export: f"{export.target}-{export.name}")
def test_an_export_fits_after_a_recipe(short_models: Path, export: Export) -> None:
    short = short_models / f"{export.name}.onnx"
    model = short if short.is_file() else ROOT / "models" / short.name
    assert export.lacks in off(model, export.target)
    assert off(made(model, export.target, export.steps), export.target) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert-tiny.dy", "gpt2-tiny", "llama-tiny.dy"])
def test_a_mask_looked_up_by_two_indices_fits_an_npu_with_static_dims(name: str) -> None:
    model = ROOT / "models" / f"{name}.onnx"
    assert {"Range", "CastLike", "Reshape", "GatherND"} <= set(off(model, "rknn-like"))
    text = "target: rknn-like\nsteps: [{set-dims: {dims: {batch: 1, sequence: 16}}}, {use: npu}]\n"
    result = surgery.apply(model, recipes.parse(text))
    assert result.ok
    assert off(result, "rknn-like") == {}


@computes_types
def test_a_bfloat16_encoder_runs_on_the_cpu_in_float32(tmp_path: Path) -> None:
    skip_unmultiplied(onnx.TensorProto.BFLOAT16)  # the evaluator computes the reference
    narrow = surgery.apply(
        ROOT / "models" / "whisper-enc-tiny.onnx",
        recipes.parse(
            "verify: {mode: 'off'}\nsteps: [{to-bfloat16: {runtime: any, margin: 0, keep_io_types: false}}]\n"
        ),
        output=tmp_path / "narrow.onnx",
    )
    assert narrow.ok
    found = fit(storage.load(tmp_path / "narrow.onnx"), shipped.find("ort-cpu"))
    assert {"MatMul", "Add"} <= {row.misfit.reason.op for row in found.rows}
    assert found.steps[0] == "to-float32"
    result = surgery.apply(tmp_path / "narrow.onnx", recipes.parse("steps: [to-float32]\nexpect: {target: ort-cpu}\n"))
    assert result.ok
    (step,) = result.steps
    assert step.status == "committed"
    assert step.verdict is not None
    assert step.verdict.passed
    assert off(result, "ort-cpu") == {}
