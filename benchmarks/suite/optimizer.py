"""Run `onnxruntime.transformers.optimizer` on a model in many configurations, each in a fork with a time limit.

python -m suite.optimizer MODEL SECONDS < ways.json     # one line of JSON for each way
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Way:
    """A configuration: the model type, the level of ONNX Runtime's own optimizations before it, and the given sizes.

    `level` None is the default of the type; zero heads and width, the default, make the optimizer guess them.
    """

    kind: str
    level: int | None = None
    heads: int = 0
    width: int = 0

    @property
    def name(self) -> str:
        """A short name of the configuration."""
        level = "" if self.level is None else f", level {self.level}"
        return f"{self.kind}{level}{f', {self.heads} heads' if self.heads else ''}"


def kinds() -> dict[str, int]:
    """Return the model types of the optimizer with the default level of each."""
    from onnxruntime.transformers import optimizer

    return {kind: row[2] for kind, row in optimizer.MODEL_TYPES.items()}


def optimize(source: Path, target: Path, way: Way) -> None:
    """Optimize a model and write the result."""
    import logging

    from onnxruntime.transformers import optimizer

    logging.disable(logging.CRITICAL)
    made = optimizer.optimize_model(
        str(source), way.kind, num_heads=way.heads, hidden_size=way.width, opt_level=way.level, use_gpu=False
    )
    made.save_model_to_file(str(target))


def measure(source: Path, target: Path, way: Way) -> dict[str, Any]:
    """Optimize a model, count its nodes, and check that ONNX Runtime loads the result."""
    from suite import cores
    from suite.parity import session

    optimize(source, target, way)
    counts: dict[str, Any] = cores.of(target)
    try:
        session(target)
    except Exception as problem:
        counts["failure"] = " ".join(str(problem).split())[:200]
    return counts


def in_fork(task: Callable[[], dict[str, Any]], seconds: float) -> dict[str, Any]:
    """Run a task in a separate process and return its result; `failure` says why there is none."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reader)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        try:
            result = task()
        except BaseException as problem:
            result = {"failure": f"{type(problem).__name__}: {' '.join(str(problem).split())}"[:200]}
        with os.fdopen(writer, "w") as pipe:
            json.dump(result, pipe)
        os._exit(0)
    os.close(writer)
    deadline, ended = time.monotonic() + seconds, 0
    while not ended and time.monotonic() < deadline:
        ended, _ = os.waitpid(pid, os.WNOHANG)
        time.sleep(0 if ended else 0.05)
    if not ended:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reader)
        return {"failure": f"not done in {seconds:.0f} s"}
    with os.fdopen(reader) as pipe:
        printed = pipe.read()
    return json.loads(printed) if printed else {"failure": "died"}


def all_of(source: Path, ways: list[Way], seconds: float) -> Iterator[tuple[Way, dict[str, Any]]]:
    """Yield each configuration with its result."""
    import onnxruntime.transformers.optimizer  # noqa: F401 - once, before all forks

    from suite import cores, parity  # noqa: F401

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "model.onnx"
        for way in ways:
            yield way, in_fork(lambda way=way: measure(source, target, way), seconds)  # type: ignore[misc]


def main(source: str, seconds: str) -> None:
    """Print a line of JSON for each configuration on the standard input."""
    ways = [Way(**row) for row in json.load(sys.stdin)]
    for way, result in all_of(Path(source), ways, float(seconds)):
        print(json.dumps({"way": asdict(way), **result}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
