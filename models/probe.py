"""Does a built model do anything? Run it, and see whether its outputs live and follow its inputs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime as ort

from . import feeds

if TYPE_CHECKING:
    from .spec import Built

PAST = "past_key_values"
TOKENS = ("input_ids", "position_ids", "decoder_input_ids")
MASKS = ("attention_mask", "decoder_attention_mask")

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


def probe(path: Path, *, seed: int = 1) -> list[Probe]:
    """Run the model at `path` twice in ONNX Runtime, without its optimizations, on two unlike inputs.

    Dynamic dims get sizes that the export has not seen.
    """
    session = load(path)
    rng = np.random.default_rng(seed)
    names = [output.name for output in session.get_outputs()]
    drawn = [feeds.draw(described(session), feeds.SIZES, rng, padding=_padding(session)) for _ in range(2)]
    first, second = (session.run(names, feed) for feed in drawn)
    return [_judge(name, a, b) for name, a, b in zip(names, first, second)]


def load(path: Path) -> ort.InferenceSession:
    """Load a model to be run as it is written, on one thread."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def described(session: ort.InferenceSession) -> list[tuple[str, str, list[int | str]]]:
    """Return name, element type and dims of each input."""
    return [(node.name, node.type, list(node.shape)) for node in session.get_inputs()]


def _padding(session: ort.InferenceSession) -> feeds.Padding:
    return "left" if any(PAST in node.name for node in session.get_inputs()) else "right"


def steps_differ(path: Path, *, length: int = 9, seed: int = 1) -> float | None:
    """Return how much a decoder's last outputs change when its tokens come in three steps instead of one.

    The cache is empty in the first step, then of odd length; one row is padded on the left. The difference is a share
    of the standard deviation; None for a model without a cache of its own tokens.
    """
    session = load(path)
    names = [output.name for output in session.get_outputs()]
    if not any(PAST in node.name for node in session.get_inputs()) or not any("present" in name for name in names):
        return None
    sizes = {**feeds.SIZES, "past_sequence_length": 0, "sequence_length": length}
    whole = feeds.draw(described(session), sizes, np.random.default_rng(seed), padding="left")
    expected = session.run(names, whole)[0]
    feed, done = dict(whole), 0
    for count in (5, 2, length - 7):
        feed |= _step(whole, done, count)
        results = dict(zip(names, session.run(names, feed)))
        feed |= {name.replace("present", PAST): array for name, array in results.items() if "present" in name}
        done += count
    last = results[names[0]]
    return float(np.abs(last - expected[:, -last.shape[1] :]).max() / expected.std())


def _step(whole: feeds.Feed, done: int, count: int) -> feeds.Feed:
    """Return the inputs of one step, out of those of all at once."""
    step = {name: array[:, done : done + count] for name, array in whole.items() if name in TOKENS}
    mask = [name for name in MASKS if name in whole]
    return {**step, **{name: whole[name][:, : done + count] for name in mask}}


def module_differs(path: Path, built: Built) -> float:
    """Return the largest difference between an export and its module, as a share of the standard deviation.

    Both run with padding, a decoder with caches of no token, of one and of many. Padding on the left is in the cache: a
    token that sees none is not defined, and exporters write it in their own ways.
    """
    import torch

    session = load(path)
    names = [output.name for output in session.get_outputs()]
    rng, worst = np.random.default_rng(2), 0.0
    for padding, past, batch in ((_padding(session), 7, 3), ("right", 0, 3), ("none", 1, 1)):
        sizes = {**feeds.SIZES, "past_sequence_length": past, "batch": batch, "batch_size": batch}
        feed = feeds.draw(described(session), sizes, rng, padding=padding)
        with torch.no_grad():
            expected = built.module(*(torch.from_numpy(feed[name]) for name in built.inputs if name in feed))
        tensors = [expected] if isinstance(expected, torch.Tensor) else list(expected)
        for tensor, array in zip(tensors, session.run(names, feed), strict=True):
            other = tensor.numpy()
            worst = max(worst, float(np.abs(other - array).max() / (other.std() or 1.0)))
    return worst


def _judge(name: str, first: np.ndarray, second: np.ndarray) -> Probe:
    std = float(first.std())
    scale = std or 1.0
    moved = float(np.sqrt(np.mean((first - second) ** 2))) / scale
    rows = float(np.sqrt(np.mean((first[0] - first[1]) ** 2))) / scale
    return Probe(name, std, moved, rows, bool(np.isfinite(first).all() and np.isfinite(second).all()))
