"""Choose the rewrites of the suite: propose many, keep those that are seen to be wrong.

    python tests/mutation/choose.py

What was proposed and is not seen to be wrong goes to `equivalent.txt`. Nothing of `surgery.verification` is asked.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from mutation import handmade, sources, suite
from mutation.draft import Unfit
from mutation.kinds import KINDS
from mutation.suite import HAND, Mutant
from mutation.witness import Child, Witness

PER_KIND = {"bundled": 10, "case": 3, "node": 5, "data": 2}
TRIES = 30
EQUIVALENT = Path(__file__).parent / "equivalent.txt"


def proposals(group: str) -> Iterator[tuple[str, list[Mutant]]]:
    """Yield for each kind and group of sources the mutants to try, in order."""
    listed = defaultdict(list)
    for name in sources.names():
        listed[{"bundled": "bundled", "case": "case", "node": "node"}.get(name.partition("/")[0], "data")].append(name)
    for kind in KINDS.values():
        order = sorted(listed[group], key=lambda name, kind=kind: zlib.crc32(f"{kind.name}{name}".encode()))
        yield (
            kind.name,
            [
                Mutant(kind.promises[number % len(kind.promises)], seed, name, kind.name)
                for seed in range(3 if group == "bundled" else 2)
                for number, name in enumerate(order)
            ],
        )


def by_hand(child: Child) -> Iterator[Mutant]:
    """Yield the pairs written by hand; those about chance, and what is wrong by construction, need no witness."""
    for name, pair in handmade.WRONG.items():
        mutant = Mutant(pair.promise, 0, f"wrong/{name}", HAND)
        if name in handmade.CHANCE:
            yield Mutant(*_fields(mutant), "another distribution")
            continue
        witness = Witness(mutant.source, child)
        yield Mutant(*_fields(mutant), witness.wrong(pair.changed().SerializeToString(), pair.promise))


def _fields(mutant: Mutant) -> tuple[str, int, str, str]:
    return mutant.promise, mutant.seed, mutant.source, mutant.kind


def examine(mutant: Mutant, witnesses: dict[str, Witness], child: Child) -> str | None:
    """Say how a mutant is seen to be wrong, "" when it is not; None when there is none to speak of."""
    try:
        model = mutant.build()
    except Unfit:
        return None
    original = sources.base(mutant.source)
    if model.SerializeToString(deterministic=True) == original.SerializeToString(deterministic=True):
        return None
    if KINDS[mutant.kind].invalid:
        return "the interface"
    if mutant.source not in witnesses:
        witnesses[mutant.source] = Witness(mutant.source, child)
    witness = witnesses[mutant.source]
    if witness.problem or not witness.feeds or not witness.steady:
        return None
    seen = witness.wrong(model.SerializeToString(), mutant.promise)
    # A model that does not run anywhere is found by anyone.
    return None if seen == "invalid" else seen


def main() -> None:
    """Choose, and write both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    child = Child()
    good: list[Mutant] = []
    bad: list[Mutant] = []
    for mutant in by_hand(child):
        (good if mutant.seen not in ("", "invalid") else bad).append(mutant)
    witnesses: dict[str, Witness] = {}
    for group in ("bundled", "case", "node", "data"):
        for name, mutants in proposals(group):
            kept, tried, used = 0, 0, Counter[str]()
            limit = PER_KIND[group]
            for mutant in mutants:
                if kept == limit or tried == TRIES or (group == "bundled" and used[mutant.source]):
                    continue
                seen = examine(mutant, witnesses, child)
                if seen is None:
                    continue
                tried += 1
                (good if seen else bad).append(Mutant(*_fields(mutant), seen))
                kept += bool(seen)
                used[mutant.source] += bool(seen)
            sys.stdout.write(f"{group}: {name}: {kept} of {tried}\n")
            sys.stdout.flush()
    child.close()
    suite.write(good)
    suite.write(bad, EQUIVALENT)
    sys.stdout.write(f"{len(good)} wrong, {len(bad)} not seen to be wrong\n")


if __name__ == "__main__":
    main()
