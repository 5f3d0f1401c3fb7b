"""The node differences of `surgery diff`, as changes of rows."""

from __future__ import annotations

from collections.abc import Mapping

from surgery.features.differences.node_differences import REMOVED, Correspondence, ReplacedNodes
from surgery.interface.drawing.row_descent import link
from surgery.interface.drawing.tracked_nodes import Alteration, ChangedNodes, TrackedNodes
from surgery.interface.drawing.tracking import NodeKey
from surgery.model.proto.lineage_entries import LineageEntry

_STATE = 1
"""The state of the second model."""


def key_of(entry: LineageEntry) -> NodeKey:
    """Return the key of the row of a node."""
    return entry.scope, entry.node.name if entry.node is not None else "", tuple(entry.outputs)


def compared(
    found: TrackedNodes, nodes: Correspondence, old: Mapping[NodeKey, int], new: Mapping[NodeKey, int]
) -> None:
    """Record the changes of rows between two models; `old` and `new` map node keys to rows."""
    _DrawnComparison(found, nodes, old, new).run()


class _DrawnComparison:
    def __init__(
        self, found: TrackedNodes, nodes: Correspondence, old: Mapping[NodeKey, int], new: Mapping[NodeKey, int]
    ) -> None:
        self.found, self.nodes = found, nodes
        # Entries are distinguished by identity, because a name may exist in both models.
        self.rows: dict[LineageEntry, int] = {}
        for side, known in (("before", old), ("after", new)):
            for entry in _entries(nodes, side):
                row = known.get(key_of(entry))
                if row is not None:
                    self.rows[entry] = row

    def run(self) -> None:
        for group in self.nodes.groups:
            self._group(group)
        for pair in self.nodes.pairs:
            before, after = self.rows.get(pair.before), self.rows.get(pair.after)
            if before is None or after is None:
                continue
            if before != after:  # it moved to another subgraph
                self.found.links[before, after] = None
                self._change(f"{pair.after.op} moved", f"matched by {pair.how}", (before, after))
            elif pair.changes:
                what = "; ".join(map(str, pair.changes))
                self.found.alterations.append(Alteration(after, _STATE, what))
        for lone in self.nodes.removed:
            fate = "; instead of it: ".join(filter(None, (REMOVED[lone.cause], lone.now)))
            for entry in (lone.entry, *lone.others):
                if entry in self.rows:
                    self.found.rows[self.rows[entry]].fate = (
                        fate if entry is lone.entry else f"went with '{lone.entry}'"
                    )
        for one in self.nodes.happenings():
            rows = dict.fromkeys(self.rows[entry] for entry in one.entries if entry in self.rows)
            self._change(one.change, one.by, tuple(rows))

    def _group(self, group: ReplacedNodes) -> None:
        """Link the removed nodes of a group to the added ones, and record the passes."""
        gone, come = (tuple(self.rows[e] for e in side if e in self.rows) for side in (group.before, group.after))
        link(self.found, gone, come)
        by = ", ".join(group.passes)
        for entry in (*group.before, *group.dropped):
            if entry in self.rows:
                self.found.rows[self.rows[entry]].killer = by
        for entry in (*group.after, *group.brought):
            if entry in self.rows and entry.lineage is not None:
                self.found.rows[self.rows[entry]].maker = ", ".join(entry.lineage.passes)

    def _change(self, what: str, by: str, rows: tuple[int, ...]) -> None:
        if rows:
            self.found.changes.append(ChangedNodes(_STATE, what, by, rows))


def _entries(nodes: Correspondence, side: str) -> list[LineageEntry]:
    """Return all entries of one side."""
    found = [getattr(pair, side) for pair in nodes.pairs]
    more, lone = ("dropped", nodes.removed) if side == "before" else ("brought", nodes.added)
    for group in nodes.groups:
        found += [*getattr(group, side), *getattr(group, more)]
    for one in lone:
        found += [one.entry, *one.others]
    return found
