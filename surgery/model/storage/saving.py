"""Save a model: stream its weights from file to file, and move the result into place atomically."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import onnx
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]

from surgery.base.errors import OutputError, UsageError
from surgery.model.remote import transfer, urls
from surgery.model.storage import foreign, staging, text_formats
from surgery.model.storage.files import NewFile, output_errors, sync_folder
from surgery.model.wire.content_names import content_digest, is_by_content, named, neutral_name
from surgery.model.wire.digests import file_digest
from surgery.model.wire.join import DataFile, DataFiles, Joiner
from surgery.model.wire.leftovers import LeftoverJournal, sweep
from surgery.model.wire.weights import Weights
from surgery.model.wire.wire import ByteRanges, Piece, Reference

Layout = Literal["keep", "single", "external"]
"""Where weights are written: as in the file that the model is from, into the model file, or into a file next to it."""
Names = Callable[[int], str]

# Protobuf cannot read messages of 2 GiB or more.
PROTOBUF_LIMIT: Final = 2**31 - 1
# Smaller tensors stay in the model file even if others are external, as in onnx itself.
EXTERNAL_FROM: Final = 1024
DATA_SUFFIX: Final = ".data"
"""The addition to the name of a model that gives the usual name of its external data."""


@dataclass(frozen=True)
class External:
    """The details of the layout `external`.

    Tensors of at least `threshold` bytes are in the file `data` next to the model, or in several files of at most
    `shard_size` bytes, of which the further ones are called `data_1`, `data_2`. Each tensor starts at a multiple of
    `alignment` bytes, but at least 64; large tensors start at a page boundary.
    """

    threshold: int = EXTERNAL_FROM
    data: str | None = None
    shard_size: int | None = None
    alignment: int = 1

    def __post_init__(self) -> None:
        if self.data is not None and (self.data in ("", ".", "..") or Path(self.data).name != self.data):
            raise UsageError(f"'{self.data}' is not a plain file name", todo="name a file next to the model")
        if self.alignment < 1 or self.alignment & (self.alignment - 1):
            raise UsageError(f"an alignment of {self.alignment} bytes is not a power of two", todo="use 4096, or 65536")
        if self.shard_size is not None and self.shard_size < 1:
            raise UsageError("an external data file needs at least one byte")

    def names(self, target: Path) -> Names:
        """Return a function from the number of a data file, from 0, to its name."""
        first = self.data or f"{target.name}{DATA_SUFFIX}"
        if first == target.name:
            raise UsageError(f"'{first}' is the model itself", todo="name another file for the weights")
        return lambda number: first if number == 0 else f"{first}_{number}"


def save(
    proto: onnx.ModelProto,
    path: str | os.PathLike[str],
    weights: Weights,
    *,
    layout: Layout | External = "keep",
    force: bool = False,
) -> list[Path]:
    """Write a skeleton with its weights to `path`, and return the files written.

    `single` is one file; `external` puts tensors of at least 1,024 bytes into `<name>.data` next to it, or as specified
    by `External`; `keep` has the layout of the input, but is external if one file would exceed 2 GiB. Memory use is
    constant. An old file is intact until the new one replaces it, even if it is the model that `weights` come from.
    Equal models give equal bytes. A name with `{sha256:12}` is completed by so many digits of the hash of the content;
    existing files with this content are not written again. The extension selects the format, as in `load`; a text
    format is refused if it cannot represent the whole model. For a URL, the files are uploaded, the model last, and no
    files are returned.

    Raises OutputError if the file exists and is not to be replaced by `force`, or cannot be written, ModelFileError if
    weights no longer exist, and TransferError if a connection breaks.
    """
    if not isinstance(layout, External) and layout not in ("keep", "single", "external"):
        raise UsageError(f"there is no layout '{layout}'", todo="use keep, single or external")
    if isinstance(path, str) and urls.is_url(path):
        with staging.Staging() as copies:
            save(proto, staging.output_path(path, copies, force=force), weights, layout=layout)
        return []
    external = layout if isinstance(layout, External) else External()
    how: Layout = "external" if isinstance(layout, External) else layout
    if is_by_content(Path(path)):
        check_target(path, force=force)
        plan = _Plan(_serialize(proto, Path(path)), weights, how, external, Path(path))
        path = named(Path(path), plan.digest())
        if held := _held(Path(os.path.realpath(path)), plan, external.names(Path(path)), weights):
            return held
    target = check_target(path, force=force)
    if weights.origin != target:
        spare_input(target, weights)
    names = external.names(target)
    _require_format(target)
    plan = _Plan(_serialize(proto, target), weights, how, external, target)
    written = _write(target, names, plan, weights, force)
    staging.publish(written)
    return written


def _write(target: Path, names: Names, plan: _Plan, weights: Weights, force: bool) -> list[Path]:
    """Write the files of a model, and return them."""
    pieces, files = plan.make(names)
    if not files:
        with output_errors(target):
            _write_model(target, pieces, weights)
        sweep(target.parent)
        return [target]
    sweep(target.parent)
    for file_plan in files:
        _check_data_path(target.with_name(file_plan.name), target, weights, force)
    with output_errors(target.with_name(files[0].name)):
        written = _write_all(target, names, plan, weights)
    # The old model may have referred to files of a killed run that the new model does not need.
    sweep(target.parent)
    return written


def _held(target: Path, plan: _Plan, names: Names, weights: Weights) -> list[Path]:
    """Return the files of a model if all exist with the planned content; otherwise an empty list."""
    pieces, files = plan.make(names)
    planned = {target: content_digest(pieces.parts, (), weights)}
    planned |= {target.with_name(file.name): content_digest((), [file], weights) for file in files}
    is_there = all(path.is_file() and file_digest(path) == digest for path, digest in planned.items())
    return list(planned) if is_there else []


def saved_size(proto: onnx.ModelProto, weights: Weights) -> int:
    """Return the total size of the files that `save` would write in the current layout, without reading weights."""
    plan = _Plan(_serialize(proto, None), weights, "keep", External(), Path("model.onnx"))
    pieces, files = plan.make(neutral_name)
    return pieces.size + sum(file.end for file in files)


def resolve(proto: onnx.ModelProto, weights: Weights | None = None) -> onnx.ModelProto:
    """Return the whole model in memory, including weights.

    With `weights`, tensors are encoded as in their file; without, all are raw data. Raises OutputError above 2 GiB, and
    ModelFileError if weights no longer exist.
    """
    weights = weights or Weights()
    skeleton = _serialize(proto, None)
    pieces = Joiner(skeleton, weights, DataFiles(str), lambda _: False).rewrite()
    if pieces.size > PROTOBUF_LIMIT:
        raise OutputError(f"the model has {pieces.size:,} bytes, which is too large for one protobuf message")
    parts = [weights.view(part) if isinstance(part, Reference) else part for part in pieces.parts]
    whole: onnx.ModelProto = onnx.ModelProto.FromString(b"".join(parts))
    return whole


class _Plan:
    """The bytes to write, given names of the data files; a skeleton is small, so planning twice is cheap."""

    def __init__(self, skeleton: bytes, weights: Weights, layout: Layout, external: External, target: Path) -> None:
        self._skeleton = skeleton
        self._weights = weights
        self._target = target
        self._layout = layout
        self._external = external
        size = self._join(str, "single")[0].size
        if layout == "single" and size > PROTOBUF_LIMIT:
            raise OutputError(
                f"the model has {size:,} bytes, but protobuf only reads files below 2 GiB",
                where=str(target),
                todo="use the layout 'external'",
            )
        if layout == "keep" and size > PROTOBUF_LIMIT:
            self._layout = "external"

    def make(self, names: Names) -> tuple[ByteRanges, list[DataFile]]:
        """Return the bytes of the model file and the plans of the data files. Raises OutputError."""
        pieces, data = self._join(names, self._layout)
        if pieces.size > PROTOBUF_LIMIT:
            raise OutputError(
                f"the model has {pieces.size:,} bytes that cannot be external, but protobuf only reads files "
                f"below 2 GiB",
                where=str(self._target),
            )
        return pieces, data.files

    def digest(self) -> str:
        """Return the digest of the content, independent of the names of the files. Reads the weights."""
        pieces, files = self.make(neutral_name)
        return content_digest(pieces.parts, files, self._weights)

    def _join(self, names: Names, layout: Layout) -> tuple[ByteRanges, DataFiles]:
        how = self._external
        data = DataFiles(names, how.shard_size, how.alignment)
        encodings, external = self._weights.encodings, self._weights.external

        def outside(reference: Reference) -> bool:
            if layout == "keep":
                # Tensors from inside the model file stay there; new ones are external if the model has external data.
                return external and reference not in encodings and reference.length >= how.threshold
            return layout == "external" and reference.length >= how.threshold

        return Joiner(self._skeleton, self._weights, data, outside).rewrite(), data


def _serialize(proto: onnx.ModelProto, target: Path | None) -> bytes:
    where = None if target is None else str(target)
    try:
        return bytes(proto.SerializeToString(deterministic=True))
    except (EncodeError, ValueError) as error:
        raise OutputError(f"the model cannot be serialized: {error}", where=where) from error


def check_target(path: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Return the path that `save` would write, with symbolic links resolved; call it before there is anything to save.

    Raises OutputError if its folder is missing or read-only, or if the path exists and is not a regular file or `force`
    is off, and for `-`, which the command line replaces where it may be standard output. The returned path of a URL is
    only for messages.
    """
    if os.fspath(path) == "-":
        raise OutputError("'-' cannot be standard output here", todo="name a file")
    if isinstance(path, str) and urls.is_url(path):
        return _check_url(path, force)
    path = Path(path)
    try:
        # Before links are resolved: the target of /dev/stdout is the name of a pipe, which is no path.
        if path.is_fifo() or path.is_char_device() or path.is_socket():
            todo = "use - for standard output" if str(path) == "/dev/stdout" else "name a file to write"
            raise OutputError("this is not a regular file", where=str(path), todo=todo)
        target = Path(os.path.realpath(path))
        if not target.parent.is_dir():
            raise OutputError(f"the folder {target.parent} does not exist", where=str(path), todo="create it first")
        if not os.access(target.parent, os.W_OK | os.X_OK):
            raise OutputError(
                f"no permission to write into {target.parent}", where=str(path), todo="name another output"
            )
        mode = target.lstat().st_mode
    except FileNotFoundError:
        return target
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise OutputError(f"cannot be written: {reason}", where=str(path)) from error
    if not stat.S_ISREG(mode):
        kind = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
        raise OutputError(f"this is {kind}", where=str(path), todo="name a file to write")
    if not force:
        raise OutputError("the file exists", where=str(path), todo="name another one, or use --force")
    return target


def is_data_of(path: Path, output: Path) -> bool:
    """Return whether a file has a name that `save` may give to external data of `output`."""
    file, model = Path(os.path.realpath(path)), Path(os.path.realpath(output))
    return (
        file.parent == model.parent
        and re.fullmatch(f"{re.escape(DATA_SUFFIX)}(_[0-9]+)?", file.name.removeprefix(model.name)) is not None
    )


def _check_url(url: str, force: bool) -> Path:
    local = urls.local_path(url)
    if local is not None:
        return check_target(local, force=force)
    transfer.check_writable(url, force=force)
    return Path(urls.shown(url))


def _check_data_path(path: Path, target: Path, weights: Weights, force: bool) -> None:
    """Refuse to replace a data file unintentionally. Raises OutputError."""
    if not os.path.lexists(path):
        return
    if not stat.S_ISREG(path.lstat().st_mode):
        raise OutputError("this is not a regular file", where=str(path), todo="name another output")
    if not force:
        raise OutputError(
            "the file for external data exists", where=str(path), todo="name another output, or use --force"
        )
    if weights.origin != target:
        spare_input(path, weights)


def spare_input(path: Path, weights: Weights) -> None:
    """Refuse to overwrite a data file that the input still needs. Raises OutputError."""
    if weights.uses(path):
        raise OutputError(
            f"the file holds weights of the input {weights.origin or 'model'}",
            where=str(path),
            todo="name another output",
        )


def _write_model(target: Path, pieces: ByteRanges, weights: Weights) -> None:
    """Write the model file, in the format of its extension, and move it into place."""
    format_name = text_formats.of(target)
    parts: list[Piece] = pieces.parts
    if format_name is not None:
        plain = [weights.view(part) if isinstance(part, Reference) else part for part in parts]
        parts = [text_formats.written(b"".join(plain), format_name, target)]
    with NewFile(target) as file:
        file.write(parts, weights)
        file.commit(target)


def _require_format(target: Path) -> None:
    """Raise OutputError for the extension of a format that cannot be written."""
    found = foreign.FORMATS_OF_OUTPUTS.get(target.suffix.lower())
    if found is not None:
        raise OutputError(f"{found[0]} is not written", where=str(target), todo=found[1])


def _write_all(target: Path, names: Names, plan: _Plan, weights: Weights) -> list[Path]:
    """Write the data files and the model that refers to them.

    Several files cannot be replaced in one step, and the old model may use the same data files as the new one. So an
    existing data file is not modified before the model that may need it is replaced:

    1. The new data is written completely, under names that no file has.
    2. A model that refers to it replaces the old one. Before this step the old files are intact, after it the new ones.
    3. The old data files, which are no longer needed, are removed, and the new data is written again under its final
       names. (A second hard link would be faster, but onnx refuses data files with several.)
    4. A model with the final names replaces the one of step 2, and the data of step 1 is removed.

    A process that is killed at any moment leaves an intact model, at worst with unused files next to it: a
    `LeftoverJournal` records them, and the next save in that folder removes them. After an interrupt in step 3, or
    without the space for it, the model of step 2 remains, and the journal with it. If there is no old data file, steps
    1 and 2 use the final name directly. Data files that already have the right contents are kept.
    """
    pieces, files = plan.make(names)
    paths = [target.with_name(file.name) for file in files]
    if all(file.lies_in(path, weights) for file, path in zip(files, paths)):
        _write_model(target, pieces, weights)
        return [target, *paths]
    first = [_fresh(path) if os.path.lexists(path) else path for path in paths]
    # On exit, the journal removes the files that the current model does not refer to, whatever happened.
    with LeftoverJournal(target) as journal:
        for file, path, like in zip(files, first, paths):
            _write_data(path, file, weights, journal, like=like, is_final=path == like)
        _write_model(target, plan.make(lambda number: first[number].name)[0], weights)
        taken = [(file, path, passing) for file, path, passing in zip(files, paths, first) if path != passing]
        if not taken:
            return [target, *paths]
        try:
            for file, path, passing in taken:
                path.unlink()
                _write_data(path, file, weights, journal, like=passing, is_final=True)
            _write_model(target, pieces, weights)
        except Exception:
            return [target, *first]
    sync_folder(target.parent)
    return [target, *paths]


def _write_data(
    path: Path, data: DataFile, weights: Weights, journal: LeftoverJournal, *, like: Path, is_final: bool
) -> None:
    """Write a data file and move it into place."""
    with NewFile(path, like=like) as file:
        for reference, offset in data.parts.items():
            file.seek(offset)
            file.write([reference], weights)
        file.sync()
        journal.note(path.name, file.fd, is_final=is_final)
        file.commit(path)


def _fresh(path: Path) -> Path:
    """Return a path next to `path` that does not exist."""
    number = 1
    while os.path.lexists(fresh := path.with_name(f"{path.stem}.{number}{path.suffix}")):
        number += 1
    return fresh
