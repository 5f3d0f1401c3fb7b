"""A YAML file with one section, such as a mapping of names, read like a recipe, with all mistakes at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from surgery.base.errors import Problem, RecipeError, UsageError
from surgery.engine.recipe.draft import Draft
from surgery.engine.recipe.fields import Section
from surgery.engine.yaml.source import decode, documents
from surgery.engine.yaml.yaml_nodes import is_null


def read_section(path: Path, section: type[Section], what: str, needs: str) -> Any:
    """Return the value of the section of a file; `what` is its name in messages, and `needs` a required key.

    Raises UsageError if the file cannot be read, and RecipeError with all mistakes in it, or if it is empty.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path)) from error
    found, problems = parse_section(path, data, section, what)
    if found is None and not problems:
        problems = [Problem(str(path), 1, 1, f"the file is empty; it needs '{needs}'")]
    if problems:
        raise RecipeError(problems)
    return found


def parse_section(path: Path, data: bytes, section: type[Section], what: str) -> tuple[Any, list[Problem]]:
    """Return the value of the section that a file has, None if it is empty, and all mistakes in it."""
    words, mistakes = decode(data)
    document = next(documents(words))
    draft = Draft(str(path), path.parent)
    draft.problems += [Problem(str(path), *mistake) for mistake in mistakes + document.mistakes]
    root = document.root
    return None if root is None or is_null(root) else draft.read(section, root, what), draft.problems
