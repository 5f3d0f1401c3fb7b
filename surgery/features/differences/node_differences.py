"""Differences of nodes: the nodes in both models, and the replaced, removed and added ones with their causes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from surgery.base.json_record import Record
from surgery.features.differences.changes import Change
from surgery.features.differences.name_globs import place
from surgery.model.proto.lineage_entries import CONSTANT, LineageEntry

_MOST = 64
"""Maximum size of a group found without lineage that explains its nodes; a larger one is just a differing region."""

How = Literal["name", "structure", "lineage", "value"]

Cause = Literal["dead", "duplicate", "constant", "bypassed", "replaced", "unneeded", "other"]
"""Why a node was removed or, read from the second model to the first, why it was added:

- dead: nothing reads it, and nothing did before;
- duplicate: another node, which is in both models, computes the same;
- constant: its value is a constant;
- bypassed: its readers read its input instead;
- replaced: its readers read another known value instead;
- unneeded: all of its readers are removed or changed too;
- other: unknown.
"""


@dataclass(frozen=True)
class NodePair(Record):
    """A node that is in both models; `changes` are the differences of its attributes, inputs and outputs."""

    before: LineageEntry
    after: LineageEntry
    how: How
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True)
class ReplacedNodes(Record, keys="before after dropped brought passes how"):
    """Nodes that became other nodes, or constants.

    `dropped` are the nodes that only the old nodes needed, removed with them; `brought` were added with the new nodes.
    """

    before: tuple[LineageEntry, ...]
    after: tuple[LineageEntry, ...]
    how: How
    dropped: tuple[LineageEntry, ...] = ()
    brought: tuple[LineageEntry, ...] = ()

    @property
    def passes(self) -> tuple[str, ...]:
        """The passes that made the new nodes, as far as recorded."""
        return tuple(dict.fromkeys(name for entry in self.after for name in _passes(entry)))

    @property
    def size(self) -> int:
        """The number of nodes on both sides, including those removed or added with them."""
        every = (*self.before, *self.after, *self.dropped, *self.brought)
        return sum(entry.op != CONSTANT for entry in every)

    @property
    def tells(self) -> bool:
        """Whether the group explains each of its nodes: by lineage, or because it is small."""
        return self.how == "lineage" or len(self.before) + len(self.after) <= _MOST

    @property
    def kind(self) -> str:
        """The operators on both sides: "Conv + BatchNormalization -> Conv"."""
        return f"{_operators(self.before)} -> {_operators(self.after)}"

    def __str__(self) -> str:
        return " -> ".join(" + ".join(map(str, side)) for side in (self.before, self.after))


@dataclass(frozen=True)
class Lone(Record, keys="*entry cause now? others needed_by"):
    """A node that only one of the models has; `now` names its replacement in the other model, if known.

    `others` are the nodes that only it needed, removed or added with it. `needed_by` names the first few of the changes
    that needed a node, if it is unneeded because of several.
    """

    entry: LineageEntry
    cause: Cause
    now: str = ""
    others: tuple[LineageEntry, ...] = ()
    needed_by: tuple[str, ...] = ()

    def __str__(self) -> str:
        needed = f"; needed by {', '.join(dict.fromkeys(self.needed_by))}" if self.needed_by else ""
        return f"{self.entry}{needed}"


@dataclass(frozen=True)
class ChangeKind:
    """Changes of one kind: the change, its origin, and its place as a glob over names of nodes or modules.

    `examples` are the individual changes as text. `others` counts the nodes that only these needed, removed or added
    too.
    """

    change: str
    by: str
    where: str
    examples: tuple[str, ...]
    others: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "count": len(self.examples),
            "change": self.change,
            "others": self.others,
            "by": self.by or None,
            "where": self.where or None,
            "example": self.examples[0],
        }


class Happening(NamedTuple):
    """One change: the kind of change, its origin, and the nodes concerned, represented by the first.

    `others` counts the nodes that were removed or added only because of these.
    """

    change: str
    by: str
    entries: tuple[LineageEntry, ...]
    text: str
    others: int = 0


@dataclass(frozen=True)
class Correspondence(Record, keys="matched differing=total unexplained kinds renamed changed groups removed added"):
    """The correspondence of the nodes of two models."""

    pairs: tuple[NodePair, ...] = ()
    groups: tuple[ReplacedNodes, ...] = ()
    removed: tuple[Lone, ...] = ()
    added: tuple[Lone, ...] = ()

    @property
    def matched(self) -> dict[str, int]:
        """The number of matched nodes by sign."""
        return dict(Counter(pair.how for pair in self.pairs if pair.after.op != CONSTANT))

    @property
    def renamed(self) -> list[NodePair]:
        """The nodes in both models that have other names."""
        return [pair for pair in self.pairs if pair.before.name != pair.after.name]

    @property
    def changed(self) -> list[NodePair]:
        """The nodes in both models that have differences."""
        return [pair for pair in self.pairs if pair.changes]

    @property
    def same(self) -> bool:
        """Whether each node of one model is in the other, unchanged except for its name."""
        return not (self.groups or self.removed or self.added or self.changed)

    @property
    def total(self) -> int:
        """The number of nodes that differ: removed, added, or changed; a changed node counts once."""
        lone = sum(1 + len(lone.others) for lone in (*self.removed, *self.added))
        return sum(group.size for group in self.groups) + lone + len(self.changed)

    @property
    def unexplained(self) -> int:
        """The number of nodes that were removed or added for an unknown cause, or along with such a node.

        Large groups count too: if many nodes became many others and only the last value is known to match, nothing is
        explained.
        """
        lone = sum(1 + len(lone.others) for lone in (*self.removed, *self.added) if lone.cause == "other")
        return lone + sum(group.size for group in self.groups if not group.tells)

    @cached_property
    def kinds(self) -> tuple[ChangeKind, ...]:
        """The changes by kind, most frequent first."""
        found: dict[tuple[str, str], list[Happening]] = {}
        for one in self.happenings():
            found.setdefault((one.change, one.by), []).append(one)
        kinds = [
            ChangeKind(
                change,
                by,
                place([one.entries[0] for one in members]),
                tuple(one.text for one in members),
                sum(one.others for one in members),
            )
            for (change, by), members in found.items()
        ]
        return tuple(sorted(kinds, key=lambda kind: -len(kind.examples)))

    def happenings(self) -> Iterator[Happening]:
        """Yield the individual changes."""
        for pair in self.changed:
            what = ", ".join(change.kind for change in pair.changes)
            which = f"{pair.after}: {'; '.join(map(str, pair.changes))}"
            by = _by(pair.after, f"matched by {pair.how}")
            yield Happening(f"{pair.after.op}: {what}", by, (pair.after,), which)
        for group in self.groups:
            by = ", ".join(group.passes) or f"matched by {group.how}"
            more = (*group.dropped, *group.brought)
            yield Happening(group.kind, by, (*group.before, *group.after, *more), str(group), len(more))
        for lone in self.removed:
            now = f"; instead of it: {lone.now}" if lone.now else ""
            entries, others = (lone.entry, *lone.others), len(lone.others)
            yield Happening(f"{lone.entry.op} removed", REMOVED[lone.cause], entries, f"{lone}{now}", others)
        for lone in self.added:
            now = f"; before: {lone.now}" if lone.now else ""
            by = _by(lone.entry, _ADDED[lone.cause])
            entries, others = (lone.entry, *lone.others), len(lone.others)
            yield Happening(f"{lone.entry.op} added", by, entries, f"{lone}{now}", others)


REMOVED: dict[Cause, str] = {
    "dead": "nothing read it",
    "duplicate": "a duplicate",
    "constant": "a constant now",
    "bypassed": "bypassed",
    "replaced": "replaced",
    "unneeded": "its readers went or changed",
    "other": "",
}
"""The causes as text."""
_ADDED: dict[Cause, str] = {
    "dead": "nothing reads it",
    "duplicate": "a duplicate",
    "constant": "was a constant",
    "bypassed": "inserted",
    "replaced": "a replacement",
    "unneeded": "for new or changed readers",
    "other": "",
}


def _passes(entry: LineageEntry) -> tuple[str, ...]:
    return entry.lineage.passes if entry.lineage is not None else ()


def _by(entry: LineageEntry, otherwise: str) -> str:
    return ", ".join(_passes(entry)) or otherwise


def _operators(side: Sequence[LineageEntry]) -> str:
    counts = Counter(entry.op for entry in side)
    return " + ".join(f"{count} {op}" if count > 1 else op for op, count in counts.items())
