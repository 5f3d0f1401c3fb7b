"""Workflow commands for GitHub Actions: an annotation for each finding, at its place in the recipe."""

from __future__ import annotations

from surgery.interface.report.formats.outcome import NEGATIVE, Check, Outcome, Root
from surgery.interface.report.formats.visible import visible

_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = {**_DATA, ":": "%3A", ",": "%2C"}


def github(outcome: Outcome, root: Root | None = None) -> str:
    """Return an annotation for each finding, and one for the result."""
    root = root or Root()
    found = list(outcome.notable())
    lines = [_annotation(check, root) for check in found]
    # The findings explain the failure; without any, the result is the finding.
    silent = not outcome.ok and not any(check.is_negative for check in found)
    title = f"surgery {outcome.command}: {outcome.subject}"
    lines.append(_command("error" if silent else "notice", {"title": title}, outcome.headline))
    return "".join(f"{line}\n" for line in lines)


def _annotation(check: Check, root: Root) -> str:
    """Return the annotation of a finding; a file outside of the repository is in the message instead."""
    properties: dict[str, str] = {}
    message = check.message or check.name
    inside = root.relative(check.path) if check.path else None
    if inside is not None:
        properties["file"] = inside
        properties |= {"line": str(check.line)} if check.line else {}
        properties |= {"col": str(check.column)} if check.line and check.column else {}
    elif check.path:
        place = f"{check.path}:{check.line}" if check.line else check.path
        message = f"{place}: {message}"
    properties["title"] = check.name
    return _command("error" if check.level in NEGATIVE else "warning", properties, message)


def _command(kind: str, properties: dict[str, str], message: str) -> str:
    given = ",".join(f"{name}={_escaped(value, _PROPERTY)}" for name, value in properties.items())
    return f"::{kind} {given}::{_escaped(message, _DATA)}"


def _escaped(text: str, characters: dict[str, str]) -> str:
    return visible("".join(characters.get(letter, letter) for letter in text))
