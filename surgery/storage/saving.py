"""Save a model: stream its weights from file to file, and put the result in place in one step."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final, Literal

import onnx
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]

from surgery.errors import OutputError, UsageError
from surgery.storage.files import NewFile, output_errors, sync_folder
from surgery.storage.join import DataFile, Joiner
from surgery.storage.weights import Weights
from surgery.storage.wire import Pieces, Reference

Layout = Literal["keep", "single", "external"]

# Protobuf reads no message of 2 GiB.
PROTOBUF_LIMIT: Final = 2**31 - 1
# Smaller tensors stay in the model file also when the others are external, as onnx itself does it.
EXTERNAL_FROM: Final = 1024


def save(
    proto: onnx.ModelProto,
    path: str | os.PathLike[str],
    weights: Weights,
    *,
    layout: Layout = "keep",
    force: bool = False,
) -> list[Path]:
    """Write a skeleton with its weights to `path`, and return the files written.

    `single` is one file; `external` puts tensors of at least 1,024 bytes into `<name>.data` beside it; `keep`
    does as the input was, and goes external where one file would pass 2 GiB. Memory use is constant. The old
    file stays whole until the new one takes its place, which may also be the model that `weights` come from.
    Equal models make equal bytes. Raises OutputError, and ModelFileError when weights are gone.
    """
    if layout not in ("keep", "single", "external"):
        raise UsageError(f"there is no layout '{layout}'", todo="use keep, single or external")
    target = check_target(path, force=force)
    if weights.origin != target:
        _spare_input(target, weights)
    skeleton = _serialize(proto, target)
    data_path = target.with_name(target.name + ".data")
    plan = _Plan(skeleton, weights, layout, target)
    pieces, data = plan.make(data_path.name)
    with output_errors(target):
        if not data.parts:
            _write_model(target, pieces, weights)
            return [target]
    _check_data_path(data_path, target, weights, force)
    with output_errors(data_path):
        return _write_both(target, data_path, plan, weights)


def resolve(proto: onnx.ModelProto, weights: Weights | None = None) -> onnx.ModelProto:
    """Return the whole model in memory, weights included.

    With `weights`, tensors are encoded as they were in their file; without, all are raw data.
    Raises OutputError past 2 GiB, and ModelFileError when weights are gone.
    """
    weights = weights or Weights()
    skeleton = _serialize(proto, None)
    pieces = Joiner(skeleton, weights, DataFile(""), lambda _: False).rewrite()
    if pieces.size > PROTOBUF_LIMIT:
        raise OutputError(f"the model has {pieces.size:,} bytes, more than fit into one protobuf message")
    parts = [weights.view(part) if isinstance(part, Reference) else part for part in pieces.parts]
    whole: onnx.ModelProto = onnx.ModelProto.FromString(b"".join(parts))
    return whole


class _Plan:
    """The bytes to write, for a name of the data file; a model is small, so that planning twice is cheap."""

    def __init__(self, skeleton: bytes, weights: Weights, layout: Layout, target: Path) -> None:
        self._skeleton = skeleton
        self._weights = weights
        self._target = target
        self._layout = layout
        size = self._join("", "single")[0].size
        if layout == "single" and size > PROTOBUF_LIMIT:
            raise OutputError(
                f"the model has {size:,} bytes, and protobuf reads files below 2 GiB only",
                where=str(target),
                todo="use the layout 'external'",
            )
        if layout == "keep" and size > PROTOBUF_LIMIT:
            self._layout = "external"

    def make(self, data_name: str) -> tuple[Pieces, DataFile]:
        """Return the bytes of the model file and the plan of the data file. Raises OutputError."""
        pieces, data = self._join(data_name, self._layout)
        if pieces.size > PROTOBUF_LIMIT:
            raise OutputError(
                f"the model has {pieces.size:,} bytes that cannot be external, and protobuf reads files below "
                "2 GiB only",
                where=str(self._target),
            )
        return pieces, data

    def _join(self, data_name: str, layout: Layout) -> tuple[Pieces, DataFile]:
        data = DataFile(data_name)
        encodings, external = self._weights.encodings, self._weights.external

        def outside(reference: Reference) -> bool:
            if layout == "keep":
                # What stood inside the model file stays there, what is new follows the others.
                return external and reference not in encodings and reference.length >= EXTERNAL_FROM
            return layout == "external" and reference.length >= EXTERNAL_FROM

        return Joiner(self._skeleton, self._weights, data, outside).rewrite(), data


def _serialize(proto: onnx.ModelProto, target: Path | None) -> bytes:
    where = None if target is None else str(target)
    try:
        return bytes(proto.SerializeToString(deterministic=True))
    except (EncodeError, ValueError) as error:
        raise OutputError(f"the model cannot be serialized: {error}", where=where) from error


def check_target(path: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Return the path that `save` would write, behind symbolic links, before there is anything to save.

    Raises OutputError when its folder is missing or read-only, or when it exists and is no regular file or
    `force` is off.
    """
    path = Path(path)
    try:
        target = Path(os.path.realpath(path))
        if not target.parent.is_dir():
            raise OutputError(f"there is no folder {target.parent}", where=str(path), todo="create it first")
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


def _check_data_path(path: Path, target: Path, weights: Weights, force: bool) -> None:
    """Refuse to replace a data file that the caller did not mean to. Raises OutputError."""
    if not os.path.lexists(path):
        return
    if not stat.S_ISREG(path.lstat().st_mode):
        raise OutputError("this is not a regular file", where=str(path), todo="name another output")
    if not force:
        raise OutputError(
            "the file for external data exists", where=str(path), todo="name another output, or use --force"
        )
    if weights.origin != target:
        _spare_input(path, weights)


def _spare_input(path: Path, weights: Weights) -> None:
    """Refuse to write over a data file that the input still needs. Raises OutputError."""
    if weights.uses(path):
        raise OutputError(
            f"the file holds weights of the input {weights.origin or 'model'}",
            where=str(path),
            todo="name another output",
        )


def _write_model(target: Path, pieces: Pieces, weights: Weights) -> None:
    """Write one file and let it take its place."""
    with NewFile(target) as file:
        file.write(pieces.parts, weights)
        file.commit(target)


def _write_both(target: Path, data_path: Path, plan: _Plan, weights: Weights) -> list[Path]:
    """Write the data file and the model that names it.

    Two files cannot be replaced in one step, and the old model may name the very data file that the new one
    is to use. So a data file that exists is not touched before the model that may need it is gone:

    1. The new data is complete on disk, under a name that no file had.
    2. A model that names it takes the place of the old one. Until here the old pair was whole, from here on
       the new one is.
    3. The old data file, which nothing needs any more, is removed, and the new data written once more, under
       its proper name. (A second hard link would be quicker, and onnx refuses data with more than one.)
    4. A model with the proper name takes the place of the one of step 2, and the data of step 1 goes away.

    A process that is killed at any moment leaves a whole model behind, at worst with a file beside it that
    nothing names. Should there be no room for step 3, the model of step 2 stays. If there is no data file
    yet, steps 1 and 2 use the proper name at once; if it has the right contents already, it is left alone.
    """
    pieces, data = plan.make(data_path.name)
    if data.lies_in(data_path, weights):
        _write_model(target, pieces, weights)
        return [target, data_path]
    taken = os.path.lexists(data_path)
    first = _fresh(data_path) if taken else data_path
    _write_data(first, data, weights, like=data_path)
    try:
        _write_model(target, plan.make(first.name)[0], weights)
    except Exception:
        first.unlink(missing_ok=True)
        raise
    if not taken:
        return [target, data_path]
    data_path.unlink()
    try:
        _write_data(data_path, data, weights, like=first)
        _write_model(target, pieces, weights)
    except Exception:
        data_path.unlink(missing_ok=True)
        return [target, first]
    first.unlink()
    sync_folder(target.parent)
    return [target, data_path]


def _write_data(path: Path, data: DataFile, weights: Weights, like: Path) -> None:
    """Write a data file and let it take its place."""
    with NewFile(path, like=like) as file:
        for reference, offset in data.parts.items():
            file.seek(offset)
            file.write([reference], weights)
        file.commit(path)


def _fresh(path: Path) -> Path:
    """Return a name beside `path` that no file has."""
    number = 1
    while os.path.lexists(fresh := path.with_name(f"{path.stem}.{number}{path.suffix}")):
        number += 1
    return fresh
