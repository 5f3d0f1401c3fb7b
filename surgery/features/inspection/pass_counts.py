"""Descent: which nodes of a model were made by passes, and from which original nodes, read from its metadata."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.base.errors import UsageError
from surgery.base.json_record import Record
from surgery.model import storage
from surgery.model.proto.lineage_entries import CONSTANT, LineageEntry, entries

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class PassCount(Record, keys="pass=name nodes constants"):
    """How many nodes and constants of a model a pass contributed to."""

    name: str
    nodes: int
    constants: int


@dataclass(frozen=True)
class Descent:
    """The result of `surgery inspect --lineage`. `found` has the selected entries: by default, all with a lineage."""

    path: Path | None
    entries: tuple[LineageEntry, ...]
    found: tuple[LineageEntry, ...]

    @property
    def nodes(self) -> int:
        """The number of nodes of all scopes."""
        return sum(entry.node is not None for entry in self.entries)

    @property
    def cut(self) -> int:
        """The number of entries with more origins than are listed."""
        return sum(entry.lineage is not None and entry.lineage.more > 0 for entry in self.entries)

    @property
    def passes(self) -> tuple[PassCount, ...]:
        """The number of found nodes and constants per pass, in the order in which the passes first appear."""
        counts: dict[str, list[int]] = {}
        for entry in self.found:
            for name in entry.lineage.passes if entry.lineage is not None else ():
                counts.setdefault(name, [0, 0])[entry.op == CONSTANT] += 1
        return tuple(PassCount(name, *count) for name, count in counts.items())

    def named(self, name: str) -> Descent:
        """Keep the entries with this name, or with an output of this name; raise UsageError if there are none."""
        found = [entry for entry in self.entries if name == entry.name or (name and name in entry.outputs)]
        if not found:
            known = [entry.name for entry in self.entries]
            close = difflib.get_close_matches(name, known, n=1)
            raise UsageError(
                f"no node '{name}' in {self.path or 'the model'}",
                todo=f"did you mean '{close[0]}'?"
                if close
                else "names are those that 'surgery inspect --lineage' shows",
            )
        return replace(self, found=tuple(found))

    def descendants(self, name: str) -> Descent:
        """Keep the entries that come from the original node with this name.

        A node of this name without a lineage is its own descendant.
        """
        found = [
            entry
            for entry in self.entries
            if (name == entry.name if entry.lineage is None else name in entry.lineage.origins)
        ]
        return replace(self, found=tuple(found))

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "path": str(self.path) if self.path is not None else None,
            "nodes": self.nodes,
            "passes": [count.to_json() for count in self.passes],
            "lineage": [_to_json(entry) for entry in self.found],
            "cut": self.cut,
        }


def _to_json(entry: LineageEntry) -> dict[str, Any]:
    known = entry.lineage
    return {
        **entry.to_json(),
        "passes": list(known.passes) if known is not None else [],
        "from": list(known.origins) if known is not None else [entry.name],
        "more": known.more if known is not None else 0,
    }


def descent(model: str | Path | onnx.ModelProto) -> Descent:
    """Read the lineage from a model file, or from a protobuf message in memory."""
    stored = storage.opened(model)
    everything = tuple(entries(stored.proto))
    return Descent(stored.path, everything, tuple(entry for entry in everything if entry.lineage is not None))
