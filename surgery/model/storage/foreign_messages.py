"""Protobuf messages that are not ONNX models, recognized by their fields."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

from surgery.model.wire.wire import LENGTH, VARINT, WireError, decode_varint, fields


class Foreign(NamedTuple):
    """The format of a file, as a phrase after 'this is', and the remedy."""

    what: str
    todo: str


TF2ONNX: Final = "python -m tf2onnx.convert"
SAVED: Final = Foreign(
    "a TensorFlow SavedModel", f"convert its folder with '{TF2ONNX} --saved-model FOLDER --output model.onnx'"
)
FROZEN: Final = Foreign(
    "a TensorFlow GraphDef",
    f"convert it with '{TF2ONNX} --graphdef MODEL --inputs x:0 --outputs y:0 --output model.onnx'",
)
COREML: Final = Foreign("a Core ML model", "no converter back is lossless; export the original model to ONNX")
PADDLE: Final = Foreign("a PaddlePaddle model", "convert its folder with 'paddle2onnx --model_dir FOLDER'")
TENSOR: Final = Foreign("an ONNX tensor, not an ONNX model", "name the model; pass test inputs with --inputs")

_MOST: Final = 10_000
"""Maximum number of fields of a message that are examined."""

_COREML_MODELS: Final = range(200, 4000)
"""The fields of a Core ML `Model` with the model itself, one for each type."""

_TENSOR_FIELDS: Final = {(number, LENGTH) for number in (4, 5, 6, 7, 8, 9, 10, 11)}


def recognized(data: memoryview) -> Foreign | None:
    """Return the format of a message; None if it is unknown."""
    found = _numbers(data, 0, len(data))
    if found is None:
        return None
    kinds = set(found)
    first = found[0]
    if kinds <= {(1, LENGTH), (2, LENGTH), (3, VARINT), (4, LENGTH), (5, LENGTH)} and first == (1, LENGTH):
        return _graph_or_program(data)
    if kinds == {(1, VARINT), (2, LENGTH)} and _is_saved(data):
        return SAVED
    if first == (1, VARINT) and any(number in _COREML_MODELS and kind == LENGTH for number, kind in kinds):
        return COREML
    if kinds <= {(1, VARINT), (1, LENGTH), (2, VARINT), *_TENSOR_FIELDS} and (2, VARINT) in kinds:
        return TENSOR
    return None


def _numbers(data: memoryview, start: int, stop: int) -> list[tuple[int, int]] | None:
    """Return the numbers and wire types of the fields of a message; None if it is empty or not a message."""
    try:
        found = [(number, kind) for number, kind, *_ in islice(fields(data, start, stop), _MOST)]
    except (WireError, IndexError):
        return None
    return found or None


def _spans(data: memoryview, start: int, stop: int, number: int) -> Sequence[tuple[int, int]]:
    """Return the positions of the length-delimited values of a field."""
    found = islice(fields(data, start, stop), _MOST)
    return [(begin, end) for one, kind, _, begin, end in found if one == number and kind == LENGTH]


def _graph_or_program(data: memoryview) -> Foreign | None:
    """Recognize a TensorFlow GraphDef, whose nodes begin with two strings, and a Paddle program with its blocks."""
    start, stop = _spans(data, 0, len(data), 1)[0]
    inner = _numbers(data, start, stop)
    if inner is None:
        return None
    if inner[:2] == [(1, LENGTH), (2, LENGTH)]:
        begin, end = _spans(data, start, stop, 2)[0]
        return FROZEN if bytes(data[begin:end]).replace(b"_", b"").isalnum() else None
    return PADDLE if inner[:2] == [(1, VARINT), (2, VARINT)] and (3, LENGTH) in inner else None


def _is_saved(data: memoryview) -> bool:
    """Return whether a message has version 1, as a SavedModel, followed by a MetaGraphDef."""
    position = next(begin for number, _, _, begin, _ in fields(data, 0, len(data)) if number == 1)
    start, stop = _spans(data, 0, len(data), 2)[0]
    inner = _numbers(data, start, stop)
    return decode_varint(data, position, len(data))[0] == 1 and inner is not None and (2, LENGTH) in inner
