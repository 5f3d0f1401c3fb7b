"""The closure of a recipe: the digests of all files that define it; and its settings and passes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from surgery.engine.provenance.code_digests import predicate_source
from surgery.engine.provenance.file_digests import digest_of, file_or_folder
from surgery.engine.provenance.referred import referred
from surgery.engine.recipe import recipe_lookup
from surgery.engine.recipe.schema import PassStep, Recipe, RepeatStep, Step, UseStep, pass_steps
from surgery.engine.registry.catalog import catalog
from surgery.engine.registry.passes import Pass
from surgery.model.targets import STANDARD
from surgery.model.targets import shipped as targets
from surgery.verification.inputs.spec import InputsSpec, VerifySpec

IN_MEMORY: Final = "<recipe>"
"""The label of a recipe without a file; its digest is that of its steps and settings."""


@dataclass(frozen=True)
class Closure:
    """The files that a recipe consists of, each with its digest.

    The label of a file is its path relative to the folder of the recipe, its name if it is elsewhere, `shipped:NAME`
    for a shipped recipe, `target:NAME` for a shipped target, and `<recipe>` for a recipe in memory; so it does not
    depend on the location of the folder.
    """

    files: Mapping[str, str]

    @cached_property
    def digest(self) -> str:
        """The digest of the whole closure."""
        return digest_of(self.files)


def closure_of(recipe: Recipe) -> Closure:
    """Return the closure of a recipe.

    It contains the recipe, the recipes that it uses, plugin files, files named in pass options, inputs and evaluation
    data, generators, libraries of custom operators and target profiles; and what these refer to, see
    `surgery.engine.provenance.referred`. Installed plugins are packages: see `surgery.engine.provenance.code_digests`.
    Raises UsageError if a file cannot be read.
    """
    found = _Files(recipe.path.parent if recipe.path is not None else Path())
    found.recipe(recipe)
    return Closure(dict(sorted(found.digests.items())))


def settings_of(recipe: Recipe) -> dict[str, Any]:
    """Return the settings of a recipe for inputs, verification, target and failures that are not defaults.

    Keys are those of `InputsSpec` and `VerifySpec`. Paths are relative to the folder of the recipe.
    """
    files = _Files(recipe.path.parent if recipe.path is not None else Path())
    return files.settings(recipe)


def passes_of(recipe: Recipe) -> list[Pass]:
    """List the passes that a recipe names, each once, sorted by name; rules are not included."""
    named = {step.name: step.find() for step in pass_steps(recipe.steps) if step.declared is None}
    return [named[name] for name in sorted(named)]


class _Files:
    """A walk over a recipe and the recipes that it uses."""

    def __init__(self, base: Path) -> None:
        self.digests: dict[str, str] = {}
        self._labels: dict[Path, str] = {}
        self._base = base
        self._seen: set[int] = set()

    def recipe(self, recipe: Recipe) -> None:
        """Add a recipe, the files that it names and the recipes that it uses."""
        if id(recipe) in self._seen:
            return
        self._seen.add(id(recipe))
        if recipe.path is not None and recipe.path.is_file():
            self._add(self._label(recipe.path), recipe.path)
        elif recipe.path is not None or not self.digests:
            # An inline recipe is part of the enclosing one.
            self.digests[IN_MEMORY] = digest_of(self._plain(recipe))
        for plugin in recipe.plugins:
            if plugin.endswith(".py"):
                self.file(Path(plugin))
        for path in paths_in((recipe.inputs, recipe.verify)):
            self.file(path)
        for target in filter(None, (recipe.target, recipe.expect.target)):
            self._target(target)
        self._predicates(recipe.expect.predicates)
        self._walk(recipe.steps)

    def settings(self, recipe: Recipe) -> dict[str, Any]:
        """Return the settings of a recipe that are not defaults."""
        found = {
            "inputs": _other(self._plain(recipe.inputs), self._plain(InputsSpec())),
            "verify": _other(self._plain(recipe.verify), self._plain(VerifySpec())),
            "on_failure": recipe.on_failure,
            "target": self._plain(Path(recipe.target)) if _is_profile(recipe.target) else recipe.target,
        }
        usual: dict[str, Any] = {"inputs": {}, "verify": {}, "on_failure": None, "target": STANDARD.name}
        return {name: value for name, value in found.items() if value != usual[name]}

    def _walk(self, steps: tuple[Step, ...]) -> None:
        for step in steps:
            if step.when is not None:
                self._predicates(step.when.predicates)
            match step:
                case PassStep():
                    for path in paths_in(step.bind() if step.options else {}):
                        self.file(path)
                    if step.expect is not None:
                        self._predicates(step.expect.predicates)
                    if step.expect is not None and step.expect.target:
                        self._target(step.expect.target)
                case RepeatStep():
                    self._walk(step.steps)
                case UseStep():
                    self.recipe(step.recipe)

    def file(self, path: Path) -> None:
        """Add a file and the files that it refers to, or all files of a folder."""
        for found in (path, *referred(path)):
            self._add(self._label(found), found)

    def _target(self, name: str) -> None:
        if _is_profile(name):
            self.file(Path(name))
        elif name != STANDARD.name:
            self._add(f"target:{name}", targets.folder() / f"{name}.yaml")

    def _predicates(self, names: Iterable[str]) -> None:
        for name in names:
            self.digests[f"predicate:{name}"] = predicate_source(catalog.predicates()[name])

    def _add(self, label: str, path: Path) -> None:
        if label not in self.digests:
            self.digests[label] = file_or_folder(path)

    def _label(self, path: Path) -> str:
        real = path.resolve()
        if real not in self._labels:
            label = self._named(path, real)
            taken = set(self._labels.values())
            numbers = (f"{label} ({number})" for number in range(2, len(taken) + 3))
            self._labels[real] = label if label not in taken else next(one for one in numbers if one not in taken)
        return self._labels[real]

    def _named(self, path: Path, real: Path) -> str:
        home = recipe_lookup.folder().resolve()
        if real.parent == home:
            return f"shipped:{path.stem}"
        base = self._base.resolve()
        inside = base != home and real.is_relative_to(base)
        return real.relative_to(base).as_posix() if inside else path.name

    def _plain(self, value: Any) -> Any:
        """Return an immutable value of a recipe as plain data, without source locations."""
        match value:
            case Pass():
                return value.name
            case Path():
                return self._label(value)
            case Mapping():
                return {str(key): self._plain(one) for key, one in value.items()}
            case list() | tuple():
                return [self._plain(one) for one in value]
            case set() | frozenset():
                return sorted(map(str, value))
            case None | bool() | int() | str():
                return value
        if is_dataclass(value):
            compared = (one for one in fields(value) if one.compare)
            return {one.name: self._plain(getattr(value, one.name)) for one in compared}
        return repr(value)


def _is_profile(target: str) -> bool:
    return target.endswith(targets.SUFFIXES)


def _other(value: Any, usual: Any) -> Any:
    """Return the entries of a mapping that differ from the usual ones, recursively."""
    if not isinstance(value, dict) or not isinstance(usual, dict):
        return value
    return {name: _other(one, usual.get(name)) for name, one in value.items() if one != usual.get(name)}


def paths_in(value: Any) -> Iterator[Path]:
    """Yield the paths in a value, except for fields with its source location."""
    if isinstance(value, Path):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from paths_in(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from paths_in(one)
    elif is_dataclass(value):
        for one in fields(value):
            if one.compare:
                yield from paths_in(getattr(value, one.name))
