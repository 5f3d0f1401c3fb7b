"""Name patterns with parts that are copied to the other name.

`{i}` matches one component of a name, up to a dot or a slash, and `*` any characters; `re:` begins a regular expression
for the whole name. The other name refers to them by `{i}`, by `*` in the same order, or by `\\1`.
"""

from __future__ import annotations

import re
from functools import lru_cache

_REGEX = "re:"
_PARTS = re.compile(r"(\{[A-Za-z_][A-Za-z0-9_]*\}|\*)")


def is_pattern(text: str) -> bool:
    """Return whether a text may match several names."""
    return text.startswith(_REGEX) or _PARTS.search(text) is not None


def fit(pattern: str, name: str) -> re.Match[str] | None:
    """Return the match of a name with a pattern, None if it does not match."""
    return _compiled(pattern).fullmatch(name)


def filled(template: str, match: re.Match[str], pattern: str) -> str:
    """Fill the matched parts of a name into a template. Raises ValueError for a part that the pattern does not have."""
    if pattern.startswith(_REGEX):
        try:
            return match.expand(template)
        except (re.error, IndexError) as error:
            raise ValueError(f"'{template}' refers to a group that '{pattern}' does not have") from error
    stars = iter([text for name, text in _parts(pattern, match) if name == "*"])
    named = {name: text for name, text in _parts(pattern, match) if name != "*"}

    def part(found: re.Match[str]) -> str:
        text = next(stars, None) if found.group() == "*" else named.get(found.group())
        if text is None:
            raise ValueError(f"'{template}' has {found.group()}, which '{pattern}' does not have")
        return text

    return _PARTS.sub(part, template)


def check(pattern: str, template: str) -> None:
    """Raise ValueError for an invalid pattern, or a template with parts that the pattern does not have."""
    try:
        compiled = _compiled(pattern)
    except re.error as error:
        raise ValueError(f"'{pattern}' is not a regular expression: {error}") from error
    if pattern.startswith(_REGEX):
        try:
            re.sub(f"{compiled.pattern}|", template, "", count=1)
        except (re.error, IndexError) as error:
            raise ValueError(f"'{template}' cannot be filled from '{pattern}': {error}") from error
        return
    had, wanted = _PARTS.findall(pattern), _PARTS.findall(template)
    for part in dict.fromkeys(wanted):
        if part not in had or (part == "*" and wanted.count("*") > had.count("*")):
            raise ValueError(f"'{template}' has {part}, which '{pattern}' does not have")


def _parts(pattern: str, match: re.Match[str]) -> list[tuple[str, str]]:
    found, group = [], 0
    first: dict[str, int] = {}
    for part in _PARTS.findall(pattern):
        if part != "*" and part in first:
            continue
        group += 1
        first.setdefault(part, group)
        found.append((part, match.group(group)))
    return found


@lru_cache(256)
def _compiled(pattern: str) -> re.Pattern[str]:
    if pattern.startswith(_REGEX):
        return re.compile(pattern.removeprefix(_REGEX), re.DOTALL)
    groups: dict[str, int] = {}
    text, count = "", 0
    for part in _PARTS.split(pattern):
        if part == "*":
            count += 1
            text += "(.*)"
        elif _PARTS.fullmatch(part) and part in groups:
            text += rf"(?:\{groups[part]})"
        elif _PARTS.fullmatch(part):
            count += 1
            groups[part] = count
            text += "([^./]+)"
        else:
            text += re.escape(part)
    return re.compile(text, re.DOTALL)
