"""Local copies of what URLs and the standard streams hold, in a private folder that goes away in the end.

Whatever reads and writes models knows local files only. An input is copied into the folder first. An output is written
there like any other, and sent to its destination right after: by `publish`, with which everything that writes ends.
Texts that name a copy are shown with the URL instead, see `shown`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final, Protocol, Self

from surgery.errors import OutputError, SurgeryError
from surgery.storage import transfer, urls
from surgery.storage.leftovers import ScratchFolder

_LONGEST: Final = 200  # bytes of a name, so that what is added fits into the 255 of a file's name
_STEP: Final = 1 << 24
_KEPT: Final = "surgery-kept-"


class Destination(Protocol):
    """Where an output goes."""

    name: str
    """What messages call it."""

    def send(self, files: Sequence[Path]) -> None:
        """Send files, the model first, and those with its external data after it."""

    def sibling(self, name: str) -> Destination:
        """Return where a file of another name goes."""


class Url:
    """An object, and others next to it for the files of external data."""

    def __init__(self, url: str, *, force: bool = False) -> None:
        self.name = urls.shown(url)
        self._url = url
        self._force = force

    def send(self, files: Sequence[Path]) -> None:
        """Upload the files, the model last. Raises OutputError or TransferError."""
        put_model(files, self._url, force=self._force)

    def sibling(self, name: str) -> Url:
        """Return the object of another name next to this one."""
        return Url(urls.sibling(self._url, name), force=self._force)


class Stream:
    """Standard output."""

    name = "stdout"

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def send(self, files: Sequence[Path]) -> None:
        """Write the one file there is. Raises OutputError if there is external data."""
        if len(files) > 1:
            what = f"standard output takes one file, but the model has external data in '{files[1].name}'"
            raise OutputError(what, todo="write the weights into the model with --layout single, or name a file")
        try:
            with files[0].open("rb") as file:
                shutil.copyfileobj(file, self._stream, _STEP)
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(f"standard output cannot be written: {error.strerror or error}") from error

    def sibling(self, name: str) -> Destination:
        """Raise OutputError: there is no other stream."""
        raise OutputError(f"standard output takes only the model, but '{name}' belongs next to it", todo="name a file")


_names: dict[str, str] = {}
"""Paths of copies, as text, and what is shown in their place."""

_destinations: dict[Path, Destination] = {}
"""The paths that outputs are written to before they are sent."""

_sent: set[Path] = set()


class Staging:
    """A private folder for copies. It is removed by `close`, when the process ends, or after that was killed."""

    def __init__(self) -> None:
        self._scratch: ScratchFolder | None = None
        self._owner = os.getpid()
        self._count = 0
        self._own: list[Path] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder, in the process that made it."""
        for path in self._own:
            _destinations.pop(path, None)
            _names.pop(str(path), None)
        self._own.clear()
        if self._scratch is not None and self._owner == os.getpid():
            self._scratch.remove()
            self._scratch = None

    def path(self, name: str, shown_as: str) -> Path:
        """Return a path in a new folder; texts that name it are shown with `shown_as` in its place."""
        if self._scratch is None:
            self._scratch = ScratchFolder()
        folder = self._scratch.path / str(self._count)
        folder.mkdir()
        self._count += 1
        path = folder / sound_name(name)
        self._note(path, shown_as)
        return path

    def copied(self, url: str) -> Path:
        """Fetch one object, without any external data. Raises ModelFileError or TransferError."""
        path = self.path(urls.name_of(url), urls.shown(url))
        transfer.fetch(url, path)
        return path

    def output(self, name: str, destination: Destination) -> Path:
        """Return a path to write to; `publish` sends what is written there to the destination."""
        path = self.path(name, destination.name)
        _destinations[path] = destination
        return path

    def _note(self, path: Path, shown_as: str) -> None:
        _names[str(path)] = shown_as
        self._own.append(path)


def output_path(url: str, copies: Staging, *, force: bool = False) -> Path:
    """Return the local path to write to for a URL; `publish` uploads what is written there.

    Raises OutputError if nothing can be written to the URL, or there is an object and `force` is off.
    """
    local = urls.local_path(url)
    if local is not None:
        return local
    transfer.check_writable(url, force=force)
    return copies.output(urls.name_of(url), Url(url, force=force))


def shown(text: str, escaped: Callable[[str], str] = str) -> str:
    """Return a text in which copies are called by what they are copies of."""
    for path, name in _names.items():
        if path in text:
            text = text.replace(path, escaped(name))
    return text


def is_copy(path: Path) -> bool:
    """Return whether a path is that of a copy, which goes away."""
    return str(path) in _names


def explained(error: SurgeryError) -> SurgeryError:
    """Change an error so that it names no copy, and return it."""
    error.what = shown(error.what)
    error.where = None if error.where is None else shown(error.where)
    error.todo = None if error.todo is None else shown(error.todo)
    return error


def publish(files: Sequence[Path]) -> None:
    """Send files that were just written to where they are to go, if that is no local path; the model comes first.

    What cannot be sent is kept in a folder, which the error names. Raises OutputError or TransferError.
    """
    destination = _destination(files[0]) if _destinations else None
    if destination is None:
        return
    try:
        destination.send(files)
    except SurgeryError as error:
        error.todo = f"the result is in {_kept(files)}"
        raise
    _sent.add(files[0])


def _destination(path: Path) -> Destination | None:
    """Return where a file goes: one that was staged, or another that was written next to it."""
    if path in _destinations:
        return _destinations[path]
    staged = (found for other, found in _destinations.items() if other.parent == path.parent)
    first = next(staged, None)
    return None if first is None else first.sibling(path.name)


def _kept(files: Sequence[Path]) -> Path:
    """Move files to a folder that stays, and return the path of the first one there."""
    folder = Path(tempfile.mkdtemp(prefix=_KEPT))
    for file in files:
        shutil.move(file, folder / file.name)
    return folder / files[0].name


def is_pending(path: Path) -> bool:
    """Return whether a file was written to be sent elsewhere, and was not."""
    return path in _destinations and path not in _sent


def put_model(files: Sequence[Path], url: str, *, force: bool = False) -> None:
    """Upload the files of a model: `files[0]` to `url`, and the others, with its external data, next to it.

    The model comes last, so that whoever finds it finds its weights. Raises OutputError or TransferError; then nothing
    has changed with s3, gs and memory, and with others there may be data that no model names.
    """
    folder = files[0].parent
    others = [(file, urls.sibling(url, file.relative_to(folder).as_posix())) for file in files[1:]]
    transfer.put([*others, (files[0], url)], force=force)


def sound_name(name: str) -> str:
    """Return a name that a file can have."""
    plain = PurePosixPath(name.replace("\0", "")).name
    return plain if plain not in ("", "..") and len(os.fsencode(plain)) <= _LONGEST else "model.onnx"
