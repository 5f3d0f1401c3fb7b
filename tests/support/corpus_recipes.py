"""Run recipes over every model of the onnx package: no wrong output, no crash, no changed signature.

    python tests/support/corpus_recipes.py [--recipes tidy default ...] [--every N] [--processes N]

The models are all backend node tests and the light, simple and PyTorch models. What a recipe makes of a model is
held against surgery's own account of it, and then against the original in plain ONNX Runtime, on the inputs of the
model's own test sets, which surgery has not seen. Exit code 1 when anything is wrong.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
import onnx

from support import corpus, plain
from surgery.base.errors import SurgeryError
from surgery.engine import recipe as recipes
from surgery.engine.pipeline import runner

WRONG = ("wrong", "crash", "error", "failed: different", "failed: none")


def account(model: bytes | Path, recipe: recipes.Recipe) -> tuple[runner.Result | None, str, str]:
    """Run the recipe; return the result unless it failed, how it ended in a word or two, and why."""
    try:
        result = runner.apply(onnx.load_from_string(model) if isinstance(model, bytes) else model, recipe)
    except SurgeryError as error:
        return None, f"error {error.code}", str(error)
    failed = result.failure
    if failed is not None:
        verdict = failed.verdict.status if failed.verdict is not None else "none"
        return None, f"failed: {verdict}", f"{failed.name}: {failed.message}"
    verdicts = {step.verdict.status for step in result.steps if step.verdict is not None}
    for status in ("unverified", "different", "close", "equal"):
        if status in verdicts:
            return result, status, ""
    return result, "unchanged", ""


class Judge:
    """Compares results with their originals, without surgery."""

    def __init__(self) -> None:
        self.runtime = plain.Plain()
        self.node_sets = _node_sets()

    def outcome(self, name: str, model: bytes | Path, recipe: recipes.Recipe) -> tuple[str, str]:
        """Run the recipe and compare; tell how it ended, and why."""
        result, status, why = account(model, recipe)
        if result is None or status == "unchanged":
            return status, why
        original = onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model)
        with tempfile.TemporaryDirectory() as folder:
            saved = Path(folder, "model.onnx")
            result.save(saved)
            if _signature(original) != _signature(onnx.load(saved, load_external_data=False)):
                return "wrong: signature", ""
            sets = plain.feeds([value.name for value in original.graph.input], self._sets(name, model, original))
            for feed in sets:
                checked, why = self._compare(model if isinstance(model, bytes) else str(model), str(saved), feed)
                if checked != "same":
                    return (checked if checked.startswith("wrong") else f"{status}, {checked}"), why
        return f"{status}, {'same' if sets else 'no test set'}", ""

    def _compare(self, original: bytes | str, changed: str, feed: dict[str, Any]) -> tuple[str, str]:
        try:
            expected, again = (self.runtime.run(original, feed) for _ in range(2))
        except plain.Crashed:
            return "original crashes", ""
        if isinstance(expected, str) or isinstance(again, str):
            return "original does not run", ""
        try:
            found = self.runtime.run(changed, feed)
        except plain.Crashed as crash:
            return "wrong: crash", str(crash)
        if isinstance(found, str):
            return "wrong: does not run", found
        repeats = not plain.difference(expected, again)
        complaint = plain.difference(expected, found, values=repeats)
        if complaint:
            return "wrong: output", complaint
        return ("same" if repeats else "random"), ""

    def _sets(self, name: str, model: bytes | Path, original: onnx.ModelProto) -> list[list[Any]]:
        """Return the inputs of the model's test sets; a light model has none and gets one drawn."""
        if isinstance(model, bytes):
            return self.node_sets.get(name.removeprefix("node/"), [])
        if not name.startswith("light/"):
            return plain.sets_beside(model, [value.type for value in original.graph.input])
        given = {tensor.name for tensor in original.graph.initializer}
        random = np.random.default_rng(0)
        shapes = [[dim.dim_value or 1 for dim in v.type.tensor_type.shape.dim] for v in original.graph.input]
        return [
            [
                None if value.name in given else random.standard_normal(shape, np.float32)
                for value, shape in zip(original.graph.input, shapes)
            ]
        ]


def _node_sets() -> dict[str, list[list[Any]]]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    return {case.name: [list(inputs) for inputs, _ in case.data_sets or []] for case in cases}


def _signature(model: onnx.ModelProto) -> list[list[tuple[str, bytes]]]:
    """Return names and types; before IR version 4 every initializer had to be listed as an input and was none."""
    constant = {tensor.name for tensor in model.graph.initializer} if model.ir_version < 4 else set()
    return [
        [(v.name, v.type.SerializeToString(deterministic=True)) for v in values if v.name not in constant]
        for values in (model.graph.input, model.graph.output)
    ]


def serve(names: list[str], start: int, step: int) -> None:
    """Judge every `step`-th model from `start`; write a line before each model and recipe, and one after it."""
    loaded = [(name, recipes.load(name)) for name in names]
    judge = Judge()
    for number, (name, model) in enumerate(corpus.models()):
        if number < start or (number - start) % step:
            continue
        for recipe_name, recipe in loaded:
            _tell(number=number, model=name, recipe=recipe_name)
            status, why = judge.outcome(name, model, recipe)
            _tell(number=number, model=name, recipe=recipe_name, status=status, why=why)
    judge.runtime.close()


def _tell(**entries: Any) -> None:
    sys.stdout.write(json.dumps(entries) + "\n")
    sys.stdout.flush()


def answers(names: list[str], start: int, step: int) -> Iterator[dict[str, Any]]:
    """Have a process judge; one that dies is a line about its model, and another one continues after it."""
    while True:
        last: dict[str, Any] = {}
        command = [sys.executable, __file__, "--recipes", *names, "--serve", str(start), str(step)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                last = json.loads(line)
                if "status" in last:
                    yield last
        if process.returncode == 0:
            return
        if not last:
            raise SystemExit("the judging process does not start")
        yield {**last, "status": "crash", "why": f"exit code {process.returncode}"}
        start = last["number"] + step


def main() -> int:
    """Run over the corpus and print what is wrong, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipes", nargs="+", metavar="NAME", default=["tidy", "default"])
    parser.add_argument("--every", type=int, default=1, help="take each N-th model only")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--serve", nargs=2, type=int, metavar=("START", "STEP"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.recipes, *arguments.serve)
        return 0
    corpus.node_models()  # written once, before several processes look for it
    counts: dict[str, Counter[str]] = {name: Counter() for name in arguments.recipes}
    lock = threading.Lock()

    def collect(start: int) -> None:
        for answer in answers(arguments.recipes, start, arguments.every * arguments.processes):
            with lock:
                counts[answer["recipe"]][answer["status"]] += 1
                if answer["status"].startswith(WRONG) or answer["why"]:
                    sys.stdout.write("{model}, {recipe}: {status}: {why}\n".format_map(answer))
                    sys.stdout.flush()

    threads = [threading.Thread(target=collect, args=(n * arguments.every,)) for n in range(arguments.processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, found in counts.items():
        sys.stdout.write(f"{name}: {found.total()} models: {dict(found.most_common())}\n")
    return 1 if any(status.startswith(WRONG) for found in counts.values() for status in found) else 0


if __name__ == "__main__":
    sys.exit(main())
