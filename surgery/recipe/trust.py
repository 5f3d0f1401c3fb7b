"""The user's configuration: local code that may run without a flag.

    # ~/.config/surgery/config.yaml
    trust:
      - ~/onnx/passes                   # a folder, with all below it
      - ~/onnx/inputs.py                # a file, whatever is in it
      - path: ~/downloads/theirs.py     # a file as it is now
        sha256: 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae

Only the user writes this file; a recipe cannot reach it.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from surgery.errors import Problem, RecipeError
from surgery.recipe.draft import Draft, NamedError, NotedError, TakesError
from surgery.recipe.fields import (
    OneOrMore,
    Section,
    key,
    needed,
    read_text,
    reads,
    text,
)
from surgery.recipe.nodes import Node, Scalar, Table, is_null, quoted
from surgery.recipe.paths import configuration_folder, is_file, mode
from surgery.recipe.source import decode, documents

_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


class ConfigError(RecipeError):
    """The user's configuration has mistakes; all of them at once, each with line and column."""

    code = "config"


@dataclass(frozen=True)
class Trusted:
    """One entry of the list: a file or a folder, and the hash that the file must have, if one is given."""

    path: Path
    sha256: str | None
    where: str

    def covers(self, path: Path) -> bool:
        """Say whether a file or folder is this or is below it, links followed."""
        path = path.resolve()
        return path == self.path or self.path in path.parents


def config_file() -> Path:
    """Give the path of the user's configuration, which need not exist."""
    return configuration_folder() / "config.yaml"


def digest(path: Path) -> str | None:
    """Give the sha256 of a file, None for anything else."""
    if not is_file(path):
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def trusted(path: Path, entries: tuple[Trusted, ...]) -> bool:
    """Say whether the user trusts a file or folder as it is now."""
    covering = [entry for entry in entries if entry.covers(path)]
    return any(entry.sha256 is None or entry.sha256 == digest(path) for entry in covering)


def changed(path: Path, entries: tuple[Trusted, ...]) -> Trusted | None:
    """Give the entry that trusts a file with another content, if there is one."""
    covering = [entry for entry in entries if entry.covers(path) and entry.sha256 is not None]
    return covering[0] if covering and not trusted(path, entries) else None


def entries() -> tuple[Trusted, ...]:
    """Read the list `trust` of the user's configuration; ConfigError lists what is wrong in it."""
    file = config_file()
    if not mode(file):
        return ()
    try:
        text, mistakes = decode(file.read_bytes())
    except OSError as error:
        raise ConfigError([Problem(str(file), 1, 1, f"cannot be read: {error.strerror}")]) from error
    document = next(documents(text))
    draft = Draft(str(file), file.parent)
    draft.problems += [Problem(str(file), *mistake) for mistake in mistakes + document.mistakes]
    found = None
    if document.root is not None and not is_null(document.root):
        found = draft.read(_Configuration, document.root, "the configuration")
    if draft.problems:
        raise ConfigError(draft.problems)
    return tuple((found or {}).get("trust", ()))


def _hash(node: Node, _: Draft) -> str:
    # A hash of digits alone is a number to YAML, and its text is what counts.
    if not isinstance(node, Scalar) or not _SHA256.fullmatch(node.text):
        raise TakesError("the 64 hexadecimal digits that sha256sum prints")
    return node.text.lower()


class _File(Section):
    needs: ClassVar = {"path": "an entry of 'trust' needs a 'path'"}

    path: Annotated[str, text("the path of a file")] = needed("The file.")
    sha256: Annotated[Any, reads(_hash)] = key("The hash that it must have.")


def _entry(node: Node, draft: Draft) -> Trusted:
    """Read one entry: a path, or a path with a hash."""
    if isinstance(node, Table):
        found = draft.read(_File, node, "trust")
        if found is None:
            raise NotedError
    else:
        found = {"path": read_text(node, "the path of a file or folder, or {path: ..., sha256: ...}")}
    path, sha256 = found["path"], found.get("sha256")
    expanded = Path(os.path.expanduser(path))  # noqa: PTH111 - that of Path raises where there is no such user
    if not expanded.is_absolute():
        raise NamedError(f"{{}} takes an absolute path or one that begins with ~/, not {quoted(path)}")
    if not mode(expanded):
        raise ValueError(f"no file or folder {quoted(path)}")
    if sha256 is not None and not is_file(expanded):
        raise ValueError(f"{quoted(path)} is a folder, but a sha256 needs a file")
    return Trusted(expanded.resolve(), sha256, f"{draft.path}:{node.line}:{node.column}")


class _Configuration(Section):
    wanted = "a mapping such as {trust: [~/passes]}"

    trust: Annotated[tuple[Annotated[Any, reads(_entry)], ...], OneOrMore()] = key("What may be run.")
