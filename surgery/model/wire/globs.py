"""Names given by users, exact or as globs, with suggestions for unknown ones.

In a glob, `*` stands for any characters, including slashes, and `?` for one character. Brackets are literal, because
names such as `model[0]/Relu` are common.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from surgery.base.errors import UsageError

_MOST_TOLD = 3
REGEX = "re:"
"""The beginning of an old name that is a regular expression."""

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


def by_kind(known: Mapping[str, Iterable[str]], names: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return new names in the groups that have the old ones, of all names `known` by kind, such as tensors and dims.

    Raises UsageError if nothing has an old name, or for an invalid regular expression.
    """
    found: dict[str, dict[str, str]] = {}
    for old, new in names.items():
        kinds = [kind for kind, all_names in known.items() if _has(old, list(all_names))]
        if not kinds:
            near = did_you_mean(old, [name for all_names in known.values() for name in all_names])
            raise UsageError(f"the model has no tensor, node or dim '{old}'", todo=near or None)
        for kind in kinds:
            found.setdefault(kind, {})[old] = new
    return found


def _has(old: str, known: Sequence[str]) -> bool:
    """Return whether a name, a glob, or a regular expression after `re:` fits any of the names."""
    if not old.startswith(REGEX) or old in known:
        return any(map(Globs((old,)).fit, known))
    try:
        pattern = re.compile(old.removeprefix(REGEX))
    except re.error as error:
        raise UsageError(f"'{old}' is not a regular expression: {error}") from None
    return any(map(pattern.fullmatch, known))
