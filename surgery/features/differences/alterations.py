"""Alterations: the differences between two matched nodes.

Consequences of other changes are not reported, such as an operand that comes from a removed or added node or constant.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from surgery.base.operators.message_tensors import to_array
from surgery.base.operators.traits import attribute_default
from surgery.features.differences.changes import Change, of_one
from surgery.features.differences.compared_model import Side, Value
from surgery.features.differences.matching import Matching
from surgery.features.differences.node_differences import NodePair
from surgery.model.proto.lineage_entries import GRAPHS, LineageEntry
from surgery.model.wire.stored_lists import with_list

if TYPE_CHECKING:
    import onnx

_SHOWN = 8
"""Maximum number of elements of a list or tensor whose values are reported."""


def altered(matching: Matching) -> tuple[NodePair, ...]:
    """Return the matched pairs with their differences."""
    return tuple(replace(pair, changes=tuple(_changes(matching, pair))) for pair in matching.pairs)


def _changes(matching: Matching, pair: NodePair) -> Iterator[Change]:
    if pair.before.node is None or pair.after.node is None:
        return
    if matching.before.attributes[pair.before] != matching.after.attributes[pair.after]:
        yield from _attributes(matching, pair)
    yield from _operands(matching, matching.before.reads[pair.before], matching.after.reads[pair.after])
    yield from of_one("outputs", *(sum(map(bool, entry.outputs)) for entry in (pair.before, pair.after)))


def _attributes(matching: Matching, pair: NodePair) -> Iterator[Change]:
    """Compare attributes; an omitted attribute equals one with the default value."""
    before, after = dict(matching.before.attributes[pair.before]), dict(matching.after.attributes[pair.after])
    # Only what differs is made plain: a tree ensemble has millions of elements.
    wanted = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    old, new = _values(pair.before, wanted), _values(pair.after, wanted)
    for name in sorted(wanted):
        if old.get(name) is _GRAPH and new.get(name) is _GRAPH:
            continue
        value = old[name] if name in old else _default(matching.before, pair.before, name)
        now = new[name] if name in new else _default(matching.after, pair.after, name)
        if name not in old or name not in new:
            yield from of_one(f"attribute {name}", _told(value), _told(now))
        else:
            yield Change(f"attribute {name}", _told(value), _told(now))


def _values(entry: LineageEntry, wanted: Container[str]) -> dict[str, Any]:
    """Return attributes of a node as plain values, by name."""
    attributes = entry.node.attribute if entry.node is not None else ()
    return {one.name: _plain(one) for one in attributes if one.name in wanted}


def _default(side: Side, entry: LineageEntry, name: str) -> object:
    domain, _, op = entry.op.rpartition("::")
    return attribute_default(op, side.opsets.get(domain, 1), name, domain)


def _operands(matching: Matching, before: list[Value | None], after: list[Value | None]) -> Iterator[Change]:
    old, new = _without_trailing(before), _without_trailing(after)
    if len(old) != len(new):
        yield Change("inputs", len(old), len(new))
        return
    for number, (value, now) in enumerate(zip(old, new, strict=True)):
        if not _may_be_the_same(matching, value, now):
            yield Change(f"input {number}", *(one[1] if one is not None else None for one in (value, now)))


def _without_trailing(values: list[Value | None]) -> list[Value | None]:
    count = len(values)
    while count and values[count - 1] is None:
        count -= 1
    return values[:count]


def _may_be_the_same(matching: Matching, before: Value | None, after: Value | None) -> bool:
    """Return whether two operands correspond, or differ only because of a change that is reported elsewhere."""
    if before is None or after is None:
        return before is after
    first, second = matching.before, matching.after
    kept = _kept(matching, first, second, before) and _kept(matching, second, first, after)
    return not kept or _counterpart(matching, before) == after or _equal_constants(matching, before, after)


def _kept(matching: Matching, side: Side, other: Side, value: Value) -> bool:
    """Return whether a value exists in both models, regardless of its readers."""
    if value in side.makers:
        return side.makers[value][0] in matching.twins
    there = matching.scope_between(side, value[0]), value[1]
    return there in other.initializers or there in other.inputs


def _counterpart(matching: Matching, value: Value) -> Value | None:
    if value not in matching.before.makers:
        return matching.scope_between(matching.before, value[0]), value[1]
    maker, number = matching.before.makers[value]
    outputs = matching.after.outputs[matching.twins[maker]]
    return outputs[number] if number < len(outputs) else None


def _equal_constants(matching: Matching, before: Value, after: Value) -> bool:
    content = matching.before.contents.get(before)
    return content is not None and content == matching.after.contents.get(after)


_GRAPH = object()
"""Placeholder for a subgraph, whose nodes are reported individually."""


def _plain(attribute: onnx.AttributeProto) -> Any:
    """Return the value of an attribute as plain values, or as text if it has no such form."""
    import onnx

    if attribute.type in GRAPHS:
        return _GRAPH
    if attribute.ref_attr_name:
        return f"@{attribute.ref_attr_name}"
    value = onnx.helper.get_attribute_value(with_list(attribute))
    if isinstance(value, onnx.TensorProto):
        return _tensor(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, int | float | str):
        return value
    if not isinstance(value, Sequence):
        return [str(value)]
    return [_plain_item(item) for item in value] if len(value) <= _SHOWN else f"{len(value)} values"


def _plain_item(item: object) -> object:
    if isinstance(item, bytes):
        return item.decode("utf-8", "replace")
    return item if isinstance(item, int | float | str) else type(item).__name__


def _tensor(tensor: onnx.TensorProto) -> str:
    """Format a tensor as "int64[3] [1, 2, 3]"; elements are included for small tensors only."""
    import math

    from onnx import TensorProto

    head = f"{TensorProto.DataType.Name(tensor.data_type).lower()}{list(tensor.dims)}"
    if tensor.external_data or math.prod(tensor.dims) > _SHOWN:
        return head
    return f"{head} {to_array(tensor).reshape(-1).tolist()}"


def _told(value: Any) -> Any:
    return "a subgraph" if value is _GRAPH else value
