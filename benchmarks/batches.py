"""Test disturbed batches: killed at random and resumed, or on a cluster that loses workers; and measure the speed.

    python benchmarks/batches.py corpus FOLDER            write the models of the onnx package into a folder
    python benchmarks/batches.py kills FOLDER --kills 20  kill -9 the command at random moments, and run it again
    python benchmarks/batches.py dask FOLDER --every 30   kill -9 a worker of a LocalCluster of two every 30 seconds
    python benchmarks/batches.py speed FOLDER --sample 60 against a loop of `surgery apply`, interleaved

`kills` and `dask` run an undisturbed batch first, then compare the ledgers (except seconds and attempts) and all files
byte for byte. A model may be started twice only if it was running at a kill. Exit code 1 if anything differs.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
VARYING = ("seconds", "attempts")


def main() -> int:
    """Run one of the experiments."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["corpus", "kills", "dask", "speed"])
    parser.add_argument("models", type=Path)
    parser.add_argument("--recipe", default="default")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--every", type=float, default=30.0, help="seconds between two kills of workers")
    parser.add_argument("--sample", type=int, help="take this many of the models, evenly spread")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--reference", type=Path, help="the output folder of an undisturbed run, made if it is not there"
    )
    arguments = parser.parse_args()
    return {"corpus": corpus, "kills": kills, "dask": dask, "speed": speed}[arguments.what](arguments)


def corpus(arguments: argparse.Namespace) -> int:
    """Write all models of the onnx package's backend tests into a folder."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support import corpus

    count = 0
    for name, model in corpus.models():
        path = arguments.models / (name if name.endswith(".onnx") else f"{name}.onnx")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(model if isinstance(model, bytes) else model.read_bytes())
        count += 1
    print(f"{count} models")
    return 0


def sources(arguments: argparse.Namespace, folder: Path) -> str:
    """Return the source of the batch: the folder of models, or a manifest of a sample."""
    if arguments.sample is None:
        return str(arguments.models)
    paths = sorted(arguments.models.absolute().rglob("*.onnx"))
    chosen = [paths[place * len(paths) // arguments.sample] for place in range(arguments.sample)]
    lines = (f'{{"model": "{path}", "output": "{path.relative_to(arguments.models.absolute())}"}}\n' for path in chosen)
    (folder / "sample.jsonl").write_text("".join(lines))
    return str(folder / "sample.jsonl")


def command(arguments: argparse.Namespace, source: str, out: Path, *more: str) -> list[str]:
    """Return the command line of a batch."""
    return [sys.executable, "-m", "surgery", "batch", arguments.recipe, source, "--out", str(out), "-q", *more]


def rows(out: Path) -> dict[str, dict[str, object]]:
    """Return the rows of a ledger by model name."""
    base = sqlite3.connect(f"file:{out / 'ledger.sqlite'}?mode=ro", uri=True, timeout=30)
    try:
        base.row_factory = sqlite3.Row
        return {row["name"]: dict(row) for row in base.execute("SELECT * FROM models")}
    finally:
        base.close()


def digests(out: Path) -> dict[str, str]:
    """Return the digest of each file of an output folder except the ledger."""
    return {
        str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(out.rglob("*"))
        if path.is_file() and not path.name.startswith("ledger.")
    }


def undisturbed(arguments: argparse.Namespace, source: str, work: Path) -> Path:
    """Run a batch undisturbed; return its output folder."""
    out: Path = arguments.reference or work / "reference"
    started = time.monotonic()
    subprocess.run(command(arguments, source, out, "--jobs", str(arguments.jobs)), check=False)
    print(f"undisturbed: {time.monotonic() - started:.0f} s, {Counter(row['state'] for row in rows(out).values())}")
    return out


def compared(reference: Path, out: Path, in_flight: Counter[str]) -> int:
    """Compare two output folders; return 1 if they differ. `in_flight` counts the kills while a model was running."""
    first, second = rows(reference), rows(out)
    problems = [f"{name} is in one ledger only" for name in sorted(first.keys() ^ second.keys())]
    for name in sorted(first.keys() & second.keys()):
        for column, value in first[name].items():
            if column not in VARYING and second[name][column] != value:
                problems.append(f"{name}, {column}: {value!r} and {second[name][column]!r}")
        begun = int(str(second[name]["attempts"]))
        if begun > 1 + in_flight[name]:
            problems.append(f"{name} was started {begun} times and was in flight {in_flight[name]} times")
    before, after = digests(reference), digests(out)
    problems += [
        f"{name}: other bytes" for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)
    ]
    for problem in problems[:50]:
        print(f"    {problem}")
    again = sum(int(str(row["attempts"])) > 1 for row in second.values())
    print(f"{len(second)} models, {len(after)} files, {again} started more than once, {len(problems)} differences")
    return 1 if problems else 0


def kills(arguments: argparse.Namespace) -> int:
    """Kill the command at random moments and run it again each time, then let it finish and compare."""
    chance = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        source = sources(arguments, work)
        reference = undisturbed(arguments, source, work)
        out, in_flight = work / "killed", Counter[str]()
        # Moments are numbers of finished models: most random times would fall into the few slowest models.
        moments = sorted(chance.uniform(0, len(rows(reference))) for _ in range(arguments.kills))
        for number, moment in enumerate(moments):
            run = subprocess.Popen(command(arguments, source, out, "--jobs", str(arguments.jobs)))
            _begun(run, out, moment)
            time.sleep(chance.uniform(0, 1))
            run.send_signal(signal.SIGKILL)
            code = run.wait()
            found = rows(out)
            in_flight.update(name for name, row in found.items() if row["state"] == "running")
            done = sum(row["state"] in ("done", "failed", "skipped") for row in found.values())
            print(f"kill {number + 1}: exit code {code}, {done} of {len(found)} had ended", flush=True)
        subprocess.run(command(arguments, source, out, "--jobs", str(arguments.jobs)), check=False)
        return compared(reference, out, in_flight)


def _begun(run: subprocess.Popen[bytes], out: Path, ended: float) -> None:
    """Wait until a model is running and at least `ended` models have finished, or until the command exits."""
    while run.poll() is None:
        try:
            states = Counter(row["state"] for row in rows(out).values())
        except sqlite3.Error:
            states = Counter()
        if states["running"] and states["done"] + states["failed"] + states["skipped"] >= ended:
            return
        time.sleep(0.05)


def dask(arguments: argparse.Namespace) -> int:
    """Run on a cluster of two workers and kill one of them periodically; dask starts another."""
    from distributed import LocalCluster

    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        source = sources(arguments, work)
        reference = undisturbed(arguments, source, work)
        out, in_flight, ended = work / "dask", Counter[str](), threading.Event()
        with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
            chance = random.Random(arguments.seed)
            count = 0

            def disturb() -> None:
                nonlocal count
                while not ended.wait(arguments.every):
                    pids = [nanny.pid for nanny in cluster.workers.values() if nanny.pid is not None]
                    if not pids:
                        continue
                    # A model marked running is queued at a worker, running, or finished with its result still in
                    # transit.
                    in_flight.update(name for name, row in rows(out).items() if row["state"] == "running")
                    os.kill(chance.choice(pids), signal.SIGKILL)
                    count += 1

            thread = threading.Thread(target=disturb, daemon=True)
            thread.start()
            more = ("--executor", f"dask:{cluster.scheduler_address}")
            subprocess.run(command(arguments, source, out, *more), check=False)
            ended.set()
            thread.join()
            print(f"{count} workers were killed")
        return compared(reference, out, in_flight)


def speed(arguments: argparse.Namespace) -> int:
    """Compare a batch with a loop of single commands, alternately on three parts of the sample."""
    arguments.sample = arguments.sample or 60
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        sources(arguments, work)
        lines = (work / "sample.jsonl").read_text().splitlines(keepends=True)
        ratios = []
        parts = 3
        for number in range(parts):
            part = lines[number::parts]
            (work / f"{number}.jsonl").write_text("".join(part))
            started = time.monotonic()
            subprocess.run(
                command(arguments, str(work / f"{number}.jsonl"), work / f"b{number}", "--jobs", str(arguments.jobs)),
                check=False,
            )
            batched = time.monotonic() - started
            started = time.monotonic()
            for place, line in enumerate(part):
                model = line.split('"')[3]
                single = [sys.executable, "-m", "surgery", "apply", arguments.recipe, model, "-q"]
                target = work / f"s{number}-{place}.onnx"
                subprocess.run([*single, "-o", str(target)], check=False, capture_output=True)
            alone = time.monotonic() - started
            ratios.append(alone / batched)
            print(f"{len(part)} models: batch {batched:.1f} s, loop {alone:.1f} s, {ratios[-1]:.1f} times", flush=True)
        print(f"median {statistics.median(ratios):.1f} times, with {arguments.jobs} jobs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
