"""Metrics of tasks, as surgery accepts them under `accuracy: {metric: ...}`: `function(outputs, sets) -> float`.

`outputs` has the outputs of a model for each set, `sets` all arrays of each set; `label` is the ground truth if the
data has one, else the result of the float model. Higher is better, 1 is the best. Only numpy is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Sets = Sequence[Mapping[str, Any]]

_STRIDES = (8, 16, 32)
_MASK = 0.3


def _first(outputs: Mapping[str, Any]) -> Array:
    return np.asarray(next(iter(outputs.values())))


# Text


def decode(scores: Array) -> list[list[int]]:
    """Decode scores [batch, time, class]: the best classes without repetitions and blanks, which are class 0."""
    found = []
    for line in scores.argmax(-1):
        kept = line[np.flatnonzero(np.diff(line, prepend=-1))]
        found.append([int(one) for one in kept if one])
    return found


def _distance(one: Sequence[int], other: Sequence[int]) -> int:
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        last, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (a != b))
    return row[-1]


def characters(outputs: Sets, sets: Sets) -> float:
    """Return the character accuracy: one minus the edits divided by the length of the truth."""
    edits = length = 0
    for out, one in zip(outputs, sets):
        for read, label in zip(decode(_first(out)), one["label"]):
            truth = [int(item) for item in label if item]
            edits, length = edits + _distance(read, truth), length + len(truth)
    return 1.0 - edits / max(1, length)


def lines_first(outputs: Mapping[str, Any]) -> Array:
    """Convert scores [time, batch, class] with the blank last to the layout of `decode`."""
    return np.roll(_first(outputs).swapaxes(0, 1), 1, axis=-1)


def characters_of_time_first(outputs: Sets, sets: Sets) -> float:
    """Return the character accuracy for scores [time, batch, class] with the blank last."""
    return characters([{"y": lines_first(out)} for out in outputs], sets)


# Classes


def accuracy(outputs: Sets, sets: Sets) -> float:
    """Return the share of rows with the right class, over all outputs."""
    right = [
        np.asarray(value).argmax(-1).reshape(-1) == one["label"].reshape(len(out), -1)[number]
        for out, one in zip(outputs, sets)
        for number, value in enumerate(out.values())
    ]
    return float(np.concatenate(right).mean())


def decisions(outputs: Sets, sets: Sets) -> float:
    """Return the share of probabilities on the right side of one half."""
    right = [((_first(out) > 0.5) == one["label"]).mean() for out, one in zip(outputs, sets)]
    return float(np.mean(right))


def ranking(outputs: Sets, sets: Sets) -> float:
    """Return the rank correlation of the last column with the label, over all sets."""
    scores = np.concatenate([_first(out).reshape(-1, _first(out).shape[-1])[:, -1] for out in outputs])
    truth = np.concatenate([np.asarray(one["label"]).reshape(-1) for one in sets])
    ranks = [np.argsort(np.argsort(values, kind="stable")).astype(np.float64) for values in (scores, truth)]
    return float(np.corrcoef(*ranks)[0, 1])


# Masks and boxes


def masks(outputs: Sets, sets: Sets) -> float:
    """Return the Dice coefficient of the pixels above the threshold and the true pixels, over all sets."""
    common = total = 0
    for out, one in zip(outputs, sets):
        found = _first(out).reshape(one["label"].shape) > _MASK
        common, total = common + int((found & one["label"]).sum()), total + int(found.sum() + one["label"].sum())
    return 2.0 * common / max(1, total)


def overlaps(one: Array, others: Array) -> Array:
    """Return the intersection over union of a box with each of `others`, all as left, top, right, bottom."""
    low, high = np.maximum(one[:2], others[:, :2]), np.minimum(one[2:], others[:, 2:])
    shared = np.prod(np.clip(high - low, 0, None), axis=-1)
    areas = np.prod(others[:, 2:] - others[:, :2], axis=-1)
    return np.asarray(shared / np.maximum(np.prod(one[2:] - one[:2]) + areas - shared, 1e-9))


def _suppressed(boxes: Array, scores: Array, least: float) -> Array:
    order = [int(one) for one in np.argsort(-scores) if scores[one] >= least]
    kept: list[int] = []
    for one in order:
        if not kept or overlaps(boxes[one], boxes[kept]).max() < 0.45:
            kept.append(one)
    return boxes[kept].reshape(-1, 4)


def _corners(boxes: Array) -> Array:
    return np.concatenate([boxes[:, :2] - boxes[:, 2:4] / 2, boxes[:, :2] + boxes[:, 2:4] / 2], axis=1)


def yolox(output: Array, size: int = 416) -> Array:
    """Decode the boxes of YOLOX: [1, places, 5 + classes] with offsets from the cells of three grids."""
    cells, steps = [], []
    for stride in _STRIDES:
        grid = np.stack(np.meshgrid(*[np.arange(size // stride)] * 2), -1).reshape(-1, 2)
        cells.append(grid)
        steps.append(np.full((len(grid), 1), stride))
    grid, stride = np.concatenate(cells), np.concatenate(steps)
    rows = output[0].astype(np.float64)
    boxes = np.concatenate([(rows[:, :2] + grid) * stride, np.exp(np.clip(rows[:, 2:4], -9, 9)) * stride], axis=1)
    return _suppressed(_corners(boxes), rows[:, 4] * rows[:, 5:].max(-1), 0.1)


def yolo(output: Array, classes: int = 1) -> Array:
    """Decode the boxes of YOLOv8: [1, 4 + classes and more, places]."""
    rows = output[0].T.astype(np.float64)
    return _suppressed(_corners(rows[:, :4]), rows[:, 4 : 4 + classes].max(-1), 0.25)


def _matches(found: Array, truth: Array) -> float:
    """Return the F1 score of boxes at an intersection over union of 0.5."""
    if not len(found) or not len(truth):
        return float(len(found) == len(truth))
    hits = sum(overlaps(one, found).max() >= 0.5 for one in truth)
    return 2.0 * hits / (len(found) + len(truth))


def boxes_of_yolox(outputs: Sets, sets: Sets) -> float:
    """Return the mean F1 score of the boxes of YOLOX."""
    return float(np.mean([_matches(yolox(_first(out)), one["label"]) for out, one in zip(outputs, sets)]))


def boxes_of_yolo(outputs: Sets, sets: Sets) -> float:
    """Return the mean F1 score of the boxes of YOLOv8."""
    return float(np.mean([_matches(yolo(_first(out)), one["label"]) for out, one in zip(outputs, sets)]))


# Embeddings and sound


def similarities(outputs: Sets, sets: Sets) -> float:
    """Return the rank correlation between the cosines of all pairs of embeddings and those of the labels."""
    found = [_cosines([_first(out) for out in outputs]), _cosines([one["label"] for one in sets])]
    ranks = [np.argsort(np.argsort(values, kind="stable")).astype(np.float64) for values in found]
    return float(np.corrcoef(*ranks)[0, 1])


def _cosines(parts: Sequence[Any]) -> Array:
    rows = np.concatenate([np.asarray(part, np.float64).reshape(-1, np.shape(part)[-1]) for part in parts])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray((rows @ rows.T)[np.triu_indices(len(rows), 1)])


def notes(outputs: Sets, sets: Sets) -> float:
    """Return the F1 score of the notes that sound in each frame; the label is [batch, frames, notes]."""
    common = total = 0
    for out, one in zip(outputs, sets):
        frames = next(np.asarray(out[name]) for name in out if name.endswith(":1"))
        found = frames > _MASK
        common, total = common + int((found & one["label"]).sum()), total + int(found.sum() + one["label"].sum())
    return 2.0 * common / max(1, total)


def pitch(outputs: Sets, sets: Sets) -> float:
    """Return the share of frames within 50 cents of the pitch; the label is in hertz."""
    right = []
    for out, one in zip(outputs, sets):
        found, truth = np.asarray(out["pitch"]).reshape(-1), np.asarray(one["label"]).reshape(-1)[0]
        inner = found[2:-2]
        right.append(np.abs(1200 * np.log2(np.maximum(inner, 1.0) / truth)) < 50)
    return float(np.concatenate(right).mean())


def denoising(outputs: Sets, sets: Sets) -> float:
    """Return the signal-to-noise ratio, in dB, after the gains are applied to the noisy spectrum."""
    clean = np.concatenate([one["clean"].reshape(-1) for one in sets])
    noisy = np.concatenate([(one["noisy"] * _first(out)).reshape(-1) for out, one in zip(outputs, sets)])
    return float(10 * np.log10((clean**2).sum() / ((clean - noisy) ** 2).sum()))
