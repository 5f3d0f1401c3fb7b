"""Tensor data outside the skeleton: mapped files, and a scratch file for new data."""

from __future__ import annotations

import errno
import io
import math
import mmap
import os
import shutil
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, Protocol

import numpy as np

from surgery.base.errors import MachineError, ModelFileError
from surgery.model.wire.leftovers import ScratchFolder
from surgery.model.wire.reordering import Mapped, Moved, Writing, rows_of
from surgery.model.wire.tensors import external_reference, is_external
from surgery.model.wire.wire import Reference

if TYPE_CHECKING:
    from onnx import TensorProto

_ALIGNMENT: Final = 64
# Element types that ml_dtypes stores in one byte each and ONNX packs more densely.
_PACKED: Final = frozenset({"int2", "uint2", "int4", "uint4", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"})


class Writes(Protocol):
    """A tensor that can write its bytes to a file, such as `onnx_ir.Tensor`."""

    def tofile(self, file: Any) -> object:
        """Write the raw little-endian bytes."""


_PIECE = 1 << 20
"""Number of bytes that are read at a time."""

Chunk = bytes | bytearray | memoryview | np.ndarray[Any, Any]
Data = Chunk | Writes | Iterable[Chunk]


class Encoding(NamedTuple):
    """How a tensor was encoded inside its model file.

    `field` is the field of TensorProto with the payload. `wire` has the ranges of that field with tag and length; if it
    is empty, the field is one tag and length followed by the tensor's own reference. `default_location` says that the
    file has an explicit `data_location: DEFAULT`.
    """

    data_type: int
    field: int
    wire: tuple[Reference, ...] = ()
    default_location: bool = False


class MappedFile:
    """A file that is kept open and mapped, even if its path changes meanwhile."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.location = str(path).lstrip("/")
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._fd).atexit = False
        self.opened = os.fstat(self._fd)
        self.writing: Writing | None = None
        self._map: mmap.mmap | None = None
        self._mapped = memoryview(b"")

    @property
    def size(self) -> int:
        """The current size of the file in bytes."""
        return os.fstat(self._fd).st_size

    @property
    def fd(self) -> int:
        """The descriptor, after waiting for pending writes."""
        self._wait()
        return self._fd

    @property
    def mapped(self) -> Mapped:
        """The part that is mapped so far."""
        return Mapped(str(self.path), (self.opened.st_dev, self.opened.st_ino), self._mapped)

    def _wait(self, start: int = 0, stop: float = math.inf) -> None:
        if self.writing is not None:
            with _scratch_errors():
                self.writing.wait(start, stop)

    def view(self, offset: int, length: int) -> memoryview:
        """Return a read-only view of a range, mapped and not read. Raises ModelFileError beyond the end."""
        stop = offset + length
        self._wait(offset, stop)
        mapped = self._mapped
        if stop > len(mapped) and self.size:
            # A scratch file grows: earlier views keep their own mapping, and so does another thread.
            self._map = mmap.mmap(self._fd, 0, access=mmap.ACCESS_READ)
            mapped = self._mapped = memoryview(self._map)
        if offset < 0 or length < 0 or stop > len(mapped):
            raise ModelFileError(
                f"bytes {offset:,} to {stop:,} are needed, but the file has {len(mapped):,}",
                where=str(self.path),
            )
        return mapped[offset:stop]

    def pieces(self, offset: int, length: int) -> Iterator[memoryview]:
        """Yield the bytes of a range, piece by piece in the same buffer, without mapping them.

        Mapped pages count as memory of the process as long as they are not needed elsewhere. Raises ModelFileError
        beyond the end.
        """
        self.view(offset, length)
        buffer = memoryview(bytearray(min(_PIECE, length)))
        stop = offset + length
        while offset < stop:
            count = os.preadv(self._fd, [buffer[: stop - offset]], offset)
            if count == 0:
                raise ModelFileError("the file was truncated", where=str(self.path))
            yield buffer[:count]
            offset += count

    @contextmanager
    def in_small_bites(self) -> Iterator[None]:
        """Disable readahead of the kernel while only a few scattered bytes are read."""
        here = self._map
        if here is not None:
            here.madvise(mmap.MADV_RANDOM)
        try:
            yield
        finally:
            if here is not None:
                here.madvise(mmap.MADV_NORMAL)

    def changed(self) -> bool:
        """Return whether the path no longer refers to the bytes that were opened."""
        try:
            now = self.path.stat()
        except OSError:
            return True
        then = self.opened
        return (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns) != (
            then.st_dev,
            then.st_ino,
            then.st_size,
            then.st_mtime_ns,
        )


# The open files of every `Weights`, by location, so that the tensors of a skeleton can be read without its `Weights`.
_open_sources: weakref.WeakValueDictionary[str, MappedFile] = weakref.WeakValueDictionary()


def source_at(location: str) -> MappedFile:
    """Return the open file at a location relative to the root folder. Raises ModelFileError."""
    source = _open_sources.get(location)
    if source is None:
        try:
            source = MappedFile(Path("/", location))
        except OSError as error:
            raise ModelFileError(f"the weights cannot be read: {error.strerror}", where="/" + location) from error
        _open_sources[location] = source
    return source


class _WholeFile(io.FileIO):
    """An unbuffered file that writes all of its data: the kernel accepts at most 2 GiB per call."""

    def write(self, data: Any, /) -> int:
        """Write all bytes."""
        view = memoryview(data).cast("B")
        rest = view
        while rest:
            rest = rest[super().write(rest) :]
        return len(view)


class Scratch:
    """A folder with a file that only grows. It is removed with its owner."""

    def __init__(self) -> None:
        made = ScratchFolder()
        self.folder = made.path
        path = self.folder / "weights.bin"
        self._file = _WholeFile(path, "xb")
        # A forked worker inherits this object, and must not delete the folder of its parent.
        self.owner = os.getpid()
        self.close: Callable[[], object] = weakref.finalize(self, _remove_folder, made, self._file, self.owner)
        self.source = MappedFile(path)
        _open_sources[self.source.location] = self.source
        self._copies: dict[str, MappedFile] = {}

    def append(self, data: Data) -> Reference:
        """Write data at the next aligned offset."""
        file = self._file
        start = -(-file.tell() // _ALIGNMENT) * _ALIGNMENT
        file.seek(start)
        try:
            _write(file, data)
            if file.tell() > start and os.fstat(file.fileno()).st_size < file.tell():
                # NumPy writes a small array through a buffer, and does not report that emptying it failed. Its last
                # byte fails for the same reason: a full disk, or a limit of the size of files.
                os.pwrite(file.fileno(), b"\0", file.tell() - 1)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except BaseException:
            # Release the space, so that the next attempt starts at the same offset.
            file.seek(start)
            file.truncate()
            raise
        return Reference(self.source.location, start, file.tell() - start)

    def append_moved(self, moved: Moved, view: np.ndarray[Any, Any]) -> Reference:
        """Reserve space for the elements of a view at the next aligned offset, and let a worker write them."""
        start = -(-self._file.tell() // _ALIGNMENT) * _ALIGNMENT
        self._file.truncate(start + moved.length)
        self._file.seek(start + moved.length)
        if self.source.writing is None:
            self.source.writing = Writing(str(self.source.path))
        self.source.writing.begin(moved, view, start)
        return Reference(self.source.location, start, moved.length)

    def copy(self, source: MappedFile) -> MappedFile:
        """Copy a whole file into the folder, once."""
        key = str(source.path)
        if key not in self._copies:
            path = self.folder / f"copy-{len(self._copies)}.bin"
            shutil.copyfile(source.path, path)
            copied = MappedFile(path)
            _open_sources[copied.location] = copied
            self._copies[key] = copied
        return self._copies[key]


class Weights:
    """The tensor data of one model: its own files, mapped, and a scratch file created on first use.

    `external` says that the model had external data; `encodings` has the encoding of each tensor that was inside the
    model file, so that saving reproduces it. `digests` has the known digests by range: no range is written twice.
    """

    def __init__(self) -> None:
        self.external = False
        self.origin: Path | None = None
        self.encodings: dict[Reference, Encoding] = {}
        self.digests: dict[Reference, str] = {}
        self._sources: dict[str, MappedFile] = {}
        self._scratch: Scratch | None = None
        self._adopted: list[Weights] = []  # keeps their scratch files alive

    def __enter__(self) -> Weights:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def open(self, path: Path) -> MappedFile:
        """Open a file of the model. Raises OSError."""
        source = MappedFile(path.resolve())
        self._sources[source.location] = source
        _open_sources[source.location] = source
        return source

    def referable(self, source: MappedFile) -> MappedFile:
        """Return the file that a skeleton may refer to instead of `source`.

        Usually it is the same. The checker of onnx refuses a file with several hard links, and protobuf cannot
        represent a path that is not UTF-8: such a file is copied to the scratch folder.
        """
        try:
            source.location.encode("utf-8")
        except UnicodeEncodeError:
            plain = False
        else:
            plain = source.opened.st_nlink <= 1
        if plain:
            return source
        with _scratch_errors():
            copied = self.open_scratch().copy(source)
        self._sources[copied.location] = copied
        return copied

    def source(self, location: str) -> MappedFile:
        """Return the open file at the location of a reference. Raises ModelFileError."""
        source = self._sources.get(location)
        if source is None:
            source = self._sources[location] = source_at(location)
        return source

    @contextmanager
    def in_small_bites(self) -> Iterator[None]:
        """Disable readahead in all files, see `MappedFile.in_small_bites`."""
        with ExitStack() as files:
            for source in self._sources.values():
                files.enter_context(source.in_small_bites())
            yield

    def files(self) -> list[MappedFile]:
        """Return the files of the model, in the order in which they were opened."""
        return [source for source in self._sources.values() if not self.is_scratch(source.location)]

    def is_scratch(self, location: str) -> bool:
        """Return whether this is a scratch file of this model, or of a model merged into it."""
        owners = (self, *self._adopted)
        return any(one._scratch is not None and one._scratch.source.location == location for one in owners)

    def uses(self, path: Path) -> bool:
        """Return whether the file at this path has tensor data of the model."""
        return str(path.resolve()).lstrip("/") in self._sources

    def view(self, reference: Reference) -> memoryview:
        """Return the bytes of a reference, mapped and not read. Raises ModelFileError."""
        return self.source(reference.location).view(reference.offset, reference.length)

    def spill(self, data: Data) -> Reference:
        """Write data to the scratch file and return its location, aligned to 64 bytes.

        Arrays are written in little-endian order, with types narrower than a byte packed as in `raw_data`. Raises
        MachineError if the disk is full.
        """
        with _scratch_errors():
            return self.open_scratch().append(data)

    def spill_moved(self, view: np.ndarray[Any, Any]) -> Reference:
        """Write an array whose elements are in another order in memory, as `spill` does, but possibly later.

        A view over a file of the model is written while this process continues; reading it waits for the write.
        """
        moved = Moved.of(view, [source.mapped for source in self._sources.values()])
        with _scratch_errors():
            scratch = self.open_scratch()
            # A fork has no worker of its own, and ends with its call.
            if moved is None or scratch.owner != os.getpid():
                return scratch.append(rows_of(view))
            return scratch.append_moved(moved, view)

    def read(self, tensor: TensorProto) -> np.ndarray[Any, Any]:
        """Return the value of a tensor, with ml_dtypes types where NumPy has none.

        An external tensor is mapped read-only without copying, unless its elements are packed. Raises ModelFileError if
        its file no longer exists or is too short.
        """
        if not is_external(tensor):
            from onnx_ir import serde

            return np.asarray(serde.deserialize_tensor(tensor).numpy())
        reference = external_reference(tensor)
        return array_of(self.view(reference), tensor.data_type, tuple(tensor.dims))

    def adopt(self, other: Weights) -> None:
        """Keep the files of another model open too, because its tensors become part of this one."""
        self._sources.update(other._sources)
        self.encodings.update(other.encodings)
        self._adopted.append(other)

    def check(self) -> None:
        """Raise ModelFileError if a file of the model was changed or replaced since it was opened."""
        for source in self._sources.values():
            if (self._scratch is None or source.path.parent != self._scratch.folder) and source.changed():
                raise ModelFileError("the file changed while it was in use", where=str(source.path), todo="start again")

    def close(self) -> None:
        """Release the files and delete the scratch file."""
        self._sources.clear()
        self._adopted.clear()
        if self._scratch is not None:
            if self._scratch.source.writing is not None:
                self._scratch.source.writing.stop()
            self._scratch.close()
            self._scratch = None

    def open_scratch(self) -> Scratch:
        """Return the scratch file, created on first use."""
        if self._scratch is None:
            self._scratch = Scratch()
            self._sources[self._scratch.source.location] = self._scratch.source
        return self._scratch


def array_of(view: memoryview, data_type: int, dims: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return raw little-endian bytes as an array of an ONNX data type, with packed types unpacked."""
    import onnx_ir

    dtype = onnx_ir.DataType(data_type)
    if dtype.bitwidth < 8:
        packed = np.frombuffer(view, np.uint8)
        return np.asarray(onnx_ir.PackedTensor(packed, dtype, shape=dims).numpy())
    return np.frombuffer(view, dtype.numpy().newbyteorder("<")).reshape(dims)


def _write(file: BinaryIO, data: Data) -> None:
    """Write data; an iterable is written chunk by chunk."""
    if isinstance(data, np.ndarray):
        file.write(_raw(data))
    elif isinstance(data, bytes | bytearray | memoryview):
        file.write(data)
    elif hasattr(data, "tofile"):
        data.tofile(file)
    else:
        for chunk in data:
            _write(file, chunk)


def _raw(array: np.ndarray[Any, Any]) -> memoryview | bytes:
    """Return the bytes of an array as in `raw_data`, without copying if it has this layout already."""
    if array.dtype.name in _PACKED:
        import onnx_ir

        return onnx_ir.tensor(array).tobytes()
    if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and sys.byteorder == "big"):
        array = array.astype(array.dtype.newbyteorder("<"))
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


_SPACE = "free some space there, or name another folder in TMPDIR"
_FILE_SIZE = "raise the limit of the size of files (ulimit -f)"


@contextmanager
def _scratch_errors() -> Iterator[None]:
    """Convert a failure to write scratch data to a MachineError."""
    try:
        yield
    except OSError as error:
        raise MachineError(
            f"new tensor data cannot be written: {error.strerror or error}",
            where=tempfile.gettempdir(),
            todo=_FILE_SIZE if error.errno == errno.EFBIG else _SPACE,
        ) from error


def _remove_folder(folder: ScratchFolder, file: io.FileIO, owner: int) -> None:
    """Delete a scratch folder, in the process that made it."""
    file.close()
    if os.getpid() == owner:
        folder.remove()
    else:
        folder.release()
