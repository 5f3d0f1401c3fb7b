"""Time two models against each other: `python -m suite.latency ORIGINAL CANDIDATE [--threads N] [--seconds S]`.

Both are loaded in one process, with all optimizations of ONNX Runtime, and run alternately, each first in every other
round, so a slow machine slows both. Prints ratios (below 1: the candidate is faster) as JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import onnxruntime as ort

from suite import feeds

_WARM_UP = 2
_LEAST_ROUNDS = 10
_MOST_ROUNDS = 400


def session(path: Path, threads: int) -> ort.InferenceSession:
    """Load a model as in production, with all optimizations."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def measure(original: Path, candidate: Path, threads: int, budget: float) -> dict[str, Any]:
    """Return the ratio of the shortest runs, and the median of the ratios per round."""
    feed = feeds.usual(original)
    sides = [session(original, threads), session(candidate, threads)]
    for side in sides * _WARM_UP:
        side.run(None, feed)
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + budget
    while len(times[0]) < _LEAST_ROUNDS or (time.perf_counter() < end and len(times[0]) < _MOST_ROUNDS):
        for which in (0, 1) if len(times[0]) % 2 else (1, 0):
            begin = time.perf_counter()
            sides[which].run(None, feed)
            times[which].append(time.perf_counter() - begin)
    return {
        "minimum": min(times[1]) / min(times[0]),
        "median": statistics.median(b / a for a, b in zip(*times)),
        "rounds": len(times[0]),
        "original_seconds": min(times[0]),
        "threads": threads,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("original", type=Path)
    parser.add_argument("candidate", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.original, arguments.candidate, arguments.threads, arguments.seconds)))


if __name__ == "__main__":
    main()
