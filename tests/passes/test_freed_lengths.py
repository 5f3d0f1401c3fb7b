"""Models exported for one length that set-dims frees again: at other lengths they compute what the original does."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from support import ROOT

import surgery
from surgery.engine.runner import Result
from surgery.recipe import parse

MODELS = ROOT / "models"


def apply(model: Path, *steps: str) -> Result:
    return surgery.apply(model, parse("recipe: t\nsteps:\n" + "".join(f"  - {step}\n" for step in steps)))


def session(model: bytes | str) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("name", ["llama-tiny", "llama-tiny.dy"])
@pytest.mark.parametrize("length", [6, 4])
def test_a_decoder_that_was_folded_for_one_length_runs_at_all(name: str, length: int, tmp_path: Path) -> None:
    original = MODELS / f"{name}.onnx"
    fixed = apply(original, f"set-dims: {{dims: {{batch: 1, sequence: {length}}}}}", "fold-constants")
    surgery.save(fixed.proto, tmp_path / "fixed.onnx", fixed.stored.weights)
    dims = "[1, length]"
    freed = apply(tmp_path / "fixed.onnx", f"set-dims: {{ports: {{input_ids: {dims}, attention_mask: {dims}}}}}")
    (step,) = freed.steps
    assert step.status == "committed" and step.message.startswith(f"continued beyond {length}: "), step.message
    surgery.save(freed.proto, tmp_path / "freed.onnx", freed.stored.weights)
    one, other = session(str(original)), session(str(tmp_path / "freed.onnx"))
    for size in (1, 2, 3, length, 16, 31):
        ids = np.random.default_rng(size).integers(0, 20, (1, size))
        mask = np.ones((1, size), np.int64)
        mask[:, size // 2 + 1 :] = 0
        expected, found = (run.run(None, {"input_ids": ids, "attention_mask": mask})[0] for run in (one, other))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["bert-tiny", "t5-enc-tiny"])
def test_a_folded_table_of_one_length_keeps_it(name: str, tmp_path: Path) -> None:
    fixed = apply(MODELS / f"{name}.onnx", "set-dims: {dims: {batch: 1, sequence: 6}}", "fold-constants")
    surgery.save(fixed.proto, tmp_path / "fixed.onnx", fixed.stored.weights)
    dims = "[1, length]"
    (step,) = apply(
        tmp_path / "fixed.onnx", f"set-dims: {{ports: {{input_ids: {dims}, attention_mask: {dims}}}}}"
    ).steps
    assert step.status == "failed" and "has 6 different slices along the dim" in step.message
