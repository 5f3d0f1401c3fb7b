"""Take models from their opset to others with surgery and the other converters, and count who is right.

    python tests/support/corpus_opsets.py                       every model, to each later opset that ONNX Runtime runs
    python tests/support/corpus_opsets.py --every 40 --start 3  every fortieth model
    python tests/support/corpus_opsets.py --to 17 13 11         up or down to these
    python tests/support/corpus_opsets.py --to 17 13 11 --tools stamp
                                                                what `surgery opset` says of models as they are
    python tests/support/corpus_opsets.py --data FOLDER         models with test sets next to them, such as the folder
                                                                onnx/backend/test/data of an old wheel of onnx

The models are a few where converters are known to be wrong (`opset_models`), those of onnx's backend tests, and the
small ones of the project. Each conversion runs in plain ONNX Runtime without optimizations, on the model's own test
set where it has one, next to the model as it was: right is the same signature and the same outputs up to rounding.
Where ONNX Runtime does not run the model as it was, the outputs of the test set count; where it has no kernel for a
new operator, onnx's reference evaluator runs it instead. A conversion is not judged when neither tells anything.
Converters run without surgery's verification and in a separate process, as they can crash. Exit code 1 when
surgery is wrong or crashes.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "wrong_tools")]

import numpy as np  # noqa: E402
import onnx  # noqa: E402
import second_opinion  # noqa: E402

from support import corpus, opset_models, opset_tools, plain  # noqa: E402
from support.opset_tools import opset  # noqa: E402
from surgery.base.operators.traits import RANDOM  # noqa: E402
from surgery.model.graph import text  # noqa: E402
from surgery.model.storage import summary  # noqa: E402

Feed = dict[str, Any]
BAD = ("wrong", "crashed")
STATUSES = ("right", *BAD, "refused", "not judged")


@dataclass(frozen=True)
class Case:
    """A model with inputs and, where they are known, the outputs that onnx expects of it."""

    name: str
    model: onnx.ModelProto
    feed: Feed
    expected: list[Any] | None


@dataclass(frozen=True)
class Outcome:
    """What became of one conversion."""

    model: str
    tool: str
    source: int
    target: int
    status: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.model}, {self.tool} {self.source} -> {self.target}: {self.status}: {self.reason[:200]}"


def cases(folder: Path | None = None) -> Iterator[Case]:
    """Yield the models with their first test set; from a folder, or all that onnx tests and those of the project."""
    if folder is not None:
        yield from file_cases(folder)
        return
    yield from known_cases()
    yield from _node_cases()
    yield from file_cases()
    yield from file_cases(TESTS.parent / "models")


def known_cases() -> Iterator[Case]:
    """Yield the models where converters are known to be wrong."""
    for name, (_, source) in opset_models.KNOWN.items():
        model = text.parse(source)
        yield Case(name, model, drawn(model, **opset_models.INPUTS.get(name, {})), None)


def file_cases(folder: Path = corpus.DATA) -> Iterator[Case]:
    """Yield the models of a folder, with the first of the test sets that are next to each."""
    for path in sorted(folder.rglob("*.onnx")):
        model = onnx.load(path)
        given = plain.sets_beside(path, [value.type for value in model.graph.input])
        results = plain.sets_beside(path, [value.type for value in model.graph.output], "output")
        name = str(path.relative_to(folder.parent))
        yield _case(name, model, given[0] if given else None, results[0] if results else None)


def _node_cases() -> Iterator[Case]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tests = load_model_tests(kind="node")
    for test in tests:
        inputs, outputs = next(iter(test.data_sets or []), (None, None))
        yield _case(f"node/{test.name}", test.model, inputs, outputs)


def _case(name: str, model: onnx.ModelProto, inputs: Any, outputs: Any) -> Case:
    held = {tensor.name for tensor in model.graph.initializer} if model.ir_version < 4 else set()
    if inputs is None:
        return Case(name, model, drawn(model), None)
    (feed,) = plain.feeds([value.name for value in model.graph.input], [list(inputs)])
    expected = [_value(item) for item in outputs] if outputs else None
    whole = expected is not None and all(item is not None for item in expected)
    return Case(name, model, {k: v for k, v in feed.items() if k not in held}, expected if whole else None)


def drawn(model: onnx.ModelProto, **given: Any) -> Feed:
    """Draw the inputs that are not given."""
    return {name: np.asarray(value) for name, value in second_opinion.feed(model, given).items()}


def _value(item: Any) -> Any:
    return next(iter(plain.feeds([""], [[item]])[0].values()), None)


class Judge:
    """Holds what converters make against the model as it was."""

    def __init__(self, tools: Iterable[str]) -> None:
        self.tools = list(tools)
        self.runtime = plain.Plain()
        self.converters = plain.Isolated(opset_tools.serve)

    def close(self) -> None:
        self.runtime.close()
        self.converters.close()

    def outcomes(self, case: Case, targets: Iterable[int]) -> Iterator[Outcome]:
        """Let each tool take a model to each of the opsets."""
        before, source = case.model.SerializeToString(), opset(case.model)
        goals = [target for target in targets if target != source]
        expected = self._expected(case, before) if goals else None
        for target in goals:
            for tool in self.tools:
                status, reason = self._outcome(case, tool, target, before, expected)
                yield Outcome(case.name, tool, source, target, status, reason)

    def _outcome(self, case: Case, tool: str, target: int, before: bytes, expected: Any) -> tuple[str, str]:
        try:
            answered, made = self.converters.ask(tool, before, target)
        except plain.Crashed as crash:
            return "crashed", str(crash)
        if not answered:
            return "crashed", made
        if isinstance(made, str):
            return "refused", made
        changed = _signature_change(case.model, onnx.load_model_from_string(made))
        return ("wrong", changed) if changed else self._compare(case, made, expected)

    def _run(self, model: bytes, feed: Feed) -> list[Any] | str | None:
        """Return the outputs, why ONNX Runtime does not run the model, or None when it dies of it."""
        try:
            return self.runtime.run(model, feed)
        except plain.Crashed:
            return None

    def _expected(self, case: Case, before: bytes) -> list[Any] | None:
        """Return what a conversion must compute; None when nobody knows or it differs from run to run."""
        if any(node.op_type in RANDOM for node in summary.nodes(case.model)):
            return None
        first, second = self._run(before, case.feed), self._run(before, case.feed)
        if isinstance(first, list) and isinstance(second, list):
            return None if plain.difference(first, second) else first
        return case.expected

    def _compare(self, case: Case, made: bytes, expected: list[Any] | None) -> tuple[str, str]:
        found = self._run(made, case.feed)
        if isinstance(found, list):
            if expected is None:
                return "not judged", "nothing to compare with"
            difference = plain.difference(expected, found)
            return ("wrong", difference) if difference else ("right", "")
        if found is None or "NOT_IMPLEMENTED" not in found:
            same = self._run(case.model.SerializeToString(), case.feed)
            if isinstance(same, list):
                return "wrong", f"does not run: {found or 'ONNX Runtime dies'}"
        return _by_reference(case, made, expected)


def _by_reference(case: Case, made: bytes, expected: list[Any] | None) -> tuple[str, str]:
    """Judge by onnx's own evaluator where it agrees with what is expected of the model as it was."""
    model = onnx.load_model_from_string(made)
    flaw = second_opinion.checked(model)
    if flaw and not second_opinion.checked(case.model):
        return "wrong", flaw
    before, after = _evaluated(case.model, case.feed), _evaluated(model, case.feed)
    if expected is None or before is None or after is None or plain.difference(expected, before):
        return "not judged", "no kernel"
    difference = plain.difference(expected, after)
    return ("wrong", f"reference evaluator: {difference}") if difference else ("right", "")


def _evaluated(model: onnx.ModelProto, feed: Feed) -> list[Any] | None:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return list(onnx.reference.ReferenceEvaluator(model).run(None, feed))
        except Exception:
            return None


def _signature_change(before: onnx.ModelProto, after: onnx.ModelProto) -> str:
    """Say which input or output is other than it was; nothing when names, order and element types are the same."""
    for what in ("input", "output"):
        old, new = (_ports(model, what) for model in (before, after))
        if old != new:
            return f"the {what}s are {new} instead of {old}"
    return ""


def _ports(model: onnx.ModelProto, what: str) -> list[tuple[str, int]]:
    """Return names and element types, without the constants that IR version 3 wants listed as inputs."""
    held = {tensor.name for tensor in model.graph.initializer}
    return [(p.name, p.type.tensor_type.elem_type) for p in getattr(model.graph, what) if p.name not in held]


def table(found: Iterable[Outcome]) -> str:
    """Give the counts of conversions by tool, and of the models with which a tool was never wrong and always done."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    models: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for outcome in found:
        counts[outcome.tool][outcome.status] += 1
        models[outcome.tool][outcome.model].add(outcome.status)
    titles = ("models", "all right", "conversions", *STATUSES)
    rows = ["| tool | " + " | ".join(titles) + " |", "|---" * (len(titles) + 1) + "|"]
    for tool, told in counts.items():
        whole = sum(statuses == {"right"} for statuses in models[tool].values())
        numbers = [len(models[tool]), whole, told.total(), *(told[status] for status in STATUSES)]
        rows.append(f"| {tool} | " + " | ".join(map(str, numbers)) + " |")
    return "\n".join(rows)


def sweep(judge: Judge, chosen: Iterable[Case], to: list[int], shown: set[str]) -> list[Outcome]:
    """Convert all models, and show the outcomes of these statuses as they come."""
    found = []
    for case in chosen:
        source = opset(case.model)
        targets = to or range(source + 1, plain.NEWEST_OPSET + 1) if source else ()
        for outcome in judge.outcomes(case, targets):
            found.append(outcome)
            if outcome.status in shown:
                sys.stdout.write(f"{outcome}\n")
                sys.stdout.flush()
    return found


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take every Nth model")
    parser.add_argument("--start", type=int, default=0, metavar="N", help="begin with this one")
    parser.add_argument("--to", type=int, nargs="+", default=[], metavar="OPSET", help="up or down to these")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="take the models below this folder")
    parser.add_argument(
        "--tools", nargs="+", choices=list(opset_tools.TOOLS), default=["surgery", "onnx", "onnxscript"]
    )
    parser.add_argument("--show", nargs="*", choices=STATUSES, default=list(BAD), help="outcomes to show as they come")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write every outcome there, as JSON")
    arguments = parser.parse_args()
    judge = Judge(arguments.tools)
    chosen = islice(cases(arguments.data), arguments.start, None, arguments.every)
    found = sweep(judge, chosen, arguments.to, set(arguments.show))
    judge.close()
    if arguments.out:
        arguments.out.write_text(json.dumps([asdict(outcome) for outcome in found], indent=1), encoding="utf-8")
    sys.stdout.write(f"{table(found)}\n")
    return int(any(outcome.tool in ("surgery", "stamp") and outcome.status in BAD for outcome in found))


if __name__ == "__main__":
    sys.exit(main())
