"""Find the files that a file refers to: they decide about a result as much as the file itself."""

from __future__ import annotations

import ast
import importlib.util
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Final

from surgery.base.errors import SurgeryError
from surgery.model.checkpoints import shards
from surgery.model.storage import text_formats
from surgery.model.storage.loading import external_locations

_MODELS: Final = frozenset({".onnx", *text_formats.FORMATS} - {".json"})
_OWN: Final = ("surgery", "passes")


def referred(path: Path) -> list[Path]:
    """Return the shards of an index, the external data of a model, or the modules that a Python file imports.

    Modules of installed packages and of Python itself are left out, as locks and statements name their versions. What
    does not exist or cannot be read is left out too: its use fails.
    """
    with suppress(SurgeryError, OSError):
        if path.name.endswith(".index.json"):
            return [path.with_name(name) for name in shards.names(path)]
        if path.suffix == ".py":
            return imported(path)
        if path.suffix in _MODELS:
            return [path.parent / name for name in external_locations(path)]
    return []


def imported(path: Path) -> list[Path]:
    """Return the files of the modules that a Python file imports, directly or indirectly, sorted."""
    found: set[Path] = set()
    waiting = [path]
    while waiting:
        new = {file for name in _imports(waiting.pop()) if (file := _file_of(name)) is not None} - found
        found |= new
        waiting += new
    return sorted(found - {path})


def _imports(path: Path) -> frozenset[str]:
    """Return the absolute names that a file imports anywhere, and those that may be modules of a package."""
    try:
        return _names(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return frozenset()


@lru_cache(maxsize=256)
def _names(source: bytes) -> frozenset[str]:
    """Return what source code imports. Every run asks for its plugins anew, and parsing takes longer than reading."""
    return frozenset(_imported_names(ast.parse(source)))


def _imported_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def _file_of(name: str) -> Path | None:
    """Return the file of a module that is not part of an installed package, without importing anything."""
    first, *rest = name.split(".")
    try:
        spec = None if first in _OWN else importlib.util.find_spec(first)
        for count, _ in enumerate(rest, 2):
            if spec is None or _is_installed(spec):
                return None
            spec = PathFinder.find_spec(".".join(name.split(".")[:count]), spec.submodule_search_locations or [])
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.has_location or spec.origin is None or _is_installed(spec):
        return None
    return Path(spec.origin).resolve()


def _is_installed(spec: ModuleSpec) -> bool:
    places = spec.submodule_search_locations or ([spec.origin] if spec.has_location and spec.origin else [])
    return not places or any(
        Path(place).resolve().is_relative_to(folder) for place in places for folder in _installed()
    )


@cache
def _installed() -> list[Path]:
    """Return the folders of installed packages and of Python itself."""
    paths = sysconfig.get_paths()
    return [Path(paths[kind]).resolve() for kind in ("stdlib", "platstdlib", "purelib", "platlib")]
