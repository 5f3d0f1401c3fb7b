"""One of two compared models: its nodes and values, and the nodes that are not matched yet."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from surgery.base.operators.forms import plain_domain
from surgery.base.operators.subgraphs import bodies
from surgery.features.differences.constant_distances import sign_of
from surgery.model.proto.lineage_entries import CONSTANT, GRAPHS, LineageEntry, entries, function_name
from surgery.model.wire.stored_lists import digest, is_stored

if TYPE_CHECKING:
    import onnx

    from surgery.model.storage import StoredModel

Value = tuple[str, str]
"""A value: the scope that defines it, and its name."""

Reader = tuple[LineageEntry, int]
"""A node that reads a value, and the position of the operand."""


class Side:
    """One of the models. `open` are the entries that are not matched yet, in model order."""

    def __init__(self, stored: StoredModel) -> None:
        self.model = stored.proto
        self.weights = stored.weights
        self.opsets = {plain_domain(item.domain): item.version for item in self.model.opset_import}
        self.entries = list(entries(self.model))
        self.open = dict.fromkeys(self.entries)
        self.scopes: dict[str, onnx.GraphProto | onnx.FunctionProto] = {"": self.model.graph}
        self.scopes.update((function_name(function), function) for function in self.model.functions)
        self.owners: dict[str, LineageEntry] = {}
        for entry in self.entries:
            for scope, graph in entry.bodies():
                self.scopes[scope], self.owners[scope] = graph, entry
        self.bearers = set(self.owners.values())
        self.outputs = {
            entry: [(entry.scope, name) if name else None for name in entry.outputs] for entry in self.entries
        }
        self.makers: dict[Value, tuple[LineageEntry, int]] = {
            value: (entry, number)
            for entry, values in self.outputs.items()
            for number, value in enumerate(values)
            if value is not None
        }
        self.initializers = {
            (scope, tensor.name): tensor
            for scope, graph in self.scopes.items()
            for tensor in getattr(graph, "initializer", ())
        }
        self.inputs = {
            (scope, getattr(port, "name", port)): number
            for scope, graph in self.scopes.items()
            for number, port in enumerate(graph.input)
        }
        self.reads = {entry: [self.resolve(entry.scope, name) for name in entry.inputs] for entry in self.entries}

    def resolve(self, scope: str, name: str) -> Value | None:
        """Resolve a name to a value of a scope or of an enclosing scope; None for an omitted operand."""
        if not name:
            return None
        here = scope
        while True:
            value = here, name
            if value in self.makers or value in self.initializers or value in self.inputs:
                return value
            if here not in self.owners:
                return scope, name
            here = self.owners[here].scope

    @cached_property
    def readers(self) -> dict[Value, list[Reader]]:
        """The nodes that read each value."""
        found: dict[Value, list[Reader]] = defaultdict(list)
        for entry, values in self.reads.items():
            for position, value in enumerate(values):
                if value is not None:
                    found[value].append((entry, position))
        return found

    @cached_property
    def results(self) -> dict[Value, list[tuple[str, int]]]:
        """The values that scopes return to their callers, each with the scope and the number of the output."""
        found: dict[Value, list[tuple[str, int]]] = defaultdict(list)
        for scope, graph in self.scopes.items():
            for number, port in enumerate(graph.output):
                value = self.resolve(scope, getattr(port, "name", port))
                if value is not None:
                    found[value].append((scope, number))
        return found

    @cached_property
    def contents(self) -> dict[Value, Hashable]:
        """The signs of the initializers: their elements, or samples of large ones."""
        return {value: sign_of(tensor, self.weights) for value, tensor in self.initializers.items()}

    @cached_property
    def attributes(self) -> dict[LineageEntry, tuple[tuple[str, Hashable], ...]]:
        """The attributes of the nodes, by name; subgraphs as operator counts only: their nodes are matched too."""
        return {entry: tuple(self._attributes(entry)) for entry in self.entries}

    def _attributes(self, entry: LineageEntry) -> Iterator[tuple[str, Hashable]]:
        for attribute in sorted(entry.node.attribute, key=lambda one: one.name) if entry.node is not None else ():
            if attribute.type == _TENSOR:
                yield attribute.name, sign_of(attribute.t, self.weights)
            elif attribute.type in GRAPHS:
                operators = (Counter(node.op_type for node in graph.node) for graph in bodies(attribute))
                yield attribute.name, tuple(frozenset(counts.items()) for counts in operators)
            elif is_stored(attribute):
                yield attribute.name, (attribute.type, digest(attribute))
            else:
                yield attribute.name, attribute.SerializeToString(deterministic=True)

    def using(self, entry: LineageEntry) -> Iterator[LineageEntry]:
        """Yield the readers of the results of a node, including enclosing nodes whose bodies return a result."""
        for value in self.outputs[entry]:
            if value is None:
                continue
            yield from (reader for reader, _ in self.readers.get(value, ()))
            for scope, _ in self.results.get(value, ()):
                if scope in self.owners:
                    yield self.owners[scope]

    def given_back(self, entry: LineageEntry) -> bool:
        """Return whether the model or a function returns a result of a node."""
        return any(
            scope not in self.owners
            for value in self.outputs[entry]
            if value is not None
            for scope, _ in self.results.get(value, ())
        )

    def is_constant(self, value: Value) -> bool:
        """Return whether a value is the result of a Constant node, or an initializer that no caller can override."""
        if value in self.makers:
            return self.makers[value][0].op in ("Constant", CONSTANT)
        # Up to IR version 3, each initializer had to be an input too.
        return value in self.initializers and (value not in self.inputs or self.model.ir_version < _OVERRIDABLE)

    def unique(self, key: Callable[[LineageEntry], Hashable | None]) -> dict[Hashable, LineageEntry]:
        """Index the open entries by a key, without entries that share a key."""
        return once((sign, entry) for entry in self.open if (sign := key(entry)) is not None)


def once(signs: Iterable[tuple[Hashable, LineageEntry]]) -> dict[Hashable, LineageEntry]:
    """Index entries by their signs, without entries that share a sign."""
    found: dict[Hashable, LineageEntry | None] = {}
    for sign, entry in signs:
        found[sign] = None if sign in found else entry
    return {sign: entry for sign, entry in found.items() if entry is not None}


_OVERRIDABLE = 4
"""The first IR version in which an initializer that is also an input is a default that a caller can override."""
_TENSOR = 4
"""AttributeProto.TENSOR"""
