"""Attributes with long lists, such as those of tree ensembles, kept as they are stored instead of as Python objects.

A tree ensemble of 40 MB has 14 million numbers and texts; as tuples they take a gigabyte, and seconds for every
conversion.
"""

from __future__ import annotations

from typing import Any, Final

import onnx
import onnx_ir as ir

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

    `data` is an AttributeProto on the wire that has only the list; two lists of one type are equal, bit by bit, if and
    only if their bytes are.
    """

    __slots__ = ("data",)

    def __init__(self, name: str, kind: ir.AttributeType, data: bytes, *, doc_string: str | None = None) -> None:
        super().__init__(name, kind, None, doc_string=doc_string)
        self.data = data

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
        return LongAttr(name, attribute.type, attribute.data)
    return ir.Attr(name, attribute.type, attribute.value)


def is_long(attribute: onnx.AttributeProto) -> bool:
    """Return whether the list of an attribute is long."""
    field = _NUMBERS.get(attribute.type)
    return field is not None and len(getattr(attribute, field)) >= LONG


def long_attribute(attribute: onnx.AttributeProto) -> LongAttr:
    """Return an attribute that has a list."""
    field = _NUMBERS[attribute.type]
    only = onnx.AttributeProto()
    getattr(only, field).MergeFrom(getattr(attribute, field))
    kind = ir.AttributeType(attribute.type)
    doc_string = attribute.doc_string if attribute.HasField("doc_string") else None
    return LongAttr(attribute.name, kind, only.SerializeToString(deterministic=True), doc_string=doc_string)
