"""Read a model in any supported format: protobuf, text, JSON or the ORT format, on disk or at a URL."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from surgery.base.errors import ModelFileError, SurgeryError, UsageError
from surgery.model.remote import transfer, urls
from surgery.model.storage import ort_format, staging, text_formats
from surgery.model.storage.skeleton import (
    INLINE_LIMIT,
    StoredModel,
    from_converted,
    from_proto,
    load_protobuf,
    locations,
    read_head,
)

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    Model: TypeAlias = str | Path | onnx.ModelProto | onnx_ir.Model | StoredModel


def load(path: str | os.PathLike[str], *, limit: int = INLINE_LIMIT) -> StoredModel:
    """Read the skeleton of a model file. Weights are mapped, not read.

    Tensors with a payload of at least `limit` bytes become external references, relative to the root folder, possibly
    into the model file itself; smaller ones are inline. The extension selects protobuf text, JSON or ONNX text, and the
    first bytes the ORT format. For a URL, the model and its external data are copied to a temporary folder, which is
    removed with the weights.

    Raises ModelFileError if the file cannot be read, is not a model or is damaged, or if its external data is missing,
    too short or outside the folder of the model, and TransferError if a connection breaks.
    """
    if not isinstance(path, str) or not urls.is_url(path):
        return _load(Path(path), limit)
    local = urls.local_path(path)
    return _load(local, limit) if local is not None else _load_url(path, limit)


def opened(model: Model) -> StoredModel:
    """Read a model file, or adopt a model in memory; a model that was already read is returned.

    Raises UsageError for an object that is no model, and what `load` raises.
    """
    if isinstance(model, StoredModel):
        return model
    if isinstance(model, str | os.PathLike):
        return load(model)
    import onnx
    import onnx_ir

    found: object = onnx_ir.to_proto(model) if isinstance(model, onnx_ir.Model) else model
    if isinstance(found, onnx.ModelProto):
        return from_proto(found)
    todo = "pass a path, an onnx.ModelProto, an onnx_ir.Model, or what surgery.load returns"
    raise UsageError(f"an object of type {type(model).__name__} is no model", todo=todo)


def _load(path: Path, limit: int) -> StoredModel:
    format_name = text_formats.of(path)
    if format_name is None and not ort_format.is_ort(path):
        return load_protobuf(path, limit=limit)
    head = read_head(path)
    if format_name is not None and text_formats.is_text(head):
        return from_converted(text_formats.read(path, format_name), path, limit=limit)
    if ort_format.marks(head):
        return from_converted(ort_format.read(path), path, limit=limit)
    return load_protobuf(path, limit=limit)


def _load_url(url: str, limit: int) -> StoredModel:
    copies = staging.Staging()
    try:
        stored = _load(fetched(url, copies), limit)
    except SurgeryError as error:
        staging.explained(error)
        copies.close()
        raise
    except BaseException:
        copies.close()
        raise
    weakref.finalize(stored.weights, copies.close)
    return stored


def fetched(url: str, copies: staging.Staging) -> Path:
    """Copy a model and its external data, and return the path of the copy; messages show the URL instead."""
    path = copies.copied(url)
    _fetch_data(path, url)
    return path


def _fetch_data(path: Path, url: str) -> None:
    """Copy the external data of a model next to it, if its location is valid; loading reports the other locations."""
    for location in external_locations(path):
        parts = Path(location).parts
        if parts and not Path(location).is_absolute() and ".." not in parts and "\0" not in location:
            target = path.parent / location
            target.parent.mkdir(parents=True, exist_ok=True)
            transfer.fetch(urls.sibling(url, location), target)


def opens_in_runtime(path: Path) -> bool:
    """Return whether ONNX Runtime opens a model file by its path: protobuf and the ORT format, but no text formats."""
    if ort_format.is_ort(path):
        return path.suffix == ort_format.SUFFIX
    return text_formats.of(path) is None or not text_formats.is_text(read_head(path))


def external_locations(path: Path) -> list[str]:
    """Return the locations of the external data of a model file, without accessing them. Raises ModelFileError."""
    format_name = text_formats.of(path)
    head = read_head(path)
    if ort_format.marks(head):
        return []
    if format_name is not None and text_formats.is_text(head):
        return text_formats.locations(path, format_name)
    return locations(path)


def require_whole(path: Path, what: str) -> None:
    """Raise ModelFileError if a model needs external data, which `what` does not include."""
    found = external_locations(path)
    if found:
        raise ModelFileError(
            f"its weights are external, in '{found[0]}', which {what} does not include",
            where=what,
            todo="name the file instead, or make it one file with 'surgery embed'",
        )
