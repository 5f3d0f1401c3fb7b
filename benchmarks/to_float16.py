"""Convert models to float16 with surgery and other converters, and count invalid and wrong results.

    python benchmarks/to_float16.py [--only TEXT] [--files FILE...] [--converters NAME...] [--jobs N] [--json FILE]

The models are all those that the onnx package generates or ships, with their inputs, and any given files, with drawn
inputs. Each is converted with every converter, with its inputs and outputs kept float32. The result is checked with the
full checker, run in ONNX Runtime with and without optimization, and compared with the float32 model. It is right if its
error, as a norm, is at most that of rounding (see suite/halves.py). Converters that are not installed are skipped.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import pickle
import queue
import subprocess
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from suite import feeds, halves

Task = tuple[str, str, str]
"""The name of a model, its file, and a converter."""


def parser() -> argparse.ArgumentParser:
    """Return the argument parser."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", default="", metavar="TEXT", help="only models of the onnx package with this in their name")
    p.add_argument("--files", nargs="*", type=Path, default=[], metavar="FILE", help="more models")
    p.add_argument("--no-corpus", action="store_true", help="only the files")
    p.add_argument("--converters", nargs="*", default=list(halves.CONVERTERS), metavar="NAME")
    p.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    p.add_argument("--timeout", type=float, default=600.0, help="seconds for one conversion (default: 600)")
    p.add_argument("--json", type=Path, metavar="FILE", help="add a line for each model and converter there")
    p.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return p


def installed(names: list[str]) -> list[str]:
    """Return the converters that are installed; print the others."""
    there = [name for name in names if name not in halves.MODULES or importlib.util.find_spec(halves.MODULES[name])]
    for name in names:
        if name not in there:
            print(f"{name} is not installed", file=sys.stderr)
    return there


def tasks(arguments: argparse.Namespace, folder: Path) -> list[Task]:
    """Write the models of the onnx package into a folder; return the conversions to run."""
    names = [] if arguments.no_corpus else halves.collect(folder)
    files = {name: str(folder / f"{place}.pickle") for place, name in enumerate(names) if arguments.only in name}
    files |= {path.stem: str(path) for path in arguments.files}
    return [(name, file, converter) for name, file in files.items() for converter in installed(arguments.converters)]


class Workers:
    """Processes that judge models one at a time; one that crashes or times out is replaced."""

    def __init__(self, waiting: list[Task], jobs: int, timeout: float, rows: Path | None) -> None:
        self._waiting: queue.Queue[Task] = queue.Queue()
        for task in waiting:
            self._waiting.put(task)
        self._timeout = timeout
        self._json = rows
        self.done: list[dict[str, Any]] = []
        self._threads = [threading.Thread(target=self._work) for _ in range(jobs)]

    def run(self) -> list[dict[str, Any]]:
        """Run all conversions; return their rows."""
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()
        return self.done

    def _work(self) -> None:
        process = None
        while True:
            try:
                task = self._waiting.get_nowait()
            except queue.Empty:
                break
            if process is None or process.poll() is not None:
                process = _start()
            answer = self._ask(process, task)
            self.done.append({"model": task[0], "converter": task[2]} | answer)
            if self._json is not None:
                with self._json.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(self.done[-1]) + "\n")
            if len(self.done) % 200 == 0:
                print(f"{len(self.done)} done", file=sys.stderr)
        if process is not None:
            process.kill()

    def _ask(self, process: subprocess.Popen[str], task: Task) -> dict[str, Any]:
        assert process.stdin is not None and process.stdout is not None
        timer = threading.Timer(self._timeout, process.kill)
        timer.start()
        try:
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if not line:
            process.kill()
            process.wait()
            return {"verdict": "crashed", "why": f"ended by {process.returncode}"}
        found: dict[str, Any] = json.loads(line)
        return found


def _start() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, __file__, "--worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def work() -> None:
    """Judge the models named on stdin; print a line of JSON for each."""
    import onnx

    # A module of onnxruntime.transformers imports another as a top-level module, which must not be a file here.
    sys.path[:] = [folder for folder in sys.path if Path(folder) != Path(__file__).resolve().parent]
    answers = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        _, file, converter = json.loads(line)
        if file.endswith(".pickle"):
            data, feed = pickle.loads(Path(file).read_bytes())
            model = onnx.load_from_string(data)
        else:
            model = onnx.load(file)
            feed = feeds.draw(model, feeds.BINDINGS[0] | {"height": 224, "width": 224}, ragged=False, seed=0)
        answers.write(json.dumps(halves.judge(model, feed, converter)) + "\n")
        answers.flush()


def show(rows: list[dict[str, Any]]) -> None:
    """Print the number of models by converter and verdict, and those that `to-float16` does not convert right."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        counts[row["converter"]][row["verdict"]] += 1
    for converter, found in counts.items():
        print(f"{converter:28}", "  ".join(f"{verdict} {found[verdict]}" for verdict in halves.ORDER))
    for row in rows:
        if row["converter"] == "to-float16" and halves.ORDER.index(row["verdict"]) > 2:
            print(f"  {row['model']}: {row['verdict']}: {row.get('why', '')}")


def main() -> None:
    """Run all conversions and print the results."""
    arguments = parser().parse_args()
    if arguments.worker:
        work()
        return
    with tempfile.TemporaryDirectory() as name:
        rows = Workers(tasks(arguments, Path(name)), arguments.jobs, arguments.timeout, arguments.json).run()
    rows.sort(key=lambda row: (row["converter"], row["model"]))
    show(rows)


if __name__ == "__main__":
    main()
