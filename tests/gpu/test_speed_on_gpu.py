"""Results of full size on CUDA are not slower than their originals, in float32 and in float16.

The models are built by `python -m models.build bert vit llama resnet50 --size full --exporter dy`, which needs torch;
without them, these tests are skipped. They run one at a time: `make test-gpu` uses one process.
"""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
import pytest
from gpu_device import DRY, PROVIDER, TARGET
from support import ROOT

import surgery
from models.build import cache_folder
from surgery.verification.benchmarking.bench import bench
from surgery.verification.benchmarking.bench_spec import BenchSpec
from surgery.verification.inputs.spec import InputsSpec

NAMES = {"bert-base": "bert-tiny.dy", "vit": "vit-tiny", "llama": "llama-tiny.dy", "resnet50": "resnet-tiny"}
"""The stems of the files of full size, and bundled models of the same architecture for a trial."""
BATCHES = (1, 8, 32)
SECONDS = 1.5
"""Time of one measurement."""


def full_size(name: str) -> Path:
    if DRY:
        return ROOT / "models" / f"{NAMES[name]}.onnx"
    found = sorted(cache_folder().glob(f"{name}.*onnx"))
    if not found:
        pytest.skip(f"there is no {name}*.onnx in {cache_folder()}")
    return found[0]


def sizes(path: Path, batch: int) -> InputsSpec:
    """Return the sizes to measure: the usual ones of images, and 128 tokens."""
    usual = {"batch": batch, "sequence": 128, "height": 224, "width": 224}
    values = onnx.load(path, load_external_data=False).graph.input
    named = {dim.dim_param for value in values for dim in value.type.tensor_type.shape.dim if dim.dim_param}
    return InputsSpec(dims={name: (usual[name],) for name in named if name in usual})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("recipe", ["default", "fp16"])
def test_a_result_is_not_slower_than_the_original(name: str, recipe: str, tmp_path: Path) -> None:
    original = full_size(name)
    result = surgery.apply(original, recipe, target=TARGET, output=tmp_path / "out.onnx")
    assert result.ok and result.failure is None, result
    spec = BenchSpec(providers=(PROVIDER,), seconds=SECONDS)
    speeds = {}
    for batch in BATCHES[:1] if DRY else BATCHES:
        found = bench(original, tmp_path / "out.onnx", inputs=sizes(original, batch), spec=spec, memory=False)
        speeds[batch] = found.speed
    listed = ", ".join(f"batch {batch}: {speed}" for batch, speed in speeds.items())
    sys.stdout.write(f"{name} {recipe} {TARGET}: {listed}\n")
    slow = {batch: str(speed) for batch, speed in speeds.items() if speed.high < 1}
    assert DRY or not slow
