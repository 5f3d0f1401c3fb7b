"""Attributes with long lists, such as those of tree ensembles, kept as they are stored instead of as Python objects.

A tree ensemble of 40 MB has 14 million numbers and texts; as tuples they take a gigabyte, and seconds for every
conversion.
"""

from __future__ import annotations

from typing import Any, Final

import onnx
import onnx_ir as ir

from surgery.model.wire.stored_lists import is_stored, viewed
from surgery.model.wire.tensors import external_reference

LONG: Final = 4096
"""Number of elements from which a list is long."""

_FIELDS: Final = {
    ir.AttributeType.INTS: "ints",
    ir.AttributeType.FLOATS: "floats",
    ir.AttributeType.STRINGS: "strings",
}
_NUMBERS: Final = {int(kind): field for kind, field in _FIELDS.items()}


class LongAttr(ir.Attr):
    """An attribute whose list is made from its bytes whenever it is asked for.

    `kept` is an AttributeProto on the wire that has only the list, or the tensor that stands for the list
    in a skeleton.
    """

    __slots__ = ("kept",)

    def __init__(
        self, name: str, kind: ir.AttributeType, kept: bytes | onnx.TensorProto, *, doc_string: str | None = None
    ) -> None:
        super().__init__(name, kind, None, doc_string=doc_string)
        self.kept = kept

    @property
    def data(self) -> bytes:
        """The list on the wire; two lists of one type are equal, bit by bit, if their bytes are."""
        return self.kept if isinstance(self.kept, bytes) else bytes(viewed(external_reference(self.kept)))

    def write(self, out: onnx.AttributeProto) -> None:
        """Set the list of a message."""
        if isinstance(self.kept, bytes):
            out.MergeFromString(self.kept)
        else:
            out.t.CopyFrom(self.kept)

    @property
    def value(self) -> tuple[Any, ...]:
        """The elements: numbers, or texts. If any of the texts is not UTF-8, all are bytes, as in the model."""
        listed = tuple(getattr(onnx.AttributeProto.FromString(self.data), _FIELDS[self.type]))
        if self.type != ir.AttributeType.STRINGS:
            return listed
        try:
            return tuple(text.decode() for text in listed)
        except UnicodeDecodeError:
            return listed


def named(name: str, attribute: ir.Attr) -> ir.Attr:
    """Return an attribute with the same value and another name, and without documentation."""
    if isinstance(attribute, LongAttr):
        return LongAttr(name, attribute.type, attribute.kept)
    return ir.Attr(name, attribute.type, attribute.value)


def is_long(attribute: onnx.AttributeProto) -> bool:
    """Return whether the list of an attribute is long."""
    field = _NUMBERS.get(attribute.type)
    return field is not None and (len(getattr(attribute, field)) >= LONG or is_stored(attribute))


def long_attribute(attribute: onnx.AttributeProto) -> LongAttr:
    """Return an attribute that has a list."""
    kind = ir.AttributeType(attribute.type)
    doc_string = attribute.doc_string if attribute.HasField("doc_string") else None
    if is_stored(attribute):
        tensor = onnx.TensorProto()
        tensor.CopyFrom(attribute.t)
        return LongAttr(attribute.name, kind, tensor, doc_string=doc_string)
    field = _NUMBERS[attribute.type]
    only = onnx.AttributeProto()
    getattr(only, field).MergeFrom(getattr(attribute, field))
    return LongAttr(attribute.name, kind, only.SerializeToString(deterministic=True), doc_string=doc_string)
