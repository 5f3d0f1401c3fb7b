"""Local copies of the contents of URLs and standard streams, in a private folder that is removed at the end.

All code that reads and writes models handles only local files. An input is copied into the folder first. An output is
written there like any other file, and then sent to its destination by `publish`, which every writer calls last. In
messages, the path of a copy is replaced by the URL, see `shown`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final, Protocol, Self

from surgery.base.errors import OutputError, SurgeryError
from surgery.model.remote import transfer, urls
from surgery.model.wire.leftovers import ScratchFolder

_LONGEST: Final = 200  # maximum bytes of a name, so that the additions fit into the 255 bytes of a file name
_STEP: Final = 1 << 24
_KEPT: Final = "surgery-kept-"


class Destination(Protocol):
    """The destination of an output."""

    name: str
    """The name in messages."""

    def send(self, files: Sequence[Path]) -> None:
        """Send the files of a model; the first one is the model, and the others are its external data."""

    def sibling(self, name: str) -> Destination:
        """Return the destination of a file with another name."""


class Url:
    """An object at a URL, with other objects next to it for external data files."""

    def __init__(self, url: str, *, force: bool = False) -> None:
        self.name = urls.shown(url)
        self._url = url
        self._force = force

    def send(self, files: Sequence[Path]) -> None:
        """Upload the files, the model last. Raises OutputError or TransferError."""
        put_model(files, self._url, force=self._force)

    def sibling(self, name: str) -> Url:
        """Return the object with another name next to this one."""
        return Url(urls.sibling(self._url, name), force=self._force)


class Stream:
    """Standard output."""

    name = "stdout"

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def send(self, files: Sequence[Path]) -> None:
        """Write the single file. Raises OutputError if there is external data."""
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
"""Paths of copies, as text, with the names that are shown instead."""

_destinations: dict[Path, Destination] = {}
"""The local paths of outputs before they are sent."""

_folders: dict[Path, tuple[str, bool]] = {}
"""The local paths of output folders, with their URLs, and whether objects may be replaced."""

_sent: set[Path] = set()


class Staging:
    """A private folder for copies. It is removed by `close`, at the end of the process, or later if that was killed."""

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
            _folders.pop(path, None)
            _names.pop(str(path), None)
        self._own.clear()
        if self._scratch is not None and self._owner == os.getpid():
            self._scratch.remove()
            self._scratch = None

    def path(self, name: str, shown_as: str) -> Path:
        """Return a path in a new folder; messages show `shown_as` instead of the path."""
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
        """Return a path to write to; `publish` sends the file written there to the destination."""
        path = self.path(name, destination.name)
        _destinations[path] = destination
        return path

    def updated(self, url: str, path: Path | None = None) -> Path:
        """Return a path, with the content of the object if it exists; `publish` replaces the object by what is written.

        `path` may be a path next to a copy.
        """
        if path is None:
            path = self.path(urls.name_of(url), urls.shown(url))
        else:
            self._note(path, urls.shown(url))
        if transfer.exists(url):
            transfer.fetch(url, path)
        _destinations[path] = Url(url, force=True)
        return path

    def folder(self, url: str, *, force: bool = False) -> Path:
        """Return the path of a folder to create; `publish_folder` uploads the files in it to the folder at a URL.

        Raises OutputError if the URL is not writable, or if it has any object and `force` is off.
        """
        local = urls.local_path(url)
        if local is not None:
            return local
        transfer.require_writing(url)
        if not force and transfer.exists(url, output=True):
            raise OutputError("the folder exists", where=urls.shown(url), todo="name another one, or use --force")
        path = self.path(urls.name_of(url.rstrip("/")), urls.shown(url))
        _folders[path] = url, force
        return path

    def _note(self, path: Path, shown_as: str) -> None:
        _names[str(path)] = shown_as
        self._own.append(path)


def output_path(url: str, copies: Staging, *, force: bool = False) -> Path:
    """Return the local path to write to for a URL; `publish` uploads the file written there.

    Raises OutputError if the URL is not writable, or if the object exists and `force` is off.
    """
    local = urls.local_path(url)
    if local is not None:
        return local
    transfer.check_writable(url, force=force)
    return copies.output(urls.name_of(url), Url(url, force=force))


def shown(text: str, escaped: Callable[[str], str] = str) -> str:
    """Return a text with the paths of copies replaced by the names of their originals."""
    for path, name in _names.items():
        if path in text:
            text = text.replace(path, escaped(name))
    return text


def is_copy(path: Path) -> bool:
    """Return whether a path belongs to a temporary copy."""
    return str(path) in _names


def url_of(path: Path) -> str | None:
    """Return the URL of a copy, without credentials; None for other files, and for standard input."""
    name = _names.get(str(path))
    return name if urls.is_url(name) else None


def is_stdout(path: Path) -> bool:
    """Return whether the file that is written to a path goes to standard output."""
    return isinstance(_destinations.get(path), Stream)


def is_sent_elsewhere(folder: Path) -> bool:
    """Return whether the files that are written to a folder are sent to a URL."""
    return any(path.parent == folder for path in _destinations)


def explained(error: SurgeryError) -> SurgeryError:
    """Replace the paths of copies in an error, and return it."""
    error.what = shown(error.what)
    error.where = None if error.where is None else shown(error.where)
    error.todo = None if error.todo is None else shown(error.todo)
    return error


def publish(files: Sequence[Path]) -> None:
    """Send files that were just written to their destination, if it is not a local path; the model comes first.

    Files that cannot be sent are kept in a folder, which the error names. Raises OutputError or TransferError.
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


def publish_folder(folder: Path, files: Sequence[Path]) -> None:
    """Upload the files of an output folder, in this order; the one that describes the others comes last.

    Does nothing for a local folder. If they cannot be sent, they are kept. Raises OutputError or TransferError.
    """
    if folder not in _folders or not files:
        return
    url, force = _folders[folder]
    try:
        transfer.put([(file, urls.joined(url, file.relative_to(folder).as_posix())) for file in files], force=force)
    except SurgeryError as error:
        error.todo = f"the result is in {_kept(files).parent}"
        raise


def _destination(path: Path) -> Destination | None:
    """Return the destination of a staged file, or of another file written next to one."""
    if path in _destinations:
        return _destinations[path]
    staged = (found for other, found in _destinations.items() if other.parent == path.parent)
    first = next(staged, None)
    return None if first is None else first.sibling(path.name)


def _kept(files: Sequence[Path]) -> Path:
    """Move files to a permanent folder, and return the new path of the first one."""
    folder = Path(tempfile.mkdtemp(prefix=_KEPT))
    for file in files:
        shutil.move(file, folder / file.name)
    return folder / files[0].name


def is_pending(path: Path) -> bool:
    """Return whether a file is staged to be sent, and was not sent yet."""
    return path in _destinations and path not in _sent


def put_model(files: Sequence[Path], url: str, *, force: bool = False) -> None:
    """Upload the files of a model: `files[0]` to `url`, and the others, its external data, next to it.

    The model is uploaded last, so that its weights exist before it does. Raises OutputError or TransferError; in that
    case nothing has changed for s3, gs and memory, but other protocols may be left with unused data files.
    """
    folder = files[0].parent
    others = [(file, urls.sibling(url, file.relative_to(folder).as_posix())) for file in files[1:]]
    transfer.put([*others, (files[0], url)], force=force)


def sound_name(name: str) -> str:
    """Return a valid file name."""
    plain = PurePosixPath(name.replace("\0", "")).name
    return plain if plain not in ("", "..") and len(os.fsencode(plain)) <= _LONGEST else "model.onnx"
