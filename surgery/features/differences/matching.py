"""Matching the nodes of two models.

Nodes are matched by the most reliable sign first, and each match records its sign:

- *name*: the same operator with the same name, or with a result of the same name, unless each of the two computes
  the same as a node of another name in the other model;
- *structure*: the same operator on the same weights; or with the same attributes on corresponding values, or for
  corresponding readers;
- *lineage*: the second model records which nodes of the first model a node was made from. Nodes with a common origin
  belong to one group;
- *value*: a node computes the value that another operator computed in the first model, or its result is read where
  that value was read. Nodes that only the earlier one needed are part of the group.

The remaining nodes of the first model were removed, and those of the second were added. An untouched node is matched by
name before lineage is used; a stamped one never is, unless the first model has the same stamp on it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any

from surgery.features.differences import node_hashes
from surgery.features.differences.compared_model import Side, Value
from surgery.features.differences.node_differences import How, NodePair, ReplacedNodes
from surgery.features.differences.node_hashes import Numbers
from surgery.model.proto.lineage_entries import LineageEntry


class Matching:
    """The matching of two models. `twins` maps a node to its match, `heirs` a node to the one that replaces it.

    An heir is the only node of the same operator on the other side of a group. Two nodes with equal `computed` numbers
    compute the same.
    """

    def __init__(self, before: Side, after: Side) -> None:
        self.before, self.after = before, after
        self.pairs: list[NodePair] = []
        self.groups: list[ReplacedNodes] = []
        self.twins: dict[LineageEntry, LineageEntry] = {}
        self.heirs: dict[LineageEntry, LineageEntry] = {}
        self.group_of: dict[LineageEntry, ReplacedNodes] = {}
        # From the names of scopes in the second model to their names in the first, and vice versa.
        self._scopes: dict[str, str] = {}
        self._scopes_back: dict[str, str] = {}
        self._by_name()
        self._by_lineage()
        self._by("name", node_hashes.by_name(self.scope_of, stamped=False))
        while self._by_structure() or self._by_place():
            self._by("name", node_hashes.by_name(self.scope_of, stamped=False))
        self._by_value()

    def scope_of(self, scope: str) -> str:
        """Return the name of a scope of the second model in the first model."""
        return self._scopes.get(scope, scope)

    def scope_between(self, side: Side, scope: str) -> str:
        """Return the name of a scope of one side in the other model."""
        return self._scopes_back.get(scope, scope) if side is self.before else self.scope_of(scope)

    def _by(self, how: How, key: Callable[[LineageEntry], Hashable | None]) -> int:
        """Match the entries whose key is unique in both models; return the number of matches."""
        return self._match_all(how, self.before.unique(key), self.after.unique(key))

    def _match_all(self, how: How, here: Mapping[Any, LineageEntry], there: Mapping[Any, LineageEntry]) -> int:
        found = [(entry, there[sign]) for sign, entry in here.items() if sign in there]
        for before, after in found:
            self._match(NodePair(before, after, how))
        return len(found)

    def _match(self, pair: NodePair) -> None:
        self._pair(pair)
        del self.before.open[pair.before], self.after.open[pair.after]

    def _pair(self, pair: NodePair) -> None:
        self.pairs.append(pair)
        self.twins[pair.before], self.twins[pair.after] = pair.after, pair.before
        if pair.before not in self.before.bearers:
            return
        before, after = (sorted(scope for scope, _ in entry.bodies()) for entry in (pair.before, pair.after))
        for old, new in zip(before, after, strict=False):
            self._scopes[new], self._scopes_back[old] = old, new

    def _group(self, group: ReplacedNodes) -> None:
        for entry in group.before:
            del self.before.open[entry]
        for entry in group.after:
            del self.after.open[entry]
        one = group.before[0] if len(group.before) == len(group.after) == 1 else None
        if one is not None and (one.op, one.name) == (group.after[0].op, group.after[0].name):
            self._pair(NodePair(one, group.after[0], group.how))
            return
        self.groups.append(group)
        self.group_of.update(dict.fromkeys((*group.before, *group.after), group))
        old, new = ({entry.op: entry for entry in side} for side in (group.before, group.after))
        counts = Counter(entry.op for entry in (*group.before, *group.after))
        for op in old.keys() & new.keys():
            if counts[op] == 2:
                self.heirs[old[op]], self.heirs[new[op]] = new[op], old[op]

    # By name

    def _by_name(self) -> None:
        numbers = Numbers()
        forward = [node_hashes.forward(side, numbers, self.scope_of) for side in (self.before, self.after)]
        self.computed = {**forward[0], **forward[1]}
        for key in (node_hashes.by_name(self.scope_of, stamped=True), node_hashes.by_value(self.scope_of)):
            here, there = self.before.unique(key), self.after.unique(key)
            for sign in node_hashes.disagree(here, there, *forward):
                del here[sign]
            self._match_all("name", here, there)

    # By lineage

    def _by_lineage(self) -> None:
        """Group the nodes whose lineage names the same origins."""
        known: dict[str, list[LineageEntry]] = defaultdict(list)
        for entry in self.before.open:
            for name in [entry.name] if entry.lineage is None else entry.lineage.origins:
                known[name].append(entry)
        links = (
            (entry, parent)
            for entry in self.after.open
            if entry.lineage is not None
            for name in entry.lineage.origins
            for parent in known.get(name, ())
        )
        self._join("lineage", links)

    def _join(self, how: How, links: Iterable[tuple[LineageEntry, LineageEntry]]) -> None:
        """Make a group of each set of nodes that are linked directly or indirectly."""
        old, new = (
            {entry: position for position, entry in enumerate(side.entries)} for side in (self.before, self.after)
        )
        for linked in _connected(links):
            before, after = (sorted(linked & side.keys(), key=side.__getitem__) for side in (old, new))
            self._group(ReplacedNodes(tuple(before), tuple(after), how))

    # By structure

    def _by_structure(self) -> int:
        """Match by weights, by operation and operands, and by operation and readers; return the number of matches."""

        def forward(side: Side, numbers: Numbers) -> dict[LineageEntry, int]:
            return node_hashes.forward(side, numbers, self.scope_of, self._identity)

        def backward(side: Side, numbers: Numbers) -> dict[LineageEntry, int]:
            return node_hashes.backward(side, numbers, self.scope_of, self._identity)

        def by_weights(side: Side, numbers: Numbers) -> dict[LineageEntry, int]:
            return node_hashes.by_weights(side, numbers, self.scope_of)

        found = sum(map(self._by_signs, (by_weights, forward, backward)))
        return found or self._by_signs(forward, alike=True)

    def _by_signs(self, tell: Callable[[Side, Numbers], dict[LineageEntry, int]], *, alike: bool = False) -> int:
        """Match the open nodes by unique signs or, with `alike`, nodes with equal signs in order."""
        if not self.before.open or not self.after.open:
            return 0
        numbers = Numbers()
        found = {**tell(self.before, numbers), **tell(self.after, numbers)}
        return self._by_order("structure", found) if alike else self._by("structure", found.get)

    def _by_place(self) -> int:
        """Match nodes that look alike, in order, if both models have the same number; return the number of matches.

        Only used if most nodes are not matched: when names and weights are lost, the order is all that distinguishes
        layers.
        """
        if 2 * len(self.pairs) > min(len(self.before.entries), len(self.after.entries)):
            return 0
        return self._by_count(around=True) or self._by_count(around=False)

    def _by_count(self, *, around: bool) -> int:
        numbers = Numbers()
        here, there = (
            node_hashes.local(side, numbers, self.scope_of, around=around) for side in (self.before, self.after)
        )
        counts, others = Counter(here.values()), Counter(there.values())
        return self._by_order("structure", {e: s for e, s in {**here, **there}.items() if counts[s] == others[s]})

    def _by_order(self, how: How, found: Mapping[LineageEntry, int]) -> int:
        here, there = (
            {(sign, number): entry for sign, number, entry in _numbered(side.open, found)}
            for side in (self.before, self.after)
        )
        return self._match_all(how, here, there)

    def _identity(self, entry: LineageEntry) -> Hashable:
        twin = self.twins.get(entry)
        return "pair", min(id(entry), id(twin)) if twin is not None else id(entry)

    # By value

    def _by_value(self) -> None:
        """Group each node with its replacement, and with the nodes that only it needed."""
        links = list(dict.fromkeys([*self._renewed(), *self._read_instead()]))
        owners: dict[LineageEntry, LineageEntry] = {}
        for linked in _connected(links):
            first = next(iter(linked))
            owners.update(dict.fromkeys(linked, first))
        for side in (self.before, self.after):
            for entry in reversed(list(side.open)):
                if entry in owners or entry.op == "Constant" or side.given_back(entry):
                    continue
                found = {owners.get(reader) for reader in side.using(entry)}
                if len(found) == 1 and (owner := found.pop()) is not None:
                    owners[entry] = owner
                    links.append((owner, entry))
        self._join("value", links)

    def _renewed(self) -> Iterator[tuple[LineageEntry, LineageEntry]]:
        """Yield pairs of open nodes that produce a value of the same name."""
        for entry in self.after.open:
            for value in self.after.outputs[entry]:
                if value is not None:
                    maker, _ = self.before.makers.get((self.scope_of(value[0]), value[1]), (None, 0))
                    if maker is not None and maker in self.before.open:
                        yield entry, maker

    def _read_instead(self) -> Iterator[tuple[LineageEntry, LineageEntry]]:
        """Yield pairs of open nodes that a matched node reads as the same operand."""
        for before, after in instead(self, self.before, self.after).items():
            old, new = self.before.makers.get(before), self.after.makers.get(after)
            if old is not None and new is not None and old[0] in self.before.open and new[0] in self.after.open:
                yield new[0], old[0]


def instead(matching: Matching, side: Side, other: Side) -> dict[Value, Value]:
    """Map each value of one model to the value that the matched readers read instead of it in the other model.

    The first operand is always compared by position; the others only if the number of operands is unchanged.
    """
    found: dict[Value, Value] = {}
    for entry, values in side.reads.items():
        twin = matching.twins.get(entry) or matching.heirs.get(entry)
        if twin is None:
            continue
        now = other.reads[twin]
        for position, (value, counterpart) in enumerate(zip(values, now, strict=False)):
            if value is not None and counterpart is not None and (position == 0 or len(values) == len(now)):
                found.setdefault(value, counterpart)
    return found


def _connected(links: Iterable[tuple[LineageEntry, LineageEntry]]) -> list[set[LineageEntry]]:
    """Return the sets of nodes that are linked directly or indirectly."""
    import networkx

    graph: networkx.Graph[LineageEntry] = networkx.Graph()
    graph.add_edges_from(links)
    return list(networkx.connected_components(graph))


def _numbered(
    entries: Iterable[LineageEntry], signs: Mapping[LineageEntry, int]
) -> Iterator[tuple[int, int, LineageEntry]]:
    """Number the entries with the same sign, in order."""
    seen: Counter[int] = Counter()
    for entry in entries:
        sign = signs.get(entry)
        if sign is not None:
            yield sign, seen[sign], entry
            seen[sign] += 1
