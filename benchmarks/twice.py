"""Check that recipes are deterministic and idempotent: `python benchmarks/twice.py [--recipes NAME...]`

Runs each recipe twice on each model of the zoo, which must write identical files, and once on the result, which must
stay unchanged. Exit code 1 if either check fails.
"""

from __future__ import annotations

import argparse
import filecmp
import sys
import tempfile
from pathlib import Path

from suite import outcome, process, tools, zoo


def apply(recipe: str, source: Path, target: Path, timeout: float) -> tuple[list[str], str]:
    """Run surgery; return the passes that changed something or failed, and why the run failed, if it did."""
    target.parent.mkdir()
    command = [*tools.surgery(recipe).command(source, target), "--format", "json"]
    ran = process.run(command, timeout=timeout, folder=target.parent)
    if ran.failure:
        return [], ran.failure
    return outcome.changing(ran.output), ""


def faults(recipe: str, model: Path, folder: Path, timeout: float) -> list[str]:
    """Run a recipe three times; return the problems found."""
    first, second, again = (folder / name / "model.onnx" for name in ("first", "second", "again"))
    found = []
    for target in (first, second):
        _, failure = apply(recipe, model, target, timeout)
        if failure:
            return [failure]
    if not filecmp.cmp(first, second, shallow=False):
        found.append("two runs write different files")
    changed, failure = apply(recipe, first, again, timeout)
    if failure:
        found.append(f"the second run fails: {failure}")
    if changed:
        found.append(f"the second run is not idle: {', '.join(changed)}")
    elif not failure and not filecmp.cmp(first, again, shallow=False):
        found.append("the second run changes nothing and yet writes another file")
    return found


def main() -> int:
    """Run and print a line for each model and recipe."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", metavar="NAME", default=list(zoo.NAMES), help="of the zoo, or files")
    parser.add_argument("--recipes", nargs="+", metavar="NAME", default=["default"])
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for one run (default: 900)")
    arguments = parser.parse_args()
    bad = 0
    for name in arguments.models:
        model = zoo.find(name)
        for recipe in arguments.recipes:
            with tempfile.TemporaryDirectory() as folder:
                found = faults(recipe, model.path, Path(folder), arguments.timeout)
            bad += bool(found)
            print(f"{model.name}, {recipe}: {'; '.join(found) or 'same twice, idle the second time'}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
