"""Measure the power of the generated inputs: how many wrong models they tell from the right one.

    python tests/power/measure.py [--every N] [--start N] [--kind K] [--model TEXT] [--quiet]

The models are the node tests of onnx, the mutants those of `mutants`, the verdict is that of verification under CLOSE.
A mutant counts when it runs on at least one of the sets of inputs. Prints what was missed, and the share that was
caught of each kind. Exit code 1 when less was caught than must be.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from support import corpus

from power.mutants import KINDS, Mutant, mutants
from surgery.base.promises import Parity
from surgery.model.runtime.engine import Engine
from surgery.verification.verdict.verifier import Verifier

LEAST = {"activation": 0.70, "all": 0.85}
"""The shares that must be caught."""

REFUSED, CAUGHT, MISSED = "refused", "caught", "missed"


@dataclass
class Score:
    """The mutants of one kind by what became of them."""

    by_fate: dict[str, list[Mutant]] = field(default_factory=lambda: defaultdict(list))

    @property
    def ran(self) -> int:
        """How many mutants ran."""
        return len(self.by_fate[CAUGHT]) + len(self.by_fate[MISSED])

    @property
    def share(self) -> float:
        """The share of those that was caught."""
        return len(self.by_fate[CAUGHT]) / max(1, self.ran)

    def __str__(self) -> str:
        return (
            f"{self.ran:>5} mutants ran, {len(self.by_fate[CAUGHT]):>5} caught = {100 * self.share:.1f} %; "
            f"{len(self.by_fate[REFUSED])} more ran on no input"
        )


def scores(models: Iterable[tuple[str, bytes]], kinds: tuple[str, ...] = KINDS) -> dict[str, Score]:
    """Judge the mutants of some models; the scores by kind, and of all."""
    found = {kind: Score() for kind in (*kinds, "all")}
    for name, data in models:
        for mutant, fate in judged(name, data, kinds):
            found[mutant.kind].by_fate[fate].append(mutant)
            found["all"].by_fate[fate].append(mutant)
    return found


def judged(name: str, data: bytes, kinds: tuple[str, ...] = KINDS) -> Iterator[tuple[Mutant, str]]:
    """Yield the mutants of a model with their fates; nothing for a model that has no legal inputs."""
    with closing(Verifier(data)) as verifier:
        verifier.original.prepare()
        if verifier.original.problem is None:
            for mutant in mutants(name, data, kinds):
                yield mutant, _fate(verifier, mutant)


def _fate(verifier: Verifier, mutant: Mutant) -> str:
    verdict = verifier.verify(mutant.model, Parity.CLOSE)
    if verdict.reason == "not-run":
        return REFUSED
    if verdict.status != "different":
        return MISSED
    failed = "fails where" in verdict.message or "rejects the changed" in verdict.message
    return CAUGHT if not failed or _runs(verifier, mutant) else REFUSED


def _runs(verifier: Verifier, mutant: Mutant) -> bool:
    """Return whether a mutant runs on any of the inputs."""
    original = verifier.original
    with closing(Engine(original.engine, 60.0, None, 0)) as engine:
        outcome = engine.run(mutant.model, [run.feed for run in original.runs])
    return outcome.failure is None and any(not isinstance(run, str) for run in outcome.runs)


def lacking(found: Mapping[str, Score]) -> list[str]:
    """Name the kinds of which less was caught than must be."""
    return [kind for kind, least in LEAST.items() if kind in found and found[kind].share < least]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1, help="take every N-th model")
    parser.add_argument("--start", type=int, default=0, help="begin with this model")
    parser.add_argument("--kind", choices=KINDS, action="append", help="only mutants of this kind")
    parser.add_argument("--model", default="", help="only models whose name holds this text")
    parser.add_argument("--quiet", action="store_true", help="do not list the mutants that were missed")
    options = parser.parse_args()
    models = [(name, data) for name, data in corpus.node_models() if options.model in name and isinstance(data, bytes)]
    found = scores(models[options.start :: options.every], tuple(options.kind or KINDS))
    lines = [] if options.quiet else [f"missed: {mutant}" for mutant in found["all"].by_fate[MISSED]]
    lines += [f"{kind:<12}{score}" for kind, score in found.items()]
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if lacking(found) else 0


if __name__ == "__main__":
    sys.exit(main())
