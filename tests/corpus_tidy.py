"""Run recipes over every model of the onnx package, and count the outcomes.

    python tests/corpus_tidy.py [RECIPE] [--every N]

The models are all backend node tests and the light, simple and PyTorch models. Exit code 1 when an output is
different or something crashed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import corpus
import onnx

from surgery import recipe as recipes
from surgery import runner
from surgery.errors import SurgeryError


def outcome(model: bytes | Path, recipe: recipes.Recipe) -> tuple[str, str]:
    """Run the recipe; tell how it ended in one word, and why."""
    try:
        result = runner.apply(onnx.load_from_string(model) if isinstance(model, bytes) else model, recipe)
    except SurgeryError as error:
        return f"error {error.code}", str(error)
    failed = result.failure
    if failed is not None:
        verdict = failed.verdict.status if failed.verdict is not None else "none"
        return f"failed: {verdict}", f"{failed.name}: {failed.message}"
    verdicts = {step.verdict.status for step in result.steps if step.verdict is not None}
    for status in ("unverified", "different", "close", "equal"):
        if status in verdicts:
            return status, ""
    return "unchanged", ""


def main() -> int:
    """Run over the corpus and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", nargs="?", default="tidy")
    parser.add_argument("--every", type=int, default=1, help="take each N-th model only")
    arguments = parser.parse_args()
    recipe = recipes.load(arguments.recipe)
    counts: Counter[str] = Counter()
    for number, (name, model) in enumerate(corpus.models()):
        if number % arguments.every:
            continue
        status, why = outcome(model, recipe)
        counts[status] += 1
        if why:
            sys.stdout.write(f"{name}: {status}: {why}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{sum(counts.values())} models: {dict(counts)}\n")
    return 1 if any("different" in status or "error" in status or "none" in status for status in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
