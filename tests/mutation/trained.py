"""Measure the verification on wrong rewrites of trained models, which `benchmarks/trained.py` downloads.

    python tests/mutation/trained.py --models FOLDER [--each N] [--only WORD...] [--survivors FILE]

Each mutant is a copy of a model with one thing wrong: an activation dropped, an operator swapped, an axis, a bias, a
row of a weight or a table, a scale or a zero point of a quantization changed, a mask dropped. Both go to
`surgery.verification`. Whether a mutant is wrong at all, `mutation.local` says, without surgery. Results are appended
to a file of JSON lines; an interrupted run continues. `--survivors` takes such a file and tries its
survivors again. Exit code 1 when fewer than 99 % of the mutants that are seen to be wrong are caught.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "benchmarks"))

from suite import packages, realistic
from suite.packages import Trained

import surgery
from mutation.draft import Draft, Unfit, infer
from mutation.local import Local, describe
from mutation.trained_kinds import TRAINED
from mutation.witness import Child
from surgery.base.errors import SurgeryError

LEAST = 0.99
_PASSED = ("equal", "close")


@dataclass
class Row:
    """One mutant: where it shows without surgery, and what surgery says."""

    model: str
    kind: str
    seed: int
    change: str
    seen: str
    detail: str
    verdict: str
    message: str
    seconds: float

    @property
    def key(self) -> tuple[str, str, int]:
        return self.model, self.kind, self.seed

    @property
    def is_wrong(self) -> bool:
        return self.seen in ("output", "inside")

    @property
    def survived(self) -> bool:
        return self.verdict in _PASSED


class Source:
    """One trained model, and what is known of it without surgery."""

    def __init__(self, trained: Trained, path: Path, child: Child) -> None:
        self.trained, self.path = trained, path
        self.model = onnx.load(path)
        self.types = infer(self.model)
        hints = {"dims": trained.dims, "inputs": trained.inputs}
        self.local = Local(self.model, [feed for _, feed in realistic.drawn(self.model, hints)][:7], child)

    def mutant(self, kind: str, seed: int) -> onnx.ModelProto | None:
        """Make a mutant; None where the model has no place for it."""
        draft = Draft(self.model, self.types, seed, kind, self.trained.name)
        try:
            TRAINED[kind](draft)
        except (Unfit, IndexError, ValueError):
            return None
        same = draft.model.SerializeToString(deterministic=True) == self.model.SerializeToString(deterministic=True)
        return None if same else draft.model

    def judge(self, kind: str, seed: int) -> Row | None:
        """Make a mutant and put it before surgery; None where there is none, or one that anybody sees to be invalid."""
        model = self.mutant(kind, seed)
        if model is None:
            return None
        seen = self.local.look(model)
        if seen.where == "invalid":
            return None
        begin = time.perf_counter()
        verdict, message = _verdict(self.path, model)
        seconds = round(time.perf_counter() - begin, 1)
        change = describe(self.model, model)
        return Row(self.trained.name, kind, seed, change, seen.where, seen.detail, verdict, message, seconds)


def _verdict(original: Path, mutant: onnx.ModelProto) -> tuple[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "mutant.onnx")
        onnx.save(mutant, path)
        try:
            found = surgery.verify(original, path)
        except SurgeryError as error:
            return "error", str(error)[:300]
        except Exception as error:  # a breakdown is a finding of its own, and no end of the campaign
            return "breakdown", f"{type(error).__name__}: {error}"[:300]
        told = found.to_json()
    status = str(told["verdict"])
    if not found.ok and status in _PASSED:
        status = f"refused, {status}"
    return status, " ".join(f"{told['message']} {'; '.join(told['signature'])}".split())[:400]


def orders(trained: Trained, each: int) -> Iterator[tuple[str, int]]:
    """Yield kinds and seeds to try for a model: every kind once, in an order of its own, then with other seeds."""
    listed = sorted(TRAINED, key=lambda kind: zlib.crc32(f"{trained.name} {kind}".encode()))
    for seed in range(2):
        yield from ((kind, seed) for kind in listed[: max(3 * each, 6)])


def show(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def measure(
    models: list[tuple[Trained, Path]], each: int, seconds: float, results: Path, known: dict[Any, Row]
) -> list[Row]:
    """Judge mutants of each model until there are enough of them, or the time for a model is over."""
    child, rows = Child(), list(known.values())
    for trained, path in models:
        have = sum(row.model == trained.name for row in rows)
        if have >= each:
            continue
        source = Source(trained, path, child)
        if source.local.problem or not source.local.feeds:
            show(f"{trained.name}: does not run: {source.local.problem}")
            continue
        end = time.monotonic() + seconds
        for kind, seed in orders(trained, each):
            if have >= each or time.monotonic() > end:
                break
            if (trained.name, kind, seed) in known:
                continue
            row = source.judge(kind, seed)
            if row is not None:
                have += 1
                rows.append(row)
                _keep(row, results)
    child.close()
    return rows


def again(models: list[tuple[Trained, Path]], survivors: list[Row], results: Path) -> list[Row]:
    """Judge the survivors of another run again."""
    child, rows = Child(), []
    paths = {trained.name: (trained, path) for trained, path in models}
    for name in dict.fromkeys(row.model for row in survivors):
        if name not in paths:
            continue
        source = Source(*paths[name], child)
        for old in survivors:
            row = source.judge(old.kind, old.seed) if old.model == name else None
            if row is not None:
                rows.append(row)
                _keep(row, results)
    child.close()
    return rows


def _keep(row: Row, results: Path) -> None:
    with results.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(row), ensure_ascii=False) + "\n")
    mark = "SURVIVED " if row.survived and row.is_wrong else ""
    show(f"{mark}{row.model} | {row.kind} {row.seed} | {row.seen} {row.detail} | {row.verdict} | {row.seconds} s")


def summary(rows: list[Row]) -> bool:
    """Print the score, and each survivor; say whether it is good enough."""
    wrong = [row for row in rows if row.is_wrong]
    caught = [row for row in wrong if not row.survived]
    places = Counter(row.seen for row in rows)
    show(f"{len(rows)} mutants of {len({row.model for row in rows})} models, shown at {dict(places)}")
    share = 100 * len(caught) / max(len(wrong), 1)
    show(
        f"{len(wrong)} seen to be wrong, {len(caught)} caught: {share:.2f} %; {dict(Counter(r.verdict for r in wrong))}"
    )
    for row in rows:
        if row.survived and row.seen != "nowhere":
            show(f"  {row.seen}: {row.model}, {row.kind} {row.seed}: {row.change}: {row.detail}: {row.verdict}")
    return len(caught) >= LEAST * len(wrong)


def read(path: Path) -> list[Row]:
    """Read results."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [Row(**json.loads(line)) for line in lines]


def main() -> int:
    """Measure and print."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", type=Path, required=True, metavar="FOLDER", help="the cache of benchmarks/trained.py")
    p.add_argument("--each", type=int, default=5, help="mutants for each model (default: 5)")
    p.add_argument("--seconds", type=float, default=1e9, help="go on to the next model after that (default: no limit)")
    p.add_argument("--only", nargs="+", metavar="WORD", help="models whose package, file or kind contains a WORD")
    p.add_argument("--largest", type=float, default=1e9, metavar="BYTES", help="leave larger files out")
    p.add_argument("--results", type=Path, metavar="FILE", help="JSON lines (default: mutants.jsonl in the folder)")
    p.add_argument("--survivors", type=Path, metavar="FILE", help="try the survivors among these results again")
    arguments = p.parse_args()
    words = [word.lower() for word in arguments.only or [""]]
    listed = [(t, t.path(arguments.models)) for t in packages.read()]
    models = [
        (trained, path)
        for trained, path in listed
        if path.is_file() and path.stat().st_size <= arguments.largest
        if any(word in f"{trained.package}/{trained.file} {trained.kind}".lower() for word in words)
    ]
    models.sort(key=lambda item: item[1].stat().st_size)
    results = arguments.results or arguments.models / "mutants.jsonl"
    if arguments.survivors:
        old = [row for row in read(arguments.survivors) if row.survived and row.seen != "nowhere"]
        return 0 if summary(again(models, old, results)) else 1
    known = {row.key: row for row in read(results)}
    return 0 if summary(measure(models, arguments.each, arguments.seconds, results, known)) else 1


if __name__ == "__main__":
    sys.exit(main())
