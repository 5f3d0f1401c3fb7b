"""The cache folder: content-addressed entries and tensors, written atomically and verified on reading.

    v1/runs/RUN/STEP.HISTORY    the outcome of a step, or another entry of runs with the same original and settings
    v1/tensors/12/1234...       the bytes of a new tensor, by their digest
    v1/digests/1234...          the digest of a large file, by its path, size, times and inode
    v1/uses                     a line per run: the number of entries found and missed

Any number of processes may read, write and prune at the same time, without locks: a file is renamed into place, under a
name that identifies its contents; a file that disappears is created again. Damaged files are dropped.
"""

from __future__ import annotations

import errno
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from surgery.base.errors import UsageError

if TYPE_CHECKING:
    from surgery.model.wire.weights import MappedFile

VERSION: Final = 1
"""The version of the layout and of the entries. Another version has a separate folder."""

_MAGIC: Final = b"surgery cache entry %d\n" % VERSION
_DIGEST: Final = hashlib.sha256().digest_size
_PIECE: Final = 4 << 20
_SETTLED: Final = 2_000_000_000  # nanoseconds after which a changed file gets a different time
_TRIES: Final = 8
PASSING: Final = ".passing-"
"""The name prefix of files that are not in place yet."""


class Damaged(Exception):  # noqa: N818 - handled by whoever reads, and reported as a warning
    """The bytes of a file differ from those that were written."""


def default_folder() -> Path:
    """Return $SURGERY_CACHE_DIR, or else `surgery` in $XDG_CACHE_HOME, which defaults to ~/.cache."""
    given = os.environ.get("SURGERY_CACHE_DIR")
    if given:
        return Path(given)
    home = os.environ.get("XDG_CACHE_HOME", "")
    # According to the specification, relative paths are ignored.
    return (Path(home) if home.startswith("/") else Path.home() / ".cache") / "surgery"


class CacheFolder:
    """The files of a cache. `warn` receives a line for each damaged file, and if writing fails.

    Without `create`, a missing folder is an empty cache. UsageError if the folder cannot be created, or is a file.
    """

    def __init__(self, path: Path, warn: Callable[[str], object], *, create: bool = True) -> None:
        self.path = path
        self.warn = warn
        self.root = path / f"v{VERSION}"
        """The folder of this version."""
        self._writes = True
        try:
            if path.exists() and not path.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            for folder in (self.runs, self.tensors, self.digests) if create or self.root.is_dir() else ():
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"the cache cannot be used: {error.strerror or error}",
                where=str(path),
                todo="name another folder with --cache-dir DIR or SURGERY_CACHE_DIR",
            ) from error

    @property
    def runs(self) -> Path:
        """The folder with one subfolder for each set of runs that share entries."""
        return self.root / "runs"

    @property
    def tensors(self) -> Path:
        """The folder of the tensors."""
        return self.root / "tensors"

    @property
    def digests(self) -> Path:
        """The folder of the digests of large files."""
        return self.root / "digests"

    @property
    def uses(self) -> Path:
        """The file with a line for each run."""
        return self.root / "uses"

    # Entries

    def names(self, run: str) -> frozenset[str]:
        """List the entries of a set of runs."""
        with suppress(OSError), os.scandir(self.runs / run) as found:
            return frozenset(entry.name for entry in found if not entry.name.startswith(PASSING))
        return frozenset()

    def read(self, run: str, name: str) -> bytes | None:
        """Return an entry; None if it is missing or damaged. A damaged entry is dropped with a warning."""
        path = self.runs / run / name
        try:
            data = path.read_bytes()
        except OSError:
            return None
        head = len(_MAGIC) + _DIGEST
        body = data[head:]
        if data[:head] != _MAGIC + hashlib.sha256(body).digest():
            self.drop(path)
            return None
        with suppress(OSError):
            os.utime(path)
        return body

    def drop(self, path: Path) -> None:
        """Remove a damaged file, with a warning."""
        with suppress(OSError):
            path.unlink()
        self.warn(f"{path}: removed from the cache, because it is damaged")

    def write(self, run: str, name: str, body: bytes) -> None:
        """Write an entry. If the operating system refuses, all writing ends with a warning."""
        self._put(self.runs / run / name, [_MAGIC, hashlib.sha256(body).digest(), body])

    def _put(self, path: Path, parts: list[bytes]) -> None:
        if not self._writes:
            return
        with self._refusals():
            fd, passing = tempfile.mkstemp(prefix=PASSING, dir=self.root)
            try:
                with os.fdopen(fd, "wb") as file:
                    file.writelines(parts)
                _put_in_place(Path(passing), path)
            except BaseException:
                with suppress(OSError):
                    Path(passing).unlink()
                raise

    def _refusals(self) -> _Refusals:
        return _Refusals(self)

    def stop_writing(self, why: str) -> None:
        """Stop all writing, with a warning that gives the reason."""
        self._writes = False
        self.warn(f"{self.path}: the cache cannot be written and is no longer used for writing: {why}")

    def used(self, found: int, missed: int) -> None:
        """Record the numbers of found and missed entries of a run."""
        if self._writes and (found or missed):
            with self._refusals(), self.uses.open("a", encoding="ascii") as file:
                # A single short write in append mode: lines of several processes do not mix.
                file.write(f"{found} {missed}\n")

    # Tensors

    def store(self, source: MappedFile, offset: int, length: int) -> str:
        """Store a range of a file as a tensor, and return its digest."""
        digest = hashlib.sha256()
        fd, passing = -1, ""
        with self._refusals():
            if self._writes:
                fd, passing = tempfile.mkstemp(prefix=PASSING, dir=self.root)
        for piece in _pieces(source, offset, length):
            digest.update(piece)
            if fd >= 0 and self._writes:
                with self._refusals():
                    _write_all(fd, piece)
        found = digest.hexdigest()
        if fd >= 0:
            os.close(fd)
            with self._refusals():
                if self._writes:
                    # An existing file is replaced too, because it may be damaged.
                    _put_in_place(Path(passing), self._tensor(found))
                else:
                    Path(passing).unlink()
        return found

    def _tensor(self, digest: str) -> Path:
        return self.tensors / digest[:2] / digest

    def tensor(self, digest: str) -> Iterator[bytes]:
        """Return the bytes of a tensor, piece by piece; FileNotFoundError if it is missing.

        Raises Damaged after the last piece if the bytes do not match the digest; the file is dropped then.
        """
        path = self._tensor(digest)
        file = path.open("rb")
        with suppress(OSError):
            os.utime(path)

        def pieces() -> Iterator[bytes]:
            found = hashlib.sha256()
            with file:
                while piece := file.read(_PIECE):
                    found.update(piece)
                    yield piece
            if found.hexdigest() != digest:
                self.drop(path)
                raise Damaged(str(path))

        return pieces()

    # Digests of large files

    def expects(self, files: Sequence[MappedFile]) -> bool:
        """Return whether the digests of all given files of a model are known from an earlier run."""
        return bool(files) and all(self.remembered(_place(source)) is not None for source in files)

    def digest_of(self, source: MappedFile) -> str:
        """Return the digest of an open file, which is read only once while its path, times and inode are unchanged."""
        place = _place(source)
        known = self.remembered(place)
        if known is not None:
            return known
        digest = hashlib.sha256()
        for piece in _pieces(source, 0, source.size):
            digest.update(piece)
        found = digest.hexdigest()
        now = os.fstat(source.fd)
        # A file that was just written may be written again with the same time stamp.
        if _settled(now) and _place(source, now) == place:
            self.remember(place, found)
        return found

    def remember(self, key: str, digest: str) -> None:
        """Store a digest under a key that identifies the digested content."""
        self._put(self.digests / key, [digest.encode(), b"\n", _sum(key, digest)])

    def remembered(self, key: str) -> str | None:
        """Return the digest stored under a key, if any."""
        path = self.digests / key
        try:
            digest, _, found = path.read_bytes().partition(b"\n")
        except OSError:
            return None
        text = digest.decode("ascii", "replace")
        if found != _sum(key, text):
            self.drop(path)
            return None
        return text


def _put_in_place(passing: Path, path: Path) -> None:
    """Rename a file into place. Its folder is created, again if another process removes the empty folder meanwhile."""
    for _ in range(_TRIES):
        path.parent.mkdir(exist_ok=True)
        try:
            passing.replace(path)
        except FileNotFoundError:
            continue
        return
    passing.replace(path)


class _Refusals:
    """A context manager that ends all writing to a cache when the operating system refuses it."""

    def __init__(self, folder: CacheFolder) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, OSError):
            self._folder.stop_writing(error.strerror or str(error))
            return True
        return False


def key_of(*parts: object) -> str:
    """Return the digest of strings and numbers, as a file name."""
    digest = hashlib.sha256()
    for part in parts:
        text = str(part).encode(errors="surrogatepass")
        digest.update(b"%d:%b" % (len(text), text))
    return digest.hexdigest()


def _sum(key: str, digest: str) -> bytes:
    return key_of(key, digest)[:16].encode()


def _place(source: MappedFile, found: os.stat_result | None = None) -> str:
    found = found or source.opened
    # Unlike the modification time, the time of the last change of the inode cannot be set back.
    return key_of(str(source.path), found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev)


def _settled(found: os.stat_result) -> bool:
    return time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns) > _SETTLED


def _pieces(source: MappedFile, offset: int, length: int) -> Iterator[bytes]:
    """Yield the bytes of a range. They are read, not mapped, because the mapping belongs to another thread."""
    fd, stop = source.fd, offset + length
    while offset < stop:
        piece = os.pread(fd, min(_PIECE, stop - offset), offset)
        if not piece:
            raise Damaged(f"{source.path}: cut short")
        offset += len(piece)
        yield piece


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
