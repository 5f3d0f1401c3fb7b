"""The user's configuration: local code that may run without a flag.

    # ~/.config/surgery/config.yaml
    trust:
      - ~/onnx/passes                   # a folder, with all its contents
      - ~/onnx/inputs.py                # a file with any contents
      - path: ~/downloads/theirs.py     # a file with its current contents
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

from surgery.base.errors import Problem, RecipeError
from surgery.engine.recipe.draft import Draft, NamedError, NotedError, TakesError
from surgery.engine.recipe.fields import (
    OneOrMore,
    Section,
    key,
    needed,
    read_text,
    reads,
    text,
)
from surgery.engine.recipe.recipe_paths import configuration_folder, is_file, mode
from surgery.engine.recipe.section_file import parse_section
from surgery.engine.yaml.yaml_nodes import Scalar, Table, YamlNode, quoted

_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


class ConfigError(RecipeError):
    """The user's configuration has mistakes; all are reported at once, each with line and column."""

    code = "config"


@dataclass(frozen=True)
class Trusted:
    """One entry of the list: a file or a folder, and the required hash of the file, if given."""

    path: Path
    sha256: str | None
    where: str

    def covers(self, path: Path) -> bool:
        """Return whether a file or folder is this one or is below it, with symbolic links resolved."""
        path = path.resolve()
        return path == self.path or self.path in path.parents


def config_file() -> Path:
    """Return the path of the user's configuration, which need not exist."""
    return configuration_folder() / "config.yaml"


def digest(path: Path) -> str | None:
    """Return the sha256 of a file; None for anything else."""
    if not is_file(path):
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def trusted(path: Path, entries: tuple[Trusted, ...]) -> bool:
    """Return whether the user trusts a file or folder with its current contents."""
    covering = [entry for entry in entries if entry.covers(path)]
    return any(entry.sha256 is None or entry.sha256 == digest(path) for entry in covering)


def changed(path: Path, entries: tuple[Trusted, ...]) -> Trusted | None:
    """Return the entry that trusts a file with other contents, if there is one."""
    covering = [entry for entry in entries if entry.covers(path) and entry.sha256 is not None]
    return covering[0] if covering and not trusted(path, entries) else None


def entries() -> tuple[Trusted, ...]:
    """Read the list `trust` of the user's configuration; raise ConfigError with all mistakes in it."""
    file = config_file()
    if not mode(file):
        return ()
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError([Problem(str(file), 1, 1, f"cannot be read: {error.strerror}")]) from error
    found, problems = parse_section(file, data, _Configuration, "the configuration")
    if problems:
        raise ConfigError(problems)
    return tuple((found or {}).get("trust", ()))


def _hash(node: YamlNode, _: Draft) -> str:
    # YAML reads a hash of only digits as a number, so its text is used.
    if not isinstance(node, Scalar) or not _SHA256.fullmatch(node.text):
        raise TakesError("the 64 hexadecimal digits that sha256sum prints")
    return node.text.lower()


class _TrustFile(Section):
    needs: ClassVar = {"path": "an entry of 'trust' needs a 'path'"}

    path: Annotated[str, text("the path of a file")] = needed("The file.")
    sha256: Annotated[Any, reads(_hash)] = key("The hash that it must have.")


def _entry(node: YamlNode, draft: Draft) -> Trusted:
    """Read one entry: a path, or a path with a hash."""
    if isinstance(node, Table):
        found = draft.read(_TrustFile, node, "trust")
        if found is None:
            raise NotedError
    else:
        found = {"path": read_text(node, "the path of a file or folder, or {path: ..., sha256: ...}")}
    path, sha256 = found["path"], found.get("sha256")
    expanded = Path(os.path.expanduser(path))  # noqa: PTH111 - Path.expanduser raises for an unknown user
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
