"""Run recipes over random graphs, and count what becomes of them.

    python tests/random_graphs/measure.py [--count 2000] [--seed 0] [--output FILE] [--batch 25] [--recipe NAME]

A process for each batch of seeds writes a line of JSON for each; what takes it down, or hangs, costs its own seed
only. Run again with the same output, it continues where it was. Each graph gets `default`, every fourth one `modern`
instead, unless a recipe is named. Exit code 1 when a result is wrong, or a model gets none.

A graph counts as unverified when a step of it, or a site of one, was refused because nothing could be shown. What was
refused because the runtime has no kernel for what the step made is counted apart, and so are graphs of which the end
as a whole shows less than the steps did.
"""

from __future__ import annotations

import argparse
import json
import queue
import subprocess
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

PATIENCE = 180.0
"""Seconds that a graph may take before its process is ended."""


def show(line: str = "") -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def recipe_of(seed: int) -> str:
    return "modern" if seed % 4 == 3 else "default"


def batch(seeds: list[int], recipe: str | None, verified: bool) -> None:
    """Judge seeds, here; a line before each and one after."""
    warnings.simplefilter("ignore")
    from random_graphs.generate import generate
    from random_graphs.judge import judge

    for seed in seeds:
        show(json.dumps({"begin": seed}))
        made = generate(seed)
        record: dict[str, Any] = (
            {"status": "dropped"} if made is None else judge(made, recipe or recipe_of(seed), seed, verified=verified)
        )
        show(json.dumps({"seed": seed} | record))


def run_batch(seeds: list[int], recipe: str | None, verified: bool) -> Iterator[dict[str, Any]]:
    """Judge seeds in a process; what it dies of is a record too."""
    left = list(seeds)
    while left:
        command = [sys.executable, __file__, *(["--recipe", recipe] if recipe else [])]
        command += [*([] if verified else ["--unverified"]), "--these", *map(str, left)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=_read, args=(process, lines), daemon=True).start()
        ending = ""
        while True:
            try:
                line = lines.get(timeout=PATIENCE)
            except queue.Empty:
                process.kill()
                ending = f"no answer in {PATIENCE:.0f} s"
                break
            if line is None:
                break
            if "seed" in (record := json.loads(line)):
                left.remove(record["seed"])
                yield record
        code = process.wait()
        if left:
            yield {"seed": left.pop(0), "status": "crash", "what": ending or f"exit code {code}"}


def _read(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put(None)


def summary(records: list[dict[str, Any]]) -> bool:
    """Print the counts, and what is not as it should be; return whether all is."""
    counts = Counter(record["status"] for record in records)
    kept = [record for record in records if record["status"] not in ("dropped", "not run")]
    show(f"{len(records)} seeds, {len(kept)} graphs that the checker and the runtime take: {dict(counts)}")
    bad = [r for r in kept if r["status"] not in ("equal", "close")]
    for record in bad:
        refused = [f"{s['pass']}: {s['verdict']}: {s['message'][:200]}" for s in record.get("refused", [])]
        show(f"  {record['seed']} {record['status']}: {record.get('what', '')[:300]} {refused[-1:] or ''}")
    doubtful = sum(record.get("unverified", False) for record in kept)
    slow = [record["seed"] for record in kept if record.get("slow")]
    refused = Counter(step["pass"] for record in kept for step in record.get("refused", []))
    share = 100 * doubtful / max(len(kept), 1)
    show(f"unverified: {doubtful} ({share:.2f} %): {[record['seed'] for record in kept if record.get('unverified')]}")
    for what in ("no kernel", "internal error"):
        show(f"{what}: {[record['seed'] for record in kept if record.get(what)]}")
    show(f"unverified at the end: {[record['seed'] for record in kept if record.get('end') == 'unverified']}")
    show(f"slow: {slow}; steps refused: {dict(refused.most_common())}")
    show(f"other results at infinities, NaN or huge inputs: {sum(bool(record.get('special')) for record in kept)}")
    show(f"right only with every value rounded: {[record['seed'] for record in kept if record.get('unrounded')]}")
    show(f"elements that the runtime never wrote: {[record['seed'] for record in kept if record.get('unwritten')]}")
    return not bad


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000, help="how many seeds")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--output", type=Path, default=Path("random-graphs.jsonl"), help="records, one on a line")
    parser.add_argument("--batch", type=int, default=25, help="seeds to a process")
    parser.add_argument("--recipe", help="for all graphs (default: `default`, and `modern` for every fourth)")
    parser.add_argument("--unverified", action="store_true", help="run the passes without surgery's own verification")
    parser.add_argument("--these", type=int, nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.these:
        batch(arguments.these, arguments.recipe, not arguments.unverified)
        return 0
    known = {}
    if arguments.output.exists():
        known = {record["seed"]: record for record in map(json.loads, arguments.output.read_text().splitlines())}
    wanted = range(arguments.seed, arguments.seed + arguments.count)
    missing = [seed for seed in wanted if seed not in known]
    for start in range(0, len(missing), arguments.batch):
        with arguments.output.open("a") as file:
            seeds = missing[start : start + arguments.batch]
            for record in run_batch(seeds, arguments.recipe, not arguments.unverified):
                file.write(json.dumps(record) + "\n")
                file.flush()
                known[record["seed"]] = record
    return 0 if summary([known[seed] for seed in wanted if seed in known]) else 1


if __name__ == "__main__":
    sys.exit(main())
