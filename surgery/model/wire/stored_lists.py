"""Long lists of attributes outside the skeleton: in their place is a reference to their bytes on the wire.

The attribute keeps its name and type, and has an external tensor of bytes whose documentation is `MARK`. Whatever
needs the elements (a session, the checker, a pass) restores the list from the file, see `whole`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
import onnx

from surgery.base.operators.subgraphs import nodes
from surgery.model.wire.tensors import external_reference, is_external, refer
from surgery.model.wire.weights import MappedFile, source_at
from surgery.model.wire.wire import (
    FIXED32,
    LENGTH,
    VARINT,
    ByteRanges,
    Field,
    Reference,
    Rewriter,
    decode_varint,
    encode_tag,
    encode_varint,
    fields,
    past_run,
)

_ENSEMBLE: Final = (
    *("falsenodeids", "featureids", "hitrates", "missing_value_tracks_true", "modes", "nodeids", "treeids"),
    *("truenodeids", "values"),
)

_TABLES: Final = frozenset(
    {
        *(f"nodes_{name}" for name in _ENSEMBLE),
        *(f"{prefix}_{name}" for prefix in ("class", "target") for name in ("ids", "nodeids", "treeids", "weights")),
        *("coefficients", "support_vectors"),
    }
)
"""The lists that determine no type and no shape: those of tree ensembles (before opset 5 of ai.onnx.ml), support
vector machines and linear models that grow with what was trained, by the name of the attribute."""

MARK: Final = "\0surgery.list"
"""The documentation of the tensor that stands for a list; no model has such text."""

FROM: Final = 1 << 16
"""Size on the wire in bytes from which a list is outside the skeleton."""

_Kind = onnx.AttributeProto
LISTS: Final = {_Kind.FLOATS: "floats", _Kind.INTS: "ints", _Kind.STRINGS: "strings"}
"""The types of attributes that are lists of numbers or texts, and their fields."""

# Fields of AttributeProto
_NAME: Final = 1
_TENSOR: Final = 5
_DOC_STRING: Final = 13
_TYPE: Final = 20
_BYTES: Final = MARK.encode()

_BEGINNING: Final = 4096
_FLOAT_BYTES: Final = 5  # with the tag

# The type of an attribute and the wire type of its elements, by the number of the field
_RUNS: Final = {7: (_Kind.FLOATS, FIXED32), 8: (_Kind.INTS, VARINT), 9: (_Kind.STRINGS, LENGTH)}
_PLAIN: Final = frozenset({_NAME, _DOC_STRING, _TYPE})

_AT_ONCE: Final = 1 << 20
"""Number of bytes that are looked at together."""

_MAX_VARINT: Final = 10

_digests: WeakKeyDictionary[MappedFile, dict[Reference, bytes]] = WeakKeyDictionary()
_canonical: WeakKeyDictionary[MappedFile, dict[Reference, bool]] = WeakKeyDictionary()


def run_of(data: memoryview, start: int, stop: int, least: int) -> tuple[int, int] | None:
    """Return the range of the list in the attribute in `data[start:stop]`, with tags; None if it stays there.

    A list stays in the skeleton if it has fewer than `least` bytes, if shape inference may need it, or if its encoding
    or the rest of the attribute is unusual. Raises WireError.
    """
    run: _ListRun | None = None
    kind = 0
    for field in fields(data, start, stop, _PLAIN):
        number, wire, _, payload, end = field
        if number in _RUNS:
            run = run or _ListRun(field)
            if not run.takes(field):
                return None
        elif number == _NAME and bytes(data[payload:end]).decode("utf-8", "replace") not in _TABLES:
            return None
        elif number == _TYPE and wire == VARINT:
            kind = decode_varint(data, payload, end)[0]
        elif number not in _PLAIN:
            return None
        if run is not None and number != run.number:
            run.close(field)
    if run is None or kind != _RUNS[run.number][0]:
        return None
    first, last = run.start, stop if run.stop is None else run.stop
    return (first, last) if last - first >= least else None


class _ListRun:
    """Adjacent fields of one list. Equal fields that follow are skipped by `fields`, so the next other one ends it."""

    def __init__(self, first: Field) -> None:
        self.number, _, self.start, _, _ = first
        self.stop: int | None = None

    def takes(self, field: Field) -> bool:
        """Return whether a field continues the list as an unpacked element."""
        return field[0] == self.number and field[1] == _RUNS[self.number][1] and self.stop is None

    def close(self, other: Field) -> None:
        """End the list before another field."""
        if self.stop is None:
            self.stop = other[2]


def standing(data: memoryview, start: int, stop: int, run: tuple[int, int], reference: Reference) -> ByteRanges:
    """Return the attribute in `data[start:stop]` with a reference in the place of its list."""
    tensor = onnx.TensorProto(data_type=onnx.TensorProto.UINT8, dims=[reference.length], doc_string=MARK)
    refer(tensor, reference)
    message = tensor.SerializeToString()
    out = ByteRanges()
    out.add(data[start : run[0]])
    out.add(encode_tag(_TENSOR, LENGTH) + encode_varint(len(message)) + message)
    out.add(data[run[1] : stop])
    return out


def restored(data: memoryview, start: int, stop: int) -> ByteRanges | None:
    """Return the attribute in `data[start:stop]` with its list; None if nothing stands for it."""
    for number, wire, tag, payload, end in fields(data, start, stop):
        if number == _TENSOR and wire == LENGTH:
            tensor = onnx.TensorProto.FromString(bytes(data[payload:end]))
            if not _stands(tensor):
                return None
            out = ByteRanges()
            out.add(data[start:tag])
            out.refer(external_reference(tensor))
            out.add(data[end:stop])
            return out
        if number > _TENSOR and number not in _PLAIN:
            return None
    return None


def is_stored(attribute: onnx.AttributeProto) -> bool:
    """Return whether the list of an attribute is outside the skeleton."""
    return attribute.type in LISTS and attribute.HasField("t") and _stands(attribute.t)


def _stands(tensor: onnx.TensorProto) -> bool:
    return tensor.doc_string == MARK and is_external(tensor)


def stored_lists(model: onnx.ModelProto) -> Iterator[onnx.AttributeProto]:
    """Yield the attributes of a skeleton whose lists are outside."""
    for node in nodes(model):
        yield from filter(is_stored, node.attribute)
    for function in model.functions:
        yield from filter(is_stored, function.attribute_proto)


def length(attribute: onnx.AttributeProto) -> int:
    """Return the size on the wire of a list outside the skeleton, in bytes."""
    return int(attribute.t.dims[0])


def listed_bytes(model: onnx.ModelProto) -> int:
    """Return the size on the wire of all lists outside a skeleton, in bytes."""
    return sum(map(length, stored_lists(model)))


def viewed(reference: Reference) -> memoryview:
    """Return a range of an open file. Raises ModelFileError."""
    return source_at(reference.location).view(reference.offset, reference.length)


def digest(attribute: onnx.AttributeProto) -> bytes:
    """Return the digest of a list outside the skeleton; each is read only once. Raises ModelFileError."""
    reference = external_reference(attribute.t)
    source = source_at(reference.location)
    known = _digests.setdefault(source, {})
    if reference not in known:
        known[reference] = hashlib.sha256(source.view(reference.offset, reference.length)).digest()
    return known[reference]


def serialized(attribute: onnx.AttributeProto) -> list[bytes | memoryview]:
    """Return the pieces of an attribute as protobuf serializes it with its list. Raises ModelFileError.

    The list is not parsed, unless an encoder has written it in an unusual way.
    """
    if not _is_canonical(attribute):
        return [with_list(attribute).SerializeToString(deterministic=True)]
    head, tail = onnx.AttributeProto(name=attribute.name), onnx.AttributeProto()
    tail.CopyFrom(attribute)
    for name in ("name", "t"):
        tail.ClearField(name)
    view = viewed(external_reference(attribute.t))
    return [head.SerializeToString(deterministic=True), view, tail.SerializeToString(deterministic=True)]


def _is_canonical(attribute: onnx.AttributeProto) -> bool:
    """Return whether a list outside the skeleton has the bytes that protobuf writes; each is looked at only once."""
    reference = external_reference(attribute.t)
    source = source_at(reference.location)
    known = _canonical.setdefault(source, {})
    if reference not in known:
        view = source.view(reference.offset, reference.length)
        if attribute.type == _Kind.FLOATS:
            known[reference] = True
        elif attribute.type == _Kind.INTS:
            known[reference] = not _has_odd_number(view)
        else:
            # The number of bytes of a short text has one byte itself.
            known[reference] = past_run(view, 0, len(view), view[0]) == len(view)
    return known[reference]


def _has_odd_number(data: memoryview) -> bool:
    """Return whether a number has more bytes than it needs, or more than 64 bits. Tags have one byte."""
    elements = np.frombuffer(data, np.uint8)
    for begin in range(0, elements.size, _AT_ONCE):
        part = elements[begin : begin + _AT_ONCE + _MAX_VARINT]
        goes_on = part >= 0x80
        if np.any(goes_on[:-1] & (part[1:] == 0)):
            return True
        count = part.size - _MAX_VARINT + 1
        if count > 0:
            long = np.logical_and.reduce([goes_on[shift : shift + count] for shift in range(_MAX_VARINT - 1)])
            if np.any(part[_MAX_VARINT - 1 :][long] > 1):
                return True
    return False


def same_list(one: onnx.AttributeProto, other: onnx.AttributeProto) -> bool:
    """Return whether two attributes have the same elements, wherever their lists are. Raises ModelFileError."""
    if is_stored(one) and is_stored(other):
        return digest(one) == digest(other)
    first, second = (with_list(attribute).SerializeToString(deterministic=True) for attribute in (one, other))
    return bool(first == second)


def with_list(attribute: onnx.AttributeProto) -> onnx.AttributeProto:
    """Return a copy of an attribute with its list, or itself if the list is there. Raises ModelFileError."""
    if not is_stored(attribute):
        return attribute
    copy = onnx.AttributeProto()
    copy.CopyFrom(attribute)
    copy.ClearField("t")
    copy.MergeFromString(bytes(viewed(external_reference(attribute.t))))
    return copy


def whole(skeleton: bytes) -> bytes:
    """Return a serialized skeleton with all of its lists. Raises ModelFileError if their file no longer exists."""
    if not has_lists(skeleton):
        return skeleton
    pieces = _Restorer(skeleton).rewrite()
    return b"".join(viewed(part) if isinstance(part, Reference) else part for part in pieces.parts)


def without_lists(skeleton: bytes) -> bytes:
    """Return a serialized skeleton in which lists outside are empty: no check and no inference reads their elements."""
    if not has_lists(skeleton):
        return skeleton
    model = onnx.load_model_from_string(skeleton)
    for attribute in stored_lists(model):
        attribute.ClearField("t")
    return bytes(model.SerializeToString())


def has_lists(skeleton: bytes) -> bool:
    """Return whether a serialized skeleton has lists outside."""
    return _BYTES in skeleton


def with_lists(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of a skeleton with all of its lists, or itself if all are there. Raises ModelFileError."""
    return _changed(model, lambda attribute: attribute.CopyFrom(with_list(attribute)))


def with_beginnings(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of a skeleton with the first numbers of its lists of floats, or itself if there are none."""
    return _changed(model, _shorten)


def _shorten(attribute: onnx.AttributeProto) -> None:
    if attribute.type == _Kind.FLOATS:
        first = viewed(external_reference(attribute.t))[: _BEGINNING * _FLOAT_BYTES]
        attribute.ClearField("t")
        attribute.MergeFromString(bytes(first))


def _changed(model: onnx.ModelProto, change: Callable[[onnx.AttributeProto], None]) -> onnx.ModelProto:
    """Return a copy of a skeleton whose lists outside are changed, or itself if there are none."""
    if next(stored_lists(model), None) is None:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for attribute in stored_lists(copy):
        change(attribute)
    return copy


def put_outside(model: onnx.ModelProto, skeleton: onnx.ModelProto) -> None:
    """Replace each list of a model by the reference to an equal one of a skeleton, where there is one."""
    known: dict[tuple[str, int], list[onnx.AttributeProto]] = {}
    for attribute in stored_lists(skeleton):
        known.setdefault((attribute.name, attribute.type), []).append(attribute)
    if not known:
        return
    for node in nodes(model):
        for attribute in node.attribute:
            _put_outside(attribute, known.get((attribute.name, attribute.type), ()))


def _put_outside(attribute: onnx.AttributeProto, known: Sequence[onnx.AttributeProto]) -> None:
    if not known or is_stored(attribute) or attribute.ref_attr_name:
        return
    field = LISTS[attribute.type]
    only = onnx.AttributeProto()
    getattr(only, field).MergeFrom(getattr(attribute, field))
    data = only.SerializeToString(deterministic=True)
    for one in known:
        reference = external_reference(one.t)
        if reference.length == len(data) and viewed(reference) == data:
            attribute.ClearField(field)
            attribute.t.CopyFrom(one.t)
            return


class _Restorer(Rewriter):
    """Puts the lists back into a skeleton, and leaves its tensors references."""

    def __init__(self, skeleton: bytes) -> None:
        super().__init__(skeleton)
        self._bytes = skeleton

    def wanted(self, start: int, stop: int) -> bool:
        """Follow the messages that contain a list outside."""
        return self._bytes.find(_BYTES, start, stop) >= 0

    def tensor(self, start: int, stop: int, attached: bool) -> ByteRanges | None:
        """Keep a tensor."""

    def attribute(self, start: int, stop: int) -> ByteRanges | None:
        """Return an attribute with its list."""
        return restored(self.data, start, stop)
