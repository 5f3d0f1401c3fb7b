"""Locations of models and results: local folders, and URLs of object storage."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from surgery.base.errors import ModelFileError, SurgeryError
from surgery.model import storage
from surgery.model.remote import listing, urls
from surgery.model.storage import loading, staging


def absolute(path: str | Path) -> Path:
    """Return an absolute path without `..`; symbolic links are not resolved."""
    return Path(os.path.normpath(Path(path).absolute()))


def placed(text: str, folder: Path = Path()) -> str:
    """Return a URL unchanged, or an absolute path; relative paths start at `folder`."""
    if urls.is_url(text):
        local = urls.local_path(text)
        return text if local is None else str(absolute(local))
    return str(absolute(folder / text))


def named_recipe(text: str, folder: Path = Path()) -> str:
    """Return a recipe as workers find it: the absolute path of a file, a URL, or the name of a shipped recipe."""
    if urls.is_url(text):
        return placed(text)
    return str(absolute(folder / text)) if (folder / text).is_file() else text


def storable(path: str) -> str:
    """Return a path as valid Unicode: bytes of a file name that are not UTF-8 become escapes such as `\\udcff`."""
    return path.encode("utf-8", "backslashreplace").decode("utf-8")


class OutputFolder:
    """The output folder, given as a path or a URL."""

    def __init__(self, text: str) -> None:
        self.text = placed(text)
        self.is_remote = urls.is_url(self.text)

    def place(self, name: str) -> str:
        """Return the location of a result."""
        return urls.joined(self.text, name) if self.is_remote else str(Path(self.text, name))

    def sizes(self, name: str, files: Sequence[str]) -> list[int]:
        """Return the sizes in bytes of a result and the files next to it; -1 for a missing file."""
        place = self.place(name)
        if self.is_remote:
            return [self._listed.get(urls.sibling(place, file), -1) for file in files]
        return [size for _, size, _ in sizes([Path(place).with_name(file) for file in files])]

    def exists(self, name: str) -> bool:
        """Return whether a file exists at the location of a result. Raises ModelFileError and TransferError."""
        return self.place(name) in self._listed if self.is_remote else os.path.lexists(self.place(name))

    def recorded(self, ledger: Path) -> str:
        """Return the output folder as a ledger records it: "." for its own folder, which may be moved."""
        if self.is_remote:
            return urls.shown(self.text)
        own = os.path.realpath(self.text)
        return "." if own == os.path.realpath(ledger) else storable(own)

    @cached_property
    def _listed(self) -> Mapping[str, int]:
        """The sizes of all objects below the URL, listed once, because one request per object would be slow."""
        try:
            return {entry.url: entry.bytes or 0 for entry in listing.list_files(self.text, suffixes=("",))}
        except ModelFileError as error:
            # Objects that may not be listed can still be there: only an absent folder has none.
            if isinstance(error.__cause__, FileNotFoundError):
                return {}
            raise


def sizes(paths: Sequence[str | Path]) -> list[list[Any]]:
    """Return path, size and modification time of files; files are not read again while these are unchanged.

    A missing file has the size -1.
    """
    return [list(_size(Path(path))) for path in paths]


def _size(path: Path) -> Iterator[Any]:
    yield str(path)
    found = None
    with suppress(OSError):
        found = path.stat()
    yield from (-1, 0) if found is None else (found.st_size, found.st_mtime_ns)


def versions(model: str, locations: Sequence[str], known: str = "") -> list[list[Any]]:
    """Return the versions of a model at a URL and its external data, in the format of `sizes`.

    `locations` are those of the external data, relative to the model. `known` is the version of the model, if it was
    listed. Raises ModelFileError and TransferError.
    """
    found = [[urls.shown(model), 0, known or listing.version(model)]]
    return found + [[location, 0, listing.version(urls.sibling(model, location))] for location in locations]


def data_locations(model: Path, files: Sequence[Path]) -> list[str]:
    """Return the paths of external data relative to the model."""
    return [os.path.relpath(path, model.parent) for path in files[1:]]


@contextmanager
def local_copies(model: str, output: str) -> Iterator[tuple[Path, Path]]:
    """Yield local paths for reading a model and writing a result; temporary copies are removed afterwards.

    Messages name the URLs. Raises ModelFileError and TransferError.
    """
    with staging.Staging() as copies:
        try:
            source = loading.fetched(model, copies) if urls.is_url(model) else Path(model)
            if urls.is_url(output):
                target = copies.path(urls.name_of(output), urls.shown(output))
            else:
                target = Path(output)
                target.parent.mkdir(parents=True, exist_ok=True)
            yield source, target
        except SurgeryError as error:
            raise staging.explained(error) from error.__cause__


@contextmanager
def local_recipe(recipe: str, content: str | None = None) -> Iterator[str]:
    """Yield a recipe as the loader finds it: unchanged, or the path of a temporary copy if it is at a URL.

    The copy is made of `content`, if given. Messages name the URL. Raises ModelFileError and TransferError.
    """
    if not urls.is_url(recipe):
        yield recipe
        return
    with staging.Staging() as copies:
        try:
            if content is None:
                path = copies.copied(recipe)
            else:
                path = copies.path(urls.name_of(recipe), urls.shown(recipe))
                path.write_bytes(content.encode())
            yield str(path)
        except SurgeryError as error:
            raise staging.explained(error) from error.__cause__


def delivered(files: Sequence[Path], output: str) -> None:
    """Upload the files of a result if the output is a URL, the model last. Raises OutputError and TransferError."""
    if urls.is_url(output):
        storage.put_model(files, output, force=True)
