"""Where passes come from: the standard ones, installed packages, modules and files that somebody names.

Importing a module is what registers its passes. What an installed package does wrong is noted and never raised: it
must not keep anybody from using the passes of others.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import pkgutil
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from surgery.errors import SurgeryError, UsageError

STANDARD = "surgery.passes"
"""The package of the standard passes."""
ENTRY_POINTS = "surgery.passes"
"""The group of entry points to which other packages add theirs."""


@dataclass(frozen=True)
class Broken:
    """An entry point that cannot be loaded: its name, its distribution with version, and what went wrong."""

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
    """Import the standard pass whose file is called like it, if there is one."""
    module = _files().get(name.replace("-", "_"))
    if module is not None:
        importlib.import_module(module)


@cache
def _files() -> dict[str, str]:
    """Return the modules of the standard passes by the names of their files; this imports none of them."""
    package = importlib.import_module(STANDARD)
    found = pkgutil.walk_packages(package.__path__, f"{STANDARD}.")
    return {module.name.rpartition(".")[2]: module.name for module in found if not module.ispkg}


def has_installed() -> bool:
    """Tell whether any installed package brings passes."""
    return bool(_entries())


def import_installed() -> list[Broken]:
    """Import the passes of all installed packages, and list those that cannot be loaded."""
    broken = []
    for entry in _entries():
        try:
            entry.load()
        except (Exception, SystemExit) as error:
            broken.append(Broken(entry.name, _title(entry.dist), _tell(error)))
    return broken


def import_plugin(name: str) -> None:
    """Import a plugin, a module by name or a `.py` file by path."""
    try:
        if name.endswith(".py"):
            _import_file(name)
        else:
            importlib.import_module(name)
    except SurgeryError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise UsageError(f"no plugin module '{name}'", todo="install it, or name a .py file") from error
        raise UsageError(f"plugin '{name}' cannot be imported: {_tell(error)}") from error


def _import_file(name: str) -> None:
    path = Path(name).resolve()
    if not path.is_file():
        raise UsageError(f"no plugin file '{name}'")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    module_name = f"surgery_plugin_{path.stem}_{digest}"
    if module_name in sys.modules:
        return
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


def origin(module: str, file: str) -> str:
    """Say where a module comes from: "surgery", a distribution with its version, or else its file."""
    if module.startswith(f"{STANDARD}."):
        return "surgery"
    for entry in _entries():
        if module == entry.module or module.startswith(f"{entry.module}."):
            return _title(entry.dist)
    names = _distributions().get(module.partition(".")[0], ())
    return version(names[0]) if names else file


def version(distribution: str) -> str:
    """Give the name and the version of an installed distribution, or the name and "(not installed)"."""
    try:
        return _title(importlib.metadata.distribution(distribution))
    except importlib.metadata.PackageNotFoundError:
        return f"{distribution} (not installed)"


def is_installed(distribution: str) -> bool:
    """Tell whether a distribution is installed."""
    try:
        importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _title(distribution: importlib.metadata.Distribution | None) -> str:
    return f"{distribution.name} {distribution.version}" if distribution is not None else "an unknown distribution"


def _entries() -> list[importlib.metadata.EntryPoint]:
    return sorted(importlib.metadata.entry_points(group=ENTRY_POINTS), key=lambda entry: (_title(entry.dist), entry))


@cache
def _distributions() -> dict[str, list[str]]:
    return dict(importlib.metadata.packages_distributions())


def _tell(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
