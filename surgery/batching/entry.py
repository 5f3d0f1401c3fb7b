"""One model of a batch: what to read, with which recipe, and where the result goes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Entry:
    """A model of a batch. `name` is its output below the output folder, in the form of POSIX, and identifies it.

    `model` and `inputs` are whole paths, `recipe` is a whole path or the name of a shipped recipe. `skip` says why the
    model is not to be run; it is empty otherwise. `where` is the place in a manifest, `path:line`.
    """

    name: str
    model: str
    recipe: str
    inputs: tuple[str, ...] = ()
    skip: str = ""
    where: str = field(default="", compare=False)


@dataclass(frozen=True)
class Settings:
    """What holds for all models of a batch. What is not given is as the recipes say."""

    trust: bool = False
    plugins: tuple[str, ...] = ()
    target: str | None = None
    layout: str = "keep"
    on_failure: str | None = None
    strict: bool = False
    unverified: str | None = None
    custom_op_libraries: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "trust": self.trust,
            "plugins": list(self.plugins),
            "target": self.target,
            "layout": self.layout,
            "on_failure": self.on_failure,
            "strict": self.strict,
            "unverified": self.unverified,
            "custom_op_libraries": list(self.custom_op_libraries),
            "providers": list(self.providers),
        }


@dataclass(frozen=True)
class Limits:
    """What one model may use, and all of them together; None is no limit. Seconds and bytes."""

    timeout: float | None = None
    memory: int | None = None
    total_memory: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"timeout": self.timeout, "memory": self.memory, "total_memory": self.total_memory}


def absolute(path: str | Path) -> Path:
    """Return a path from the root on, without `..`; links stay what they are."""
    return Path(os.path.normpath(Path(path).absolute()))


def named_recipe(text: str, folder: Path = Path()) -> str:
    """Return a recipe as workers find it: the whole path of a file, or else the name of a shipped recipe."""
    return str(absolute(folder / text)) if (folder / text).is_file() else text


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
