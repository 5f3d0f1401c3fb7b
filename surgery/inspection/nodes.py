"""Differences of nodes: which are in both models, which were replaced, removed or added, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from surgery.graph.entries import CONSTANT, Entry
from surgery.inspection.changes import Change
from surgery.inspection.places import place

_MOST = 64
"""Nodes of a group that is found without lineage, above which it is no more than a part of the model that differs."""

How = Literal["name", "structure", "lineage", "value"]

Cause = Literal["dead", "duplicate", "constant", "bypassed", "replaced", "unneeded", "other"]
"""Why a node is gone. Read from the second model to the first, why it is new:

- dead: nothing reads it, and nothing did;
- duplicate: another node computes the same, and that one is in both models;
- constant: its value is a constant;
- bypassed: what read it reads its input;
- replaced: what read it reads something else that is known;
- unneeded: all that read it is gone or changed too;
- other: not known.
"""


@dataclass(frozen=True)
class Pair:
    """A node that is in both models; `changes` are its attributes and inputs that differ."""

    before: Entry
    after: Entry
    how: How
    changes: tuple[Change, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "before": self.before.to_json(),
            "after": self.after.to_json(),
            "how": self.how,
            "changes": [change.to_json() for change in self.changes],
        }


@dataclass(frozen=True)
class Group:
    """Nodes that became other nodes, or constants.

    `dropped` are the nodes that only these needed and that are gone with them; `brought` came with the new ones.
    """

    before: tuple[Entry, ...]
    after: tuple[Entry, ...]
    how: How
    dropped: tuple[Entry, ...] = ()
    brought: tuple[Entry, ...] = ()

    @property
    def passes(self) -> tuple[str, ...]:
        """The passes that made the nodes, as far as they say."""
        return tuple(dict.fromkeys(name for entry in self.after for name in _passes(entry)))

    @property
    def size(self) -> int:
        """The number of nodes of both sides, and of those that went or came with them."""
        every = (*self.before, *self.after, *self.dropped, *self.brought)
        return sum(entry.op != CONSTANT for entry in every)

    @property
    def tells(self) -> bool:
        """Whether it says what became of each of its nodes: by lineage, or because they are few."""
        return self.how == "lineage" or len(self.before) + len(self.after) <= _MOST

    @property
    def kind(self) -> str:
        """The operators on both sides: "Conv + BatchNormalization -> Conv"."""
        return f"{_operators(self.before)} -> {_operators(self.after)}"

    def __str__(self) -> str:
        return " -> ".join(" + ".join(map(str, side)) for side in (self.before, self.after))

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "before": [entry.to_json() for entry in self.before],
            "after": [entry.to_json() for entry in self.after],
            "dropped": [entry.to_json() for entry in self.dropped],
            "brought": [entry.to_json() for entry in self.brought],
            "passes": list(self.passes),
            "how": self.how,
        }


@dataclass(frozen=True)
class Lone:
    """A node that only one of the models has; `now` says what stands for it in the other, where that is known.

    `others` are the nodes that only it needed, and that are gone, or came, with it. One that is unneeded itself was
    `needed_by` several changes, the first few of which are named.
    """

    entry: Entry
    cause: Cause
    now: str = ""
    others: tuple[Entry, ...] = ()
    needed_by: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            **self.entry.to_json(),
            "cause": self.cause,
            "now": self.now or None,
            "others": [entry.to_json() for entry in self.others],
            "needed_by": list(self.needed_by),
        }

    def __str__(self) -> str:
        needed = f"; needed by {', '.join(dict.fromkeys(self.needed_by))}" if self.needed_by else ""
        return f"{self.entry}{needed}"


@dataclass(frozen=True)
class Kind:
    """Changes of one kind: what happened, by what, and where, as a glob over names of nodes or of modules.

    `examples` are the changes one by one, as text. `others` counts the nodes that only these needed, gone or new too.
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
    """One change: what happened to which operators, by what, and to which nodes, the first of which stands for them.

    `others` counts the nodes that went or came only because of these.
    """

    change: str
    by: str
    entries: tuple[Entry, ...]
    text: str
    others: int = 0


@dataclass(frozen=True)
class Correspondence:
    """How the nodes of two models belong together."""

    pairs: tuple[Pair, ...] = ()
    groups: tuple[Group, ...] = ()
    removed: tuple[Lone, ...] = ()
    added: tuple[Lone, ...] = ()

    @property
    def matched(self) -> dict[str, int]:
        """How many nodes were matched by which sign."""
        return dict(Counter(pair.how for pair in self.pairs if pair.after.op != CONSTANT))

    @property
    def changed(self) -> list[Pair]:
        """The nodes in both models of which an attribute or an input differs."""
        return [pair for pair in self.pairs if pair.changes]

    @property
    def same(self) -> bool:
        """Whether each node of one model is in the other, unchanged but for its name."""
        return not (self.groups or self.removed or self.added or self.changed)

    @property
    def total(self) -> int:
        """The number of nodes that differ: gone, new, or changed; a changed one counts once."""
        lone = sum(1 + len(lone.others) for lone in (*self.removed, *self.added))
        return sum(group.size for group in self.groups) + lone + len(self.changed)

    @property
    def unexplained(self) -> int:
        """How many of the nodes that differ are gone or new for a cause that is not known, or along with such a node.

        That many nodes became many others, because the last of them makes the same value, explains nothing.
        """
        lone = sum(1 + len(lone.others) for lone in (*self.removed, *self.added) if lone.cause == "other")
        return lone + sum(group.size for group in self.groups if not group.tells)

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        """The changes by kind, the most frequent kinds first."""
        found: dict[tuple[str, str], list[Happening]] = {}
        for one in self.happenings():
            found.setdefault((one.change, one.by), []).append(one)
        kinds = [
            Kind(
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
        """Yield each change."""
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

    def to_json(self) -> dict[str, Any]:
        """Return plain values; of the nodes that are the same under the same name only the number."""
        return {
            "matched": self.matched,
            "differing": self.total,
            "unexplained": self.unexplained,
            "kinds": [kind.to_json() for kind in self.kinds],
            "renamed": [pair.to_json() for pair in self.pairs if pair.before.name != pair.after.name],
            "changed": [pair.to_json() for pair in self.changed],
            "groups": [group.to_json() for group in self.groups],
            "removed": [lone.to_json() for lone in self.removed],
            "added": [lone.to_json() for lone in self.added],
        }


REMOVED: dict[Cause, str] = {
    "dead": "nothing read it",
    "duplicate": "a duplicate",
    "constant": "a constant now",
    "bypassed": "bypassed",
    "replaced": "replaced",
    "unneeded": "its readers went or changed",
    "other": "",
}
"""The causes in words."""
_ADDED: dict[Cause, str] = {
    "dead": "nothing reads it",
    "duplicate": "a duplicate",
    "constant": "was a constant",
    "bypassed": "inserted",
    "replaced": "a replacement",
    "unneeded": "for new or changed readers",
    "other": "",
}


def _passes(entry: Entry) -> tuple[str, ...]:
    return entry.lineage.passes if entry.lineage is not None else ()


def _by(entry: Entry, otherwise: str) -> str:
    return ", ".join(_passes(entry)) or otherwise


def _operators(side: Sequence[Entry]) -> str:
    counts = Counter(entry.op for entry in side)
    return " + ".join(f"{count} {op}" if count > 1 else op for op, count in counts.items())
