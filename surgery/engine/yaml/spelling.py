"""Suggestions for misspelled names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# Names of keys in other tools, which are too different for similarity search.
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
    """Return the known name that is most similar to this one, or None."""
    known = list(known)
    if _ALSO.get(name) in known:
        return _ALSO[name]
    for spelling in (name, name.lower().replace("-", "_"), name.lower().replace("_", "-")):
        near = difflib.get_close_matches(spelling, known, n=1)
        if near:
            return near[0]
    return None


def meant(name: object, known: Iterable[str]) -> str:
    """Return the end of a message that suggests a known name; empty if none is similar."""
    near = nearest(name, known) if isinstance(name, str) else None
    return f"; did you mean '{near}'?" if near else ""
