"""Tracking: the nodes of a model that existed in its previous state, and the new, removed and altered ones.

A node is the same as long as its operator and its name or the name of a result are unchanged. If a pass renames both, a
node with the same attributes and the same inputs is the same. Nodes are compared by one digest each, so a state costs
one pass over the nodes, and only changed nodes are copied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from surgery.base.operators.subgraphs import bodies
from surgery.interface.drawing.node_data import NodeData, constant_of, digest, digest_of, plain
from surgery.interface.drawing.tracked_nodes import (
    INPUT,
    OUTPUT,
    PORT,
    Alteration,
    Edge,
    Scope,
    Source,
    TrackedNode,
    TrackedNodes,
)
from surgery.model.proto.lineage_entries import GRAPHS, function_name

if TYPE_CHECKING:
    import onnx

Key = tuple[int, str, int]
"""The key of a scope: its owner, the attribute, and the number of the graph in it; functions have no owner."""

NodeKey = tuple[str, str, tuple[str, ...]]
"""The key of a node in one model: its scope as named by `LineageEntry`, its name, and the names of its results."""

_NO_KEY: NodeKey = ("", "", ())

_SHOWN = 60
"""Maximum number of characters of an attribute in the description of a change."""


@dataclass
class LatestScope:
    """One scope in the latest state."""

    rows: dict[int, bytes] = field(default_factory=dict)
    """The rows of its nodes in order, each with its digest."""
    makers: dict[str, Source] = field(default_factory=dict)
    constants: dict[str, bytes] = field(default_factory=dict)
    inputs: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)

    def all(self) -> list[int]:
        """Return the rows of nodes, inputs and outputs."""
        return [*self.inputs.values(), *self.rows, *self.outputs.values()]


@dataclass
class StateChanges:
    """The changes from one state to the next."""

    born: list[int] = field(default_factory=list)
    died: list[int] = field(default_factory=list)
    altered: dict[int, NodeData] = field(default_factory=dict)
    """The kept rows with changes, each with its previous node."""
    instead: dict[int, tuple[Source | None, str]] = field(default_factory=dict)
    """For removed rows, the value that their readers read instead: its producer, None for a constant, and its name."""


@dataclass(slots=True)
class _UntrackedNode:
    """A node of the current state whose row is not yet known."""

    node: onnx.NodeProto
    digest: bytes
    row: int = -1
    plain: NodeData | None = None

    def read(self) -> NodeData:
        if self.plain is None:
            self.plain = plain(self.node)
        return self.plain


class Tracker:
    """Follows a model from state to state, and records the changes of its nodes in `found`.

    With `keyed`, `keys` has the rows of the nodes of the latest state.
    """

    def __init__(self, *, keyed: bool = False) -> None:
        self.found = TrackedNodes()
        self.looked_at = 0
        """Number of nodes and operands examined, to test that the work is proportional to the size of the model."""
        self._state = -1
        self._by = ""
        self._live: dict[int, LatestScope] = {}
        self._before: dict[int, LatestScope] = {}
        self._numbers: dict[Key, int] = {}
        self._sources: dict[int, tuple[Source | None, ...]] = {}
        self._edges: dict[int, dict[Source, int]] = {}
        self._bearers: set[int] = set()
        self._tensors: dict[int, dict[str, onnx.TensorProto | onnx.SparseTensorProto]] = {}
        self._step = StateChanges()
        self._same_as: Mapping[NodeKey, NodeKey] | None = None
        self._called: dict[int, str] = {}
        self._keyed = keyed
        self.keys: dict[NodeKey, int] = {}
        self._keys_before: dict[NodeKey, int] = {}

    def enter(
        self, model: onnx.ModelProto, by: str = "", same: Mapping[NodeKey, NodeKey] | None = None
    ) -> StateChanges:
        """Enter the next state, produced by the step `by`; `same` maps nodes to nodes of the previous state.

        Without `same`, nodes are matched by name, and changes of nodes are recorded.
        """
        self._state += 1
        self._by = by
        self._same_as = same
        self._keys_before, self.keys = self.keys, {}
        self._step = StateChanges()
        self._before, self._live = self._live, {}
        for scope, body in self._scopes(model):
            self._enter(scope, body)
        self._bury()
        self._connect()
        self._pair_duplicates()
        self._tensors = {}  # they would keep the whole model alive
        return self._step

    # Scopes

    def _scopes(self, model: onnx.ModelProto) -> Iterator[tuple[int, onnx.GraphProto | onnx.FunctionProto]]:
        """Yield each scope after the enclosing one; the rows of a scope must be known when the next is requested."""
        yield from self._with_bodies(self._scope((-1, "", 0), Scope(), ""), model.graph)
        for function in model.functions:
            name = function_name(function)
            yield from self._with_bodies(self._scope((-1, name, 0), Scope(name, is_function=True), name), function)

    def _with_bodies(
        self, scope: int, body: onnx.GraphProto | onnx.FunctionProto
    ) -> Iterator[tuple[int, onnx.GraphProto | onnx.FunctionProto]]:
        pending: deque[tuple[int, onnx.GraphProto | onnx.FunctionProto]] = deque([(scope, body)])
        while pending:
            number, current = pending.popleft()
            yield number, current
            for row, node in zip(self._live[number].rows, current.node, strict=True):
                if row in self._bearers:
                    pending.extend(self._bodies(number, row, node))

    def _bodies(self, around: int, row: int, node: onnx.NodeProto) -> Iterator[tuple[int, onnx.GraphProto]]:
        for attribute in node.attribute:
            if attribute.type in GRAPHS:
                graphs = bodies(attribute)
                for index, graph in enumerate(graphs):
                    name = f"{attribute.name}[{index}]" if attribute.graphs else attribute.name
                    outer, label = self._called[around], node.name or f"{node.op_type} -> {', '.join(node.output)}"
                    called = f"{outer}{'/' if outer else ''}{label}.{name}"
                    yield self._scope((row, attribute.name, index), Scope(name, around, row), called), graph

    def _scope(self, key: Key, scope: Scope, called: str) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.found.scopes)
            self.found.scopes.append(scope)
        self._called[number] = called
        return number

    # One scope

    def _enter(self, scope: int, body: onnx.GraphProto | onnx.FunctionProto) -> None:
        """Determine the rows of the nodes, inputs and outputs of a scope."""
        before, live = self._before.get(scope, LatestScope()), LatestScope()
        self._live[scope] = live
        tensors = self._tensors[scope] = _tensors(body)
        live.constants = {name: digest_of(tensor) for name, tensor in tensors.items()}
        ports = [getattr(port, "name", port) for port in body.input]
        live.inputs = self._ports(scope, INPUT, [name for name in ports if name not in live.constants], before.inputs)
        live.outputs = self._ports(scope, OUTPUT, [getattr(p, "name", p) for p in body.output], before.outputs)
        live.makers = {name: (row, 0) for name, row in live.inputs.items()}
        nodes = [self._read(node) for node in body.node]
        if self._same_as is not None:
            self._take(scope, before, nodes)
        else:
            self._find(scope, before, nodes)
        for one in nodes:
            if one.row == -1:
                self._bear(scope, one)
                self._make(live, one)
            live.rows[one.row] = one.digest
            if self._keyed:
                self.keys[self._key(scope, one.node)] = one.row
            if any(attribute.type in GRAPHS for attribute in one.node.attribute):
                self._bearers.add(one.row)

    def _read(self, node: onnx.NodeProto) -> _UntrackedNode:
        self.looked_at += 1
        has_bodies = any(attribute.type in GRAPHS for attribute in node.attribute)
        return _UntrackedNode(node, digest(node, has_bodies=has_bodies))

    def _ports(self, scope: int, op: str, names: list[str], before: dict[str, int]) -> dict[str, int]:
        """Return the rows of inputs or outputs by name; a renamed one keeps its place."""
        gone = [row for name, row in before.items() if name not in set(names)]
        new = [name for name in names if name not in before]
        renamed = dict(zip(new, gone, strict=False)) if len(new) == len(gone) else {}
        found = {}
        for name in names:
            row = before.get(name, renamed.get(name, -1))
            node = NodeData(op, PORT, name, () if op == INPUT else (name,), (name,) if op == INPUT else ())
            if row == -1:
                row = self.found.add(scope, node, self._state, self._by)
                self._step.born.append(row)
            elif self.found.rows[row].node.name != name:
                self._alter(row, node)
            found[name] = row
        return found

    def _make(self, live: LatestScope, one: _UntrackedNode) -> None:
        for number, name in enumerate(one.node.output):
            if name:
                live.makers[name] = one.row, number

    def _bear(self, scope: int, one: _UntrackedNode) -> None:
        one.row = self.found.add(scope, one.read(), self._state, self._by)
        self._step.born.append(one.row)

    # The same nodes

    def _key(self, scope: int, node: onnx.NodeProto) -> NodeKey:
        return self._called[scope], node.name, tuple(node.output)

    def _take(self, scope: int, before: LatestScope, nodes: list[_UntrackedNode]) -> None:
        """Give nodes their previous rows, as specified by the caller; a node moved to another scope is new."""
        assert self._same_as is not None
        for one in nodes:
            row = self._keys_before.get(self._same_as.get(self._key(scope, one.node), _NO_KEY), -1)
            if row in before.rows:
                one.row = row
                self._make(self._live[scope], one)
                if one.digest != before.rows[row]:
                    self._alter(row, one.read())

    def _find(self, scope: int, before: LatestScope, nodes: list[_UntrackedNode]) -> None:
        left = self._same(before, nodes)
        for one in nodes:
            if one.row != -1:
                self._make(self._live[scope], one)
        self._resume(scope, left, [one for one in nodes if one.row == -1])

    def _same(self, before: LatestScope, nodes: list[_UntrackedNode]) -> dict[int, NodeData]:
        """Give nodes their previous rows, matched by digest or names; return the remaining rows."""
        known: dict[bytes, list[int]] = {}
        for row in reversed(before.rows):
            known.setdefault(before.rows[row], []).append(row)
        for one in nodes:
            rows = known.get(one.digest)
            if rows:
                one.row = rows.pop()
        left = {row: self.found.rows[row].node for rows in known.values() for row in rows}
        for key in (_by_both, _by_name, *_BY_OUTPUT):
            self._match(key, left, nodes)
        return left

    def _match(
        self, key: Callable[[NodeData], Hashable], left: dict[int, NodeData], nodes: list[_UntrackedNode]
    ) -> None:
        """Match nodes with equal keys, in order."""
        if not left:
            return
        known: dict[Hashable, deque[int]] = {}
        for row in sorted(left):
            sign = key(left[row])
            if sign is not None:
                known.setdefault(sign, deque()).append(row)
        for one in nodes:
            if one.row == -1 and (sign := key(one.read())) is not None and known.get(sign):
                self._keep(known[sign].popleft(), one, left)

    def _keep(self, row: int, one: _UntrackedNode, left: dict[int, NodeData]) -> None:
        del left[row]
        one.row = row
        self._alter(row, one.read())

    def _resume(self, scope: int, left: dict[int, NodeData], nodes: list[_UntrackedNode]) -> None:
        """Match renamed nodes, which have the same attributes and inputs."""
        known: dict[Hashable, deque[int]] = {}
        for row in sorted(left):
            sources = self._sources.get(row, ())
            known.setdefault((left[row].kind, left[row].signature, sources), deque()).append(row)
        for one in nodes if known else ():
            read = one.read()
            sources = tuple(self._resolve(scope, name)[0] for name in read.inputs)
            rows = known.get((read.kind, read.signature, sources))
            if rows:
                self._keep(rows.popleft(), one, left)
                self._make(self._live[scope], one)

    def _alter(self, row: int, node: NodeData) -> None:
        before = self._step.altered[row] = self.found.rows[row].node
        # A new name does not move a node out of its module.
        self.found.rows[row].become(node if before.path is None else replace(node, path=before.path), self._state)

    # After all scopes

    def _bury(self) -> None:
        """Mark the removed rows."""
        for scope, before in self._before.items():
            now = set(self._live[scope].all()) if scope in self._live else ()
            for row in before.all():
                if row not in now:
                    self._end(self.found.rows[row], row)

    def _end(self, ended: TrackedNode, row: int) -> None:
        ended.died, ended.killer = self._state, self._by
        self._step.died.append(row)
        for edge in self._edges.pop(row, {}).values():
            self.found.edges[edge].died = self._state

    def _connect(self) -> None:
        """Update the edges, and record the changes of the kept nodes."""
        for scope, live in self._live.items():
            for row in live.all():
                self._connect_row(scope, row)

    def _connect_row(self, scope: int, row: int) -> None:
        node = self.found.rows[row].node
        self.looked_at += len(node.inputs)
        read = [self._resolve(scope, name) for name in node.inputs]
        sources = tuple(source for source, _ in read)
        before = self._sources.get(row)
        changed = self._refresh_constants(node, read)
        if self._same_as is None and (row in self._step.altered or changed):
            self._tell(row, node, before, sources, changed)
        if before != sources:
            self._note_instead(node, before or (), sources)
            self._sources[row] = sources
            self._rewire(row, node, sources)

    def _note_instead(
        self, node: NodeData, before: tuple[Source | None, ...], sources: tuple[Source | None, ...]
    ) -> None:
        """Record the values that a node reads instead of those of removed rows."""
        if len(before) != len(sources):
            return
        for then, now, name in zip(before, sources, node.inputs, strict=True):
            if then is not None and then != now and self.found.rows[then[0]].died == self._state:
                self._step.instead.setdefault(then[0], (now, name))

    def _pair_duplicates(self) -> None:
        """If a row replaces a removed duplicate, the producers of its operands replace those of the duplicate."""
        pending = [(old, now[0]) for old, (now, _) in self._step.instead.items() if now is not None]
        while pending:
            old, new = pending.pop()
            if self.found.rows[old].node.kind != self.found.rows[new].node.kind:
                continue
            for then, now in zip(self._sources.get(old, ()), self._sources.get(new, ()), strict=False):
                if then is None or now is None or then == now or then[0] in self._step.instead:
                    continue
                if self.found.rows[then[0]].died == self._state:
                    self._step.instead[then[0]] = now, self.found.rows[now[0]].node.outputs[now[1]]
                    pending.append((then[0], now[0]))

    def _refresh_constants(self, node: NodeData, read: list[tuple[Source | None, int]]) -> list[int]:
        """Record the constants that a node reads, and return the positions of operands with a changed constant."""
        changed = []
        for position, (name, (source, home)) in enumerate(zip(node.inputs, read, strict=True)):
            if source is not None or home == -1:
                continue
            known, then = self.found.scopes[home].constants, self._before.get(home, LatestScope()).constants.get(name)
            differs = then is not None and self._live[home].constants[name] != then
            if differs:
                changed.append(position)
            if name not in known or (differs and known[name][-1][0] != self._state):
                known.setdefault(name, []).append((self._state, constant_of(self._tensors[home][name])))
        return changed

    def _resolve(self, scope: int, name: str) -> tuple[Source | None, int]:
        """Return the producer and the scope of a value; (None, scope) for a constant, (None, -1) if undefined."""
        while name and scope != -1:
            live = self._live[scope]
            if name in live.makers:
                return live.makers[name], scope
            if name in live.constants:
                return None, scope
            scope = self.found.scopes[scope].around
        return None, -1

    def _rewire(self, row: int, node: NodeData, sources: tuple[Source | None, ...]) -> None:
        edges = self._edges.setdefault(row, {})
        wanted = {source: name for source, name in zip(sources, node.inputs, strict=True) if source is not None}
        for source in [source for source in edges if source not in wanted]:
            self.found.edges[edges.pop(source)].died = self._state
        for source, name in wanted.items():
            if source not in edges:
                edges[source] = len(self.found.edges)
                made_in = self.found.rows[source[0]].scope
                self.found.edges.append(Edge(source[0], row, source[1], name, made_in, self._state))

    # Changes of a node

    def _tell(
        self,
        row: int,
        node: NodeData,
        before: tuple[Source | None, ...] | None,
        sources: tuple[Source | None, ...],
        constants: list[int],
    ) -> None:
        old = self._step.altered.setdefault(row, node)
        told = [*_renaming(old, node), *_attributes(old, node)]
        told += self._operands(old, node, before or (), sources)
        told += [f"input {position}: another constant" for position in constants]
        if told:
            self.found.alterations.append(Alteration(row, self._state, "; ".join(told)))
        else:
            del self._step.altered[row]

    def _operands(
        self, old: NodeData, new: NodeData, before: tuple[Source | None, ...], now: tuple[Source | None, ...]
    ) -> Iterator[str]:
        """Yield the changed operands, except those that changed because their producer was removed or added."""
        if len(old.inputs) != len(new.inputs):
            yield f"inputs: {len(old.inputs)} -> {len(new.inputs)}"
            return
        for position, (was, name) in enumerate(zip(old.inputs, new.inputs, strict=True)):
            then = before[position] if position < len(before) else None
            if then == now[position] and (then is not None or was == name):
                continue
            if not any(source is not None and self._is_passing(source) for source in (then, now[position])):
                yield f"input {position}: {was or 'none'} -> {name or 'none'}"

    def _is_passing(self, source: Source) -> bool:
        row = self.found.rows[source[0]]
        return row.born == self._state or row.died == self._state


def _tensors(
    body: onnx.GraphProto | onnx.FunctionProto,
) -> dict[str, onnx.TensorProto | onnx.SparseTensorProto]:
    found: dict[str, onnx.TensorProto | onnx.SparseTensorProto]
    found = {tensor.name: tensor for tensor in getattr(body, "initializer", ())}
    found.update((tensor.values.name, tensor) for tensor in getattr(body, "sparse_initializer", ()))
    return found


def _by_both(node: NodeData) -> Hashable:
    return (node.kind, node.name, node.outputs) if node.name else None


def _by_name(node: NodeData) -> Hashable:
    return (node.kind, node.name) if node.name else None


def _output(number: int) -> Callable[[NodeData], Hashable]:
    def key(node: NodeData) -> Hashable:
        name = node.outputs[number] if number < len(node.outputs) else ""
        return (node.kind, name) if name else None

    return key


_BY_OUTPUT = (_output(0), _output(1))


def _renaming(old: NodeData, new: NodeData) -> Iterable[str]:
    return [f"name: {old.name or 'none'} -> {new.name or 'none'}"] if old.name != new.name else []


def _attributes(old: NodeData, new: NodeData) -> Iterator[str]:
    if old.signature == new.signature:
        return
    before, after = dict(old.attributes), dict(new.attributes)
    for name in sorted(before.keys() | after.keys()):
        was, now = (_short(side.get(name, "not set")) for side in (before, after))
        if was != now:
            yield f"{name}: {was} -> {now}"


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
