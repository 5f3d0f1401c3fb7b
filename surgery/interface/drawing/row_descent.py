"""Descent: the correspondence of removed and added rows in a step, from its sites and the lineage of nodes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from surgery.interface.drawing.node_data import NodeData
from surgery.interface.drawing.tracked_nodes import ChangedNodes, TrackedNodes
from surgery.interface.drawing.tracking import StateChanges
from surgery.model.graph.state import Site

_MOST = 64
"""Maximum number of links between all nodes of one site; above that, each node is linked once."""


def explain(found: TrackedNodes, step: StateChanges, sites: Sequence[Site], by: str) -> None:
    """Link the removed nodes to those made from them, and record the changes, site by site."""
    _Explanation(found, step, by).run(sites)


class _Explanation:
    """The rows added, removed and altered in a step, by label."""

    def __init__(self, found: TrackedNodes, step: StateChanges, by: str) -> None:
        self.found, self.step, self.by = found, step, by
        self.state = len(found.states)
        self.died, self.born = _by_label(found, step.died), _by_label(found, step.born)
        self.altered = _by_label(found, step.altered)
        for row, old in step.altered.items():
            if old.label != found.rows[row].node.label:
                self.altered[old.label].append(row)
        self.told: set[int] = set()

    def run(self, sites: Sequence[Site]) -> None:
        for site in sites:
            self._site(site)
        left = [row for row in (*self.step.died, *self.step.born, *self.step.altered) if row not in self.told]
        left = [row for row in left if not self.found.rows[row].is_port or row in self.step.altered]
        self._by_lineage(left)
        self._by_name(left)
        self._tell_fates()
        for kind, rows in self._kinds(left).items():
            self._tell(kind, rows)

    def _site(self, site: Site) -> None:
        gone = [row for label in site.removed for row in self._take(self.died, label)]
        come = [row for label in site.added if label for row in self._take(self.born, label)]
        changed = self._take(self.altered, site.anchor) if site.anchor else []
        rows = [*gone, *come, *changed]
        if not rows:
            return
        link(self.found, gone, come or changed)
        self._tell(self._title(gone, come, changed), rows)

    def _take(self, known: dict[str, list[int]], label: str) -> list[int]:
        """Remove and return the first row with a label, as a list; empty if there is none."""
        rows = known.get(label, [])
        return [rows.pop(0)] if rows else []

    def _tell(self, what: str, rows: Sequence[int]) -> None:
        self.told.update(rows)
        self.found.changes.append(ChangedNodes(self.state, what, self.by, tuple(rows)))

    def _title(self, gone: Sequence[int], come: Sequence[int], changed: Sequence[int]) -> str:
        before, after = (_operators(self.found, rows) for rows in (gone, come))
        if gone and come:
            return f"{before} -> {after}"
        edited = _operators(self.found, changed)
        if changed:
            what = f"{edited} altered"
            return f"{before} -> {edited}" if gone else f"{what}; {after} added" if come else what
        return f"{before} removed" if gone else f"{after} added"

    # Links

    def _by_lineage(self, rows: Iterable[int]) -> None:
        """Link the remaining rows, if an added node has an origin in common with a removed one."""
        gone: dict[str, list[int]] = defaultdict(list)
        for row in self.step.died:
            for name in origins(self.found.rows[row].node):
                gone[name].append(row)
        for row in rows:
            if self.found.rows[row].died == -1 and self.found.rows[row].node.lineage is not None:
                before = origins(self.step.altered[row]) if row in self.step.altered else set()
                for name in sorted(origins(self.found.rows[row].node) - before):
                    for old in gone[name][:_MOST]:
                        _note(self.found, old, row)

    def _by_name(self, rows: Iterable[int]) -> None:
        """Link an added node to a removed one with the same name or the same result."""
        gone: dict[str, int] = {}
        for row in self.step.died:
            node = self.found.rows[row].node
            for name in (node.name, *node.outputs):
                gone.setdefault(name, row)
        sources = {old for old, _ in self.found.links}
        for row in rows:
            node = self.found.rows[row].node
            for name in filter(None, (node.name, *node.outputs)):
                old = gone.get(name, row)
                if self.found.rows[row].born == self.state and old not in sources:
                    _note(self.found, old, row)

    def _tell_fates(self) -> None:
        """Set the fate of removed rows without a link; a duplicate is linked to the node that stays."""
        linked = {old for old, _ in self.found.links}
        for row in self.step.died:
            one = self.found.rows[row]
            if row in linked or one.is_port:
                continue
            now, name = self.step.instead.get(row, (None, ""))
            if now is None:
                one.fate = f"constant '{name}' now" if name else "no consumers left"
                continue
            other = self.found.rows[now[0]]
            if other.node.kind == one.node.kind:
                one.fate = f"a duplicate of '{other.node.label}'"
                _note(self.found, row, now[0])
            else:
                one.fate = f"bypassed: its readers read '{name}'"

    def _kinds(self, rows: Iterable[int]) -> dict[str, list[int]]:
        """Group the remaining rows by operator and kind of change."""
        kinds: dict[str, list[int]] = defaultdict(list)
        for row in rows:
            one = self.found.rows[row]
            what = "altered" if row in self.step.altered else "removed" if one.died == self.state else "added"
            kinds[f"{one.node.op} {what}"].append(row)
        return kinds


def link(found: TrackedNodes, gone: Sequence[int], come: Sequence[int]) -> None:
    """Link removed rows to added ones: by common origins if there are any, else all to all, or one to one."""
    if len(gone) * len(come) > _MOST:
        by_origin: dict[str, list[int]] = defaultdict(list)
        for new in come:
            for name in origins(found.rows[new].node):
                by_origin[name].append(new)
        for number, old in enumerate(gone):
            related = [new for name in sorted(origins(found.rows[old].node)) for new in by_origin[name]]
            for new in related[:_MOST] or [come[min(number, len(come) - 1)]]:
                _note(found, old, new)
        return
    for old in gone:
        related = [new for new in come if origins(found.rows[new].node) & origins(found.rows[old].node)]
        for new in related or come:
            _note(found, old, new)


def _note(found: TrackedNodes, old: int, new: int) -> None:
    if old != new:
        found.links[old, new] = None


def origins(node: NodeData) -> set[str]:
    """Return the original nodes of a node: the node itself if no pass made it."""
    if node.lineage is None:
        return {node.label}
    return set(node.lineage.origins)


def _by_label(found: TrackedNodes, rows: Iterable[int]) -> dict[str, list[int]]:
    known: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        if not found.rows[row].is_port:
            known[found.rows[row].node.label].append(row)
    return known


def _operators(found: TrackedNodes, rows: Iterable[int]) -> str:
    counts = Counter(found.rows[row].node.op for row in rows)
    return " + ".join(f"{count} {op}" if count > 1 else op for op, count in counts.items())
