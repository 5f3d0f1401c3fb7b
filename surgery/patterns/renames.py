"""Renames: an option type of passes that maps old names to new ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from surgery.errors import UsageError
from surgery.storage.globs import did_you_mean

_REGEX = "re:"
_WILD = re.compile(r"[*?]")


class Renames(dict[str, str]):
    """Old names and new ones, which hold at once: `{a: b, b: a}` swaps two names.

    An old name may be a glob, of which the wildcards stand for the same letters in the new name, `{encoder/*: enc/*}`,
    or after `re:` a regular expression over whole names with its groups in the new one, `{'re:h(.)': 'block\\1'}`.
    A name that the model has is that name, whatever letters are in it, and goes before what fits by a pattern.
    """

    type_name: ClassVar[str] = "new names"

    @classmethod
    def read(cls, value: Any) -> Renames:
        """Read what a recipe says; ValueError describes the mistake in one line."""
        if not isinstance(value, Mapping) or not all(isinstance(item, str) for pair in value.items() for item in pair):
            raise ValueError(
                "expected a mapping of old names to new ones; put quotes around names that look like numbers"
            )
        for old, new in value.items():
            if not old or not new:
                raise ValueError(f"'{old}: {new}' has an empty name")
            _check(old, new)
        return cls(value)

    def of(self, kind: str, known: Iterable[str]) -> dict[str, str]:
        """Return what things with known names are to be called; UsageError also where two would have one name."""
        names = dict.fromkeys(known)
        found = self.expand(kind, names)
        _check_clashes(kind, found, names)
        return found

    def expand(self, kind: str, known: Iterable[str]) -> dict[str, str]:
        """Find the known names that are meant, each with the new one; UsageError when one of the old is not there.

        `kind` says in messages what has these names.
        """
        names = dict.fromkeys(known)
        whole = {old: new for old, new in self.items() if old in names}
        found = dict(whole)
        for pattern, new in self.items():
            if pattern in whole:
                continue
            fitting = list(_fitting(pattern, new, names))
            if not fitting:
                raise UsageError(f"there is no {kind} '{pattern}'", todo=did_you_mean(pattern, names) or None)
            for old, made in fitting:
                if found.setdefault(old, made) != made and old not in whole:
                    raise UsageError(f"the {kind} '{old}' would be renamed to both '{found[old]}' and '{made}'")
        return {old: new for old, new in found.items() if old != new}

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(cls.read)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": {"type": "string", "minLength": 1}}


def _check(old: str, new: str) -> None:
    """Raise ValueError for a pattern that cannot be used."""
    if not old.startswith(_REGEX):
        # Without wildcards of its own it is a name, and one that the new name has stands for itself.
        if _WILD.search(old) and len(_WILD.findall(new)) > len(_WILD.findall(old)):
            raise ValueError(f"'{new}' has more wildcards than '{old}', which must fill them")
        return
    try:
        # An empty alternative lets the expression fit, so that the template is looked at.
        re.sub(f"{_pattern(old).pattern}|", new, "", count=1)
    except (re.error, IndexError) as error:
        raise ValueError(
            f"'{old}: {new}' is not a regular expression with a name to put its groups in: {error}"
        ) from None


def _pattern(text: str) -> re.Pattern[str]:
    if text.startswith(_REGEX):
        return re.compile(text.removeprefix(_REGEX), re.DOTALL)
    parts = re.split(r"([*?])", text)
    return re.compile("".join({"*": "(.*)", "?": "(.)"}.get(part, re.escape(part)) for part in parts), re.DOTALL)


def _fitting(text: str, new: str, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the names that fit a pattern, with what they become."""
    if not text.startswith(_REGEX) and not _WILD.search(text):
        return
    pattern = _pattern(text)
    for name in names:
        match = pattern.fullmatch(name)
        if match is None:
            continue
        yield name, match.expand(new) if text.startswith(_REGEX) else _filled(new, match.groups())


def _filled(glob: str, letters: Iterable[str]) -> str:
    """Put letters in place of the wildcards of a glob."""
    parts = iter(letters)
    return _WILD.sub(lambda _: next(parts), glob)


def _check_clashes(kind: str, found: Mapping[str, str], names: Mapping[str, None]) -> None:
    """Raise UsageError, naming both, where two things would have one name."""
    holders: dict[str, str] = {}
    for old, new in found.items():
        other = holders.setdefault(new, old)
        if other != old:
            raise UsageError(f"the {kind}s '{other}' and '{old}' would both be renamed to '{new}'")
        if not new:
            raise UsageError(f"the {kind} '{old}' would have an empty name")
        if new in names and new not in found:
            raise UsageError(
                f"the {kind} '{old}' cannot be renamed to '{new}', which exists already", todo=f"rename '{new}' too"
            )
