"""Correspondence: which nodes of one model are which of another.

Nodes are matched by the surest sign first, and each match says which that was:

- *name*: the same operator under the same name, or making a value of the same name;
- *structure*: the same operator on the same weights; or with the same attributes on values that correspond, or for
  the nodes that correspond;
- *lineage*: the second model says of a node which nodes of the first it was made of. Nodes that have one in common
  belong to one group;
- *value*: a node makes the value that another operator made in the first model. What only that one needed is part of
  the group.

What is left of the first model was removed, and what is left of the second was added. An untouched node is matched by
its name before lineage is asked; a stamped one never is, unless the first model had the same stamp on it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import networkx

from surgery.entries import CONSTANT, Entry, entries

if TYPE_CHECKING:
    import onnx

_WEIGHT = 16
"""Constants of at least so many elements are weights: small ones, such as axes, are the same everywhere."""

How = Literal["name", "structure", "lineage", "value"]


@dataclass(frozen=True)
class Pair:
    """A node that is in both models."""

    before: Entry
    after: Entry
    how: How

    def to_json(self) -> dict[str, Any]:
        """Give plain values."""
        return {"before": self.before.to_json(), "after": self.after.to_json(), "how": self.how}


@dataclass(frozen=True)
class Group:
    """Nodes that became other nodes, or constants."""

    before: tuple[Entry, ...]
    after: tuple[Entry, ...]
    how: How

    @property
    def passes(self) -> tuple[str, ...]:
        """The passes that made the nodes, as far as they say."""
        known = (entry.lineage for entry in self.after)
        return tuple(dict.fromkeys(name for one in known if one is not None for name in one.passes))

    @property
    def kind(self) -> str:
        """The operators on both sides: "Conv + BatchNormalization -> Conv"."""
        return f"{_operators(self.before)} -> {_operators(self.after)}"

    def __str__(self) -> str:
        return " -> ".join(" + ".join(map(str, side)) for side in (self.before, self.after))

    def to_json(self) -> dict[str, Any]:
        """Give plain values."""
        return {
            "before": [entry.to_json() for entry in self.before],
            "after": [entry.to_json() for entry in self.after],
            "passes": list(self.passes),
            "how": self.how,
        }


@dataclass(frozen=True)
class Removed:
    """A node that is gone; `now` says what its readers read instead, where one of them is still there."""

    entry: Entry
    now: str

    def to_json(self) -> dict[str, Any]:
        """Give plain values."""
        return {**self.entry.to_json(), "now": self.now or None}


@dataclass(frozen=True)
class Correspondence:
    """How the nodes of two models belong together."""

    pairs: tuple[Pair, ...] = ()
    groups: tuple[Group, ...] = ()
    removed: tuple[Removed, ...] = ()
    added: tuple[Entry, ...] = ()

    @property
    def matched(self) -> dict[str, int]:
        """How many nodes were matched by which sign."""
        return dict(Counter(pair.how for pair in self.pairs if pair.after.op != CONSTANT))

    def to_json(self) -> dict[str, Any]:
        """Give plain values; of the nodes that are the same under the same name only the number."""
        return {
            "matched": self.matched,
            "renamed": [pair.to_json() for pair in self.pairs if pair.before.name != pair.after.name],
            "groups": [group.to_json() for group in self.groups],
            "removed": [removed.to_json() for removed in self.removed],
            "added": [entry.to_json() for entry in self.added],
        }


def _operators(side: Sequence[Entry]) -> str:
    counts = Counter(entry.op for entry in side)
    return " + ".join(f"{count} {op}" if count > 1 else op for op, count in counts.items())


def correspond(before: onnx.ModelProto, after: onnx.ModelProto) -> Correspondence:
    """Match the nodes of two models."""
    return _Matching(before, after).run()


class _Side:
    """One of the models: its entries, those of them that are not matched yet, who makes and who reads a value."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.entries = list(entries(model))
        self.open = dict.fromkeys(self.entries)
        self.makers = {(e.scope, name): e for e in self.entries for name in e.outputs if name}
        self.initializers = {tensor.name: tensor for tensor in model.graph.initializer}
        self.inputs = {value.name for value in model.graph.input}

    @cached_property
    def readers(self) -> dict[tuple[str, str], list[tuple[Entry, int]]]:
        """The nodes that read a value, each with the position."""
        found: dict[tuple[str, str], list[tuple[Entry, int]]] = defaultdict(list)
        for entry in self.entries:
            for position, name in enumerate(entry.inputs):
                found[entry.scope, name].append((entry, position))
        return found

    def unique(self, key: Callable[[Entry], Hashable | None]) -> dict[Hashable, Entry]:
        """Index the open entries by a key, but for those that share it with another."""
        found: dict[Hashable, list[Entry]] = defaultdict(list)
        for entry in self.open:
            if (sign := key(entry)) is not None:
                found[sign].append(entry)
        return {sign: same[0] for sign, same in found.items() if len(same) == 1}


class _Numbers(dict[Hashable, int]):
    """Small numbers for signs, which would grow with the graph if they held one another."""

    def of(self, sign: Hashable) -> int:
        return self.setdefault(sign, len(self))


@dataclass
class _Matching:
    """The matching of two models while it is made."""

    first: onnx.ModelProto
    second: onnx.ModelProto
    pairs: list[Pair] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.before, self.after = _Side(self.first), _Side(self.second)
        self.twins: dict[Entry, Entry] = {}
        # Of a group, the one node of an operator before, and the one after.
        self.heirs: dict[Entry, Entry] = {}

    def run(self) -> Correspondence:
        self._by("name", lambda entry: (entry.op, entry.scope, entry.name, entry.lineage))
        self._by("name", _made)
        self._by_lineage()
        self._by("name", lambda entry: (entry.op, entry.scope, entry.name))
        for signs in (_weights, self._forward, self._backward):
            numbers = _Numbers()
            found = {**signs(self.before, numbers), **signs(self.after, numbers)}
            self._by("structure", found.get)
        self._by_value()
        removed = tuple(Removed(entry, self._now(entry)) for entry in self.before.open if entry.op != CONSTANT)
        added = tuple(entry for entry in self.after.open if entry.op != CONSTANT)
        return Correspondence(tuple(self.pairs), tuple(self.groups), removed, added)

    def _by(self, how: How, key: Callable[[Entry], Hashable | None]) -> None:
        """Match the entries whose key no other of either model has."""
        here, there = self.before.unique(key), self.after.unique(key)
        for sign, entry in here.items():
            if sign in there:
                self._match(Pair(entry, there[sign], how))

    def _match(self, pair: Pair) -> None:
        self.pairs.append(pair)
        self.twins[pair.before] = pair.after
        del self.before.open[pair.before], self.after.open[pair.after]

    def _group(self, group: Group) -> None:
        for entry in group.before:
            del self.before.open[entry]
        for entry in group.after:
            del self.after.open[entry]
        one = group.before[0] if len(group.before) == len(group.after) == 1 else None
        if one is not None and (one.op, one.name) == (group.after[0].op, group.after[0].name):
            self.pairs.append(Pair(one, group.after[0], group.how))
            self.twins[one] = group.after[0]
        else:
            self.groups.append(group)
            old, new = ({e.op: e for e in side} for side in (group.before, group.after))
            counts = Counter(e.op for e in (*group.before, *group.after))
            self.heirs.update({old[op]: new[op] for op in old.keys() & new.keys() if counts[op] == 2})

    # By lineage

    def _by_lineage(self) -> None:
        """Join what says to come from the same nodes."""
        known: dict[str, list[Entry]] = defaultdict(list)
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

    def _join(self, how: How, links: Iterable[tuple[Entry, Entry]]) -> None:
        """Make a group of all that is linked, directly or not."""
        graph: networkx.Graph[Entry] = networkx.Graph()
        graph.add_edges_from(links)
        old, new = (
            {entry: position for position, entry in enumerate(side.entries)} for side in (self.before, self.after)
        )
        for linked in networkx.connected_components(graph):
            before, after = (sorted(linked & side.keys(), key=side.__getitem__) for side in (old, new))
            self._group(Group(tuple(before), tuple(after), how))

    # By structure

    def _forward(self, side: _Side, numbers: _Numbers) -> dict[Entry, Hashable]:
        """Tell each open node by what it does with which values; values that correspond have the same number."""
        values = {name: numbers.of(_content(tensor)) for name, tensor in side.initializers.items()}
        signs: dict[Entry, Hashable] = {}
        for entry in side.entries:
            if entry.node is None:
                continue
            read = [values[n] if n in values else numbers.of(("value", entry.scope, n)) for n in entry.inputs]
            signs[entry] = sign = (entry.op, entry.scope, _attributes(entry.node), tuple(read))
            made = numbers.of(sign if entry in side.open else self._identity(entry))
            values.update((name, numbers.of((made, position))) for position, name in enumerate(entry.outputs) if name)
        return {entry: sign for entry, sign in signs.items() if entry in side.open}

    def _backward(self, side: _Side, numbers: _Numbers) -> dict[Entry, Hashable]:
        """Tell each open node by what it does for which nodes, or for the caller."""
        wanted = {value.name for value in side.model.graph.output}
        marks: dict[Entry, int] = {}
        signs: dict[Entry, Hashable] = {}
        for entry in reversed(side.entries):
            if entry.node is None:
                continue
            uses: list[Hashable] = []
            for number, name in enumerate(entry.outputs):
                uses += [(number, marks.get(reader), place) for reader, place in side.readers[entry.scope, name]]
                uses += [(number, name)] if name in wanted and not entry.scope else []
            sign = (entry.op, entry.scope, _attributes(entry.node), frozenset(uses), len(uses))
            marks[entry] = numbers.of(sign if entry in side.open else self._identity(entry))
            if entry in side.open and uses:
                signs[entry] = sign
        return signs

    def _identity(self, entry: Entry) -> Hashable:
        """Return what is the same for a node of the one model and its match in the other."""
        return "pair", id(self.twins.get(entry, entry))

    # By value

    def _by_value(self) -> None:
        """Let what makes a value stand for what made it before, and for what only that needed."""
        links = []
        for entry in self.after.open:
            for name in entry.outputs:
                maker = self.before.makers.get((entry.scope, name))
                if maker is not None and maker in self.before.open:
                    links.append((entry, maker))
        owners = {maker: entry for entry, maker in links}
        for entry in reversed(list(self.before.open)):
            if entry in owners:
                continue
            readers = [reader for name in entry.outputs for reader, _ in self.before.readers[entry.scope, name]]
            found = {owners.get(reader) for reader in readers}
            if len(found) == 1 and (owner := found.pop()) is not None:
                owners[entry] = owner
                links.append((owner, entry))
        self._join("value", links)

    # What is left

    def _now(self, entry: Entry) -> str:
        """Say what the readers of a removed node read now."""
        for name in entry.outputs:
            if not name:
                continue
            if (entry.scope, name) in self.after.makers or (not entry.scope and name in self.after.initializers):
                return self._told(entry.scope, name)
            for reader, position in self.before.readers[entry.scope, name]:
                twin = self.twins.get(reader) or self.heirs.get(reader)
                if twin is None or position >= len(twin.inputs) or not twin.inputs[position]:
                    continue
                # The first operand stays the first; of the others, one may have been taken out.
                if position == 0 or len(twin.inputs) == len(reader.inputs):
                    return self._told(twin.scope, twin.inputs[position])
        return ""

    def _told(self, scope: str, name: str) -> str:
        maker = self.after.makers.get((scope, name))
        if maker is not None and maker.op != CONSTANT:
            return str(maker)
        kind = "constant" if name in self.after.initializers else "input" if name in self.after.inputs else "value"
        return f"{kind} '{name}'"


def _made(entry: Entry) -> Hashable | None:
    """Tell a node that no pass touched by the first value that it makes."""
    names = [name for name in entry.outputs if name]
    return (entry.op, entry.scope, names[0]) if names and entry.lineage is None and entry.node is not None else None


def _weights(side: _Side, numbers: _Numbers) -> dict[Entry, Hashable]:
    """Tell each open node by the weights that it reads, if it reads any."""
    weights = {name: tensor for name, tensor in side.initializers.items() if math.prod(tensor.dims) >= _WEIGHT}
    signs: dict[Entry, Hashable] = {}
    for entry in side.open:
        read = tuple(numbers.of(_content(weights[name])) for name in entry.inputs if name in weights)
        if read:
            signs[entry] = entry.op, entry.scope, read
    return signs


def _content(tensor: onnx.TensorProto) -> Hashable:
    """Tell a constant by its elements; a large one, which is not read, by its name."""
    if tensor.external_data:
        return "constant", tensor.data_type, tuple(tensor.dims), tensor.name
    bare = type(tensor)()
    bare.CopyFrom(tensor)
    for name in ("name", "doc_string", "metadata_props"):
        bare.ClearField(name)
    return "constant", bare.SerializeToString(deterministic=True)


def _attributes(node: onnx.NodeProto) -> tuple[bytes, ...]:
    """Give the attributes of a node in an order of their own, without subgraphs: their nodes are matched too."""
    plain = (a for a in node.attribute if not a.HasField("g") and not a.graphs)
    return tuple(a.SerializeToString(deterministic=True) for a in sorted(plain, key=lambda a: a.name))
