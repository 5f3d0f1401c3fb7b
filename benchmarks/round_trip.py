"""Fuse to ONNX Runtime's own operators, decompose them, fuse again, and compare all results with the model.

    python benchmarks/round_trip.py MODEL... [--recipe ort]

Each model goes through three verified runs of `surgery apply`: RECIPE; `decompose: {ops: ["com.microsoft::*"]}` with
its cleanup; RECIPE again. The run back must leave no operator of com.microsoft, and the third run must not leave more
nodes than the first. All three results are then compared with the raw model outside of surgery, on rows that are padded
left or right or fully masked, and with caches that are empty or of odd length (`suite/padded.py`).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from suite import facts, process

CONTRIB = "com.microsoft"

BACK = """
recipe: back
about: ONNX Runtime's own operators in those of the standard.
on_failure: bisect
steps:
  - decompose: {ops: ["com.microsoft::*"]}
  - drop-unused-opsets
expect: {signature: unchanged}
"""


@dataclass(frozen=True)
class Stage:
    """The result of one run: all nodes, those of com.microsoft, why there is no result, or what is wrong with it."""

    nodes: int = 0
    contrib: int = 0
    failure: str = ""
    wrong: str = ""

    def __str__(self) -> str:
        """Format the stage for a table cell."""
        if self.failure:
            return self.failure[:60]
        return f"{self.nodes} ({self.contrib})" + (f", wrong: {self.wrong[:60]}" if self.wrong else "")


@dataclass(frozen=True)
class Trip:
    """The node count of a model, and its three stages."""

    model: str
    raw: int
    there: Stage
    back: Stage
    again: Stage

    @property
    def problem(self) -> str:
        """The first problem found; empty if there is none."""
        stages = (self.there, self.back, self.again)
        found = next((stage.failure or stage.wrong for stage in stages if stage.failure or stage.wrong), "")
        if found:
            return found
        if self.back.contrib:
            return f"{self.back.contrib} nodes of {CONTRIB} stay"
        if self.again.nodes > self.there.nodes:
            return f"{self.again.nodes - self.there.nodes} nodes more the second time"
        return ""


def parser() -> argparse.ArgumentParser:
    """Return the argument parser."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="+", type=Path, metavar="MODEL", help="model files")
    p.add_argument("--recipe", default="ort", help="the way there: a shipped recipe or a file (default: ort)")
    p.add_argument("--timeout", type=float, default=1800.0, help="seconds for one run (default: 1800)")
    p.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the models that came out, here")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run all models and print a table; return 1 if there is a problem."""
    arguments = parser().parse_args(argv)
    trips = []
    print("| model | raw | there | back | again | |\n|---|---|---|---|---|---|", flush=True)
    for path in arguments.models:
        with tempfile.TemporaryDirectory() as scratch:
            folder = arguments.keep or Path(scratch)
            folder.mkdir(parents=True, exist_ok=True)
            trips.append(travel(path.resolve(), folder.resolve(), arguments))
        print(row(trips[-1]), flush=True)
    bad = [trip for trip in trips if trip.problem]
    print(f"\n{len(trips)} models, {len(bad)} with a problem. In brackets: nodes of {CONTRIB}.")
    return int(bool(bad))


def row(trip: Trip) -> str:
    """Format a trip as a row of the table."""
    return f"| {trip.model} | {trip.raw} | {trip.there} | {trip.back} | {trip.again} | {trip.problem or 'holds'} |"


def travel(path: Path, folder: Path, arguments: argparse.Namespace) -> Trip:
    """Run the three stages on a model; a stage without a result ends the trip."""
    recipe = str(Path(arguments.recipe).resolve()) if Path(arguments.recipe).is_file() else arguments.recipe
    back = folder / "back.yaml"
    back.write_text(BACK)
    stages: list[Stage] = []
    source = path
    for name, given in (("there", recipe), ("back", str(back)), ("again", recipe)):
        target = folder / f"{path.stem}.{name}.onnx"
        if stages and stages[-1].failure:
            stages.append(Stage(failure="no model to begin with"))
            continue
        stages.append(_stage(given, path, source, target, folder, arguments.timeout))
        source = target
    return Trip(path.name, _nodes(path)[0], *stages)


def _stage(recipe: str, raw: Path, source: Path, target: Path, folder: Path, timeout: float) -> Stage:
    command = [sys.executable, "-m", "surgery", "apply", recipe, str(source), "-o", str(target), "--force"]
    ran = process.run([*command, "--format", "json"], timeout=timeout, folder=folder)
    if ran.failure or not target.is_file():
        return Stage(failure=ran.failure or "wrote nothing")
    undone = [step["pass"] for step in json.loads(ran.output)["steps"] if step["status"] not in _DONE]
    nodes, contrib = _nodes(target)
    wrong = f"{', '.join(undone)} did not hold" if undone else _wrong(raw, target, folder, timeout)
    return Stage(nodes, contrib, wrong=wrong)


_DONE = ("committed", "unchanged", "skipped")


def _wrong(raw: Path, model: Path, folder: Path, timeout: float) -> str:
    """Return the first difference from the raw model; empty if there is none."""
    command = [sys.executable, "-m", "suite.padded", str(raw), str(model)]
    ran = process.run(command, timeout=timeout, folder=folder)
    if ran.failure:
        return ran.failure
    result: dict[str, Any] = json.loads(ran.output)
    return f"{result['wrong']} of {result['sets']} sets: {result['first']}" if result["wrong"] else ""


def _nodes(path: Path) -> tuple[int, int]:
    counts = facts.operators(onnx.load(path, load_external_data=False))
    return counts.total(), sum(count for (domain, _), count in counts.items() if domain == CONTRIB)


if __name__ == "__main__":
    sys.exit(main())
