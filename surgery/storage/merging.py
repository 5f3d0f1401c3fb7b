"""A three-way merge of messages: apply the changes of another form, and keep fields that it cannot represent.

Whoever edits a model in a form of their own (onnx-ir, onnx-graphsurgeon, a tool) loses what that form has no place
for. The *plain* message is what their form makes of the original when nothing was changed. A field that differs
between it and the current message was changed, and takes the new value; all others take that of the original.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final, TypeVar

M = TypeVar("M")

# The field that names an item, for repeated fields whose items are distinguished by name
_NAMES: Final = {
    "attribute": "name",
    "attribute_proto": "name",
    "metadata_props": "key",
    "opset_import": "domain",
    "quant_parameter_tensor_names": "key",
    "external_data": "key",
}


def wire(message: Any) -> bytes:
    """Serialize a message: equal bytes mean that it is equal to the last unknown field."""
    data: bytes = message.SerializePartialToString(deterministic=True)
    return data


def without(message: M, *fields: str) -> M:
    """Return a copy of a message without some of its fields."""
    copy = deepcopy(message)
    for field in fields:
        copy.ClearField(field)  # type: ignore[attr-defined]
    return copy


def assign(field: Any, items: Iterable[Any]) -> None:
    """Let a repeated field have these items, which may be its own."""
    items = [deepcopy(item) for item in items]
    del field[:]
    field.extend(items)


def ordered(entries: Sequence[M], order: Mapping[str, int], name: str) -> Iterable[M]:
    """Sort entries as they were in the original; new ones come last."""
    if not order:
        return entries
    last = len(order)
    return sorted(entries, key=lambda entry: order.get(getattr(entry, name), last))


def merge(original: M, plain: M, current: M) -> M:
    """Return `original` with every field replaced that differs between `plain` and `current`."""
    result = deepcopy(original)
    for field in original.DESCRIPTOR.fields:  # type: ignore[attr-defined]
        if not _same(field, plain, current):
            _take(field, result, original, plain, current)
    return result


def _same(field: Any, a: Any, b: Any) -> bool:
    """Compare one field of two messages, to the bit of each number."""
    if not field.is_repeated and a.HasField(field.name) != b.HasField(field.name):
        return False
    left, right = getattr(a, field.name), getattr(b, field.name)
    if field.cpp_type not in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE, field.CPPTYPE_MESSAGE):
        return bool(left == right)
    # A NaN differs from itself.
    return wire(_only(field, a)) == wire(_only(field, b))


def _only(field: Any, message: M) -> M:
    """Return a message with nothing but one field of another."""
    only = type(message)()
    value = getattr(message, field.name)
    if field.is_repeated:
        getattr(only, field.name).extend(value)
    elif message.HasField(field.name):  # type: ignore[attr-defined]
        _set(field, only, value)
    return only


def _set(field: Any, message: Any, value: Any) -> None:
    if field.message_type is None:
        setattr(message, field.name, value)
    else:
        getattr(message, field.name).CopyFrom(value)


def _take(field: Any, result: Any, original: Any, plain: Any, current: Any) -> None:
    """Put the current value of a field into the result, merged with the original where both are messages."""
    name = field.name
    if field.is_repeated:
        items = getattr(current, name)
        if field.message_type is not None:
            items = _merge_items(name, getattr(original, name), getattr(plain, name), items)
        result.ClearField(name)
        getattr(result, name).extend(items)
    elif not current.HasField(name):
        result.ClearField(name)
    elif field.message_type is not None and original.HasField(name) and plain.HasField(name):
        merged = merge(getattr(original, name), getattr(plain, name), getattr(current, name))
        getattr(result, name).CopyFrom(merged)
    else:
        _set(field, result, getattr(current, name))


def _merge_items(name: str, original: Any, plain: Any, current: Any) -> list[Any]:
    """Merge repeated messages: by name where they have one, else by position where their number is the same."""
    key = _NAMES.get(name)
    if key is None:
        if len(original) == len(plain) == len(current):
            return [merge(*items) for items in zip(original, plain, current, strict=True)]
        return list(current)
    before = {getattr(item, key): item for item in original}
    between = {getattr(item, key): item for item in plain}
    merged = []
    for item in current:
        word = getattr(item, key)
        both = word in before and word in between
        merged.append(merge(before[word], between[word], item) if both else item)
    return merged + [item for word, item in before.items() if word not in between]
