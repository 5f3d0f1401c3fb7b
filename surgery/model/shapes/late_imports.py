"""Modules of dependencies that are executed when something of them is used, not when they are imported.

onnx-ir and onnx-shape-inference import sympy for the arithmetic of dims, which takes 31 MiB and 0.2 s. Most models can
do without, see `surgery.model.shapes.linear`.
"""

from __future__ import annotations

import importlib.abc
import os
import sys
import threading
import types
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from typing import Any

LATE = {
    "sympy",
    # These use sympy while they are executed.
    "onnx_ir._symbolic_shapes",
    "onnx_shape_inference._constraints",
    "onnx_shape_inference._symbolic_shapes",
}

_executing = threading.RLock()
"""Held while a module is executed. Unlike `importlib.util.LazyLoader` before Python 3.12, no other thread sees a module
of which a part is missing."""

os.register_at_fork(before=_executing.acquire, after_in_parent=_executing.release, after_in_child=_executing.release)


class _LateModule(types.ModuleType):
    """A module that is executed at the first access to an attribute."""

    def __getattribute__(self, name: str) -> Any:
        # An import statement looks at the specification of a module that is imported already.
        if name != "__spec__":
            with _executing:
                _execute(self)
        return object.__getattribute__(self, name)


class _LateLoader(importlib.abc.Loader):
    """Leaves a module to be executed by its own loader later."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> None:
        """Have the import system create the module."""

    def exec_module(self, module: types.ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self.loader
        module.__class__ = _LateModule


class _LateFinder(importlib.abc.MetaPathFinder):
    """Finds what the finders after it find, to be executed later."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in LATE:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (finder.find_spec(fullname, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _LateLoader(spec.loader)
        return spec


_begun: set[str] = set()


def _execute(module: types.ModuleType) -> None:
    """Execute a module, unless another thread has done so, or this one is doing it."""
    spec = object.__getattribute__(module, "__spec__")
    if type(module) is not _LateModule or spec.name in _begun:
        return
    _begun.add(spec.name)
    try:
        spec.loader.exec_module(module)
        types.ModuleType.__setattr__(module, "__class__", types.ModuleType)
    finally:
        _begun.discard(spec.name)


def register() -> None:
    """Have the modules in `LATE` executed when they are used, if nothing has imported them before."""
    if not any(isinstance(finder, _LateFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _LateFinder())
