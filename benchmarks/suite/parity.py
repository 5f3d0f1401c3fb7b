"""Compare a model's outputs with the original's, in plain ONNX Runtime without its optimizations.

    python -m suite.parity reference MODEL FOLDER [HINTS]  # inputs and outputs of the original, into a folder
    python -m suite.parity compare MODEL FOLDER            # prints the error, or what is wrong, as JSON

Each runs in a separate process, since a model can crash the runtime. With hints, a JSON text for `suite.realistic`, the
inputs are like those of a trained model in use, inputs that the original refuses are left out, and the folder also gets
the original's own noise: the change of its outputs when weights and inputs move by one rounding step.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from suite import feeds, noise, realistic

LIMIT = 2e-4
"""The largest error that counts as rounding, as a share of the output's largest magnitude."""

NOISE_FACTOR = 4.0
"""The multiple of the noise that is allowed: a rewrite rounds in several places, the noise in only one."""


def session(path: Path | bytes) -> ort.InferenceSession:
    """Load a model to run as written, without optimizations."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(
        path if isinstance(path, bytes) else str(path), options, providers=["CPUExecutionProvider"]
    )


def reference(path: Path, folder: Path) -> None:
    """Run the original and save its inputs and outputs."""
    original = session(path)
    names = [value.name for value in original.get_outputs()]
    for number, (told, feed) in enumerate(feeds.compared(path)):
        outputs = dict(zip(names, original.run(names, feed)))
        entries = {f"in:{name}": array for name, array in feed.items()}
        entries |= {f"out:{name}": array for name, array in outputs.items()}
        np.savez(folder / f"{number}.npz", told=np.array(told), **entries)


def realistic_reference(path: Path, folder: Path, hints: dict[str, Any]) -> int:
    """Run the original on realistic inputs, also with perturbed weights and inputs; return how many inputs it takes."""
    model = onnx.load(path)
    original = session(path)
    names = [value.name for value in original.get_outputs()]
    taken: list[tuple[str, feeds.Feed, dict[str, np.ndarray[Any, Any]]]] = []
    refused = ""
    for told, feed in realistic.drawn(model, hints):
        try:
            taken.append((told, feed, flat(names, original.run(names, feed))))
        except Exception as problem:
            refused = " ".join(str(problem).split())
    if not taken:
        raise ValueError(f"the original takes none of the inputs: {refused[:300]}")
    noises = _noises(model, names, [(feed, outputs) for _, feed, outputs in taken])
    for number, ((told, feed, outputs), found) in enumerate(zip(taken, noises)):
        entries = {f"in:{name}": _plain(array) for name, array in feed.items()}
        entries |= {f"out:{name}": array for name, array in outputs.items()}
        entries |= {f"noise:{name}": np.array(value) for name, value in found.items()}
        np.savez(folder / f"{number}.npz", told=np.array(told), **entries)
    return len(taken)


def _noises(
    model: onnx.ModelProto, names: list[str], taken: list[tuple[feeds.Feed, dict[str, np.ndarray[Any, Any]]]]
) -> list[dict[str, float]]:
    """Return the noise of each output, for each set of inputs with the outputs of the original.

    One draw shows how a model usually reacts to rounding, and by chance less: a model that may react more gets several.
    """
    found: list[dict[str, float]] = [{} for _ in taken]
    for seed in range(noise.DRAWS if model.ByteSize() < _LARGEST else 0):
        moved = session(noise.shaken(model, seed))
        for (feed, outputs), highest in zip(taken, found):
            others = flat(names, moved.run(names, noise.shaken_feed(feed, seed)))
            for name, array in outputs.items():
                highest[name] = max(distance(array, others[name]), highest.get(name, 0.0))
        reacts = any(value * NOISE_FACTOR > LIMIT for highest in found for value in highest.values())
        if not reacts and not noise.is_quantizing(model):
            break
    return found


_LARGEST = 1 << 30
"""The size in bytes below which the noise of a model is measured, which needs a second copy of the weights."""


def flat(names: list[str], outputs: list[Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Return tensors only: a sequence of maps, as from ZipMap, becomes its keys and a row of values for each map."""
    found = {}
    for name, value in zip(names, outputs):
        if isinstance(value, list) and value and isinstance(value[0], dict):
            keys = list(value[0])
            found[f"{name} keys"] = np.array([str(key) for row in value for key in row])
            found[name] = np.array([[row.get(key, np.nan) for key in keys] for row in value])
        elif isinstance(value, list):
            found |= {f"{name} {number}": np.asarray(item) for number, item in enumerate(value)}
        else:
            found[name] = _plain(np.asarray(value))
    return found


def _plain(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Convert strings to a native numpy type, which can be saved without pickle and which the runtime accepts."""
    return array.astype(str) if array.dtype == object else array


def compare(path: Path, folder: Path) -> dict[str, Any]:
    """Run a model on the saved inputs and return its largest error; `wrong` says why it does not match."""
    candidate = session(path)
    names = [value.name for value in candidate.get_outputs()]
    worst, most_noise = 0.0, 0.0
    for file in sorted(folder.glob("*.npz"), key=lambda file: int(file.stem)):
        with np.load(file) as kept:
            told = str(kept["told"])
            feed = {key[3:]: kept[key] for key in kept.files if key.startswith("in:")}
            expected = {key[4:]: kept[key] for key in kept.files if key.startswith("out:")}
            noises = {key[6:]: float(kept[key]) for key in kept.files if key.startswith("noise:")}
        try:
            outputs = flat(names, candidate.run(names, feed))
        except Exception as problem:
            return {"wrong": f"does not run with {told}: {' '.join(str(problem).split())[:160]}"}
        if outputs.keys() != expected.keys():
            return {"wrong": f"has other outputs with {told}: {', '.join(outputs.keys() ^ expected.keys())}"}
        for name, array in outputs.items():
            error, wrong = difference(expected[name], array)
            granted = max(LIMIT, NOISE_FACTOR * noises.get(name, 0.0))
            if wrong == DISCRETE and name in noises:
                error, wrong = distance(expected[name], array), ""
                granted = NOISE_FACTOR * noises[name]
            if wrong or error > granted:
                return {"wrong": f"{name} {wrong or f'is off by {error:.1e}'} with {told}"}
            worst, most_noise = max(worst, error), max(most_noise, noises.get(name, 0.0))
    return {"error": worst, "noise": most_noise}


DISCRETE = "is not the same"


def distance(expected: np.ndarray[Any, Any], array: np.ndarray[Any, Any]) -> float:
    """Return the difference as a number: for non-floats, the share of the elements that differ."""
    error, wrong = difference(expected, array)
    if wrong == DISCRETE:
        return float(np.mean(expected != array))
    return float("inf") if wrong else error


def difference(expected: np.ndarray[Any, Any], array: np.ndarray[Any, Any]) -> tuple[float, str]:
    """Return the largest difference as a share of the largest magnitude, and in words why the two do not match."""
    if expected.shape != array.shape:
        return 0.0, f"has shape {list(array.shape)} instead of {list(expected.shape)}"
    if expected.dtype != array.dtype:
        return 0.0, f"is {array.dtype} instead of {expected.dtype}"
    if not np.issubdtype(expected.dtype, np.inexact):
        return 0.0, "" if np.array_equal(expected, array) else DISCRETE
    left, right = expected.astype(np.complex128), array.astype(np.complex128)
    finite = np.isfinite(left)
    if not np.array_equal(left[~finite], right[~finite], equal_nan=True) or not np.isfinite(right[finite]).all():
        return 0.0, "has NaN or infinity in other places"
    scale = np.abs(left[finite]).max(initial=0.0) or 1.0
    return float(np.abs(left[finite] - right[finite]).max(initial=0.0) / scale), ""


def main(what: str, path: str, folder: str, hints: str = "") -> None:
    """Run the reference or the comparison."""
    if what == "reference" and hints:
        print(json.dumps({"sets": realistic_reference(Path(path), Path(folder), json.loads(hints))}))
    elif what == "reference":
        reference(Path(path), Path(folder))
    else:
        print(json.dumps(compare(Path(path), Path(folder))))


if __name__ == "__main__":
    main(*sys.argv[1:])
