"""Names given by users, exact or as globs, with suggestions for unknown ones.

In a glob, `*` stands for any characters, including slashes, and `?` for one character. Brackets are literal, because
names such as `model[0]/Relu` are common.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

_MOST_TOLD = 3
_WILD = re.compile(r"[*?]")


@dataclass(frozen=True)
class Globs:
    """Names and globs, any of which may match."""

    texts: tuple[str, ...]

    @cached_property
    def _whole(self) -> frozenset[str]:
        return frozenset(self.texts)

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        wild = [_translated(text) for text in self.texts if _WILD.search(text)]
        return re.compile("|".join(wild), re.DOTALL) if wild else None

    def fit(self, name: str) -> bool:
        """Return whether a name or glob matches this name."""
        return name in self._whole or (self._pattern is not None and self._pattern.fullmatch(name) is not None)

    def __str__(self) -> str:
        return ", ".join(f"'{text}'" for text in self.texts)


def _translated(glob: str) -> str:
    return "".join({"*": ".*", "?": "."}.get(letter, re.escape(letter)) for letter in glob)


def nearest(text: str, known: Iterable[str]) -> list[str]:
    """Return the few names most similar to a text: first those that contain it, then those with similar spelling."""
    names = list(dict.fromkeys(name for name in known if name))
    wanted = _WILD.sub("", text).lower()
    containing = [name for name in names if wanted and wanted in name.lower()][:_MOST_TOLD]
    alike = difflib.get_close_matches(text, names, n=_MOST_TOLD) if len(containing) < _MOST_TOLD else []
    return list(dict.fromkeys([*containing, *alike]))[:_MOST_TOLD]


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """Return a suggestion of the nearest names, "did you mean 'x' or 'y'?"; empty if none is near."""
    near = [f"'{name}'" for name in nearest(text, known)]
    return f"did you mean {' or '.join([', '.join(near[:-1]), near[-1]] if near[1:] else near)}?" if near else ""
