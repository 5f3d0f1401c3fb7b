"""Models as text: protobuf text, JSON and ONNX text, by the extensions of `onnx.load` and `onnx.save`.

The parsers are those of onnx and protobuf. They run in a worker, because a text of a few kilobytes can crash a process.
"""

from __future__ import annotations

import warnings
from itertools import repeat
from pathlib import Path
from typing import Any, Final

import onnx

from surgery.base.errors import ModelFileError, OutputError, WorkerError
from surgery.base.operators.message_tensors import from_array, to_array
from surgery.base.workers import Worker, WorkerRaised
from surgery.model.wire.tensors import all_tensors, is_external

FORMATS: Final = {
    **dict.fromkeys((".textproto", ".txtpb", ".pbtxt", ".prototxt"), "textproto"),
    **dict.fromkeys((".json", ".onnxjson"), "json"),
    **dict.fromkeys((".onnxtxt", ".onnxtext"), "onnxtxt"),
}
"""The format of each extension, by its name in onnx."""

_NAMES: Final = {"textproto": "protobuf text", "json": "JSON", "onnxtxt": "ONNX text"}
_TIMEOUT: Final = 600.0
_PLACE: Final = 200


def of(path: Path) -> str | None:
    """Return the text format of the extension of a file; None for other extensions."""
    return FORMATS.get(path.suffix.lower())


def is_text(head: bytes) -> bool:
    """Return whether the first bytes of a file are UTF-8 text, possibly truncated within a character."""
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:
            return False
        text = head[: error.start].decode("utf-8")
    return bool(head) and all(letter.isprintable() or letter in "\t\n\r\f\ufeff" for letter in text)


def read(path: Path, format_name: str) -> bytes:
    """Return the model in a text file as protobuf. Raises ModelFileError with the message of the parser."""
    try:
        with Worker(timeout=_TIMEOUT) as worker:
            data: bytes = worker.call(f"{__name__}:parse", data=path.read_bytes(), format_name=format_name)
    except WorkerRaised as error:
        what = f"this is not a model as {_NAMES[format_name]}: {_first_line(error.message)}"
        raise ModelFileError(what, where=str(path)) from error
    except WorkerError as error:
        error.where = str(path)
        raise
    return data


def locations(path: Path, format_name: str) -> list[str]:
    """Return the locations of the external data of a model in a text file. Raises ModelFileError."""
    model = onnx.ModelProto.FromString(read(path, format_name))
    entries = [entry for tensor in all_tensors(model) if is_external(tensor) for entry in tensor.external_data]
    return sorted({entry.value for entry in entries if entry.key == "location"})


def written(data: bytes, format_name: str, path: Path) -> bytes:
    """Return a protobuf model as text. Raises OutputError if the format cannot represent the whole model."""
    try:
        with Worker(timeout=_TIMEOUT) as worker:
            answer = worker.call(f"{__name__}:format_model", data=data, format_name=format_name)
    except WorkerRaised as error:
        what = f"{_NAMES[format_name]} cannot represent this model: {_first_line(error.message)}"
        raise OutputError(what, where=str(path), todo="write an .onnx file") from error
    except WorkerError as error:
        error.where = str(path)
        raise
    if answer["lost"]:
        what = f"{_NAMES[format_name]} cannot represent {answer['lost']}"
        others = "an .onnx file" if format_name != "onnxtxt" else ".textproto, .json or .onnx"
        raise OutputError(what, where=str(path), todo=f"write {others}")
    text: bytes = answer["text"]
    return text


def parse(data: bytes, format_name: str) -> bytes:
    """Convert text to protobuf; runs in the worker. Raises ValueError and the exceptions of the parsers."""
    from onnx import parser, serialization

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # onnx warns that its text format is experimental
            model = serialization.registry.get(format_name).deserialize_proto(data, onnx.ModelProto())
    except (parser.ParseError, RuntimeError, IndexError) as error:
        # The last two, by release, are for a number that its type does not hold. Some messages are bytes, of several
        # lines.
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise ValueError(" ".join(reason.split())) from error
    return bytes(model.SerializeToString(deterministic=True))


def format_model(data: bytes, format_name: str) -> dict[str, Any]:
    """Convert protobuf to text, read it back, and return the first lost field, if any; runs in the worker."""
    from onnx import serialization

    model = onnx.ModelProto.FromString(data)
    text: bytes = serialization.registry.get(format_name).serialize_proto(model)
    back = onnx.ModelProto.FromString(parse(text, format_name))
    return {"text": text, "lost": _difference(_normal(model), _normal(back))}


def _normal(model: onnx.ModelProto) -> onnx.ModelProto:
    """Encode all tensors in the same way, and drop the names of tensors in attributes, which have no meaning."""
    for tensor in all_tensors(model):
        if not is_external(tensor) and tensor.data_type != onnx.TensorProto.STRING and not tensor.raw_data:
            raw = from_array(to_array(tensor), tensor.name)
            raw.doc_string, raw.data_type = tensor.doc_string, tensor.data_type
            raw.metadata_props.extend(tensor.metadata_props)
            tensor.CopyFrom(raw)
        if tensor.HasField("data_location") and not is_external(tensor):
            tensor.ClearField("data_location")
    _clear_names(model)
    return model


def _clear_names(message: Any) -> None:
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for part in value if field.is_repeated else [value]:
                _clear_names(part)
            if message.DESCRIPTOR.name == "AttributeProto" and field.name == "t":
                value.ClearField("name")


def _difference(one: Any, other: Any, where: str = "model") -> str:
    """Return the first field in which two messages differ, or an empty text.

    An absent number or text equals its default.
    """
    for field in one.DESCRIPTOR.fields:
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        here = f"{where}.{field.name}"
        if field.type != field.TYPE_MESSAGE:
            found = "" if mine == theirs else f"'{here}'"
        elif field.is_repeated:
            unequal = len(mine) != len(theirs)
            found = f"'{here}'" if unequal else next(filter(None, map(_difference, mine, theirs, repeat(here))), "")
        else:
            unequal = one.HasField(field.name) != other.HasField(field.name)
            found = f"'{here}'" if unequal else _difference(mine, theirs, here) if one.HasField(field.name) else ""
        if found:
            return found
    return ""


def _first_line(text: str) -> str:
    """Return a parser message on one line, shortened."""
    line = " ".join(text.split())
    return line if len(line) <= _PLACE else f"{line[:_PLACE]}..."
