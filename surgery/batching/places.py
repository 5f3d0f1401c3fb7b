"""Where models come from and results go: local folders, and URLs of object storage."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from surgery import storage
from surgery.errors import ModelFileError, SurgeryError
from surgery.storage import listing, loading, staging, urls


def absolute(path: str | Path) -> Path:
    """Return a path from the root on, without `..`; links stay what they are."""
    return Path(os.path.normpath(Path(path).absolute()))


def placed(text: str, folder: Path = Path()) -> str:
    """Return a URL as it is, and a path from the root on; relative ones start at a folder."""
    if urls.is_url(text):
        local = urls.local_path(text)
        return text if local is None else str(absolute(local))
    return str(absolute(folder / text))


def named_recipe(text: str, folder: Path = Path()) -> str:
    """Return a recipe as workers find it: the whole path of a file, or else the name of a shipped recipe."""
    return str(absolute(folder / text)) if (folder / text).is_file() else text


class Output:
    """The folder, or the URL of one, that results go to."""

    def __init__(self, text: str) -> None:
        self.text = placed(text)
        self.is_remote = urls.is_url(self.text)

    def place(self, name: str) -> str:
        """Return where a result goes."""
        return urls.joined(self.text, name) if self.is_remote else str(Path(self.text, name))

    def sizes(self, name: str, files: Sequence[str]) -> list[int]:
        """Return the bytes of the files of a result, of which some are next to it; -1 for one that is not there."""
        place = self.place(name)
        if self.is_remote:
            return [self._listed.get(urls.sibling(place, file), -1) for file in files]
        return [size for _, size, _ in sizes([Path(place).with_name(file) for file in files])]

    def exists(self, name: str) -> bool:
        """Return whether there is a file where a result goes."""
        return self.place(name) in self._listed if self.is_remote else Path(self.place(name)).exists()

    @cached_property
    def _listed(self) -> Mapping[str, int]:
        """The bytes of all objects below the URL, listed once: a question for each would take a while."""
        try:
            return {entry.url: entry.bytes or 0 for entry in listing.list_files(self.text, suffixes=("",))}
        except ModelFileError:
            return {}


def sizes(paths: Sequence[str | Path]) -> list[list[Any]]:
    """Return path, size and time of change of files: while they are the same, the files are not read again.

    A file that is not there has the size -1.
    """
    return [list(_size(Path(path))) for path in paths]


def _size(path: Path) -> Iterator[Any]:
    yield str(path)
    found = None
    with suppress(OSError):
        found = path.stat()
    yield from (-1, 0) if found is None else (found.st_size, found.st_mtime_ns)


def versions(model: str, locations: Sequence[str], known: str = "") -> list[list[Any]]:
    """Return for a model at a URL, and its external data, what `sizes` does for files.

    `locations` are those of the external data, from the model on. `known` is the version of the model, if that was
    listed. Raises ModelFileError and TransferError.
    """
    found = [[urls.shown(model), 0, known or listing.version(model)]]
    return found + [[location, 0, listing.version(urls.sibling(model, location))] for location in locations]


def data_locations(model: Path, files: Sequence[Path]) -> list[str]:
    """Return the paths of external data from a model on."""
    return [os.path.relpath(path, model.parent) for path in files[1:]]


@contextmanager
def local_copies(model: str, output: str) -> Iterator[tuple[Path, Path]]:
    """Yield local paths to read a model from and to write a result to; what was copied goes away afterwards.

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


def delivered(files: Sequence[Path], output: str) -> None:
    """Upload the files of a result, the model last, if it goes to a URL. Raises OutputError and TransferError."""
    if urls.is_url(output):
        storage.put_model(files, output, force=True)
