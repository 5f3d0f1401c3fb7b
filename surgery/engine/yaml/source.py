"""The bytes of a recipe -> alternative documents: encoding, control characters, tabs in the indentation."""

from __future__ import annotations

import re
from collections.abc import Iterator

from surgery.engine.yaml.yaml_tree import ParsedText, compose

# Characters that are not printable in YAML 1.2 (section 5.1), and marks that are not line breaks there.
_UNPRINTABLE = re.compile("[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_NO_BREAKS = str.maketrans("\x85\u2028\u2029", "   ")
_SHOWN = 5
_TAB = "a tab in the indentation; use spaces"
# Interpretations of a tab in the indentation: this many spaces, or the indentation of an adjacent line.
_GUESSES = (2, 4, 8, "above", "below", 1)


def decode(data: bytes) -> tuple[str, list[tuple[int, int, str]]]:
    """Decode the bytes of a file; invalid bytes are replaced and reported as (line, column, message)."""
    if b"\0" in data:
        return "", [(1, 1, "this is not a text file; it must be YAML in UTF-8")]
    try:
        return data.decode(), []
    except UnicodeDecodeError as error:
        before = data[: error.start].decode().replace("\r\n", "\n").replace("\r", "\n")
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        words = f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        return data.decode(errors="replace"), [(line, column, words)]


def documents(text: str) -> Iterator[ParsedText]:
    """Yield the interpretations of a text: one, or several if tabs make its indentation ambiguous.

    The best is the one with the lowest penalty, and then the fewest mistakes.
    """
    text, mistakes = _clean(text)
    document = compose(text)
    tabs = _indentation_tabs(text) if document.broken else {}
    for guess in _GUESSES if tabs else ():
        with_spaces = _with_spaces(text, tabs, guess)
        with_spaces.mistakes += mistakes
        yield with_spaces
    if not tabs:
        document.mistakes += mistakes
        yield document


def _clean(text: str) -> tuple[str, list[tuple[int, int, str]]]:
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").translate(_NO_BREAKS)
    mistakes = []
    for found in list(_UNPRINTABLE.finditer(text))[:_SHOWN]:
        before = text[: found.start()]
        words = f"character U+{ord(found.group()):04X} is not allowed in a recipe; remove it"
        mistakes.append((before.count("\n") + 1, len(before) - before.rfind("\n"), words))
    return _UNPRINTABLE.sub("\ufffd", text), mistakes


def _indentation_tabs(text: str) -> dict[int, str]:
    """Return the lines with a tab in their indentation, except blank lines and comments: line -> indentation."""
    found = {}
    for number, line in enumerate(text.split("\n"), 1):
        indentation = line[: len(line) - len(line.lstrip(" \t"))]
        rest = line[len(indentation) :]
        if "\t" in indentation and rest and not rest.startswith("#"):
            found[number] = indentation
    return found


def _with_spaces(text: str, tabs: dict[int, str], guess: int | str) -> ParsedText:
    lines = text.split("\n")
    shifts = {}
    for number, indentation in tabs.items():
        spaces = _spaces(lines, number, indentation, guess)
        lines[number - 1] = spaces + lines[number - 1][len(indentation) :]
        shifts[number] = (len(indentation), len(spaces))
    document = compose("\n".join(lines), shifts)
    for number, indentation in tabs.items():
        if _is_mistake(document, number, indentation):
            document.mistakes.append((number, indentation.index("\t") + 1, _TAB))
    # A syntax error is worst, then a list item or key that became part of the text above it.
    absorbed = sum(any(first <= number <= last for first, last in document.plain) for number in tabs)
    document.penalty = absorbed + (len(tabs) + 1) * document.broken
    return document


def _spaces(lines: list[str], number: int, indentation: str, guess: int | str) -> str:
    if isinstance(guess, int):
        return indentation.replace("\t", " " * guess)
    others = lines[number - 2 :: -1] if guess == "above" else lines[number:]
    for line in others if number > 1 or guess == "below" else []:
        rest = line.lstrip(" \t")
        if rest and not rest.startswith("#") and not line.startswith("\t"):
            return line[: len(line) - len(rest)].replace("\t", "")
    return ""


def _is_mistake(document: ParsedText, number: int, indentation: str) -> bool:
    """Return whether a tab in a line is a mistake: in a text it is content, and between brackets a space."""
    for first, last, block in document.exempt:
        if first <= number <= last and not (block and indentation.startswith("\t")):
            return False
    return True
