"""Is a recipe done after one run, and does it always write the same? `python benchmarks/twice.py [--recipes NAME...]`

Runs each recipe on each model of the zoo twice, whose files must be the same to the byte, and once on what came out,
which must be left as it is. Exit code 1 when either fails.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import sys
import tempfile
from pathlib import Path

from suite import process, tools, zoo

_CHANGED = ("committed", "rolled back", "failed")


def apply(recipe: str, source: Path, target: Path, timeout: float) -> tuple[list[str], str]:
    """Run surgery; return the passes that changed something or failed, and why the run ended badly."""
    target.parent.mkdir()
    command = [*tools.surgery(recipe).command(source, target), "--format", "json"]
    ran = process.run(command, timeout=timeout, folder=target.parent)
    if ran.failure:
        return [], ran.failure
    return [step["pass"] for step in json.loads(ran.output)["steps"] if step["status"] in _CHANGED], ""


def faults(recipe: str, model: Path, folder: Path, timeout: float) -> list[str]:
    """Run a recipe three times; say what is not as it should be."""
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
