"""What prompts and notebooks show of values: the wings below the interface hand plain values to a view by name.

`surgery/__init__.py` names the module that has the views. It is imported when something is shown for the first time.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

_homes: dict[str, str] = {}
_OTHERS = ""


def register(module: str, **others: str) -> None:
    """Name the module whose functions are the views; `others` are the modules of single views."""
    _homes.update({_OTHERS: module, **others})


def view(name: str) -> Callable[..., str]:
    """Return a view, which makes text or HTML of plain values; those of other modules may make other objects."""
    found: Callable[..., str] = getattr(import_module(_homes.get(name, _homes[_OTHERS])), name)
    return found
