"""Comparison of two batch runs: the changed models, and the changes for the worse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from surgery.base.json_record import Record
from surgery.engine.batching.ledger import LedgerRow, weakness

What = Literal["broken", "fixed", "missing", "new", "nodes", "bytes", "verdict", "tolerance", "seconds", "contents"]

_LEAST_SECONDS: Final = 0.5
"""Shorter times are not compared, because they depend more on the machine than on the model."""


@dataclass(frozen=True)
class Thresholds:
    """The allowed growth or shrinkage of each number, as a fraction of the previous one, that is not a change."""

    nodes: float = 0.0
    bytes: float = 0.0
    seconds: float = 0.5
    tolerance: float = 1.0


@dataclass(frozen=True)
class ModelChange(Record, keys="name what before after worse=is_worse note"):
    """A change of one model, and whether it is for the worse."""

    name: str
    what: What
    before: Any
    after: Any
    is_worse: bool
    note: str = ""


@dataclass(frozen=True)
class BatchTotals(Record, keys="models nodes bytes seconds:3"):
    """Totals over the models that are done in both runs."""

    models: int
    nodes: tuple[int, int]
    bytes: tuple[int, int]
    seconds: tuple[float, float]


@dataclass(frozen=True)
class CorpusComparison(Record, keys="totals changes"):
    """The differences between two runs. `same` counts the models without any change."""

    before: int
    after: int
    same: int
    changes: tuple[ModelChange, ...]
    totals: BatchTotals

    @property
    def worse(self) -> tuple[ModelChange, ...]:
        """The changes for the worse."""
        return tuple(change for change in self.changes if change.is_worse)

    def counts(self) -> dict[str, dict[str, int]]:
        """Return, for each kind of change, the number of changes for the worse and of others."""
        found: dict[str, dict[str, int]] = {}
        for change in self.changes:
            kind = found.setdefault(change.what, {"worse": 0, "other": 0})
            kind["worse" if change.is_worse else "other"] += 1
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the JSON document of `surgery corpus`."""
        sizes = {"before": self.before, "after": self.after, "same": self.same, "worse": len(self.worse)}
        return {"format_version": 1, **sizes, "counts": self.counts(), **super().to_json()}


def compare(
    before: Sequence[LedgerRow], after: Sequence[LedgerRow], thresholds: Thresholds | None = None
) -> CorpusComparison:
    """Compare two runs, model by model. Models are matched by the name of their output."""
    allowed = thresholds or Thresholds()
    old, new = {row.name: row for row in before}, {row.name: row for row in after}
    changes: list[ModelChange] = []
    same = 0
    for name in sorted({*old, *new}):
        found = list(_changes(name, old.get(name), new.get(name), allowed))
        same += not found
        changes += found
    both = [(old[name], new[name]) for name in old if name in new and old[name].state == new[name].state == "done"]
    return CorpusComparison(len(old), len(new), same, tuple(changes), _totals(both))


def _totals(both: Sequence[tuple[LedgerRow, LedgerRow]]) -> BatchTotals:
    def sums(name: str) -> Any:
        return tuple(sum(getattr(pair[side], name) or 0 for pair in both) for side in (0, 1))

    return BatchTotals(len(both), sums("nodes_after"), sums("bytes_after"), sums("seconds"))


def _changes(name: str, old: LedgerRow | None, new: LedgerRow | None, allowed: Thresholds) -> Iterator[ModelChange]:
    if old is None or new is None:
        yield from _one_sided(name, old, new)
        return
    if old.state != new.state:
        yield _state(old, new)
    if old.state == new.state == "failed" and (old.kind, old.stage) != (new.kind, new.stage):
        yield ModelChange(name, "verdict", _failure(old), _failure(new), False, new.reason)
    if not old.state == new.state == "done":
        return
    yield from _sizes(old, new, allowed)
    if old.verdict != new.verdict:
        yield ModelChange(name, "verdict", old.verdict, new.verdict, weakness(new.verdict) > weakness(old.verdict))
    yield from _numbers(old, new, allowed)
    if old.input_sha256 != new.input_sha256:
        yield ModelChange(name, "contents", old.input_sha256, new.input_sha256, False, "the model itself changed")
    elif old.output_sha256 != new.output_sha256 and _sizes_equal(old, new):
        yield ModelChange(name, "contents", old.output_sha256, new.output_sha256, False)


def _one_sided(name: str, old: LedgerRow | None, new: LedgerRow | None) -> Iterator[ModelChange]:
    if new is not None and new.state != "skipped":
        yield ModelChange(name, "new", None, new.state, new.state == "failed", new.reason)
    elif old is not None and old.state != "skipped":
        yield ModelChange(name, "missing", old.state, None, old.state == "done")


def _state(old: LedgerRow, new: LedgerRow) -> ModelChange:
    """Return the change of a state: from done to failed or unfinished is broken, the reverse is fixed."""
    if new.state == "done":
        return ModelChange(new.name, "fixed", old.state, new.state, False, old.reason)
    if old.state == "done":
        return ModelChange(new.name, "broken", old.state, new.state, new.state != "skipped", new.reason)
    return ModelChange(new.name, "verdict", old.state, new.state, False, new.reason)


def _failure(row: LedgerRow) -> str:
    return f"{row.kind} at {row.stage}" if row.stage else row.kind


def _sizes_equal(old: LedgerRow, new: LedgerRow) -> bool:
    return (old.nodes_after, old.bytes_after) == (new.nodes_after, new.bytes_after)


def _sizes(old: LedgerRow, new: LedgerRow, allowed: Thresholds) -> Iterator[ModelChange]:
    pairs: Mapping[What, tuple[int | None, int | None, float]] = {
        "nodes": (old.nodes_after, new.nodes_after, allowed.nodes),
        "bytes": (old.bytes_after, new.bytes_after, allowed.bytes),
    }
    for what, (first, second, share) in pairs.items():
        if first is not None and second is not None and abs(second - first) > share * first:
            yield ModelChange(new.name, what, first, second, second > first)


def _numbers(old: LedgerRow, new: LedgerRow, allowed: Thresholds) -> Iterator[ModelChange]:
    """Yield the changes of values that vary between runs: the used fraction of the tolerance, and time."""
    first, second = old.tolerance, new.tolerance
    if first is not None and second is not None and max(first, second) > 0:
        low = min(first, second)
        if low <= 0 or max(first, second) / low > 1 + allowed.tolerance:
            # Going from one to three hundredths of the tolerance is not for the worse.
            yield ModelChange(new.name, "tolerance", first, second, second > max(first, 0.1))
    before, after = old.seconds or 0.0, new.seconds or 0.0
    if max(before, after) >= _LEAST_SECONDS and abs(after - before) > allowed.seconds * max(before, 1e-9):
        yield ModelChange(new.name, "seconds", before, after, after > before)
