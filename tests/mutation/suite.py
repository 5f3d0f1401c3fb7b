"""The suite: which rewrites it holds, and how a row of it becomes a model.

`suite.txt` has a row for each wrong rewrite: the promise it is judged under, the seed, the source, the kind, and how
`mutation.witness` has seen that it is wrong. `python tests/mutation/choose.py` writes it anew. `survivors.txt` lists
those that verification is known to miss, each with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx

from mutation import handmade, operators, sources, values, wiring
from mutation.draft import Draft
from mutation.kinds import KINDS

FILE = Path(__file__).parent / "suite.txt"
SURVIVORS = Path(__file__).parent / "survivors.txt"
HAND = "by hand"

assert operators and values and wiring  # they fill KINDS


@dataclass(frozen=True)
class Mutant:
    """One wrong rewrite. `seen`: how it was seen to be wrong."""

    promise: str
    seed: int
    source: str
    kind: str
    seen: str = ""

    def build(self) -> onnx.ModelProto:
        """Make the model; always the same one. Raises Unfit when the source has no place for the kind."""
        group, _, rest = self.source.partition("/")
        if group == "wrong":
            return handmade.WRONG[rest].changed()
        draft = Draft(sources.base(self.source), sources.types(self.source), self.seed, self.kind, self.source)
        KINDS[self.kind].edit(draft)
        return draft.model

    def __str__(self) -> str:
        return f"{self.kind} | {self.source} | seed {self.seed} | {self.promise}"


def read() -> list[Mutant]:
    """Read the suite."""
    rows = [line.split(" | ") for line in FILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return [Mutant(promise, int(seed), source, kind, seen) for promise, seed, source, kind, seen in rows]


def survivors() -> dict[str, str]:
    """Read what is known to be missed, with the reasons."""
    lines = SURVIVORS.read_text(encoding="utf-8").splitlines()
    rows = [line.rpartition(" | ") for line in lines if line and not line.startswith("#")]
    return {mutant: reason for mutant, _, reason in rows}


def write(mutants: list[Mutant], path: Path = FILE) -> None:
    """Write the suite, or with another path what is not in it."""
    lines = ["# promise | seed | source | kind | how it is seen to be wrong"]
    if path != FILE:
        lines = ["# Not seen to be wrong by mutation.witness, and so not in the suite: promise | seed | source | kind"]
    lines += [" | ".join([m.promise, str(m.seed), m.source, m.kind, *([m.seen] if m.seen else [])]) for m in mutants]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
