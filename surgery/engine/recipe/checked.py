"""Shipped recipes in a form that was checked before: JSON in `recipes/checked/`, for `load` without YAML and pydantic.

    python -m surgery.engine.recipe.checked     # writes these files, as `make docs` does

A file counts only while the YAML file that it was made of is the same. This saves 0.12 s of processor time of each
command with a shipped recipe (`benchmarks/small_models.py`).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any

from surgery.base.errors import SurgeryError
from surgery.base.frozen_dict import FrozenDict
from surgery.engine.recipe import count_condition, recipe_lookup, schema
from surgery.engine.recipe.recipe_paths import below
from surgery.engine.recipe.schema import Recipe
from surgery.engine.registry.catalog import catalog
from surgery.verification.inputs import spec

FOLDER = "checked"
_KIND, _MAP, _TUPLE, _PATH, _PLACE, _RECIPE = "is", "map", "tuple", "path", "at", "recipe"
_KINDS = {
    kind.__name__: kind
    for module in (schema, spec, count_condition)
    for kind in vars(module).values()
    if isinstance(kind, type) and is_dataclass(kind)
}


def load(path_or_name: str | Path, *, trust: bool = False, on_read: Callable[[Recipe], object] | None = None) -> Recipe:
    """Load a recipe as `loader.load` does; a shipped one in its checked form, if all its passes are available."""
    found = _find(path_or_name)
    if found is not None:
        if on_read is not None:
            on_read(found)
        if all(_is_available(step.name) for step in schema.pass_steps(found.steps)):
            return found
        on_read = None
    from surgery.engine.recipe import loader

    return loader.load(path_or_name, trust=trust, on_read=on_read)


def about(name: str) -> str:
    """Return what a recipe is for, given by its name; empty if it cannot be loaded. Its passes may be unavailable."""
    try:
        found = _find(name) or load(name)
    except SurgeryError:
        return ""
    return found.about


def _is_available(name: str) -> bool:
    return catalog.get(name) is not None and catalog.clash(name) is None


def _find(path_or_name: str | Path) -> Recipe | None:
    """Return a shipped recipe, given by its name, or None if there is no such recipe or no valid checked form of it."""
    if not isinstance(path_or_name, str) or not path_or_name.replace("-", "").isalnum():
        return None
    try:
        return _Reader(recipe_lookup.folder()).recipe(path_or_name)
    except OSError:
        return None


class _Outdated(Exception):  # noqa: N818
    """A YAML file is not the one that was checked."""


class _Reader:
    """Reads checked forms in the folder of the shipped recipes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, Recipe] = {}

    def recipe(self, name: str) -> Recipe | None:
        """Return a recipe by name; None if its file, or that of a recipe that it uses, is not the one checked."""
        try:
            return self._recipe(name)
        except _Outdated:
            return None

    def _recipe(self, name: str) -> Recipe:
        if name not in self._known:
            form = json.loads((self._folder / FOLDER / f"{name}.json").read_bytes())
            if form["sha256"] != _digest(self._folder, name):
                raise _Outdated
            self._known[name] = self._value(form[_RECIPE])
        return self._known[name]

    def _value(self, form: Any) -> Any:
        if isinstance(form, list):
            return [self._value(one) for one in form]
        if not isinstance(form, dict):
            return form
        kind = form.pop(_KIND, None)
        if kind is not None:
            return _KINDS[kind](**{name: self._value(value) for name, value in form.items()})
        ((tag, value),) = form.items()
        match tag:
            case "map":
                return FrozenDict((key, self._value(one)) for key, one in value)
            case "tuple":
                return tuple(self._value(one) for one in value)
            case "path":
                return below(self._folder, value)
            case "at":
                return f"{self._folder}/{value}"
            case _:
                return self._recipe(value)


def _digest(folder: Path, name: str) -> str:
    return hashlib.sha256((folder / f"{name}.yaml").read_bytes()).hexdigest()


def text(name: str) -> str:
    """Return the checked form of a shipped recipe, as its YAML file is now."""
    from surgery.engine.recipe import loader

    folder = recipe_lookup.folder()
    form = {"sha256": _digest(folder, name), _RECIPE: _form(loader.load(name), folder, of=name)}
    return json.dumps(form, ensure_ascii=False, separators=(",", ":")) + "\n"


def _form(value: Any, folder: Path, of: str = "") -> Any:
    """Return a part of the recipe `of` in JSON. Unchanged recipes that it uses are named."""
    if isinstance(value, Recipe) and value.path is not None and value.path.stem != of:
        from surgery.engine.recipe import loader

        if repr(value) == repr(loader.load(value.path.stem)):
            return {_RECIPE: value.path.stem}
    if is_dataclass(value):
        given = {one.name: getattr(value, one.name) for one in fields(value) if not _is_default(value, one)}
        return {_KIND: type(value).__name__, **{name: _form(one, folder, of) for name, one in given.items()}}
    if isinstance(value, FrozenDict):
        return {_MAP: [[key, _form(one, folder, of)] for key, one in value.items()]}
    if isinstance(value, tuple):
        return {_TUPLE: [_form(one, folder, of) for one in value]}
    if isinstance(value, list):
        return [_form(one, folder, of) for one in value]
    if isinstance(value, Path):
        return {_PATH: os.path.relpath(value, folder)}
    if isinstance(value, str) and value.startswith(f"{folder}/"):
        return {_PLACE: value.removeprefix(f"{folder}/")}
    assert value is None or isinstance(value, str | int | float), value
    return value


def _is_default(value: Any, one: Field[Any]) -> bool:
    default = one.default_factory() if one.default_factory is not MISSING else one.default
    return default is not MISSING and repr(getattr(value, one.name)) == repr(default)


def main() -> None:
    """Write the checked forms of all shipped recipes."""
    folder = recipe_lookup.folder()
    (folder / FOLDER).mkdir(exist_ok=True)
    for path in sorted(folder.glob("*.yaml")):
        (folder / FOLDER / f"{path.stem}.json").write_text(text(path.stem), encoding="utf-8")


if __name__ == "__main__":
    main()
