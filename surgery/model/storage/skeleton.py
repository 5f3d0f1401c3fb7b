"""Read a model without its weights: a small ModelProto whose large tensors are references to file ranges."""

from __future__ import annotations

import os
import stat
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import onnx
from google.protobuf.message import DecodeError, EncodeError  # type: ignore[import-untyped]

from surgery.base.errors import ModelFileError, closest
from surgery.base.views import view
from surgery.model.storage import foreign
from surgery.model.wire.bounds import fault
from surgery.model.wire.splitter import Splitter
from surgery.model.wire.stored_lists import MARK
from surgery.model.wire.tensors import all_tensors, external_reference, is_external, refer
from surgery.model.wire.weights import MappedFile, Weights
from surgery.model.wire.wire import Reference, WireError

if TYPE_CHECKING:
    from collections.abc import Callable

INLINE_LIMIT: Final = 1024

# The first IR version with opset imports, and an upper limit far above any real version
_FIRST_WITH_OPSETS: Final = 3
_LAST_IR_VERSION: Final = 1000
_HEAD: Final = 1024
_AGAIN: Final = "fetch or export it again"


@dataclass
class StoredModel:
    """A model in storage: the skeleton, and the weights that it refers to.

    `path` is None for a model from memory. `external` says that its file used external data.
    """

    path: Path | None
    proto: onnx.ModelProto
    weights: Weights
    external: bool

    def __repr__(self) -> str:
        """Return a line for a prompt."""
        name = self.path.name if self.path is not None else "in memory"
        opsets = ", ".join(f"{one.domain or 'ai.onnx'} {one.version}" for one in self.proto.opset_import)
        return f"<StoredModel {name!r}: {len(self.proto.graph.node)} nodes, {opsets}>"

    def open(self) -> Any:
        """Edit the model in a notebook: return a page as `Session.show` does, in which every edit is verified.

            surgery.load("model.onnx").open()

        Its session ends with the page, or when the returned value is closed; unsaved steps stay in the draft. It needs
        the extra 'workbench'; raises UsageError without it.
        """
        return view("workbench_of_model")(self)

    def _repr_html_(self) -> str:
        """Return the notebook view: the main graph, without subgraphs."""
        graph = self.proto.graph
        return view("model")(
            name=self.path.name if self.path is not None else "a model in memory",
            nodes=len(graph.node),
            inputs=[value.name for value in graph.input],
            outputs=[value.name for value in graph.output],
            opsets=[(one.domain or "ai.onnx", one.version) for one in self.proto.opset_import],
            ops=dict(Counter(node.op_type for node in graph.node).most_common()),
        )


def load_protobuf(path: str | os.PathLike[str], *, limit: int = INLINE_LIMIT) -> StoredModel:
    """Read the skeleton of a protobuf model, the format of .onnx files; see `surgery.model.storage.load`."""
    given = Path(path)
    weights = Weights()
    source = open_model(given, weights)
    weights.origin = source.path

    def locate() -> tuple[str, int]:
        return weights.referable(source).location, 0

    data = source.view(0, source.size)
    folders = _Folders(str(given), [given.parent, source.path.parent])
    with source.in_small_bites():
        proto = _read(data, weights, locate, limit, folders)
    found = fault(proto, source.size)
    if found is not None:
        raise folders.error(*found)
    return StoredModel(given, proto, weights, weights.external)


def from_proto(
    proto: onnx.ModelProto, base_dir: str | os.PathLike[str] | None = None, *, limit: int = INLINE_LIMIT
) -> StoredModel:
    """Adopt a model in memory; large tensors are written to the scratch file.

    External data is searched in `base_dir`. The given proto is not modified. Raises ModelFileError as `load` does.
    """
    try:
        data = proto.SerializeToString()
    except (EncodeError, ValueError) as error:
        raise ModelFileError(f"the model in memory cannot be serialized: {error}") from error
    given = [] if base_dir is None else [Path(base_dir)]
    return _from_bytes(data, _Folders("the model in memory", given, is_file=False), limit)


def from_converted(data: bytes, path: Path, *, limit: int = INLINE_LIMIT) -> StoredModel:
    """Adopt a protobuf model that was converted from the format of the file `path`. Raises ModelFileError."""
    real = path.resolve()
    folders = _Folders(str(path), [path.parent, real.parent], is_file=False)
    stored = _from_bytes(data, folders, limit)
    found = fault(stored.proto, len(data))
    if found is not None:
        raise folders.error(*found)
    stored.weights.origin = real
    return replace(stored, path=path)


def _from_bytes(data: bytes, folders: _Folders, limit: int) -> StoredModel:
    weights = Weights()

    def locate() -> tuple[str, int]:
        reference = weights.spill(data)
        return reference.location, reference.offset

    skeleton = _read(memoryview(data), weights, locate, limit, folders)
    return StoredModel(None, skeleton, weights, weights.external)


def locations(path: Path) -> list[str]:
    """Return the locations of the external data of a protobuf model, without accessing them.

    Raises ModelFileError if the file is not a model.
    """
    with Weights() as weights:
        source = open_model(path, weights)
        folders = _Folders(str(path), [])
        splitter, proto = _parsed(
            source.view(0, source.size), weights, lambda: (source.location, 0), INLINE_LIMIT, folders
        )
        entries = [entry for tensor in all_tensors(proto) for entry in tensor.external_data if is_external(tensor)]
        named = {entry.value for entry in entries if entry.key == "location"}
        return sorted(named - {reference.location for reference in splitter.references})


class _Folders:
    """The folders where external data may be: the folder of the model, even if the model is a symbolic link.

    As in ONNX Runtime, both the folder of the link and the folder of its target are allowed.
    """

    def __init__(self, model: str, folders: list[Path], *, is_file: bool = True) -> None:
        self.model = model
        self.is_file = is_file
        self._given = folders
        self._real = [folder.resolve() for folder in folders]

    def find(self, tensor: str, location: str) -> Path:
        """Return the real path of a data file. Raises ModelFileError."""
        subject = f"the external data '{location}' of tensor '{tensor}'"
        parts = Path(location).parts
        if not self._given:
            raise self.error(f"{subject} cannot be found", "name the folder of the model")
        if Path(location).is_absolute() or ".." in parts or "\0" in location or not parts:
            raise self.error(f"{subject} is not a plain path inside the folder of the model", "do not trust it")
        for folder in self._given:
            candidate = folder / location
            if os.path.lexists(candidate):
                break
        else:
            raise self.error(f"{subject} is missing", f"put the file into {self._given[0]}")
        try:
            real = candidate.resolve(strict=True)
            mode = real.stat().st_mode
        except (OSError, RuntimeError) as error:
            raise self.error(f"{subject} cannot be read: {error}") from error
        if not any(real.is_relative_to(folder) for folder in self._real):
            raise self.error(f"{subject} points outside of the folder of the model", "put the file itself there")
        if not stat.S_ISREG(mode):
            raise self.error(f"{subject} is not a regular file")
        return real

    def error(self, what: str, todo: str | None = None) -> ModelFileError:
        """Return an error about the model."""
        return ModelFileError(what, where=self.model, todo=todo)


def read_head(path: Path) -> bytes:
    """Return the first bytes of a file that may be a model. Raises ModelFileError."""
    with Weights() as weights:
        source = open_model(path, weights)
        return bytes(source.view(0, min(source.size, _HEAD)))


def open_model(path: Path, weights: Weights) -> MappedFile:
    """Open a file that may be a model. Raises ModelFileError."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            found = foreign.recognized_folder(path)
            if found is not None:
                raise ModelFileError(f"this is {found.what}", where=str(path), todo=found.todo)
            inside = sorted(entry.name for entry in path.iterdir() if entry.suffix == ".onnx")
            todo = f"name the file in it: {', '.join(inside[:3])}" if inside else "name a .onnx file"
            raise ModelFileError("this is a directory", where=str(path), todo=todo)
        if not stat.S_ISREG(mode):
            raise ModelFileError("this is not a regular file", where=str(path), todo="name a .onnx file")
        source = weights.open(path)
    except FileNotFoundError as error:
        near = _neighbour(path)
        todo = f"did you mean '{near}'?" if near else "check the path"
        raise ModelFileError("no such file", where=str(path), todo=todo) from error
    except PermissionError as error:
        raise ModelFileError("no permission to read it", where=str(path), todo="change its mode") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ModelFileError(f"cannot be read: {reason}", where=str(path)) from error
    if source.size == 0:
        raise ModelFileError("the file is empty", where=str(path), todo=_AGAIN)
    return source


def _read(
    data: memoryview, weights: Weights, locate: Callable[[], tuple[str, int]], limit: int, folders: _Folders
) -> onnx.ModelProto:
    """Split, parse and check a model, and resolve its external data."""
    splitter, proto = _parsed(data, weights, locate, limit, folders)
    _find_external_data(proto, weights, splitter.references, max(limit, 1), folders)
    return proto


def _parsed(
    data: memoryview, weights: Weights, locate: Callable[[], tuple[str, int]], limit: int, folders: _Folders
) -> tuple[Splitter, onnx.ModelProto]:
    """Split, parse and check a model."""
    splitter = Splitter(data, weights, locate, limit)
    try:
        pieces = splitter.rewrite()
        skeleton = b"".join(_plain_bytes(pieces.parts))
        if skeleton.count(MARK.encode()) != splitter.lists:
            raise WireError("a list is outside the model", 0)
        proto: onnx.ModelProto = onnx.ModelProto.FromString(skeleton)
    except (WireError, DecodeError, RecursionError) as error:
        if isinstance(error, RecursionError) or "MaxDepth" in str(error):
            raise folders.error("it nests deeper than protobuf reads", "If within If ends at about 33") from error
        raise _not_a_model(data, folders, f"the file is truncated or damaged ({error})") from error
    fault = _implausible(proto)
    if fault:
        raise _not_a_model(data, folders, fault)
    return splitter, proto


def _plain_bytes(parts: list[bytes | memoryview | Reference]) -> list[bytes | memoryview]:
    return [part for part in parts if not isinstance(part, Reference)]


def _implausible(proto: onnx.ModelProto) -> str | None:
    """Return why a parsed message is not a model (protobuf accepts much invalid input); None if it is plausible."""
    graph = proto.graph
    if not proto.HasField("graph") or not (graph.node or graph.output or graph.input or graph.initializer):
        return "the file contains no graph, so it is not an ONNX model, or it is truncated"
    if not 1 <= proto.ir_version <= _LAST_IR_VERSION:
        return f"the file has IR version {proto.ir_version}, so it is not an ONNX model"
    if proto.ir_version >= _FIRST_WITH_OPSETS and not proto.opset_import:
        return "the file imports no opset: it is truncated or was written incorrectly"
    return None


def _not_a_model(data: memoryview, folders: _Folders, fault: str) -> ModelFileError:
    """Return the error for a file that is not a model, with its actual format, if recognized."""
    found = foreign.recognized(Path(folders.model), data) if folders.is_file else None
    return folders.error(fault, _AGAIN) if found is None else folders.error(f"this is {found.what}", found.todo)


def _find_external_data(
    proto: onnx.ModelProto, weights: Weights, own: set[Reference], limit: int, folders: _Folders
) -> None:
    """Convert the external data that the model declares to checked references, or read it if it is small."""
    sources: dict[str, MappedFile] = {}
    for tensor in all_tensors(proto):
        if not is_external(tensor):
            continue
        try:
            reference = external_reference(tensor)
        except ModelFileError as error:
            raise folders.error(error.what) from error
        if reference in own:
            continue
        weights.external = True
        source = sources.get(reference.location)
        if source is None:
            path = folders.find(tensor.name, reference.location)
            source = sources[reference.location] = _open_data(path, weights, folders)
        end = reference.offset + reference.length
        if end > source.size:
            raise folders.error(
                f"tensor '{tensor.name}' needs {end:,} bytes of '{reference.location}', and it has {source.size:,}",
                _AGAIN,
            )
        if reference.length < limit:
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.raw_data = bytes(source.view(reference.offset, reference.length))
        else:
            refer(tensor, reference._replace(location=source.location))


def _open_data(path: Path, weights: Weights, folders: _Folders) -> MappedFile:
    """Open a file of external data. Raises ModelFileError."""
    try:
        return weights.referable(weights.open(path))
    except OSError as error:
        raise folders.error(f"the external data '{path}' cannot be read: {error.strerror}") from error


def _neighbour(path: Path) -> str | None:
    """Return the path of the file in the same folder whose name is most similar to that of a missing file, or None."""
    try:
        known = [one.name for one in path.parent.iterdir() if one.suffix]
    except OSError:
        return None
    near = closest(path.name, known)
    return str(path.parent / near) if near is not None else None
