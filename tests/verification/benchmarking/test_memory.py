"""The private memory of a model, against what it holds by arithmetic."""

import mmap
import os
from pathlib import Path

import numpy as np
import onnx
import pytest

from surgery.model.graph import text
from surgery.verification.benchmarking.bench_spec import BenchSpec
from surgery.verification.benchmarking.model_memory import measure_memory, private_bytes
from surgery.verification.benchmarking.subjects import subject

MIB = 1 << 20


@pytest.mark.parametrize("rows", [256, 4096])
def test_run_memory_includes_outputs(tmp_path: Path, rows: int) -> None:
    """Softmax takes no memory of its own: an input, which counts before, and an output of `rows` KiB."""
    onnx.save(text.parse("g (float[n, 256] x) => (float[n, 256] y) { y = Softmax(x) }"), tmp_path / "m.onnx")
    feeds = [{"x": np.ones((rows, 256), np.float32)}]
    found = measure_memory(subject(tmp_path / "m.onnx"), feeds, BenchSpec())
    assert rows << 10 <= found.run + MIB and found.run <= found.peak <= 3 * (rows << 10) + 8 * MIB


def test_run_memory_includes_weights(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).normal(size=(4096, 4096)).astype(np.float32)
    model = text.parse("g (float[1, 4096] x) => (float[1, 4096] y) <float[1] w = {1}> { y = MatMul(x, w) }")
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(model, tmp_path / "m.onnx")
    found = measure_memory(subject(tmp_path / "m.onnx"), [{"x": weight[:1]}], BenchSpec())
    # Packed for the product, and as it was read while the session is made; both are whole for less than the time
    # between two samples.
    assert found.run >= weight.nbytes - MIB and found.peak >= 1.5 * weight.nbytes


def test_private_memory_grows_by_an_allocation() -> None:
    before = private_bytes(os.getpid())
    with mmap.mmap(-1, 64 * MIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as taken:
        # Touched page by page: what is freed after a copy may stay with the process.
        for page in range(0, len(taken), mmap.PAGESIZE):
            taken[page] = 1
        assert abs(private_bytes(os.getpid()) - before - len(taken)) <= 8 * MIB
