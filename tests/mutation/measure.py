"""Measure the whole verification: how many wrong rewrites it catches, and whether it refuses right ones.

    python tests/mutation/measure.py [--wrong | --right] [--every N] [--kind K] [--full-size]

`--kind` takes kinds whose name contains K. `--full-size` adds each standard pass on each model of
`~/.cache/surgery/models` (or `$SURGERY_CACHE`). Exit code 1 when fewer than 99 % of the wrong ones are caught, or
a right one is refused.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from mutation import check, suite

LEAST = 0.99


def show(line: str = "") -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def wrong(every: int, kind: str) -> bool:
    """Judge the wrong rewrites; print the score of each kind and what was missed."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    missed = []
    for mutant, judgement in check.wrong(every, kind):
        counts[mutant.kind]["caught" if not judgement.accepted else "missed"] += 1
        counts[mutant.kind][judgement.stage] += 1
        if judgement.accepted:
            missed.append((mutant, f"{mutant} ({mutant.seen}): {judgement.stage}: {judgement.message}"))
            show(f"missed: {missed[-1][1]}")
    total, caught = Counter[str](), 0
    show(f"\n{'kind':48} mutants caught missed")
    for name, count in sorted(counts.items()):
        show(f"{name:48} {count['caught'] + count['missed']:7} {count['caught']:6} {count['missed']:6}")
        caught += count["caught"]
        total += count
    mutants = caught + total["missed"]
    stages = {stage: n for stage, n in total.items() if stage not in ("caught", "missed")}
    show(f"\n{mutants} wrong rewrites, {caught} caught: {100 * caught / max(mutants, 1):.2f} %; judged {stages}")
    show("missed:" if missed else "none missed")
    reasons = suite.survivors()
    for mutant, line in missed:
        show(f"  {line}\n    {reasons.get(str(mutant), 'not known before')}")
    return caught >= LEAST * mutants


def right(every: int, kind: str, full_size: bool) -> bool:
    """Judge the right rewrites; print the counts of each group and what was refused."""
    groups: dict[str, Callable[[], Iterator[check.Right]]] = {
        "by hand": check.by_hand,
        "rebuilt": check.rebuilt,
        "case files": check.case_files,
        "passes": check.passes,
    }
    if full_size:
        groups["passes, full size"] = check.full_size
    refused = []
    for name, judged in groups.items():
        if kind not in name:
            continue
        count = Counter[str]()
        with closing(check.sampled(judged(), every)) as items:
            for what, run in items:
                judgement = run()
                if judgement is None:
                    continue
                count[judgement.stage] += 1
                if not judgement.accepted:
                    refused.append(f"{name}: {what}: {judgement.stage}: {judgement.message}")
                    show(f"refused: {refused[-1]}")
        show(f"{name}: {count.total()} right rewrites: {dict(count)}")
    show(f"{len(refused)} refused")
    return not refused


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--wrong", action="store_true", help="the wrong rewrites only")
    which.add_argument("--right", action="store_true", help="the right rewrites only")
    parser.add_argument("--every", type=int, default=1, help="take each N-th only")
    parser.add_argument("--kind", default="", help="take kinds, or groups, whose name contains this")
    parser.add_argument("--full-size", action="store_true", help="the full-size models, too")
    arguments = parser.parse_args()
    good = True
    if not arguments.right:
        good &= wrong(arguments.every, arguments.kind)
    if not arguments.wrong:
        good &= right(arguments.every, arguments.kind, arguments.full_size)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
