"""Plans on the command line: the flags that a plan fixes, and the kind of a given file: recipe, model or plan."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from surgery.base.errors import UsageError
from surgery.engine.recipe.recipe_paths import is_file
from surgery.interface.command_line import _places

if TYPE_CHECKING:
    from surgery.features.planning.plan_document import Plan
    from surgery.model.storage import Staging

Kind = Literal["recipe", "model", "plan"]

_MODELS = (".onnx",)
_HEAD = 1 << 12

_FLAGS = (
    *("target", "on_failure", "unverified", "dims", "inputs", "provider", "custom_op_library"),
    *("accuracy", "metric", "drop", "lower_is_better", "evaluation", "calibration", "image"),
    *("plugin", "excepted"),
)
"""The flags that determine what a run does. Flags for the locations of results are not fixed."""

_CODE = ("plugin", "custom_op_library", "metric")
"""The flags that load local code."""

_PATHS = ("inputs", "custom_op_library", "metric", "evaluation", "calibration")


def kind(text: str) -> Kind:
    """Return the kind of an argument: the name or file of a recipe, an ONNX file, or a plan.

    The content of a file decides, or its suffix for a model that may be damaged or missing. Raises UsageError
    for any other file.
    """
    from surgery.engine.recipe import recipe_lookup

    if text == _places.STREAM:
        # Peeking leaves the bytes to the loader of recipes or plans.
        return "plan" if _is_plan(sys.stdin.buffer.peek()) else "recipe"  # type: ignore[union-attr]
    path = Path(text)
    if path.suffix in _MODELS:
        return "model"
    if recipe_lookup.is_name(text) or not path.is_file():
        return "recipe"  # the loader reports the problem
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror or error}", where=text) from error
    if _is_plan(head):
        return "plan"
    if _is_text(head):
        return "recipe"
    from surgery.base.errors import ModelFileError
    from surgery.model import storage

    try:
        storage.load(path)
    except ModelFileError as error:
        what = f"this is neither a recipe (text), nor a plan (JSON), nor an ONNX model ({error.what})"
        raise UsageError(what, where=text) from error
    return "model"


def _is_plan(head: bytes) -> bool:
    from surgery.features.planning.plan_document import is_plan

    return is_plan(head)


def read(where: Path) -> Plan:
    """Read a plan from a file, or from standard input, where its paths are relative to the current folder."""
    from surgery.features.planning import plan_document

    if where != Path(_places.STREAM):
        return plan_document.read(where)
    return plan_document.parse(sys.stdin.buffer.read(plan_document.MAX_BYTES), "stdin")


def _is_text(head: bytes) -> bool:
    """Return whether the beginning of a file may be text: no NUL or other control characters of binary formats."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return True  # UTF-16
    return not any(byte < 9 or 13 < byte < 32 for byte in head)


def use_default_recipe(arguments: argparse.Namespace) -> None:
    """Use the recipe `default` if a model is given instead of a recipe; UsageError for a result without -o after it."""
    if kind(arguments.recipe) != "model":
        return
    if arguments.model is None:
        arguments.recipe, arguments.model = "default", arguments.recipe
    elif arguments.model.endswith(".onnx") and not Path(arguments.model).exists():
        raise UsageError(
            f"{arguments.model}: no such file", todo=f"to write the result there, pass it by -o: -o {arguments.model}"
        )


def given(recipe: str, folder: Path) -> str:
    """Return the reference of a plan to a recipe: the name of a shipped one, else as `_reference` returns it."""
    from surgery.engine.recipe import recipe_lookup

    return recipe if recipe_lookup.is_name(recipe) else _reference(recipe, folder)


def _reference(path: str, folder: Path) -> str:
    """Return the reference of a plan to a file: its URL, or its path relative to the folder of the plan.

    Raises UsageError for a local file if the plan is written to a URL.
    """
    from surgery.model.storage import staging

    url = staging.url_of(Path(path))
    if url is None and staging.is_sent_elsewhere(folder):
        raise UsageError(
            f"a plan at a URL cannot refer to '{path}', a local file",
            todo="write the plan to a local file, or copy the file to a URL",
        )
    return url or os.path.relpath(path, folder)


class Finder:
    """The files that a plan refers to: names of shipped recipes, URLs, and paths relative to the plan.

    Files at URLs are copied to `copies`.
    """

    def __init__(self, where: Path, copies: Staging) -> None:
        from surgery.model.storage import staging

        self.where = where
        self._copies = copies
        self._url = staging.url_of(where)

    def recipe(self, given: str) -> str:
        """Return the name or the path of the recipe. Raises UsageError if there is no file."""
        from surgery.engine.recipe import recipe_lookup

        if given in recipe_lookup.names():
            return given
        path = self.path(given)
        if not is_file(Path(path)):
            todo = "it is looked for relative to the plan; put the plan back, or make it again"
            raise UsageError(f"its recipe {path} does not exist", where=str(self.where), todo=todo)
        return path

    def path(self, given: str) -> str:
        """Return the path of a file, relative to the current folder."""
        url = self._remote(given)
        return os.path.normpath(self.where.parent / given) if url is None else str(self._copies.copied(url))

    def model(self, given: str) -> str:
        """Return the path of the model, with its weights."""
        from surgery.model.storage import loading

        url = self._remote(given)
        return str(self.where.parent / given) if url is None else str(loading.fetched(url, self._copies))

    def _remote(self, given: str) -> str | None:
        from surgery.model.remote import urls

        if urls.is_url(given):
            return given
        return None if self._url is None else urls.sibling(self._url, given)


def settings(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return the flags that determine a run, with paths relative to the plan."""
    found = {name: getattr(arguments, name) for name in _FLAGS}
    return _moved({name: value for name, value in found.items() if value}, lambda path: _reference(path, folder))


def restore(plan: Plan, arguments: argparse.Namespace, found: Finder) -> None:
    """Set the flags to those of the plan.

    Raises UsageError if the command line differs, or for local code that is neither given again nor trusted.
    """
    where = found.where
    fixed = _moved(dict(plan.basis.settings), found.path)
    unknown = sorted(fixed.keys() - {*_FLAGS})
    if unknown:
        raise UsageError(f"basis.settings: there is no setting '{unknown[0]}'", where=str(where))
    for name in _FLAGS:
        given, planned = getattr(arguments, name), fixed.get(name)
        if given and not _same(name, given, planned):
            was = f"was made with {_shown(name, planned)}" if planned else f"was made without {_flag(name)}"
            todo = f"omit {_flag(name)}, or make another plan"
            raise UsageError(f"the plan {was}, not with {_shown(name, given)}", where=str(where), todo=todo)
        if planned and not given and _is_code(name, planned) and not arguments.trust:
            what = f"the plan loads local code: {_shown(name, planned)}"
            raise UsageError(what, where=str(where), todo="give the flag again, or pass --trust")
        if planned:
            setattr(arguments, name, planned)


def _is_code(name: str, planned: Any) -> bool:
    """Return whether a flag loads local code: by its nature, or because its inputs are made by a function."""
    items = planned if isinstance(planned, list) else [planned]
    return name in _CODE or (name in _PATHS and any(_places.CODE in str(item) for item in items))


def _same(name: str, given: Any, planned: Any) -> bool:
    """Return whether a flag equals that of the plan; paths may be spelt differently."""
    if name not in _PATHS and name not in ("plugin", "target"):
        return bool(given == planned)
    return bool(_moved({name: given}, _absolute) == _moved({name: planned}, _absolute))


def _absolute(path: str) -> str:
    """Return an absolute path, or the URL of a copy."""
    from surgery.model.storage import staging

    return staging.shown(os.path.normpath(Path.cwd() / path))


def _moved(found: dict[str, Any], moved: Callable[[str], str]) -> dict[str, Any]:
    """Return flags with their paths changed."""

    def one(name: str, value: Any) -> Any:
        if isinstance(value, list):
            return [one(name, item) for item in value]
        if not isinstance(value, str):
            return value
        if name == "metric":
            file, _, function = value.rpartition(":")
            return f"{moved(file)}:{function}"
        is_file = value.endswith(".py") if name == "plugin" else value.endswith((".yaml", ".yml"))
        return moved(value) if name in _PATHS or (name in ("plugin", "target") and is_file) else value

    return {name: one(name, value) for name, value in found.items()}


def _flag(name: str) -> str:
    return "--except" if name == "excepted" else f"--{name.replace('_', '-')}"


def _shown(name: str, value: Any) -> str:
    values = value if isinstance(value, list) else [value]
    return " ".join(_flag(name) if one is True else f"{_flag(name)} {one}" for one in values)
