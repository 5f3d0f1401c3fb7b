"""Models and recipes for batches: small, so that what takes time is the batch."""

from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path

import onnx

from surgery.engine.batching.events import Executor
from surgery.engine.batching.ledger import LedgerRow
from surgery.engine.batching.model_entry import Entry
from surgery.model.graph import text

IDENTITIES = "g (float[2] x) => (float[2] y) {{ a = Relu(x){more} y = Identity({last}) }}"
RECIPE = "recipe: quick\nsteps: [drop-identity]\n"


def model(identities: int = 1) -> onnx.ModelProto:
    """Return a model of a Relu with so many Identity nodes after it."""
    names = ["a", *(f"i{number}" for number in range(identities - 1))]
    more = "".join(f" {name} = Identity({before})" for before, name in pairwise(names))
    return text.parse(IDENTITIES.format(more=more, last=names[-1]))


def write(folder: Path, *names: str) -> Path:
    """Write a model for each name, with more and more Identity nodes, and return the folder."""
    for number, name in enumerate(names, 1):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(model(number), path)
    return folder


def recipe(folder: Path) -> Path:
    """Write a recipe that drops Identity nodes."""
    path = folder / "quick.yaml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


def row(name: str, **values: object) -> LedgerRow:
    """Return a row of a model that is done."""
    known: dict[str, object] = {
        "state": "done",
        "nodes_before": 9,
        "nodes_after": 5,
        "bytes_after": 100,
        "seconds": 1.0,
    }
    return LedgerRow(name, f"/models/{name}", "quick", **{**known, **values})  # type: ignore[arg-type]


def close(executor: Executor, seconds: float = 20.0) -> None:
    """Close an executor; fail if that takes long, because it waits for a thread that does not end."""
    closing = threading.Thread(target=executor.close, daemon=True)
    closing.start()
    closing.join(seconds)
    assert not closing.is_alive()


class Watching:
    """Notes what a batch tells of itself."""

    def __init__(self) -> None:
        self.total = 0
        self.finished: list[str] = []
        self.done_rows: list[LedgerRow] = []
        self.stages: list[tuple[str, str]] = []
        self.losses: list[tuple[str, str, float]] = []
        self.waits: list[str] = []

    def begin(self, total: int, finished: list[LedgerRow]) -> None:
        self.total, self.finished = total, [row.name for row in finished]

    def stage(self, name: str, stage: str) -> None:
        self.stages.append((name, stage))

    def done(self, row: LedgerRow) -> None:
        self.done_rows.append(row)

    def lost(self, name: str, why: str, again: float) -> None:
        self.losses.append((name, why, again))

    def waiting(self, why: str) -> None:
        self.waits.append(why)


def entry(name: str, **values: object) -> Entry:
    """Return an entry with a model of that name."""
    return Entry(name, f"/models/{name}", "quick", **values)  # type: ignore[arg-type]
