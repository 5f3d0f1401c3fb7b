"""Compare two commits: nodes, bytes and verdicts for each model and recipe.

    python benchmarks/corpus.py main HEAD
    python benchmarks/corpus.py main . --models models/bert-tiny.onnx ~/exports --recipes default modern

`.` is the working tree with its uncommitted changes. Both run with the packages that are installed here, and write no
provenance, which names the sources of surgery. Results with the same bytes and the same verdicts are listed only with
`--all`. The time of the second commit is shown as a fraction of the first one's; each is a single run, so a single
fraction means little. Exit code 1 if anything differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).parent.parent
PARTS = ("surgery", "passes", "recipes")


@dataclass(frozen=True)
class Outcome:
    """The result of one commit on a model: the files written, and the verdicts on all steps except unchanged ones."""

    nodes: int
    bytes: int
    digest: str
    verdicts: tuple[str, ...]
    seconds: float = field(default=0.0, compare=False)

    def __str__(self) -> str:
        return f"{self.nodes} nodes, {self.bytes:,} bytes, {', '.join(dict.fromkeys(self.verdicts)) or 'no verdict'}"


def unpacked(commit: str, folder: Path) -> Path:
    """Write the sources of a commit to a folder, laid out for import; return the folder."""
    if commit == ".":
        for part in PARTS:
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        data = subprocess.run(["git", "archive", commit, *PARTS], cwd=ROOT, check=True, capture_output=True).stdout
        with tarfile.open(fileobj=BytesIO(data)) as archive:
            archive.extractall(folder, filter="data")
    for part in PARTS[1:]:
        link = folder / "surgery" / part
        if not link.exists():
            link.symlink_to(f"../{part}")
    return folder


def outcome(tree: Path, recipe: str, model: Path, output: Path) -> Outcome | str:
    """Apply a recipe with the sources of a tree; return the outcome, or the last line of the error output."""
    command = [sys.executable, "-m", "surgery", "apply", recipe, str(model), "--output", str(output)]
    started = time.perf_counter()
    run = subprocess.run(
        [*command, "--force", "--format", "json", "--no-provenance"],
        env={**os.environ, "PYTHONPATH": str(tree)},
        cwd=output.parent,
        capture_output=True,
        text=True,
    )
    seconds = time.perf_counter() - started
    try:
        report = json.loads(run.stdout)
    except json.JSONDecodeError:
        return f"exit code {run.returncode}: {run.stderr.strip().splitlines()[-1:] or ''}"
    steps = tuple(f"{step['status']} {step['verdict']}" for step in report["steps"] if step["status"] != "unchanged")
    digest = hashlib.sha256()
    written = sorted(output.parent.glob(f"{output.name}*")) if report["ok"] else []
    for path in written:
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
        path.unlink()
    return Outcome(report["output"]["nodes"], report["output"]["bytes"], digest.hexdigest(), steps, seconds)


def _share(first: Outcome | str, second: Outcome | str) -> str:
    if isinstance(first, str) or isinstance(second, str):
        return ""
    return f", {second.seconds / first.seconds:.2f} of the time"


def models_in(places: Sequence[Path]) -> Iterator[Path]:
    """Yield the given model files, and those in the given folders."""
    for place in places:
        yield from sorted(place.rglob("*.onnx")) if place.is_dir() else [place.absolute()]


def main() -> int:
    """Compare two commits."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("before", metavar="BEFORE")
    parser.add_argument("after", metavar="AFTER")
    parser.add_argument("--models", nargs="+", type=Path, default=[ROOT / "models"])
    parser.add_argument("--recipes", nargs="+", default=["default", "modern"])
    parser.add_argument("--all", action="store_true", help="list what is the same as well")
    arguments = parser.parse_args()
    count = differing = 0
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        trees = []
        for side, commit in (("before", arguments.before), ("after", arguments.after)):
            (work / side).mkdir()
            trees.append(unpacked(commit, work / side))
        for model in models_in(arguments.models):
            for recipe in arguments.recipes:
                first, second = (outcome(tree, recipe, model, work / "out.onnx") for tree in trees)
                count += 1
                share = _share(first, second)
                differing += first != second
                if first != second:
                    print(f"differs  {model.name} {recipe}{share}\n    {first}\n    {second}", flush=True)
                elif arguments.all:
                    print(f"same     {model.name} {recipe}: {first}{share}", flush=True)
    print(f"{differing} of {count} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
