"""Measure the cost of verification, against the same checks done with plain `onnx.save` and sessions.

    python benchmarks/verification.py MODEL [--steps 10]

Each step inserts an Identity at another place, so every model is new and must be checked and run. Both sides check each
model with onnx's checker, open a session without optimizations, run it on the same inputs, and compare its outputs with
those of the original. The sides alternate step by step; the figures are wall-clock seconds and their ratio.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx

from surgery.base.promises import Parity
from surgery.model import storage
from surgery.model.proto.signature import signature
from surgery.verification.verdict.checks import check
from surgery.verification.verdict.verifier import Verifier

PLAIN = """
import sys, time
import numpy as np, onnx, onnxruntime as ort
from pathlib import Path

def load(path):
    with np.load(path, allow_pickle=False) as found:
        return dict(found)

options = ort.SessionOptions()
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
folder = Path(sys.argv[1])
feeds = [load(path) for path in sorted(folder.glob("feed*.npz"))]
reference = None
for line in sys.stdin:
    begin = time.perf_counter()
    model = onnx.load(line.strip())
    path = folder / "plain.onnx"
    onnx.save(model, path)
    onnx.checker.check_model(str(path), full_check=True)
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    outputs = [session.run(None, feed) for feed in feeds]
    reference = reference or outputs
    same = all(np.array_equal(a, b, equal_nan=True) for x, y in zip(reference, outputs) for a, b in zip(x, y))
    print(time.perf_counter() - begin, same, flush=True)
"""


def changed(model: onnx.ModelProto, count: int) -> Iterator[onnx.ModelProto]:
    """Yield models that compute the same, each with one more Identity than the one before."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    places = [index for index, node in enumerate(model.graph.node) if node.op_type == "MatMul"]
    for number in range(count):
        index = places[number * len(places) // count] + number
        node = made.graph.node[index]
        inner = f"{node.output[0]}_before_identity"
        identity = onnx.helper.make_node("Identity", [inner], [node.output[0]])
        node.output[0] = inner
        made.graph.node.insert(index + 1, identity)
        yield made


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args()
    stored = storage.load(arguments.model)
    begin = time.perf_counter()
    verifier = Verifier(stored.proto.SerializeToString(deterministic=True))
    verifier.original.prepare()
    print(f"preparation, once for a model: {time.perf_counter() - begin:.2f} s")
    for binding in verifier.original.bindings:
        print(f"  inputs: {binding}")
    with tempfile.TemporaryDirectory() as folder:
        for number, run in enumerate(verifier.original.runs):
            np.savez(Path(folder) / f"feed{number}.npz", **run.feed)
        ours, theirs = measure(stored, verifier, Path(folder), arguments.steps)
    ratio = statistics.median(b / a for a, b in zip(ours, theirs))
    print(f"surgery: {statistics.median(ours):.2f} s a step (worst {max(ours):.2f})")
    print(f"plain:   {statistics.median(theirs):.2f} s a step (worst {max(theirs):.2f})")
    print(f"ratio:   {ratio:.1f} (median of pairs)")


def measure(
    stored: storage.StoredModel, verifier: Verifier, folder: Path, steps: int
) -> tuple[list[float], list[float]]:
    """Return the seconds of each step, for both sides."""
    ours, theirs = [], []
    before = signature(stored.proto)
    with subprocess.Popen(
        [sys.executable, "-c", PLAIN, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as plain:
        assert plain.stdin is not None and plain.stdout is not None

        def other_side(path: Path) -> float:
            assert plain.stdin is not None and plain.stdout is not None
            plain.stdin.write(f"{path}\n")
            plain.stdin.flush()
            seconds, same = plain.stdout.readline().split()
            assert same == "True", "the changed model computes something else"
            return float(seconds)

        other_side(storage.save(stored.proto, folder / "original.onnx", stored.weights)[0])
        for number, model in enumerate(changed(stored.proto, steps)):
            begin = time.perf_counter()
            data = model.SerializeToString(deterministic=True)
            problems = [*before.differences(signature(model)), *check(data)]
            verdict = verifier.verify(data, Parity.EXACT)
            ours.append(time.perf_counter() - begin)
            assert verdict.status == "equal" and not problems, (verdict, problems)
            path = storage.save(model, folder / "step.onnx", stored.weights, force=True)[0]
            theirs.append(other_side(path))
            print(f"  step {number + 1}: {ours[-1]:.2f} s, plain {theirs[-1]:.2f} s")
        plain.stdin.close()
    return ours, theirs


if __name__ == "__main__":
    main()
