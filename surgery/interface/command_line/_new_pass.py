"""The files of a new pass: names, contents and locations.

The templates are modules that are checked like all others; the written files differ from them only in names.
"""

from __future__ import annotations

import importlib.machinery
import keyword
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from surgery.base.errors import OutputError, UsageError
from surgery.base.json_record import Record
from surgery.engine.registry import discovery
from surgery.engine.registry.catalog import catalog
from surgery.engine.registry.passes import require_name
from surgery.model import storage

_FIRES = "fires.onnxtxt", "swaps_the_operands.onnxtxt"
_REFUSES = "refuses.onnxtxt", "keeps_integers.onnxtxt"
_SPARES = "unchanged.onnxtxt", "keeps_integers.onnxtxt"
"""Templates and names of case files; reasons for refusals exist only in the engine's own API."""


@dataclass(frozen=True)
class NewPass(Record, keys="name pass=file cases entry_point"):
    """The files of a new pass with their text; `root` is the folder of the project.

    `entry_point` is the line with which the project's package would provide the pass, if applicable.
    """

    name: str
    root: Path
    file: Path
    cases: tuple[Path, ...]
    texts: dict[Path, str]
    entry_point: str | None

    @property
    def is_beside(self) -> bool:
        """Whether `surgery test` finds the pass without `--plugin`, because it is at the top of the project."""
        return self.file.parent == self.root

    def write(self, *, force: bool = False) -> None:
        """Write all files, or none; OutputError if one exists that must not be overwritten."""
        write_files(self.texts, force=force)


def require_free(paths: Iterable[Path], *, force: bool = False) -> None:
    """Raise OutputError if a file exists that must not be overwritten."""
    for path in paths:
        if path.is_dir():
            raise OutputError("this is a folder", where=str(path), todo="choose another name")
        if path.exists() and not force:
            raise OutputError("the file exists", where=str(path), todo="choose another name, or use --force")


def write_files(texts: Mapping[Path, str], *, force: bool = False) -> None:
    """Write all new files, or none; OutputError if one exists that must not be overwritten."""
    require_free(texts, force=force)
    for folder in dict.fromkeys(path.parent for path in texts):
        with storage.output_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
    storage.write_texts(texts)


def plan(name: str, folder: Path, kind: str = "pattern") -> NewPass:
    """Return the files of a new pass; UsageError if the name or the folder is not suitable.

    The pass is placed in the folder, its cases in `tests/cases` of the project, or in `cases` if there are no tests.
    The project is the nearest folder with a pyproject.toml, from the folder up to the current one.
    """
    require_name(name)
    word = name.replace("-", "_")
    function = f"{word}_" if keyword.iskeyword(word) else word
    if not folder.is_dir():
        what = "this is not a folder" if folder.exists() else "no such folder"
        raise UsageError(what, where=str(folder), todo="create it first")
    root = _project(folder)
    file = folder / f"{function}.py"
    _require_free(name, file)
    cases = root / ("tests/cases" if (root / "tests").is_dir() else "cases") / name
    texts = {file: _template(f"{kind}.py", name, function)}
    for template, situation in (_FIRES, _REFUSES if kind in ("pattern", "graph") else _SPARES):
        texts[cases / situation] = _template(template, name, function)
    return NewPass(name, root, file, tuple(texts)[1:], texts, _entry_point(name, file, root))


def _require_free(name: str, file: Path) -> None:
    """Raise UsageError if another pass has the name, or the file would hide a module."""
    taken = catalog.passes().get(name)
    if taken is not None and not _is_same(taken.place, file):
        raise UsageError(f"there is a pass '{name}' already, from {taken.origin}", todo="choose another name")
    if importlib.machinery.PathFinder.find_spec(file.stem, _paths(file.parent)) is not None or _is_builtin(file.stem):
        what = f"a file {file.name} would hide the module '{file.stem}' of Python or of a package"
        raise UsageError(what, todo="choose another name")


def _is_same(place: str, file: Path) -> bool:
    return Path(place.rpartition(":")[0]) == file.absolute()


def _is_builtin(module: str) -> bool:
    return importlib.machinery.BuiltinImporter.find_spec(module) is not None


def _paths(folder: Path) -> list[str]:
    """Return the module search path without the folder itself, which may contain an older version of the file."""
    return [path for path in sys.path if Path(path).absolute() != folder.absolute()]


def _project(folder: Path) -> Path:
    """Return the nearest folder with a pyproject.toml, up to the current one; the folder itself if there is none."""
    here = Path.cwd()
    for above in (folder, *folder.parents):
        if (above / "pyproject.toml").is_file():
            return above
        if above.absolute() == here:
            break
    return folder


def _template(file: str, name: str, function: str) -> str:
    text = (resources.files("surgery.interface.command_line") / "templates" / file).read_text(encoding="utf-8")
    return text.replace("my-pass", name).replace("my_pass", function)


def _entry_point(name: str, file: Path, root: Path) -> str | None:
    """Return the line for pyproject.toml; None without such a file, or if it has the line already."""
    try:
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return None
    given = project.get("project", {}).get("entry-points", {}).get(discovery.ENTRY_POINTS, {})
    parts = file.relative_to(root).with_suffix("").parts
    module = ".".join(parts[1:] if parts[0] == "src" else parts)
    return None if module in given.values() or not re.fullmatch(r"\w+(\.\w+)*", module) else f'{name} = "{module}"'
