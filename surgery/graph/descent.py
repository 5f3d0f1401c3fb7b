"""Descent: which nodes of a model passes made, of which nodes of the original, as the model itself tells."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery import storage
from surgery.errors import UsageError
from surgery.graph.entries import CONSTANT, Entry, entries

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class PassCount:
    """How many nodes and constants of a model a pass had a hand in."""

    name: str
    nodes: int
    constants: int

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"pass": self.name, "nodes": self.nodes, "constants": self.constants}


@dataclass(frozen=True)
class Descent:
    """What `surgery inspect --lineage` tells. `found` are the entries asked for: all that have a lineage by default."""

    path: Path | None
    entries: tuple[Entry, ...]
    found: tuple[Entry, ...]

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
        """Count what is found by pass, in the order in which passes are met."""
        counts: dict[str, list[int]] = {}
        for entry in self.found:
            for name in entry.lineage.passes if entry.lineage is not None else ():
                counts.setdefault(name, [0, 0])[entry.op == CONSTANT] += 1
        return tuple(PassCount(name, *count) for name, count in counts.items())

    def named(self, name: str) -> Descent:
        """Keep what has this name, or makes a value of this name. UsageError when nothing does."""
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
        """Keep what comes from the node of the original with this name.

        A node of this name that no pass touched is its own descendant.
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


def _to_json(entry: Entry) -> dict[str, Any]:
    known = entry.lineage
    return {
        **entry.to_json(),
        "passes": list(known.passes) if known is not None else [],
        "from": list(known.origins) if known is not None else [entry.name],
        "more": known.more if known is not None else 0,
    }


def descent(model: str | Path | onnx.ModelProto) -> Descent:
    """Read the lineage in a model file, or in a message in memory."""
    stored = storage.opened(model)
    everything = tuple(entries(stored.proto))
    return Descent(stored.path, everything, tuple(entry for entry in everything if entry.lineage is not None))
