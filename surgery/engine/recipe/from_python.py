"""Recipes as Python programs give them: a name, a path, YAML text, a list of steps, a mapping, or a loaded recipe."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from surgery.base.errors import UsageError
from surgery.engine import recipe as recipes
from surgery.engine.recipe.schema import PassStep, Recipe, RepeatStep, Step, UseStep

Given = str | Path | Recipe | Mapping[str, Any] | Sequence[Any]
"""What a recipe can be given as."""

_STEPS = (PassStep, RepeatStep, UseStep)


def read(given: Given, *, trust: bool) -> Recipe:
    """Return a recipe.

    A text is the path of a recipe or the name of a shipped one, or, if it has several lines or a key and a value, the
    recipe itself as YAML. A list has its steps: names of passes, mappings such as `{"upgrade-opset": {"to": 21}}`, or
    steps of a loaded recipe. A mapping has the keys of a recipe file. Raises RecipeError or UsageError for mistakes.
    """
    if isinstance(given, Recipe):
        return given
    if isinstance(given, str):
        return (recipes.parse if _is_yaml(given) else recipes.load)(given, trust=trust)
    if isinstance(given, Path):
        return recipes.load(given, trust=trust)
    if isinstance(given, Mapping):
        return _parsed(given, trust)
    if not isinstance(given, Sequence) or not given:
        what = "an empty list" if isinstance(given, Sequence) else f"a value of type {type(given).__name__}"
        raise UsageError(f"{what} is no recipe", todo="pass a name, a path, YAML text, a mapping or a list of passes")
    if not any(isinstance(step, _STEPS) for step in given):
        return _parsed({"recipe": "steps", "steps": list(given)}, trust)
    steps: list[Step] = []
    for one in given:
        # A loaded step keeps its place in its file.
        steps += [one] if isinstance(one, _STEPS) else read([one], trust=trust).steps
    return Recipe("steps", tuple(steps))


def _is_yaml(text: str) -> bool:
    return "\n" in text.strip() or ": " in text or text.lstrip().startswith(("{", "["))


def _parsed(value: Any, trust: bool) -> Recipe:
    """Read plain values. JSON is YAML."""
    try:
        text = json.dumps(value, default=_plain, ensure_ascii=False)
    except TypeError as error:
        raise UsageError(f"a recipe has only texts, numbers, lists and mappings: {error}") from None
    return recipes.parse(text, trust=trust)


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r} is a {type(value).__name__}")
