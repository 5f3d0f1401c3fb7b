"""Runs with a cache, of a model whose steps change weights, are refused in part, and change nothing."""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from surgery.engine import recipe as recipes
from surgery.engine.caching.cache_folder import CacheFolder
from surgery.engine.caching.step_cache import Steps
from surgery.engine.pipeline import runner
from surgery.engine.pipeline.records import Result, StepRecord
from surgery.engine.pipeline.run_options import RunOptions
from surgery.model.graph import text

# Of three Relus, the second alone is fed negative numbers. The transposed weight is large enough for a separate file.
MODEL = """g (float[batch, 160] x) => (float[batch, 160] y) {
    t = Transpose <perm = [1, 0]> (w)
    m = MatMul(x, t)
    b = Add(m, c)
    a = Abs(b)  r1 = Relu(a)  i = Identity(r1)  o = Cos(i)  r2 = Relu(o)  s = Sigmoid(r2)  r3 = Relu(s)  y = Neg(r3)
}"""

RECIPE = """
recipe: test
inputs: {dims: {batch: [1, 3]}}
rules:
  cut-relu: {match: y = Relu(x), emit: y = x, parity: exact}
steps:
  - drop-identity
  - fold-constants
  - pass: cut-relu
    on_failure: bisect
  - drop-dropout
  - fuse-matmul-add
  - merge-transposes
expect: {ops: {Relu: 1}}
"""


def write_model(path: Path, seed: int = 0) -> Path:
    made = text.parse(MODEL)
    random = np.random.default_rng(seed)
    for name, shape in (("w", (160, 160)), ("c", (160,))):
        array = random.normal(size=shape).astype(np.float32) / 8
        made.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(made, path)
    return path


@dataclass
class Watcher:
    """An observer that notes what ran."""

    stages: list[tuple[str, str]] = field(default_factory=list)

    def stage(self, step: str, stage: str) -> None:
        self.stages.append((step, stage))

    def said(self, step: str, text: str) -> None:
        raise AssertionError(text)

    def done(self, record: StepRecord) -> None:
        """Do nothing."""

    @property
    def ran(self) -> list[str]:
        """The passes that ran."""
        return [step for step, stage in self.stages if stage == "pass"]


@dataclass
class Run:
    """One run: its result, the digest of what it wrote, what ran, and the warnings of the cache."""

    result: Result
    sha256: str
    watcher: Watcher
    warnings: list[str]
    cache: Steps | None
    place: Path

    @property
    def report(self) -> dict[str, Any]:
        return comparable(self.result.to_json(), self.place)

    @property
    def cached(self) -> list[str]:
        return [step.name for step in self.result.steps if step.cached]


def comparable(report: Any, place: Path) -> dict[str, Any]:
    """Return a report without what may differ between two runs: times, where outcomes come from, paths in `place`."""
    found: dict[str, Any] = json.loads(json.dumps(report).replace(str(place), ""))
    for key in ("seconds", "cached", "memory", "command"):
        found.pop(key, None)
    found["output"].pop("path")
    for step in found["steps"]:
        del step["seconds"], step["cached"]
    return found


def without_distances(report: dict[str, Any]) -> dict[str, Any]:
    """Return a report without how far outputs are apart.

    A region like one that was compared before in the same run is compared on fewer inputs. Where a run takes up what an
    earlier one has left, it is the first of its kind once more, so that other numbers stand for the same verdict.
    """
    steps = [
        {key: value for key, value in step.items() if key not in ("needed", "details")} for step in report["steps"]
    ]
    return {**report, "steps": steps}


def run(model: Path, cache: Path | None, recipe: str = RECIPE, name: str = "out.onnx", **options: Any) -> Run:
    """Apply a recipe, with a cache or without."""
    warnings: list[str] = []
    steps = Steps(CacheFolder(cache, warnings.append)) if cache is not None else None
    watcher, output = Watcher(), model.parent / name
    loaded = recipes.parse(recipe, str(model.parent / "test.yaml"))
    result = runner.apply(
        model, loaded, output=output, force=True, options=RunOptions(cache=steps, observer=watcher, **options)
    )
    digest = hashlib.sha256(output.read_bytes()).hexdigest() if result.ok else ""
    return Run(result, digest, watcher, warnings, steps, model.parent)


def entries(cache: Path) -> list[Path]:
    """List the entries of steps and the tensors, the oldest first."""
    found = [path for path in cache.rglob("*") if path.is_file() and path.name != "uses"]
    return sorted(found, key=lambda path: path.stat().st_mtime_ns)
