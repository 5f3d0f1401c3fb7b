"""Descriptions: doc strings and metadata, which describe the parts of a model and compute nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from surgery.base.json_record import Record
from surgery.model.wire.wire import LENGTH, encode_tag, encode_varint

if TYPE_CHECKING:
    import onnx

ENTRIES = "metadata_props"
_TRAINING = "training_info"
PRODUCER = ("producer_name", "producer_version")


@dataclass(frozen=True)
class DescriptionBytes(Record, keys="total entries doc_strings producer"):
    """The bytes that descriptions take in the file: metadata entries by their keys, doc strings, and the producer."""

    entries: dict[str, int] = field(default_factory=dict)
    doc_strings: int = 0
    producer: int = 0

    @property
    def total(self) -> int:
        """All bytes."""
        return sum(self.entries.values()) + self.doc_strings + self.producer


def described(message: Any) -> Iterator[Any]:
    """Yield a message and the messages in it that have a doc string or metadata; training information is left out."""
    pending = [message]
    while pending:
        one = pending.pop()
        if getattr(one, "doc_string", "") or getattr(one, "metadata_props", ()):
            yield one
        for kind, content in one.ListFields():
            if kind.message_type is not None and kind.name not in (ENTRIES, _TRAINING):
                pending += content if kind.is_repeated else [content]


def description_bytes(model: onnx.ModelProto) -> DescriptionBytes:
    """Measure the descriptions of a model; the largest entries come first."""
    entries: Counter[str] = Counter()
    texts = 0
    for holder in described(model):
        numbers = holder.DESCRIPTOR.fields_by_name
        texts += _text_bytes(holder.doc_string, numbers["doc_string"].number)
        for entry in getattr(holder, ENTRIES, ()):
            entries[entry.key] += _framed(entry.ByteSize(), numbers[ENTRIES].number)
    fields = model.DESCRIPTOR.fields_by_name
    producer = sum(_text_bytes(getattr(model, name), fields[name].number) for name in PRODUCER)
    return DescriptionBytes(dict(entries.most_common()), texts, producer)


def _text_bytes(text: str, number: int) -> int:
    return _framed(len(text.encode("utf-8", "surrogatepass")), number) if text else 0


def _framed(size: int, number: int) -> int:
    """Return the bytes of a field of this number, with its tag and its length."""
    return len(encode_tag(number, LENGTH)) + len(encode_varint(size)) + size
