"""Signs: hashes that identify a node within a model and are equal for its counterpart in the other model.

Signs are numbers assigned in one table for both models, because nested signs would grow with the graph. A matched node
is identified by its match alone, so that its neighbours on one side are found whatever lies on its other side.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping

from surgery.features.differences.compared_model import Side, Value, once
from surgery.model.proto.lineage_entries import LineageEntry

_WEIGHT = 16
"""Minimum number of elements of a weight; small constants, such as axes, are the same everywhere."""

Identify = Callable[[LineageEntry], Hashable]
"""Returns an identity that a node and its match in the other model share."""

ScopeOf = Callable[[str], str]
"""Returns the name of a scope in the first model."""


class Numbers(dict[Hashable, int]):
    """One number for each sign."""

    def of(self, sign: Hashable) -> int:
        """Return the number of a sign."""
        return self.setdefault(sign, len(self))


def forward(
    side: Side, numbers: Numbers, scope_of: ScopeOf, identify: Identify | None = None
) -> dict[LineageEntry, int]:
    """Sign each node by its operation and operands: equal numbers mean equal results.

    With `identify`, matched nodes get no sign and are represented by their identity. Random operators are treated
    alike, because here it does not matter which of two equal ones is meant.
    """
    values: dict[Value, Hashable] = dict(side.contents)
    for (scope, name), number in side.inputs.items():
        if not side.is_constant((scope, name)):
            values[scope, name] = "input", scope_of(scope), number if scope else name
    signs: dict[LineageEntry, int] = {}
    for entry in side.entries:
        if entry.node is None:
            continue
        made: Hashable
        if identify is not None and entry not in side.open:
            made = identify(entry)
        else:
            read = tuple(values.get(value, value) if value is not None else None for value in side.reads[entry])
            sign = (entry.op, scope_of(entry.scope), side.attributes[entry], read, len(side.outputs[entry]))
            made = signs[entry] = numbers.of(sign)
            if entry in side.bearers:
                # The operands alone do not determine its results.
                made = "body", id(entry)
        values.update((value, (made, number)) for number, value in enumerate(side.outputs[entry]) if value is not None)
    return signs


def backward(side: Side, numbers: Numbers, scope_of: ScopeOf, identify: Identify) -> dict[LineageEntry, int]:
    """Sign each open node by its operation and its readers or scope outputs, with the operand positions."""
    marks: dict[LineageEntry, Hashable] = {}
    signs: dict[LineageEntry, int] = {}
    for entry in reversed(side.entries):
        if entry not in side.open:
            marks[entry] = identify(entry)
            continue
        uses: list[Hashable] = []
        for number, value in enumerate(side.outputs[entry]):
            if value is not None:
                uses += [(number, marks.get(reader), place) for reader, place in side.readers.get(value, ())]
                uses += [
                    (number, scope_of(scope), place if scope else value[1])
                    for scope, place in side.results.get(value, ())
                ]
        sign = (entry.op, scope_of(entry.scope), side.attributes[entry], frozenset(uses), len(uses))
        marks[entry] = numbers.of(sign)
        if uses and entry.node is not None:
            signs[entry] = numbers.of(sign)
    return signs


def local(side: Side, numbers: Numbers, scope_of: ScopeOf, *, around: bool) -> dict[LineageEntry, int]:
    """Sign each open node by itself and its constant operands; with `around`, also by the adjacent operators."""
    signs: dict[LineageEntry, int] = {}
    for entry in side.open:
        read: list[Hashable] = []
        for value in side.reads[entry]:
            maker = side.makers[value][0].op if around and value in side.makers else None
            read.append(side.contents.get(value, maker) if value is not None else "omitted")
        uses = frozenset(Counter(user.op for user in side.using(entry)).items()) if around else None
        sign = (entry.op, scope_of(entry.scope), side.attributes[entry], tuple(read), uses)
        signs[entry] = numbers.of(sign)
    return signs


def by_weights(side: Side, numbers: Numbers, scope_of: ScopeOf) -> dict[LineageEntry, int]:
    """Sign each open node that reads weights by these weights."""
    weights = {value for value, tensor in side.initializers.items() if math.prod(tensor.dims) >= _WEIGHT}
    signs: dict[LineageEntry, int] = {}
    for entry in side.open:
        read = tuple(side.contents[value] for value in side.reads[entry] if value is not None and value in weights)
        if read:
            signs[entry] = numbers.of((entry.op, scope_of(entry.scope), read))
    return signs


def by_name(scope_of: ScopeOf, *, stamped: bool) -> Callable[[LineageEntry], Hashable]:
    """Return a key of name and, with `stamped`, lineage, because a pass may have reused the name."""
    return lambda entry: (entry.op, scope_of(entry.scope), entry.name, entry.lineage if stamped else None)


def by_value(scope_of: ScopeOf) -> Callable[[LineageEntry], Hashable | None]:
    """Return a key of the name of the first result, for nodes that no pass touched."""

    def sign(entry: LineageEntry) -> Hashable | None:
        names = [name for name in entry.outputs if name]
        if not names or entry.lineage is not None or entry.node is None:
            return None
        return entry.op, scope_of(entry.scope), names[0]

    return sign


def disagree(
    names: Mapping[Hashable, LineageEntry],
    other: Mapping[Hashable, LineageEntry],
    a: Mapping[LineageEntry, int],
    b: Mapping[LineageEntry, int],
) -> set[Hashable]:
    """Return the names that denote different nodes in the two models while an equal node exists under another name.

    This happens when an exporter numbers the nodes and an additional node shifts the numbers.
    """
    here, there = (once((sign, entry) for entry, sign in signs.items()) for signs in (a, b))
    return {
        name
        for name, entry in names.items()
        if name in other and a[entry] != b[other[name]] and (a[entry] in there or b[other[name]] in here)
    }
