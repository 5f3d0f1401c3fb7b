"""Compare a model's outputs with the original's, in plain ONNX Runtime without its optimizations.

    python -m suite.parity reference MODEL FOLDER      # inputs and outputs of the original, into a folder
    python -m suite.parity compare MODEL FOLDER        # prints the error, or what is wrong, as JSON

Each is a process of its own: a model can take the runtime down with it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from suite import feeds

LIMIT = 2e-4
"""The largest error that counts as rounding, as a share of the output's largest magnitude."""


def session(path: Path) -> ort.InferenceSession:
    """Load a model to be run as it is written."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def reference(path: Path, folder: Path) -> None:
    """Run the original and keep what went in and what came out."""
    original = session(path)
    names = [value.name for value in original.get_outputs()]
    for number, (told, feed) in enumerate(feeds.compared(path)):
        outputs = dict(zip(names, original.run(names, feed)))
        entries = {f"in:{name}": array for name, array in feed.items()}
        entries |= {f"out:{name}": array for name, array in outputs.items()}
        np.savez(folder / f"{number}.npz", told=np.array(told), **entries)


def compare(path: Path, folder: Path) -> dict[str, Any]:
    """Run a model on the same, and return its largest error; `wrong` says why it is no equal."""
    candidate = session(path)
    worst = 0.0
    for file in sorted(folder.glob("*.npz")):
        with np.load(file) as kept:
            told = str(kept["told"])
            feed = {key[3:]: kept[key] for key in kept.files if key.startswith("in:")}
            expected = {key[4:]: kept[key] for key in kept.files if key.startswith("out:")}
        try:
            outputs = dict(zip(expected, candidate.run(list(expected), feed)))
        except Exception as problem:
            return {"wrong": f"does not run with {told}: {' '.join(str(problem).split())[:160]}"}
        for name, array in outputs.items():
            error, wrong = difference(expected[name], array)
            if wrong or error > LIMIT:
                return {"wrong": f"{name} {wrong or f'is off by {error:.1e}'} with {told}"}
            worst = max(worst, error)
    return {"error": worst}


def difference(expected: np.ndarray[Any, Any], array: np.ndarray[Any, Any]) -> tuple[float, str]:
    """Return the largest difference as a share of the largest magnitude, or in words why the two do not compare."""
    if expected.shape != array.shape:
        return 0.0, f"has shape {list(array.shape)} instead of {list(expected.shape)}"
    if expected.dtype != array.dtype:
        return 0.0, f"is {array.dtype} instead of {expected.dtype}"
    if not np.issubdtype(expected.dtype, np.inexact):
        return 0.0, "" if np.array_equal(expected, array) else "is not the same"
    left, right = expected.astype(np.complex128), array.astype(np.complex128)
    finite = np.isfinite(left)
    if not np.array_equal(left[~finite], right[~finite], equal_nan=True) or not np.isfinite(right[finite]).all():
        return 0.0, "has NaN or infinity in other places"
    scale = np.abs(left[finite]).max(initial=0.0) or 1.0
    return float(np.abs(left[finite] - right[finite]).max(initial=0.0) / scale), ""


def main(what: str, path: str, folder: str) -> None:
    """Do one of the two."""
    if what == "reference":
        reference(Path(path), Path(folder))
    else:
        print(json.dumps(compare(Path(path), Path(folder))))


if __name__ == "__main__":
    main(*sys.argv[1:])
