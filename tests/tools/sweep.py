"""Run tools as steps over many models, and count what becomes of each step.

    python tests/tools/sweep.py models                     every tool on the bundled models
    python tests/tools/sweep.py passes --every 25          every pass of onnxoptimizer on case files and node tests
    python tests/tools/sweep.py tools --every 25           every tool on them

With --idle-first each pass of onnxoptimizer is first called by itself, and only where it changes something, raises or
crashes is it run as a step: of the other models there is nothing to judge.

A step is committed, unchanged, rolled back (a judge saw that the result is wrong) or contained (the tool raised,
crashed or hung, and the run went on). What would be committed is held once more against the original, by onnx's
reference evaluator, without any part of the engine. A difference there, and an error that is none of these, ends the
script with 1.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "wrong_tools")]

import onnx  # noqa: E402
import second_opinion  # noqa: E402
from support import corpus, plain  # noqa: E402

from surgery.engine.bridges.installed_tools import optimizer_passes  # noqa: E402
from surgery.engine.pipeline.candidate import Candidate  # noqa: E402
from surgery.engine.pipeline.pipeline import Pipeline  # noqa: E402
from surgery.engine.recipe.loader import single_step  # noqa: E402
from surgery.model import storage  # noqa: E402
from surgery.model.graph import text  # noqa: E402

Models = Iterable[tuple[str, storage.StoredModel]]
Step = tuple[str, str, dict[str, Any]]
"""What to call a step, its pass, and its options."""

TOOLS: list[Step] = [
    ("onnxoptimizer", "onnxoptimizer", {}),
    ("onnxsim", "onnxsim", {}),
    ("onnxscript-optimize", "onnxscript-optimize", {}),
    ("ort basic", "ort", {"level": "basic"}),
    ("ort extended", "ort", {"level": "extended"}),
    ("ort all", "ort", {"level": "all"}),
    ("ort-transformers", "ort-transformers", {}),
    ("graphsurgeon-fold", "graphsurgeon-fold", {}),
    ("onnx-version-converter", "onnx-version-converter", {"target": 21}),
]
BAD = ("WRONG", "BROKEN")


@dataclass(frozen=True)
class Outcome:
    """What became of one step on one model."""

    model: str
    step: str
    status: str
    message: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.model:48} {self.step:36} {self.status:16} {self.message[:160]}"


def passes() -> list[Step]:
    """List every pass of the installed onnxoptimizer as a step."""
    return [(name, "onnxoptimizer", {"passes": [name]}) for name in optimizer_passes()]


def serve_idle(channel: Connection) -> None:
    """Answer which passes of onnxoptimizer leave a model as it is."""
    import onnxoptimizer

    while True:
        model, names = channel.recv()
        found: list[str] = []
        try:
            parsed = onnx.load_model_from_string(model)
            before = onnxoptimizer.optimize(parsed, ["nop"]).SerializeToString()
            for name in names:
                with suppress(Exception):
                    if onnxoptimizer.optimize(parsed, [name]).SerializeToString() == before:
                        found.append(name)
        finally:
            channel.send(found)


def without_idle(tool: plain.Isolated, model: storage.StoredModel, steps: Sequence[Step]) -> list[Step]:
    """Leave out the passes of onnxoptimizer that have nothing to do; all are kept where one takes the process down."""
    try:
        quiet = set(tool.ask(storage.resolve(model.proto).SerializeToString(), [name for name, *_ in steps]))
    except plain.Crashed:
        return [*steps]
    return [step for step in steps if step[0] not in quiet]


def outcomes(name: str, model: storage.StoredModel, steps: Sequence[Step]) -> Iterator[Outcome]:
    """Try each step on a model by itself."""
    if not steps:
        return
    recipes = [single_step(declared, options, on_failure="rollback") for _, declared, options in steps]
    with closing(Pipeline(model, recipes[0])) as pipeline:
        for (title, *_), recipe in zip(steps, recipes, strict=True):
            started = time.perf_counter()
            try:
                (step,) = recipe.steps
                status, message = judged(pipeline.attempt(step), model)
            except Exception:
                status, message = "BROKEN", traceback.format_exc().splitlines()[-1]
            yield Outcome(name, title, status, message, time.perf_counter() - started)


def judged(attempt: Candidate, model: storage.StoredModel) -> tuple[str, str]:
    """Put what the engine says of an attempt into a word or two, and its reason."""
    if attempt.proto is None:
        return "contained", attempt.complaint
    if not attempt.ok:
        return "rolled back", attempt.complaint
    if not attempt.changed:
        return "unchanged", ""
    assert attempt.verdict is not None
    difference = differs(model, attempt)
    return ("WRONG", difference) if difference else (f"committed {attempt.verdict.status}", "")


def differs(model: storage.StoredModel, attempt: Candidate) -> str:
    """Say how plain ONNX sees that the result is wrong; nothing when it does not, or cannot run one of them."""
    assert attempt.proto is not None
    if sum(storage.payload_bytes(tensor) for tensor in storage.all_tensors(model.proto)) > 1 << 20:
        return ""
    before, after = storage.resolve(model.proto), storage.resolve(attempt.proto)
    try:
        feed = second_opinion.feed(before, {})
        if not second_opinion.repeats(before, feed):
            return ""
        difference = second_opinion.difference(before, after, [feed], _engine(before))
    except (AssertionError, AttributeError, KeyError, TypeError, ValueError):
        return ""
    return "" if re.match(r"\w+(Error|Exception): ", difference) else difference


def _engine(model: onnx.ModelProto) -> str:
    """Choose who gives the second opinion: before opset 14 onnx's evaluator normalizes by statistics of the batch."""
    opset = next((item.version for item in model.opset_import if not item.domain), 0)
    old = opset < 14 and any(node.op_type == "BatchNormalization" for node in model.graph.node)
    return "onnxruntime" if old else "reference"


def bundled() -> Iterator[tuple[str, storage.StoredModel]]:
    """Yield the models of the project."""
    for path in sorted((ROOT / "models").glob("*.onnx")):
        yield path.name, storage.load(path)


def small_models(start: int = 0, every: int = 1) -> Iterator[tuple[str, storage.StoredModel]]:
    """Yield the graphs of the case files and the models of onnx's tests, every so many."""
    sources: list[tuple[str, Any]] = [
        (f"{path.parent.name}/{path.stem}", path) for path in sorted((ROOT / "tests/cases").glob("*/*.onnxtxt"))
    ]
    sources += corpus.models()
    for name, source in sources[start::every]:
        if isinstance(source, bytes):
            yield name, storage.from_proto(onnx.load_model_from_string(source))
        elif source.suffix == ".onnx":
            yield name, storage.load(source)
        else:
            yield name, storage.from_proto(text.parse(source.read_text(encoding="utf-8").partition("\n# after")[0]))


def table(found: Sequence[Outcome]) -> str:
    """Give the counts by step, a line each."""
    counts = Counter((outcome.step, outcome.status) for outcome in found)
    titles = sorted({status for _, status in counts})
    rows = [" " * 40 + "".join(f"{title:>22}" for title in titles)]
    rows += [
        f"{step:40}" + "".join(f"{counts[step, title] or '':>22}" for title in titles)
        for step in [*dict.fromkeys(outcome.step for outcome in found)]
    ]
    return "\n".join([*rows, "all".ljust(40) + "".join(f"{sum(o.status == t for o in found):>22}" for t in titles)])


def sweep(
    models: Models, steps: Sequence[Step], seconds: float, shown: Sequence[str], *, idle_first: bool = False
) -> list[Outcome]:
    """Try all steps on all models, for so long, and show the outcomes that begin with one of these words."""
    found: list[Outcome] = []
    tool = plain.Isolated(serve_idle) if idle_first else None
    started = time.monotonic()
    for name, model in models:
        if time.monotonic() - started > seconds:
            break
        left = without_idle(tool, model, steps) if tool is not None else steps
        found += [Outcome(name, step[0], "idle") for step in steps if step not in left]
        for outcome in outcomes(name, model, left):
            found.append(outcome)
            if outcome.status.startswith(tuple(shown)):
                sys.stdout.write(f"{outcome}\n")
                sys.stdout.flush()
    if tool is not None:
        tool.close()
    return found


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["models", "passes", "tools"])
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take every Nth model")
    parser.add_argument("--start", type=int, default=0, metavar="N", help="begin with this one")
    parser.add_argument("--only", default="", metavar="RE", help="only steps that match")
    parser.add_argument("--seconds", type=float, default=1e9, metavar="N", help="begin with no model after so long")
    parser.add_argument("--idle-first", action="store_true", help="run no pass as a step that has nothing to do")
    arguments = parser.parse_args()
    steps = [step for step in (passes() if arguments.what == "passes" else TOOLS) if re.search(arguments.only, step[0])]
    models = bundled() if arguments.what == "models" else small_models(arguments.start, arguments.every)
    shown = ("",) if arguments.what == "models" else ("contained", "rolled", *BAD)
    found = sweep(models, steps, arguments.seconds, shown, idle_first=arguments.idle_first)
    sys.stdout.write(f"{table(found)}\n{len(found)} steps on {len({o.model for o in found})} models\n")
    return int(any(outcome.status in BAD for outcome in found))


if __name__ == "__main__":
    sys.exit(main())
