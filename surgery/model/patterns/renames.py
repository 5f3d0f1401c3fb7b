"""Renames: an option type of passes that maps old names to new ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from surgery.base.errors import UsageError
from surgery.model.patterns.option_value import OptionValue
from surgery.model.wire.globs import REGEX, did_you_mean

_WILD = re.compile(r"[*?]")


class Renames(OptionValue, dict[str, str]):
    """A mapping of old names to new names, applied all at once: `{a: b, b: a}` swaps two names.

    An old name may be a glob whose wildcards stand for the same letters in the new name, `{encoder/*: enc/*}`, or,
    after `re:`, a regular expression for whole names whose groups are used in the new name, `{'re:h(.)': 'block\\1'}`.
    A key that is a name of the model means exactly that name, whatever characters it contains, and takes precedence
    over patterns.
    """

    type_name: ClassVar[str] = "new names"
    json_schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "additionalProperties": {"type": "string", "minLength": 1},
    }

    @classmethod
    def read(cls, value: Any) -> Renames:
        """Read the value in a recipe; raise ValueError, with a one-line description, for a mistake."""
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
        """Return the new names by known name; raise UsageError as `expand` does, or if two names would be equal."""
        names = dict.fromkeys(known)
        found = self.expand(kind, names)
        _check_clashes(kind, found, names)
        return found

    def expand(self, kind: str, known: Iterable[str]) -> dict[str, str]:
        """Return the new names by known name; raise UsageError if an old name or pattern does not match any.

        `kind` is what messages call the named objects.
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


def _check(old: str, new: str) -> None:
    """Raise ValueError for a pattern that cannot be used."""
    if not old.startswith(REGEX):
        # Without wildcards, the old name is literal, and so are wildcards in the new name.
        if _WILD.search(old) and len(_WILD.findall(new)) > len(_WILD.findall(old)):
            raise ValueError(f"'{new}' has more wildcards than '{old}', which must fill them")
        return
    try:
        # An empty alternative makes the expression match, so that the template is checked.
        re.sub(f"{_pattern(old).pattern}|", new, "", count=1)
    except (re.error, IndexError) as error:
        raise ValueError(
            f"'{old}: {new}' is not a regular expression with a name to put its groups in: {error}"
        ) from None


def _pattern(text: str) -> re.Pattern[str]:
    if text.startswith(REGEX):
        return re.compile(text.removeprefix(REGEX), re.DOTALL)
    parts = re.split(r"([*?])", text)
    return re.compile("".join({"*": "(.*)", "?": "(.)"}.get(part, re.escape(part)) for part in parts), re.DOTALL)


def _fitting(text: str, new: str, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the names that match a pattern, with their new names."""
    if not text.startswith(REGEX) and not _WILD.search(text):
        return
    pattern = _pattern(text)
    for name in names:
        match = pattern.fullmatch(name)
        if match is None:
            continue
        yield name, match.expand(new) if text.startswith(REGEX) else _filled(new, match.groups())


def _filled(glob: str, letters: Iterable[str]) -> str:
    """Replace the wildcards of a glob by letters."""
    parts = iter(letters)
    return _WILD.sub(lambda _: next(parts), glob)


def _check_clashes(kind: str, found: Mapping[str, str], names: Mapping[str, None]) -> None:
    """Raise UsageError if two objects would have the same name, or one an empty name."""
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
