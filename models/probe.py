"""Does a built model do anything? Run it, and see whether its outputs live and follow its inputs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort

STD_RANGE = (0.05, 50.0)
MOVED = 0.05
"""Least change between two inputs, or two rows, as a share of the output's standard deviation."""


@dataclass(frozen=True)
class Probe:
    """What one output did over two runs with different inputs, the same mask."""

    output: str
    std: float
    moved: float
    """Root mean square difference between the runs, in standard deviations."""
    rows: float
    """Root mean square difference between the rows of a batch, in standard deviations."""
    finite: bool

    @property
    def ok(self) -> bool:
        """Return whether the output is fit for comparing models by it."""
        low, high = STD_RANGE
        return self.finite and low <= self.std <= high and self.moved >= MOVED and self.rows >= MOVED


def probe(path: Path, *, sequence: int = 9, batch: int = 3, seed: int = 1) -> list[Probe]:
    """Run the model at `path` twice in ONNX Runtime, without its optimizations, on two unlike inputs.

    Dynamic dims get sizes that the export has not seen.
    """
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    sizes = {"batch": batch, "sequence": sequence, "height": 96, "width": 160}
    rng = np.random.default_rng(seed)
    names = [output.name for output in session.get_outputs()]
    feeds = [{i.name: _draw(i, sizes, rng) for i in session.get_inputs()} for _ in range(2)]
    first, second = (session.run(names, feed) for feed in feeds)
    return [_judge(name, a, b) for name, a, b in zip(names, first, second)]


def _draw(node: ort.NodeArg, sizes: dict[str, int], rng: np.random.Generator) -> np.ndarray:
    shape = [dim if isinstance(dim, int) else sizes[dim] for dim in node.shape]
    if "mask" in node.name:
        mask = np.ones(shape, np.int64)
        mask[-1, -2:] = 0
        return mask
    if "int64" in node.type:
        return rng.integers(0, 300, shape, dtype=np.int64)
    return rng.standard_normal(shape).astype(np.float32)


def _judge(name: str, first: np.ndarray, second: np.ndarray) -> Probe:
    std = float(first.std())
    scale = std or 1.0
    moved = float(np.sqrt(np.mean((first - second) ** 2))) / scale
    rows = float(np.sqrt(np.mean((first[0] - first[1]) ** 2))) / scale
    return Probe(name, std, moved, rows, bool(np.isfinite(first).all() and np.isfinite(second).all()))
