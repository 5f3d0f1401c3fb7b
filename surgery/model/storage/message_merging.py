"""A three-way merge of messages: apply changes made in another representation, and keep what it cannot represent.

Editing a model in another representation (onnx-ir, onnx-graphsurgeon, a tool) loses everything that it cannot
represent. The *plain* message is the result of a round trip of the original without changes. A field that differs
between it and the current message was changed, and takes the new value; all other fields keep their original values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final, TypeVar

M = TypeVar("M")

# The name field of the items of repeated fields whose items are identified by name
_NAMES: Final = {
    "attribute": "name",
    "attribute_proto": "name",
    "metadata_props": "key",
    "opset_import": "domain",
    "quant_parameter_tensor_names": "key",
    "external_data": "key",
}


def wire(message: Any) -> bytes:
    """Serialize a message deterministically: equal bytes mean equal messages, including unknown fields."""
    data: bytes = message.SerializePartialToString(deterministic=True)
    return data


def without(message: M, *fields: str) -> M:
    """Return a copy of a message without some of its fields."""
    copy = deepcopy(message)
    for field in fields:
        copy.ClearField(field)  # type: ignore[attr-defined]
    return copy


def assign(field: Any, items: Iterable[Any]) -> None:
    """Set the items of a repeated field; they may be items of the field itself."""
    items = [deepcopy(item) for item in items]
    del field[:]
    field.extend(items)


def ordered(entries: Sequence[M], order: Mapping[str, int], name: str) -> Iterable[M]:
    """Sort entries in the order of the original; new ones come last."""
    if not order:
        return entries
    last = len(order)
    return sorted(entries, key=lambda entry: order.get(getattr(entry, name), last))


def merge(original: M, plain: M, current: M) -> M:
    """Return a copy of `original` in which the fields that differ between `plain` and `current` are replaced."""
    result = deepcopy(original)
    for field in original.DESCRIPTOR.fields:  # type: ignore[attr-defined]
        if not _same(field, plain, current):
            _take(field, result, original, plain, current)
    return result


def _same(field: Any, a: Any, b: Any) -> bool:
    """Compare one field of two messages bit by bit."""
    if not field.is_repeated and a.HasField(field.name) != b.HasField(field.name):
        return False
    left, right = getattr(a, field.name), getattr(b, field.name)
    if field.cpp_type not in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE, field.CPPTYPE_MESSAGE):
        return bool(left == right)
    # A NaN differs from itself.
    return wire(_only(field, a)) == wire(_only(field, b))


def _only(field: Any, message: M) -> M:
    """Return a message with only one field of another message."""
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
    """Set a field of the result to the current value, merged with the original if both are messages."""
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
    """Merge repeated messages: by name if they have names, or else by position if their numbers are equal."""
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
