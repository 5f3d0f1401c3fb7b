"""Convert models to float16 by surgery and by other converters, and count what is invalid or wrong.

    python benchmarks/to_float16.py [--only TEXT] [--files FILE...] [--converters NAME...] [--jobs N] [--json FILE]

The models are all those that the onnx package generates or brings, with the inputs that come with them, and any files
named, with drawn inputs. Each is converted by every converter with its inputs and outputs kept float32, checked by the
full checker, loaded and run by ONNX Runtime with and without optimization, and compared with the float32 model. A
result is right where its error, as a norm, is at most that of rounding (see suite/halves.py). Converters that are not
installed are left out.
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
    """Describe the command line."""
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
    """Leave out the converters that are not installed."""
    there = [name for name in names if name not in halves.MODULES or importlib.util.find_spec(halves.MODULES[name])]
    for name in names:
        if name not in there:
            print(f"{name} is not installed", file=sys.stderr)
    return there


def tasks(arguments: argparse.Namespace, folder: Path) -> list[Task]:
    """List what is to be done, after writing the models of the onnx package below a folder."""
    names = [] if arguments.no_corpus else halves.collect(folder)
    files = {name: str(folder / f"{place}.pickle") for place, name in enumerate(names) if arguments.only in name}
    files |= {path.stem: str(path) for path in arguments.files}
    return [(name, file, converter) for name, file in files.items() for converter in installed(arguments.converters)]


class Workers:
    """Processes that judge one model after the other; one that crashes or takes too long is replaced."""

    def __init__(self, waiting: list[Task], jobs: int, timeout: float, rows: Path | None) -> None:
        self._waiting: queue.Queue[Task] = queue.Queue()
        for task in waiting:
            self._waiting.put(task)
        self._timeout = timeout
        self._json = rows
        self.done: list[dict[str, Any]] = []
        self._threads = [threading.Thread(target=self._work) for _ in range(jobs)]

    def run(self) -> list[dict[str, Any]]:
        """Work until nothing is left."""
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
    """Judge the models that are named on stdin; a line of JSON for each."""
    import onnx

    # A module of onnxruntime.transformers imports another one by the name of this file.
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
    """Print how many models came out how, and those that are not right."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        counts[row["converter"]][row["verdict"]] += 1
    for converter, found in counts.items():
        print(f"{converter:28}", "  ".join(f"{verdict} {found[verdict]}" for verdict in halves.ORDER))
    for row in rows:
        if row["converter"] == "to-float16" and halves.ORDER.index(row["verdict"]) > 2:
            print(f"  {row['model']}: {row['verdict']}: {row.get('why', '')}")


def main() -> None:
    """Run it."""
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
