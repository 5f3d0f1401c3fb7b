"""Count the nodes that ONNX Runtime, its optimizer script and surgery leave to execute, and find wrong results.

    python benchmarks/runtime_nodes.py MODEL... [--recipes default ort] [--check] [--thorough]

The nodes of each model are counted in the original, at ONNX Runtime's extended level (saved offline), after
`onnxruntime.transformers.optimizer` with the model type that leaves the fewest nodes, and after `surgery apply` with
each recipe. A configuration of the optimizer counts if ONNX Runtime loads its result and, with `--check`, if that is
right. All model types are tried with the heads and the width of the model (`--heads`, else `suite/heads.py`), then the
best three with the other settings: guessed sizes, and level 0 or 1. `--thorough` tries every setting of every type;
`--quick` and `--types` try fewer. The optimizer needs torch for most types.

Attentions are softmaxes that are still between two matrix products, and attention operators. `--check` compares the
results with the raw model (`suite/padded.py`). The results of the peers are cached in a folder, by the model's hash.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import importlib.metadata
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from suite import cores, heads, process
from suite.optimizer import Way, kinds

_CACHE = Path.home() / ".cache" / "surgery" / "runtime-nodes"
_BEST = 3
EXTENDED, OPTIMIZER = "ORT extended", "optimizer"

Row = dict[str, Any]


def parser() -> argparse.ArgumentParser:
    """Return the argument parser."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="*", type=Path, metavar="MODEL", help="model files")
    p.add_argument("--recipes", nargs="*", default=["default"], metavar="RECIPE", help="for surgery (default: default)")
    p.add_argument("--check", action="store_true", help="compare the outputs of all that came out with the raw model's")
    p.add_argument("--thorough", action="store_true", help="try every setting of every model type")
    p.add_argument("--types", nargs="+", metavar="TYPE", help="model types of the optimizer to try (default: all)")
    p.add_argument("--quick", action="store_true", help="leave the other settings of the best types out")
    p.add_argument("--heads", metavar="HEADSxWIDTH", help="what the optimizer is told, such as 12x768")
    p.add_argument("--timeout", type=float, default=300.0, help="seconds for one way of the optimizer (default: 300)")
    p.add_argument("--surgery-timeout", type=float, default=1800.0, help="seconds for surgery (default: 1800)")
    p.add_argument("--python", default=sys.executable, help="with torch, which the optimizer needs (default: this one)")
    p.add_argument("--cache", type=Path, default=_CACHE, metavar="FOLDER", help=f"what is kept (default: {_CACHE})")
    p.add_argument("--reuse", action="store_true", help="take surgery's results from the cache too")
    p.add_argument("--show", action="store_true", help="run nothing: show all rows of the cache")
    return p


def main() -> int:
    """Measure and print; return 1 if surgery is wrong or a recipe leaves more nodes than the better peer."""
    arguments = parser().parse_args()
    rows = []
    if arguments.show:
        kept = [json.loads(file.read_text()) for file in sorted(arguments.cache.glob("*.json"))]
        rows = [{**row, OPTIMIZER: best(row["ways"])} for row in kept if EXTENDED in row]
    for path in arguments.models:
        rows.append(Bench(path.resolve(), arguments).row())
        print(_line(rows[-1], arguments.recipes), file=sys.stderr, flush=True)
    print("\n".join(table(rows, arguments.recipes)))
    return int(any(_faulty(row, recipe) for row in rows for recipe in arguments.recipes))


class Bench:
    """One model, and the results of the tools on it."""

    def __init__(self, path: Path, arguments: argparse.Namespace) -> None:
        self.path, self.arguments = path, arguments
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        arguments.cache.mkdir(parents=True, exist_ok=True)
        self.file = arguments.cache / f"{path.stem}-{digest[:12]}.json"
        self.runtime = importlib.metadata.version("onnxruntime")
        self.kept: Row = json.loads(self.file.read_text()) if self.file.is_file() else {}
        if self.kept.get("runtime") != self.runtime:
            self.kept = {}
        given = arguments.heads.split("x") if arguments.heads else heads.of(path)
        self.heads, self.width = map(int, given)

    def row(self) -> Row:
        """Return all figures of the model."""
        row: Row = {"model": self.path.name, "runtime": self.runtime, "raw": cores.of(self.path)}
        row["ways"] = self.kept.get("ways", {})
        row["surgery"] = self.kept.get("surgery", {})
        with tempfile.TemporaryDirectory() as folder:
            self.folder = Path(folder)
            row[EXTENDED] = self.kept.get(EXTENDED) or self._extended(row)
            self._search(row)
            for recipe in self.arguments.recipes:
                known = row["surgery"].get(recipe)
                if not (self.arguments.reuse and known and (not self.arguments.check or "check" in known)):
                    row["surgery"][recipe] = self._surgery(recipe)
                    self._save(row)
            if self.arguments.check:
                self._check_peers(row)
            row[OPTIMIZER] = best(row["ways"])
        self._save(row)
        return row

    def _save(self, row: Row) -> None:
        partial = self.file.with_suffix(".part")
        partial.write_text(json.dumps(row, indent=1))
        partial.replace(self.file)

    def _run(self, command: Sequence[object], seconds: float) -> process.Ran:
        return process.run([sys.executable, *map(str, command)], timeout=seconds, folder=self.folder)

    def _extended(self, row: Row) -> Row:
        target = self.folder / "extended.onnx"
        ran = self._run(["-m", "suite.optimize", "ort-extended", self.path, target], self.arguments.timeout)
        return {"failure": ran.failure} if ran.failure else cores.of(target)

    def _search(self, row: Row) -> None:
        """Try configurations of the optimizer: all types first, then the other settings of the best."""
        first = [Way(kind, None, self.heads, self.width) for kind in self.arguments.types or kinds()]
        self._try(row, first)
        if self.arguments.quick:
            return
        ranked = sorted((way for way in first if _counts(row["ways"][way.name])), key=lambda w: _nodes(row, w))
        chosen = first if self.arguments.thorough else ranked[:_BEST]
        self._try(row, [other for way in chosen for other in _variants(way)])

    def _try(self, row: Row, ways: Iterable[Way]) -> None:
        new = [way for way in dict.fromkeys(ways) if way.name not in row["ways"]]
        if not new:
            return
        folder = Path(__file__).resolve().parent
        command = [self.arguments.python, "-m", "suite.optimizer", str(self.path), str(self.arguments.timeout)]
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            text=True,
        ) as run:
            assert run.stdin and run.stdout
            run.stdin.write(json.dumps([asdict(way) for way in new]))
            run.stdin.close()
            for line in run.stdout:
                result = json.loads(line)
                row["ways"][Way(**result["way"]).name] = result
                self._save(row)
        for way in new:
            row["ways"].setdefault(way.name, {"way": asdict(way), "failure": "the process ended"})

    def _surgery(self, recipe: str) -> Row:
        """Apply a recipe; return its figures."""
        given = Path(recipe).resolve() if Path(recipe).is_file() else recipe
        target = self.folder / "surgery.onnx"
        command = ["-m", "surgery", "apply", given, self.path, "-o", target, "--force", "--format", "json"]
        ran = self._run(command, self.arguments.surgery_timeout)
        if not target.is_file():
            return {"failure": ran.failure or "wrote nothing", "seconds": round(ran.seconds, 1)}
        steps = json.loads(ran.output)["steps"]
        left = [step["pass"] for step in steps if step["status"] not in ("committed", "unchanged", "skipped")]
        result = {**cores.of(target), "seconds": round(ran.seconds, 1), "undone": left}
        if self.arguments.check:
            result["check"] = self._checked(target)
        target.unlink()
        return result

    def _check_peers(self, row: Row) -> None:
        """Check the results of the peers; those of the optimizer from the fewest nodes on, until one is right."""
        target = self.folder / "peer.onnx"
        if _counts(row[EXTENDED]) and "check" not in row[EXTENDED]:
            self._run(["-m", "suite.optimize", "ort-extended", self.path, target], self.arguments.timeout)
            row[EXTENDED]["check"] = self._checked(target)
        for result in sorted(filter(_counts, row["ways"].values()), key=lambda one: one["nodes"]):
            if "check" not in result:
                code = "import sys, json; from pathlib import Path; from suite.optimizer import Way, optimize; "
                code += "optimize(Path(sys.argv[1]), Path(sys.argv[2]), Way(**json.loads(sys.argv[3])))"
                command = [self.arguments.python, "-c", code, str(self.path), str(target), json.dumps(result["way"])]
                ran = process.run(command, timeout=self.arguments.timeout, folder=self.folder)
                result["check"] = _not_run(ran.failure) if ran.failure else self._checked(target)
            if not result["check"]["wrong"]:
                return

    def _checked(self, model: Path) -> Row:
        ran = self._run(["-m", "suite.padded", self.path, model], self.arguments.timeout * 4)
        return json.loads(ran.output) if not ran.failure else _not_run(ran.failure)


def _not_run(reason: str) -> Row:
    return {"sets": 1, "wrong": 1, "first": reason}


def _variants(way: Way) -> list[Way]:
    """Return the other settings of a model type."""
    other = 1 if kind_levels()[way.kind] == 0 else 0
    return [Way(way.kind), Way(way.kind, other, way.heads, way.width), Way(way.kind, other)]


@functools.cache
def kind_levels() -> dict[str, int]:
    """Return the default level of each model type."""
    return kinds()


def _counts(result: Row) -> bool:
    return "nodes" in result and "failure" not in result


def _nodes(row: Row, way: Way) -> int:
    return int(row["ways"][way.name]["nodes"])


def best(ways: dict[str, Row]) -> Row:
    """Return the result with the fewest nodes that loads and was not found wrong, with its name added."""
    right = [
        {"name": name, **result}
        for name, result in ways.items()
        if _counts(result) and not result.get("check", {}).get("wrong")
    ]
    return min(right, key=lambda one: one["nodes"], default={"failure": "no model type works"})


def peer(row: Row) -> int | None:
    """Return the node count of the better of the two peers; None if neither has a valid result."""
    counts = [
        row[name]["nodes"]
        for name in (EXTENDED, OPTIMIZER)
        if _counts(row[name]) and not row[name].get("check", {}).get("wrong")
    ]
    return min(counts, default=None)


def ratio(row: Row, recipe: str) -> float | None:
    """Return the node count of a recipe divided by that of the better peer."""
    mine, theirs = row["surgery"].get(recipe, {}).get("nodes"), peer(row)
    return mine / theirs if mine is not None and theirs else None


def _faulty(row: Row, recipe: str) -> bool:
    result, share = row["surgery"].get(recipe, {"failure": "not run"}), ratio(row, recipe)
    return "failure" in result or bool(result.get("check", {}).get("wrong")) or (share is not None and share > 1)


def _cell(result: Row) -> str:
    if "nodes" not in result or "failure" in result:
        return str(result.get("failure", "-"))[:40]
    check = result.get("check")
    mark = f" ({check['wrong']}/{check['sets']} wrong)" if check and check["wrong"] else ""
    return f"{result['nodes']}{mark}"


def _attentions(result: Row) -> str:
    if "nodes" not in result:
        return "-"
    operators = sum(result["fused"].values())
    return f"{result['written']}+{operators}"


def _line(row: Row, recipes: Sequence[str]) -> str:
    mine = ", ".join(f"{recipe} {_cell(row['surgery'].get(recipe, {}))}" for recipe in recipes)
    way = row[OPTIMIZER].get("name", "")
    return (
        f"{row['model']}: raw {row['raw']['nodes']}, extended {_cell(row[EXTENDED])}, "
        f"optimizer {_cell(row[OPTIMIZER])} ({way}), {mine}"
    )


def table(rows: Sequence[Row], recipes: Sequence[str]) -> list[str]:
    """Format the table, the geometric means and the wrong results as Markdown."""
    head = ["model", "raw", EXTENDED, OPTIMIZER, "at type", *recipes, *(f"{name} / peer" for name in recipes)]
    head += [f"attention: {name}" for name in ("raw", EXTENDED, OPTIMIZER, *recipes)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        found = [row["surgery"].get(recipe, {}) for recipe in recipes]
        shares = [ratio(row, recipe) for recipe in recipes]
        cells = [
            row["model"],
            *map(_cell, (row["raw"], row[EXTENDED], row[OPTIMIZER])),
            row[OPTIMIZER].get("name", "-"),
        ]
        cells += [*map(_cell, found), *("-" if share is None else f"{share:.2f}" for share in shares)]
        cells += map(_attentions, (row["raw"], row[EXTENDED], row[OPTIMIZER], *found))
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "Attentions are softmaxes between two products + operators that are an attention.", ""]
    for recipe in recipes:
        known = [share for row in rows if (share := ratio(row, recipe)) is not None]
        if known:
            mean = math.exp(sum(map(math.log, known)) / len(known))
            more = sum(share > 1 for share in known)
            lines.append(
                f"{recipe}: geometric mean {mean:.3f} of the better peer on {len(known)} models, {more} above it"
            )
    return [*lines, *_wrong(rows, recipes)]


def _wrong(rows: Sequence[Row], recipes: Sequence[str]) -> list[str]:
    """List the number of wrong results, and the first difference of each."""
    lines: list[str] = []
    peers = [(EXTENDED, [(row["model"], row[EXTENDED]) for row in rows])]
    peers += [(OPTIMIZER, [(f"{row['model']} {name}", way) for row in rows for name, way in row["ways"].items()])]
    mine = [(recipe, [(row["model"], row["surgery"].get(recipe, {})) for row in rows]) for recipe in recipes]
    for name, results in [*peers, *mine]:
        checked = [(model, result["check"]) for model, result in results if "check" in result]
        bad = [(model, check) for model, check in checked if check["wrong"]]
        if checked:
            lines.append(f"\n{name}: {len(bad)} of {len(checked)} that were compared are wrong")
        lines += [f"- {model}: {check['wrong']} of {check['sets']}, {check['first']}" for model, check in bad]
    return lines


if __name__ == "__main__":
    sys.exit(main())
