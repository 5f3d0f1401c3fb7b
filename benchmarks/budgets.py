"""Check that accuracy budgets hold on held-out inputs.

For each model and budget, the sites of a lossy pass are chosen as in `surgery apply`, and the result is run in plain
ONNX Runtime, with all its optimizations, on held-out inputs: other seeds and other dim sizes. The table shows the worst
signal-to-noise ratio on these inputs, and the share of the multiply-accumulates that is converted.

    python benchmarks/budgets.py bert.onnx:quantize-dynamic resnet.onnx:quantize-static --budgets 20 30 40 50

Optimize the models with `surgery apply default` first. Exit code 1 if a budget does not hold.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from surgery.engine.pipeline.candidate import Candidate
from surgery.engine.pipeline.judging import Verifying
from surgery.engine.pipeline.pipeline import Pipeline
from surgery.engine.pipeline.sensitivity import costs_by_label
from surgery.engine.pipeline.transaction import Transaction
from surgery.engine.recipe import PassStep, Recipe
from surgery.model import storage
from surgery.verification.comparing.reference_run import ReferenceRun
from surgery.verification.inputs.spec import AccuracySpec, MetricLimit, VerifySpec

HELD_OUT = 30_000
"""The first seed of the held-out inputs, far from the seeds of calibration and evaluation."""


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("subjects", nargs="+", metavar="MODEL:PASS")
    parser.add_argument("--budgets", nargs="+", type=float, default=[20.0, 30.0, 40.0, 50.0], help="in dB")
    parser.add_argument("--sets", type=int, default=16, help="held-out sets of inputs")
    arguments = parser.parse_args()
    print("| model | pass | budget | measured | held out | sites | products converted | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    held = [row for subject in arguments.subjects for row in _rows(subject, arguments.budgets, arguments.sets)]
    return 0 if all(held) else 1


def _rows(subject: str, budgets: list[float], sets: int) -> Iterator[bool]:
    """Print the rows of a model; yield whether each budget holds."""
    path, _, name = subject.rpartition(":")
    stored = storage.load(Path(path))
    step = PassStep(name=name, options={"min_size": 0} if name != "to-float16" else {}, on_failure="abort")
    spec = VerifySpec(accuracy=AccuracySpec((MetricLimit("snr", budgets[0]),)))
    with closing(Pipeline(stored, Recipe(name, (step,), verify=spec))) as pipeline:
        transaction = Transaction(step, pipeline.bench)
        whole = transaction.run()
        judge = pipeline.verifying
        judge.tracker.verifier.original.prepare()
        macs = {label: cost.macs for label, cost in costs_by_label(pipeline.model.editable()).items()}
        chooser = transaction.chooser()
        feeds = _held_out(judge.tracker.verifier.original, sets)
        for budget in budgets:
            started = time.perf_counter()
            chooser.limits = (MetricLimit("snr", budget),)
            loss = judge.loss(whole)
            fits = loss.use(chooser.limits) <= 1.0
            candidate = whole if fits else chooser.choose(whole.applied).candidate
            yield _row(
                Path(path).stem, name, budget, candidate, macs, feeds, stored, judge, time.perf_counter() - started
            )


def _row(
    model: str,
    name: str,
    budget: float,
    candidate: Candidate | None,
    macs: Mapping[str, float],
    feeds: list[dict[str, Any]],
    stored: storage.StoredModel,
    judge: Verifying,
    seconds: float,
) -> bool:
    total = sum(macs.values())
    if candidate is None or candidate.proto is None:
        print(f"| {model} | {name} | {budget:g} dB | | | 0 | 0 % | {seconds:.0f} |", flush=True)
        return True
    measured = judge.loss(candidate).worst["snr"]
    held = _snr(stored, candidate, feeds)
    share = sum(macs.get(site.anchor, 0.0) for site in candidate.applied) / max(total, 1.0)
    print(
        f"| {model} | {name} | {budget:g} dB | {measured:.1f} dB | {held:.1f} dB | {len(candidate.applied)} of "
        f"{len(candidate.sites)} | {share:.0%} | {seconds:.0f} |",
        flush=True,
    )
    return held >= budget


def _held_out(reference: ReferenceRun, sets: int) -> list[dict[str, Any]]:
    """Draw inputs with other seeds, half of them with other dim sizes."""
    base = reference.runs[0].binding
    larger = {name: 24 if extent > 1 else 2 for name, extent in base.dims.items()}
    found = []
    for number in range(sets):
        dims = base.dims if number % 2 else larger
        binding = replace(base, dims=dims, character=("normal", "image")[number // 2 % 2], seed=HELD_OUT + number)
        found.append(reference.inputs.feed(binding))
    return found


def _snr(stored: storage.StoredModel, candidate: Candidate, feeds: list[dict[str, Any]]) -> float:
    """Return the worst signal-to-noise ratio over all outputs and input sets, in dB, in plain ONNX Runtime."""
    worst = math.inf
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("before.onnx", "after.onnx")]
        for path, proto in zip(paths, (stored.proto, candidate.proto)):
            assert proto is not None
            storage.save(proto, path, stored.weights)
        sessions = [onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]) for path in paths]
        for feed in feeds:
            before, after = (session.run(None, feed) for session in sessions)
            for x, y in zip(before, after):
                if x.dtype.kind == "f" and x.size:
                    x, y = x.astype(np.float64), y.astype(np.float64)
                    noise = float(((x - y) ** 2).sum())
                    worst = min(worst, 10 * math.log10(float((x**2).sum()) / noise) if noise else math.inf)
    return worst


if __name__ == "__main__":
    sys.exit(main())
