"""Discovery of passes: standard passes, installed packages, and modules and files given by name.

Importing a module registers its passes. Problems of an installed package are recorded and not raised, so that other
passes remain usable. Third-party code may crash, hang or exit during import, so another process imports it first,
within limits, and this process only if that succeeds.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import os
import pkgutil
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from surgery.base.errors import SurgeryError, UsageError, WorkerError, raised
from surgery.base.workers import Worker, WorkerRaised, default_memory, stage
from surgery.base.workers.fork import call_in_fork

STANDARD = "surgery.passes"
"""The package of the standard passes."""
ENTRY_POINTS = "surgery.passes"
"""The group of entry points to which other packages add modules with passes."""
PREDICATES = "surgery.predicates"
"""The group for modules with predicates; either module may declare both."""

TIMEOUT = 60.0
"""Time limit in seconds for a trial import in another process."""
_STAGE = "its import"

contained: ContextVar[bool] = ContextVar("contained", default=True)
"""Whether plugins are first imported in another process; disabled for debugging."""


@dataclass(frozen=True)
class Broken:
    """An entry point that cannot be loaded: its name, its distribution with version, and the problem."""

    entry: str
    origin: str
    problem: str

    def __str__(self) -> str:
        return f"the passes '{self.entry}' of {self.origin} cannot be loaded: {self.problem}"


def import_standard() -> None:
    """Import the standard passes."""
    package = importlib.import_module(STANDARD)
    for module in pkgutil.walk_packages(package.__path__, f"{STANDARD}."):
        importlib.import_module(module.name)


def import_standard_pass(name: str) -> None:
    """Import the standard pass whose file has this name, if there is one."""
    module = _files().get(name.replace("-", "_"))
    if module is not None:
        importlib.import_module(module)


@cache
def _files() -> dict[str, str]:
    """Return the modules of the standard passes by file name, without importing them."""
    package = importlib.import_module(STANDARD)
    found = pkgutil.walk_packages(package.__path__, f"{STANDARD}.")
    return {module.name.rpartition(".")[2]: module.name for module in found if not module.ispkg}


def has_installed() -> bool:
    """Return whether any installed package has passes."""
    return bool(_entries())


def import_installed() -> list[Broken]:
    """Import the passes of all installed packages; return the entry points that cannot be loaded."""
    broken = []
    entries = _entries()
    with _TrialImport() as trial:
        for entry in entries:
            try:
                fate = "" if entry.module in sys.modules else trial.fate(entry.module)
                if not fate:
                    entry.load()
            except (Exception, SystemExit) as error:
                fate = raised(error)
            if fate:
                broken.append(Broken(entry.name, _title(entry.dist), fate))
    return broken


def import_plugin(name: str) -> None:
    """Import a plugin: a module by name or a `.py` file by path. UsageError if that fails or would end surgery."""
    try:
        if name.endswith(".py"):
            _import_file(name, _require_import)
        else:
            if name not in sys.modules:
                _require_import(name)
            importlib.import_module(name)
    except SurgeryError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise UsageError(f"no plugin module '{name}'", todo="install it, or name a .py file") from error
        raise UsageError(f"plugin '{name}' cannot be imported: {raised(error)}") from error


class _TrialImport:
    """Imports modules and files in a process that they may end: a fork per import, or a shared worker."""

    def __init__(self) -> None:
        self._worker = Worker(timeout=TIMEOUT)

    def __enter__(self) -> _TrialImport:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.close()

    def fate(self, name: str) -> str:
        """Return how an import ended the process in which it was tried; empty if the process survived."""
        if not contained.get():
            return ""
        try:
            if threading.active_count() == 1:
                # A fork inherits all imports of this process, but also locks that other threads hold.
                call_in_fork(lambda: _try(name), stage=_STAGE, timeout=TIMEOUT, memory=default_memory())
            else:
                self._worker.call(
                    "surgery.engine.registry.discovery:try_import", name=name, path=sys.path, folder=str(Path.cwd())
                )
        except WorkerRaised:
            return ""  # it raises here too, where it is reported
        except WorkerError as error:
            # A failure before the import says nothing about the import.
            return error.what if error.stage == _STAGE else ""
        return ""


def try_import(name: str, path: list[str], folder: str) -> None:
    """Import a plugin in this worker process."""
    sys.path[:] = path
    os.chdir(folder)
    stage(_STAGE)
    _try(name)


def _try(name: str) -> None:
    """Import a plugin. Exceptions are suppressed, because they will be raised again at the actual import."""
    with suppress(Exception, SystemExit):
        if name.endswith(".py"):
            _import_file(name)
        else:
            importlib.import_module(name)


def _require_import(name: str) -> None:
    with _TrialImport() as trial:
        fate = trial.fate(name)
    if fate:
        raise UsageError(f"plugin '{name}' cannot be imported: {fate}")


def _import_file(name: str, check: Callable[[str], object] | None = None) -> None:
    path = Path(name).resolve()
    if not path.is_file():
        raise UsageError(f"no plugin file '{name}'")
    module_name = _module_name(path)
    if module_name in sys.modules:
        return
    if check is not None:
        check(name)
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"'{name}' cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise


def _module_name(path: Path) -> str:
    return f"surgery_plugin_{path.stem}_{hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"


def forget_others(name: str) -> list[str]:
    """Forget the modules of earlier contents of a plugin file; return their names."""
    path = Path(name).resolve()
    if not name.endswith(".py") or not path.is_file():
        return []
    others = [
        module
        for module, found in sys.modules.items()
        if module.startswith(f"surgery_plugin_{path.stem}_") and getattr(found, "__file__", None) == str(path)
    ]
    others = [module for module in others if module != _module_name(path)]
    for module in others:
        del sys.modules[module]
    return others


def origin(module: str, file: str) -> str:
    """Return the origin of a module: "surgery", a distribution with its version, or else its file."""
    if module.startswith(f"{STANDARD}."):
        return "surgery"
    for entry in _entries():
        if module == entry.module or module.startswith(f"{entry.module}."):
            return _title(entry.dist)
    names = _distributions().get(module.partition(".")[0], ())
    return version(names[0]) if names else file


def version(distribution: str) -> str:
    """Return the name and the version of an installed distribution, or the name and "(not installed)"."""
    try:
        return _title(importlib.metadata.distribution(distribution))
    except importlib.metadata.PackageNotFoundError:
        return f"{distribution} (not installed)"


def is_installed(distribution: str) -> bool:
    """Return whether a distribution is installed."""
    try:
        importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _title(distribution: importlib.metadata.Distribution | None) -> str:
    return f"{distribution.name} {distribution.version}" if distribution is not None else "an unknown distribution"


def _entries() -> list[importlib.metadata.EntryPoint]:
    found = [*importlib.metadata.entry_points(group=ENTRY_POINTS), *importlib.metadata.entry_points(group=PREDICATES)]
    return sorted(found, key=lambda entry: (_title(entry.dist), entry))


@cache
def _distributions() -> dict[str, list[str]]:
    return dict(importlib.metadata.packages_distributions())
