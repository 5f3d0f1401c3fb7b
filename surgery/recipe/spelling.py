"""Suggestions for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# What people write for a key, coming from elsewhere, and no spelling aid would find.
_ALSO = {
    "passes": "steps",
    "pipeline": "steps",
    "name": "recipe",
    "description": "about",
    "options": "with",
    "args": "with",
    "params": "with",
    "if": "when",
    "on_error": "on_failure",
    "dimensions": "dims",
}


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Give the known name that is most like this one, if one is."""
    known = list(known)
    if _ALSO.get(name) in known:
        return _ALSO[name]
    for spelling in (name, name.lower().replace("-", "_"), name.lower().replace("_", "-")):
        near = difflib.get_close_matches(spelling, known, n=1)
        if near:
            return near[0]
    return None


def meant(name: object, known: Iterable[str]) -> str:
    """Write the end of a message that suggests a known name; empty if none is like this one."""
    near = nearest(name, known) if isinstance(name, str) else None
    return f"; did you mean '{near}'?" if near else ""
