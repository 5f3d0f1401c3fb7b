"""Functions of a user's Python file, called in a worker because they may raise, hang or end the process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from surgery.base.workers import stage

_modules: dict[str, dict[str, Any]] = {}


class LocalFunctionError(Exception):
    """The file cannot be imported, or has no such function; the message is meant for the user."""


def find(file: str, function: str, folder: str) -> Callable[..., Any]:
    """Import a file once and return one of its functions; the process then works in `folder`."""
    stage(f"the import of {Path(file).name}")
    os.chdir(folder)
    try:
        if file not in _modules:
            _modules[file] = _import(file)
    except BaseException as error:
        raise LocalFunctionError(raised(error, file)) from error
    found = _modules[file].get(function)
    if not callable(found):
        there = [name for name, item in _modules[file].items() if callable(item) and not name.startswith("_")]
        raise LocalFunctionError(f"no function '{function}' in it; it has {', '.join(there) or 'none'}")
    return found  # type: ignore[no-any-return]


def _import(file: str) -> dict[str, Any]:
    """Run a Python file as a module, which may import files next to it."""
    import importlib.util
    import sys

    sys.path.insert(0, str(Path(file).parent))
    name = f"surgery_local_{Path(file).stem}"
    found = importlib.util.spec_from_file_location(name, file)
    if found is None or found.loader is None:
        raise ImportError("it cannot be imported")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    found.loader.exec_module(module)
    return {key: item for key, item in vars(module).items() if getattr(item, "__module__", name) == name}


def raised(error: BaseException, file: str) -> str:
    """Return in one line what was raised, and in which line of the user's file."""
    import traceback

    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    where = f"line {lines[-1]}: " if lines else ""
    if isinstance(error, SyntaxError) and error.filename == file:
        where = f"line {error.lineno}: "
    text = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
    return f"{where}{type(error).__name__}{f': {text}' if text else ''}"
