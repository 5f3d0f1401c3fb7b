"""Measure the cost and gain of 8-bit quantization on tasks of trained models, against ONNX Runtime's quantizers.

    python benchmarks/tasks.py [--only WORD...] [--drop '0.5 %'] [--cache FOLDER] [--show]

`suite/task_list.py` lists the tasks: a model of `trained.jsonl`, synthetic data, and a metric. Three data sets are
drawn separately: for calibration, for the budget of the metric (evaluation), and for the figures shown (test), which no
tool has seen. surgery runs the steps of the recipe that fits the model's kind, with the metric as its budget.
`quantize_static` and `quantize_dynamic` of ONNX Runtime run with their defaults on the original model, with the same
calibration data. onnxsim has no quantizers. Speed is relative to the float model: the median of the ratios per round,
in which all variants run alternately, on one thread with all optimizations of ONNX Runtime. Rows are appended to a JSON
Lines file as they are measured; existing rows are not measured again. Needs Pillow.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from suite import packages, task_metrics
from suite.latency import session
from suite.task_list import TASKS, Task

_CACHE = Path.home() / ".cache" / "surgery"
_METRICS = Path(task_metrics.__file__)
_SEEDS = {"calibration": 1, "evaluation": 2, "test": 3}
_VARIANTS = ("surgery", "ort static", "ort dynamic")
_ROUNDS, _SECONDS = (8, 200), 8.0
_PRODUCTS = ("Conv", "FusedConv", "ConvTranspose", "MatMul", "FusedMatMul", "Gemm", "FusedGemm")
_DOMINATED = 0.75
"""The share of time spent in products from which a model counts as dominated by them."""

Row = dict[str, Any]


def parser() -> argparse.ArgumentParser:
    """Return the argument parser."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", nargs="+", metavar="WORD", help="models whose name contains a WORD")
    p.add_argument("--drop", default="0.5 %", help="how much of the metric may be lost (default: 0.5 %%)")
    p.add_argument("--trained", type=Path, default=_CACHE / "trained", metavar="FOLDER", help="the models")
    p.add_argument("--cache", type=Path, default=_CACHE / "tasks", metavar="FOLDER", help="data, results and rows")
    p.add_argument("--timeout", type=float, default=1800.0, help="seconds for one tool on one model (default: 1800)")
    p.add_argument("--again", action="store_true", help="measure everything anew")
    p.add_argument("--show", action="store_true", help="run nothing: show the rows that there are")
    return p


def main() -> int:
    """Measure the selected tasks and print their rows; return 1 if surgery's metric drops by more than 0.5 %."""
    arguments = parser().parse_args()
    arguments.cache.mkdir(parents=True, exist_ok=True)
    file = arguments.cache / "rows.jsonl"
    rows = {row["model"]: row for row in map(json.loads, file.read_text().splitlines())} if file.is_file() else {}
    words = arguments.only or [""]
    wanted = list(dict.fromkeys(task for word in words for task in TASKS if word in task.model))
    if not arguments.show:
        models = {one.name: one for one in packages.read()}
        packages.provide([models[task.model] for task in wanted], arguments.trained)
        for task in wanted:
            if task.model in rows and not arguments.again:
                continue
            row = Bench(task, models[task.model].path(arguments.trained), arguments).row()
            rows[task.model] = row
            with file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(row) + "\n")
            print("\n".join(_lines(row)), flush=True)
    found = [rows[task.model] for task in wanted if task.model in rows]
    for row in found:
        row["products"] = products(row["model"], arguments)
    print("\n".join(table(found)))
    return int(any(row["variants"]["surgery"].get("drop", math.inf) > 0.005 for row in found))


class Bench:
    """One task: its data, the models of the tools, and their measurements."""

    def __init__(self, task: Task, model: Path, arguments: argparse.Namespace) -> None:
        self.task, self.model, self.arguments = task, model, arguments
        self.folder = _folder(task.model, arguments.cache)
        self.float = session(model, 1)
        self.metric = getattr(task_metrics, task.metric)

    def row(self) -> Row:
        """Create the data and all variants, measure them together, and return the row."""
        if self.arguments.again:
            shutil.rmtree(self.folder, ignore_errors=True)
        data = {name: self._data(name, seed) for name, seed in _SEEDS.items()}
        outputs = [_run(self.float, one) for one in data["test"]]
        row: Row = {
            "model": self.task.model,
            "about": self.task.about,
            "way": self.task.way,
            "metric": self.task.metric,
        }
        row |= {"float": self.metric(outputs, data["test"]), "variants": {}}
        sides = {"float": self.float}
        for variant in _VARIANTS:
            target = self.folder / f"{variant.replace(' ', '-')}.onnx"
            started = time.perf_counter()
            report = target.with_suffix(".json")
            if not report.is_file():
                report.write_text(json.dumps(self._made(variant, target)), encoding="utf-8")
            found = json.loads(report.read_text(encoding="utf-8"))
            if target.is_file():
                found |= self._worth(target, data["test"], row["float"], sides, variant)
            found["seconds"] = round(time.perf_counter() - started, 1)
            row["variants"][variant] = found
        for variant, speed in _speeds(sides, data["test"][0]).items():
            row["variants"][variant]["speed"] = speed
        return row

    def _data(self, kind: str, seed: int) -> list[Mapping[str, Any]]:
        """Return the data sets of a kind, drawn if they do not exist."""
        folder = self.folder / kind
        if not folder.is_dir():
            folder.mkdir(parents=True)
            self._draw(folder, kind, seed)
        return [dict(np.load(path)) for path in sorted(folder.iterdir())]

    def _draw(self, folder: Path, kind: str, seed: int) -> None:
        """Draw data sets and write them to a folder."""
        random = np.random.default_rng([seed, len(self.task.model)])
        for number in range(self.task.sets * (2 if kind == "test" else 1)):
            one = self.task.make(random, self.model)
            if self.task.label is not None:
                one["label"] = self.task.label(_run(self.float, one))
            names = {item.name for item in self.float.get_inputs()}
            kept = {name: value for name, value in one.items() if kind != "calibration" or name in names}
            np.savez(folder / f"{number}.npz", **kept)

    def _made(self, variant: str, target: Path) -> Row:
        """Write the model of a tool; return its report, or the failure."""
        if variant == "surgery":
            return self._surgery(target)
        code = "from tasks import quantize; quantize(*__import__('sys').argv[1:])"
        command = [sys.executable, "-c", code, variant, self.model, target, self.folder / "calibration"]
        said = self._call(command, Path(__file__).parent)
        return {} if target.is_file() else {"failure": (said.splitlines() or ["no reason given"])[-1][:200]}

    def _surgery(self, target: Path) -> Row:
        recipe, report = self.folder / "recipe.yaml", self.folder / "report.txt"
        static = self.task.way == "quantize-static"
        recipe.write_text(
            f"recipe: task\non_failure: bisect\nsteps:\n  - use: {'int8' if static else 'int8-dynamic'}\n",
            encoding="utf-8",
        )
        flags = ["--metric", f"{_METRICS}:{self.task.metric}", "--drop", self.arguments.drop, "--format", "json"]
        data = ["--evaluation", self.folder / "evaluation", "--calibration", self.folder / "calibration"]
        command = [sys.executable, "-m", "surgery", "apply", recipe, self.model, "-o", target, *flags, *data]
        said = self._call(command, self.folder)
        report.write_text(said, encoding="utf-8")
        try:
            steps = json.loads(said[said.index("{") : said.rindex("}") + 1])["steps"]
        except (ValueError, KeyError):
            return {"failure": (said.splitlines() or ["no reason given"])[-1][:200]}
        last = next((step for step in steps if step["pass"] == self.task.way), steps[-1])
        sites = {"sites": last["sites"], "kept": len(last["kept"]), "status": last["status"]}
        return sites if target.is_file() else {**sites, "failure": last["message"][:200]}

    def _call(self, command: list[Any], folder: Path) -> str:
        try:
            done = subprocess.run(
                list(map(str, command)),
                capture_output=True,
                text=True,
                check=False,
                cwd=folder,
                timeout=self.arguments.timeout,
            )
        except subprocess.TimeoutExpired:
            return f"took more than {self.arguments.timeout:g} s"
        return done.stdout or done.stderr

    def _worth(
        self, target: Path, test: list[Mapping[str, Any]], reference: float, sides: dict[str, Any], variant: str
    ) -> Row:
        """Measure the metric of a variant on the test data, which no tool has seen."""
        try:
            made = session(target, 1)
            value = self.metric([_run(made, one) for one in test], test)
        except Exception as error:
            return {"failure": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
        sides[variant] = made
        return {"metric": value, "drop": (reference - value) / abs(reference) if reference else math.nan}


def products(name: str, arguments: argparse.Namespace) -> float:
    """Return the share of the float model's time spent in products, from a profile on one thread."""
    import onnxruntime as ort

    folder = _folder(name, arguments.cache)
    data = dict(np.load(folder / "test" / "0.npz"))
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.enable_profiling = 1, True
    options.log_severity_level, options.profile_file_prefix = 4, str(folder / "profile")
    path = next(one for one in packages.read() if one.name == name).path(arguments.trained)
    model = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    for _ in range(_ROUNDS[0]):
        _run(model, data)
    profile = Path(model.end_profiling())
    took: dict[str, float] = {}
    for event in json.loads(profile.read_text()):
        if event.get("cat") == "Node":
            kind = event["args"]["op_name"]
            took[kind] = took.get(kind, 0.0) + event["dur"]
    profile.unlink()
    return sum(took.get(kind, 0.0) for kind in _PRODUCTS) / max(1e-9, sum(took.values()))


def _folder(name: str, cache: Path) -> Path:
    return cache / name.replace("/", "-").replace("%", "")


def quantize(variant: str, model: str, target: str, folder: str) -> None:
    """Quantize with ONNX Runtime, at its defaults."""
    # Its modules import `float16` as a top-level module, which must not be a file of this folder.
    sys.path.remove("")
    from onnxruntime.quantization import CalibrationDataReader, quantize_dynamic, quantize_static

    if variant == "ort dynamic":
        quantize_dynamic(model, target)
        return
    names = {item.name for item in session(Path(model), 1).get_inputs()}

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.sets = (dict(np.load(path)) for path in sorted(Path(folder).iterdir()))

        def get_next(self) -> dict[str, Any] | None:
            found = next(self.sets, None)
            return None if found is None else {name: found[name] for name in names}

    quantize_static(model, target, Reader())


def _run(model: Any, data: Mapping[str, Any]) -> dict[str, Any]:
    feed = {item.name: data[item.name] for item in model.get_inputs()}
    return dict(zip([item.name for item in model.get_outputs()], model.run(None, feed)))


def _speeds(sides: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, float]:
    """Return the speed of each variant relative to the float model: the median of the ratios per round."""
    names, times = list(sides), []
    for _ in range(2):
        for side in sides.values():
            _run(side, data)
    end = time.perf_counter() + _SECONDS
    while len(times) < _ROUNDS[0] or (time.perf_counter() < end and len(times) < _ROUNDS[1]):
        took = {}
        for name in names if len(times) % 2 else names[::-1]:
            begin = time.perf_counter()
            _run(sides[name], data)
            took[name] = time.perf_counter() - begin
        times.append(took)
    return {name: statistics.median(one["float"] / one[name] for one in times) for name in names if name != "float"}


def _cell(row: Row, variant: str) -> str:
    found = row["variants"].get(variant, {})
    if "metric" not in found:
        return "none"
    return f"{found['metric']:.4f}, {found.get('speed', math.nan):.2f} x"


def _lines(row: Row) -> list[str]:
    made = row["variants"]["surgery"]
    sites = f"{made.get('sites', 0)} sites, {made.get('kept', 0)} kept in float"
    share = f"{row['products']:.0%}" if "products" in row else "-"
    cells = [share, f"{row['float']:.4f}", *(_cell(row, variant) for variant in _VARIANTS)]
    held = f"{made['drop']:+.2%}" if "drop" in made else "-"
    lines = [f"| {row['model']} | {row['about']} | {' | '.join(cells)} | {held} | {sites} |"]
    return lines + [f"  {name}: {one['failure']}" for name, one in row["variants"].items() if "failure" in one]


def table(rows: list[Row]) -> list[str]:
    """Format the table and the geometric means of speed."""
    head = ["model", "task", "in products", "float", *_VARIANTS, "drop of surgery's", "sites"]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *(line for row in rows for line in _lines(row))]
    for what, chosen in (
        ("all", rows),
        ("those dominated by products", [row for row in rows if row["products"] >= _DOMINATED]),
    ):
        means = []
        for variant in _VARIANTS:
            speeds = [row["variants"][variant]["speed"] for row in chosen if "speed" in row["variants"][variant]]
            mean = math.exp(statistics.fmean(map(math.log, speeds))) if speeds else math.nan
            held = sum(row["variants"][variant].get("drop", math.inf) <= 0.005 for row in chosen)
            means.append(f"{variant} {mean:.2f} x, {held} of {len(chosen)} within 0.5 %")
        lines.append(f"{what}: {'; '.join(means)}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
