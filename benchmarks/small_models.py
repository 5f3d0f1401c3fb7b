"""Compare the processor time of surgery and its peers on small models, where imports and processes are most of it.

    python benchmarks/small_models.py [MODEL...] [--recipes NAME...] [--tools NAME...] [--rounds N] [--most RATIO]

In each round, all tools run on a model one after the other, so that a busy machine slows all of them; the ratio to
OnnxSlim is the median over the rounds. The time of a command is that of its process with all its descendants. Without
MODEL, the models in `models/` and those trained ones of at most 10 MB that are in the cache of `trained.py` are
measured. Exit code 1 if the median ratio of a recipe is above `--most`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from suite import packages, process, tools
from suite.tools import Tool

_CACHE = Path.home() / ".cache" / "surgery" / "trained"
_MODELS = Path(__file__).resolve().parent.parent / "models"
_LARGEST = 10_000_000
_REFERENCE = "onnxslim"


def parser() -> argparse.ArgumentParser:
    """Return the argument parser."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="*", type=Path, metavar="MODEL", help="models to measure")
    p.add_argument("--recipes", nargs="+", metavar="NAME", default=["default", "tidy"], help="recipes of surgery")
    p.add_argument("--tools", nargs="*", metavar="NAME", default=["onnxsim"], help="peers other than OnnxSlim")
    p.add_argument("--rounds", type=int, default=5, help="runs of each tool on each model (default: 5)")
    p.add_argument("--every", type=int, default=1, help="of the trained models, measure each Nth by size (default: 1)")
    p.add_argument("--cache", type=Path, default=_CACHE, metavar="FOLDER", help=f"trained models (default: {_CACHE})")
    p.add_argument("--most", type=float, metavar="RATIO", help="the largest median ratio to OnnxSlim")
    return p


def small_models(cache: Path, every: int) -> list[Path]:
    """Return the models of this repository, and the small trained ones, by size."""
    trained = (model.path(cache) for model in packages.read())
    found = [path for path in trained if path.is_file() and path.stat().st_size <= _LARGEST]
    return [*sorted(_MODELS.glob("*.onnx")), *sorted(found, key=lambda path: path.stat().st_size)[::every]]


def measured(model: Path, compared: list[Tool], rounds: int) -> dict[str, list[float]]:
    """Return the processor time of each tool in each round; NaN where it fails."""
    found: dict[str, list[float]] = {tool.name: [] for tool in compared}
    with tempfile.TemporaryDirectory() as name:
        for number in range(rounds):
            for tool in compared:
                folder = Path(name, tool.name.replace(" ", "-"), str(number))
                folder.mkdir(parents=True)
                command = tool.command(model.resolve(), folder / "result.onnx")
                ran = process.run(command, timeout=600, folder=folder)
                found[tool.name].append(float("nan") if ran.failure else ran.cpu)
    return found


def main() -> int:
    """Measure and print a row for each model; return 1 if a recipe takes too long."""
    arguments = parser().parse_args()
    known = {tool.name: tool for tool in tools.PEERS}
    ours = [tools.surgery(recipe) for recipe in arguments.recipes]
    compared = [known[_REFERENCE], *ours, *(known[name] for name in arguments.tools)]
    console = Console(width=200)
    ratios: dict[str, list[float]] = {tool.name: [] for tool in compared[1:]}
    for model in arguments.models or small_models(arguments.cache, arguments.every):
        found = measured(model, compared, arguments.rounds)
        reference = found[_REFERENCE]
        row = [f"{_REFERENCE} {statistics.median(reference):.2f} s"]
        for name, seconds in found.items():
            if name != _REFERENCE:
                ratio = statistics.median(mine / its for mine, its in zip(seconds, reference))
                row.append(f"{name} {statistics.median(seconds):.2f} s, {ratio:.2f}x")
                ratios[name] += [ratio] if ratio == ratio else []
        console.print(f"{model.parent.name}/{model.name}: {'; '.join(row)}", markup=False, highlight=False)
    medians = {name: statistics.median(of) for name, of in ratios.items() if of}
    console.print(f"median: {', '.join(f'{name} {ratio:.2f}x' for name, ratio in medians.items())}")
    return 1 if arguments.most and any(medians[tool.name] > arguments.most for tool in ours) else 0


if __name__ == "__main__":
    sys.exit(main())
