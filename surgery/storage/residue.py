"""What the IR cannot hold, kept next to it, so that a model comes back as it was.

When a model is imported, it is exported again at once. Wherever that *plain* export differs from the
original, both messages are attached to the IR object, in its `meta`: they live and die with the object. A
later export is a three-way merge, field by field: what is still as in the plain export takes the original's
form, what has been changed since takes the new one. So unknown fields, fields that are present but empty,
the order of metadata and the like survive, and no list of such things has to be complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import onnx

if TYPE_CHECKING:
    import onnx_ir as ir

KEY: Final = "surgery.residue"

M = TypeVar("M")

# The field that names an item, for repeated fields whose items are told apart by name
_NAMES: Final = {
    "attribute": "name",
    "attribute_proto": "name",
    "metadata_props": "key",
    "opset_import": "domain",
    "quant_parameter_tensor_names": "key",
    "external_data": "key",
}


class Residue:
    """An original message, and what the IR made of it when nothing had been changed."""

    __slots__ = ("original", "plain", "plain_bytes")

    def __init__(self, original: Any, plain: Any) -> None:
        self.original = _copy(original)
        self.plain = _copy(plain)
        self.plain_bytes = wire(plain)

    def restore(self, current: Any) -> None:
        """Merge the original into an export of the same object, in place."""
        if wire(current) == self.plain_bytes:
            current.CopyFrom(self.original)
        else:
            current.CopyFrom(merge(self.original, self.plain, current))


class GraphResidue:
    """What belongs to a graph or a function as a whole.

    `shell` is the message without its lists, `model` that of the model around it, because onnx_ir forgets the
    `meta` of a model when it clones one; the orders name the entries of a list as they stood; the loose
    entries name values that the graph does not have.
    """

    __slots__ = (
        "annotation_order",
        "loose_annotations",
        "loose_values",
        "model",
        "shell",
        "unnamed_initializers",
        "value_order",
    )

    def __init__(self) -> None:
        self.shell: Residue | None = None
        self.model: Residue | None = None
        self.value_order: dict[str, int] = {}
        self.annotation_order: dict[str, int] = {}
        self.loose_values: list[onnx.ValueInfoProto] = []
        self.loose_annotations: list[onnx.TensorAnnotation] = []
        self.unnamed_initializers: list[onnx.TensorProto] = []

    @property
    def has_order(self) -> bool:
        """Whether lists of the message stood in another order than that of the nodes and of names."""
        return bool(self.value_order or self.annotation_order) or self.loose_values != self._sorted_loose()

    def forget_order(self) -> None:
        """Let the lists stand in the order of the nodes, and what belongs to no value of the graph in that of names."""
        self.value_order, self.annotation_order = {}, {}
        self.loose_values = self._sorted_loose()

    def rename(self, names: Mapping[str, str]) -> None:
        """Follow values that get other names."""
        self.value_order = {names.get(name, name): place for name, place in self.value_order.items()}
        self.annotation_order = {names.get(name, name): place for name, place in self.annotation_order.items()}
        for annotation in self.loose_annotations:
            for entry in annotation.quant_parameter_tensor_names:
                entry.value = names.get(entry.value, entry.value)

    def _sorted_loose(self) -> list[onnx.ValueInfoProto]:
        return sorted(self.loose_values, key=lambda entry: entry.name)


def residue_of(owner: ir.Graph | ir.Function) -> GraphResidue | None:
    """Return what a graph or a function has next to it, None when it was made here."""
    found = owner.meta.get(KEY)
    return found if isinstance(found, GraphResidue) else None


def wire(message: Any) -> bytes:
    """Serialize a message: equal bytes mean that it is equal to the last unknown field."""
    data: bytes = message.SerializePartialToString(deterministic=True)
    return data


def without(message: M, *names: str) -> M:
    """Return a copy of a message without some of its fields."""
    copy = _copy(message)
    for name in names:
        copy.ClearField(name)  # type: ignore[attr-defined]
    return copy


def merge(original: M, plain: M, current: M) -> M:
    """Return `original` with every field replaced that differs between `plain` and `current`."""
    result = _copy(original)
    for field in original.DESCRIPTOR.fields:  # type: ignore[attr-defined]
        if not _same(field, plain, current):
            _take(field, result, original, plain, current)
    return result


def ordered(entries: Sequence[M], order: dict[str, int], name: str) -> Iterable[M]:
    """Sort entries as they stood in the original; new ones come last."""
    if not order:
        return entries
    last = len(order)
    return sorted(entries, key=lambda entry: order.get(getattr(entry, name), last))


def _copy(message: M) -> M:
    copy = type(message)()
    copy.CopyFrom(message)  # type: ignore[attr-defined]
    return copy


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
