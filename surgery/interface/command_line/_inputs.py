"""Outputs that would replace an input or another output of the same command, which --force does not allow.

Writing a model over the model that it is made from is safe, and so is a recipe over the recipe that it is tuned from.
Any other output that is also an input is a mistake: a plan over its model, a report over the recipe. So are two outputs
with one name, or with the name of external data of the other.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from surgery.base.errors import SurgeryError, UsageError
from surgery.engine.recipe.recipe_paths import is_file
from surgery.interface.command_line import _places, _plan_file

if TYPE_CHECKING:
    from surgery.engine.recipe import Recipe
    from surgery.engine.recipe.schema import Step

_WRITTEN: Final = frozenset(
    {"--output", "--report", "--html", "--provenance", "--save-recipe", "--suggest", "--results", "--model-output"}
)
"""The flags for files that a command writes."""

_KINDS: Final[dict[Any, str]] = {
    **dict.fromkeys((_places.model, _places.output, _places.outputs, _places.model_file), "model"),
    **dict.fromkeys((_places.recipe, _places.recipe_output), "recipe"),
}
"""What the value of an argument is, by the type of the argument. An output may replace an input of its kind."""


class _GivenFile(NamedTuple):
    """An existing file that an argument names; `flag` is that of an output."""

    flag: str
    path: str
    kind: str


def require_spared(arguments: argparse.Namespace) -> None:
    """Raise UsageError if an output is also an input or an output among the arguments, before the command runs."""
    _require_apart(arguments)
    inputs = [action for action in _actions(arguments) if not _flag(action) and action.choices is None]
    _compare(arguments, lambda: (file for action in inputs for file in _files(action, arguments)))


def _require_apart(arguments: argparse.Namespace) -> None:
    """Raise UsageError if two outputs are one file, or if one of them is named like external data of the other."""
    given = ((action, getattr(arguments, action.dest, None)) for action in _actions(arguments) if _flag(action))
    outputs = [(action, Path(path)) for action, path in given if isinstance(path, str)]
    for (action, path), (other, place) in combinations(outputs, 2):
        from surgery.model.storage import is_data_of  # imports onnx

        title, name = (_flag(one).removeprefix("--") for one in (action, other))
        if os.path.realpath(path) == os.path.realpath(place):
            raise UsageError(f"'{place}' cannot be both {title} and {name}", todo="name another file")
        for file, model, what, of in ((place, path, name, action), (path, place, title, other)):
            if _KINDS.get(of.type) == "model" and is_data_of(file, model):
                raise UsageError(
                    f"'{file}' cannot be both {what} and external data of the model", todo="name another file"
                )


def require_spared_by_recipe(arguments: argparse.Namespace, recipe: Recipe, model: Path) -> None:
    """Raise UsageError if an output is a file that is only known after reading the recipe."""
    _compare(arguments, lambda: (*_recipes(recipe), *_of_model(model)))


def _compare(arguments: argparse.Namespace, inputs: Callable[[], Iterable[_GivenFile]]) -> None:
    """Raise UsageError if an output is an input of another kind; `inputs` is only called if an output exists."""
    outputs = [file for action in _actions(arguments) if _flag(action) for file in _files(action, arguments)]
    if not outputs:
        return
    kinds = {(os.path.realpath(file.path), file.kind) for file in inputs()}
    for flag, path, kind in outputs:
        if any(known == os.path.realpath(path) and other != kind for known, other in kinds):
            raise UsageError(f"{flag} {path} would overwrite an input of this command", todo="name another file")


def _actions(arguments: argparse.Namespace) -> list[argparse.Action]:
    parser: argparse.ArgumentParser | None = getattr(arguments, "parser", None)
    return [] if parser is None else parser._actions


def _flag(action: argparse.Action) -> str:
    """Return the flag of an output, the first of several; empty for an input."""
    return next((flag for flag in action.option_strings if flag in _WRITTEN), "")


def _files(action: argparse.Action, arguments: argparse.Namespace) -> Iterator[_GivenFile]:
    """Yield the existing files that an argument names."""
    value, flag = getattr(arguments, action.dest, None), _flag(action)
    kind = _KINDS.get(action.type, "text" if flag else "other")
    for text in value if isinstance(value, list) else [value]:
        path = text.rpartition(":")[0] if isinstance(text, str) and ".py:" in text else text
        if isinstance(path, str) and is_file(Path(path)):
            is_model = action.type is _places.recipe and _plan_file.kind(path) == "model"
            yield _GivenFile(flag, path, "model" if is_model else kind)


def _recipes(recipe: Recipe) -> Iterator[_GivenFile]:
    """Yield the files of a recipe and of the recipes that it uses."""
    if recipe.path is not None:
        yield _GivenFile("", str(recipe.path), "recipe")
    for step in recipe.steps:
        yield from _recipes_of(step)


def _recipes_of(step: Step) -> Iterator[_GivenFile]:
    from surgery.engine.recipe.schema import PassStep, UseStep

    if isinstance(step, UseStep):
        yield from _recipes(step.recipe)
    elif not isinstance(step, PassStep):
        for one in step.steps:
            yield from _recipes_of(one)


def _of_model(model: Path) -> Iterator[_GivenFile]:
    """Yield the files of a model. Its data is only named: the command loads the model itself."""
    from surgery.model.storage.loading import external_locations

    yield _GivenFile("", str(model), "model")
    # External data is in the folder of a link to the model, or in that of its target.
    folders = dict.fromkeys((model.parent, Path(os.path.realpath(model)).parent))
    with suppress(SurgeryError):  # the command reports the problem
        locations = external_locations(model)
        yield from (_GivenFile("", str(folder / location), "data") for folder in folders for location in locations)
