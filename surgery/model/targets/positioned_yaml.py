"""A YAML file with the positions of its keys and values, for messages."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from surgery.base.errors import Problem, RecipeError, UsageError


@dataclass(frozen=True)
class DocumentPath:
    """The path to a value from the top: keys of mappings and positions in lists; with `key`, the place of the key."""

    path: Sequence[Any] = ()
    key: bool = False


Wrong = tuple[DocumentPath, str]


@dataclass
class Document:
    """A YAML file: its plain value, and the positions in it."""

    path: Path
    value: Any
    text: str = field(repr=False)
    _marked: Any = field(default=None, repr=False)

    def problem(self, place: DocumentPath, message: str) -> Problem:
        """Return a mistake at a place, or at the nearest enclosing place that exists in the file."""
        line, column = self._find(place)
        return Problem(str(self.path), line, column, " ".join(message.split()))

    def unknown_key(self, path: Sequence[Any], known: Sequence[str]) -> Problem:
        """Return the mistake that a mapping has an unknown key."""
        name = str(path[-1])
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(known)}"
        return self.problem(DocumentPath(path, key=True), f"no key '{name}' here; {hint}")

    def check(self, problems: Sequence[Problem]) -> None:
        """Raise `RecipeError` if there are mistakes."""
        if problems:
            raise RecipeError(problems)

    def _find(self, place: DocumentPath) -> tuple[int, int]:
        """Return line and column of a place, from 1. The file is parsed with positions only if there is a mistake."""
        if self._marked is None:
            self._marked = YAML(typ="rt").load(self.text)
        here, found = self._marked, (1, 1)
        for number, part in enumerate(place.path):
            marks: Any = getattr(here, "lc", None)
            is_last = number + 1 == len(place.path)
            try:
                if isinstance(here, dict):
                    line, column = marks.key(part) if place.key and is_last else marks.value(part)
                else:
                    line, column = marks.item(part)
                here = here[part]
            except (KeyError, IndexError, TypeError, AttributeError):
                # A short form lacks the list of the long form.
                continue
            found = (line + 1, column + 1)
        return found


def load(path: Path) -> Document:
    """Read a YAML file; raise `UsageError` if it cannot be read, and `RecipeError` if it is not YAML."""
    try:
        text = path.read_text(encoding="utf-8")
        return Document(path, YAML(typ="safe").load(text), text)
    except OSError as error:
        raise UsageError(f"target '{path}' cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RecipeError([Problem(str(path), 1, 1, "this is not text in UTF-8")]) from error
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
        words = str(error.problem or error.context or "no YAML")
        raise RecipeError([Problem(str(path), line, column, words)]) from error
    except YAMLError as error:
        raise RecipeError([Problem(str(path), 1, 1, str(error).splitlines()[0])]) from error
