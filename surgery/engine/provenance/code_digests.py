"""Digests of source code: of the installed package, and of each pass."""

from __future__ import annotations

import hashlib
import inspect
import marshal
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from surgery.engine.provenance.file_digests import digest_of, tree
from surgery.engine.provenance.referred import imported
from surgery.engine.registry.passes import Pass
from surgery.engine.registry.predicates import Predicate
from surgery.model.wire.digests import file_digest

_SUFFIXES: Final = (".py", ".yaml", ".onnxtxt", ".jinja")
# From its own folder, a pass imports only modules with an underscore: `from ._x import y` or `from . import _x, _y`.
_FROM: Final = re.compile(r"^\s*from \.(_\w+) import ", re.MULTILINE)
_NAMED: Final = re.compile(r"^\s*from \. import (?:\(([^)]*)\)|(.*))", re.MULTILINE)
_MODULE: Final = re.compile(r"\b_\w+")


@dataclass(frozen=True)
class PassSource:
    """The origin of a pass (see `Pass.origin`) and the digest of its source."""

    origin: str
    digest: str


@cache
def engine() -> str:
    """Return the digest of the source of surgery itself, without its passes and recipes."""
    folder = str(Path(__file__).parents[2])
    found: dict[str, str] = {}
    for here, folders, names in os.walk(folder):
        below = os.path.relpath(here, folder)
        if below == os.curdir:
            folders[:] = [name for name in folders if name not in ("passes", "recipes")]
        for name in names:
            if name.endswith(_SUFFIXES):
                with open(os.path.join(here, name), "rb") as file:  # noqa: PTH118, PTH123 - 600 files, for each output
                    content = file.read()
                found[os.path.normpath(f"{below}/{name}")] = hashlib.sha256(content).hexdigest()
    return digest_of(found)


def sources(passes: Iterable[Pass]) -> Mapping[str, PassSource]:
    """Return the source of each pass by name. A rule of a recipe has none: it is part of the recipe."""
    return {one.name: source_of(one) for one in sorted(passes, key=lambda one: one.name)}


def combined(passes: Iterable[Pass]) -> str:
    """Return one digest of the sources of passes."""
    return digest_of({name: one.digest for name, one in sources(passes).items()})


def source_of(one: Pass) -> PassSource:
    """Return the source of a pass.

    For a standard pass, this is its file and the modules of its folder that it uses; for a pass in a file named by
    `--plugin` or a recipe, that file and the modules that it imports from no package; for a pass in a package, all
    modules of the package; for a pass without a file (for example, declared in a notebook), its function.
    """
    if one.is_standard:
        return PassSource(one.origin, _standard(_file(one)))
    return PassSource(one.origin, _foreign(one.module, _file(one), one.function))


def predicate_source(one: Predicate) -> str:
    """Return the digest of the source of a predicate, determined as for a non-standard pass."""
    return _foreign(one.module, Path(one.file), one.function)


def _of_function(function: Callable[..., Any]) -> str:
    """Return the digest of the source of a function, or of its code if the source is not available."""
    code = inspect.unwrap(function).__code__
    try:
        source = inspect.getsource(code).encode()
    except (OSError, TypeError):
        source = marshal.dumps(code)
    return hashlib.sha256(source).hexdigest()


def _file(one: Pass) -> Path:
    module = sys.modules.get(one.module)
    declared = one.declared_at.rpartition(":")[0]
    return Path(declared or str(getattr(module, "__file__", None) or one.place.rpartition(":")[0]))


@cache
def _standard(file: Path) -> str:
    """Return the digest of a file and the modules of its folder that it imports directly or indirectly."""
    found: dict[str, str] = {}
    waiting = [file]
    while waiting:
        path = waiting.pop()
        if path.name in found:
            continue
        found[path.name] = file_digest(path)
        waiting += _used(path)
    return digest_of(found)


@cache
def _used(path: Path) -> list[Path]:
    text = path.read_text(encoding="utf-8")
    names = {*_FROM.findall(text), *_MODULE.findall(" ".join("".join(found) for found in _NAMED.findall(text)))}
    return [module for name in sorted(names) if (module := path.with_name(f"{name}.py")).is_file()]


@cache
def _foreign(module: str, file: Path, function: Callable[..., Any]) -> str:
    package = sys.modules.get(module.partition(".")[0])
    places = list(getattr(package, "__path__", ()))
    try:
        if not places or module.startswith("surgery."):
            used = [file_digest(path) for path in imported(file)]
            return digest_of([file_digest(file), *used]) if used else file_digest(file)
        return digest_of({place: tree(Path(path), Path(path).rglob("*.py")) for place, path in enumerate(places)})
    except OSError:
        return _of_function(function)
