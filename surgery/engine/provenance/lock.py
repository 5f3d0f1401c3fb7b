"""Locks: the dependencies of a result, pinned in a file, so that a later run either repeats it or is refused.

    format_version: 1
    recipe: bert
    files: {bert.yaml: 1f0c..., "shipped:tidy": 88b1...}
    target: standard
    seed: 0
    settings: {verify: {mode: end}}
    passes: {drop-dropout: 5b0e..., their-pass: {from: theirs 1.2, source: 77d0...}}
    packages: {numpy: 2.4.6, onnx: 1.23.2, ...}
    engine: 2fde...
    python: CPython 3.11
    processor: x86_64 avx avx2 ...

Digests are SHA-256. `engine` is the digest of the source of surgery without its passes. `processor` is included because
kernels for other processors may round the last bit of a folded constant differently; it is not compared if a lock does
not have it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from surgery.base.errors import UsageError
from surgery.base.json_record import Record
from surgery.engine.provenance import code_digests, packages
from surgery.engine.provenance.recipe_closure import closure_of, passes_of, settings_of
from surgery.engine.recipe import recipe_lookup
from surgery.engine.recipe.schema import Recipe

FORMAT_VERSION: Final = 1
SUFFIX: Final = ".lock"
OPTIONAL: Final = ("processor", "python")
"""The pins that may be removed from a lock."""

_HEAD: Final = "Made by `surgery lock`. `surgery apply --locked` checks it."
_NOTHING: Final = "nothing"
_SHORT: Final = 12


@dataclass(frozen=True)
class PinChange(Record, keys="what from=old to=new"):
    """A changed pin: its title, and both values as text."""

    what: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.what}: {self.old} -> {self.new}"


def pins(recipe: Recipe) -> dict[str, Any]:
    """Return the dependencies of the result of a recipe, apart from the model, as plain values. Raises UsageError."""
    named = passes_of(recipe)
    found = code_digests.sources(named)
    settings = settings_of(recipe)
    target = settings.pop("target", recipe.target)
    settings.get("verify", {}).pop("seed", None)
    return {
        "format_version": FORMAT_VERSION,
        "recipe": recipe.name,
        "files": dict(closure_of(recipe).files),
        "target": target,
        "seed": recipe.verify.seed,
        "settings": {name: value for name, value in settings.items() if value != {}},
        "passes": {name: _source(one) for name, one in found.items()},
        "packages": dict(packages.packages(one.requires for one in named if one.requires)),
        "engine": code_digests.engine(),
        "python": packages.python(),
        "processor": packages.processor(),
    }


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[PinChange]:
    """List the pins that differ, in the order of the lock. `OPTIONAL` pins that the old lock lacks are not compared."""
    found = []
    before, after = dict(_flat(old)), dict(_flat(new))
    for place in sorted({**before, **after}, key=lambda place: (_rank(place[0]), place)):
        one, other = before.get(place), after.get(place)
        skipped = place[0] in OPTIONAL and one is None
        if one != other and not skipped:
            found.append(PinChange(_title(place), _value(place, one), _value(place, other)))
    return found


def default_path(recipe: Recipe) -> Path:
    """Return the path of the lock of a recipe: next to its file, or in the current folder for a shipped recipe."""
    if recipe.path is None or recipe_lookup.is_shipped(recipe.path):
        return Path(f"{recipe.name if recipe.path is None else recipe.path.stem}{SUFFIX}")
    return recipe.path.with_suffix(SUFFIX)


def _shown(recipe: Recipe) -> str:
    """Return the user-facing name of a recipe."""
    if recipe.path is None:
        return recipe.name
    return recipe.path.stem if recipe_lookup.is_shipped(recipe.path) else str(recipe.path)


def text_of(found: Mapping[str, Any]) -> str:
    """Return pins as the text of a lock file."""
    from surgery.engine.recipe.writer import written

    return written(found, _HEAD)


def read(path: Path, recipe: str = "RECIPE") -> dict[str, Any]:
    """Read a lock; `recipe` is what `surgery lock` is called with in messages.

    Raises UsageError if there is none, or if it is damaged or has another format version.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        found = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError("there is no lock", where=str(path), todo=f"make one: surgery lock {recipe}") from error
    except OSError as error:
        raise UsageError(f"the lock cannot be read: {error.strerror}", where=str(path)) from error
    except (YAMLError, UnicodeDecodeError) as error:
        raise _damaged(path, "it is not YAML") from error
    if not isinstance(found, dict) or "format_version" not in found:
        raise _damaged(path, "it has no 'format_version'")
    if found["format_version"] != FORMAT_VERSION:
        raise UsageError(
            f"the lock has format version {found['format_version']}, but this release reads {FORMAT_VERSION}",
            where=str(path),
            todo="use the release that wrote it, or remove it and lock again",
        )
    for name, kind in (("files", dict), ("passes", dict), ("packages", dict), ("engine", str)):
        if not isinstance(found.get(name), kind):
            raise _damaged(path, f"it has no '{name}'")
    return found


def require(recipe: Recipe, path: Path | None = None) -> None:
    """Raise UsageError unless all dependencies match the lock of a recipe; the message names each change."""
    if path is None and recipe.path is None:
        raise UsageError("a single pass has no lock", todo="save its recipe with --save-recipe, and lock that")
    where = default_path(recipe) if path is None else path
    named = _shown(recipe)
    given = "" if path is None else f" -o {path}"
    found = changes(read(where, f"{named}{given}"), pins(recipe))
    if found:
        lines = "".join(f"\n  {one}" for one in found)
        raise UsageError(
            f"{len(found)} {'change' if len(found) == 1 else 'changes'} since the lock was made:{lines}",
            where=str(where),
            todo=f"restore what changed, which may be a flag, or accept it with 'surgery lock {named}{given}'",
        )


def _damaged(path: Path, why: str) -> UsageError:
    return UsageError(
        f"this is not a lock: {why}", where=str(path), todo="remove it, then make one: surgery lock RECIPE"
    )


def _source(one: code_digests.PassSource) -> Any:
    """Return the digest of a pass, with its origin if that is not surgery; a file is given by name only."""
    if one.origin == "surgery":
        return one.digest
    return {"from": Path(one.origin).name if os.sep in one.origin else one.origin, "source": one.digest}


Place = tuple[str, ...]


def _flat(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield the leaves of pins with their places."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield from _flat(one, (*place, str(name)))
    else:
        yield place, value


_ORDER: Final = (
    *("format_version", "recipe", "files", "target", "seed", "settings"),
    *("passes", "packages", "engine", "python", "processor"),
)


def _rank(section: str) -> int:
    return _ORDER.index(section) if section in _ORDER else len(_ORDER)


def _title(place: Place) -> str:
    section, *rest = place
    match section:
        case "files":
            return f"file '{'.'.join(rest)}'"
        case "settings":
            return f"setting '{'.'.join(rest)}'"
        case "passes":
            return f"{'origin' if rest[1:] == ['from'] else 'source'} of pass '{rest[0]}'"
        case "packages":
            return f"package {rest[0]}"
        case "engine":
            return "the source of surgery"
    return " ".join(place)


def _value(place: Place, value: Any) -> str:
    if value is None:
        return _NOTHING
    is_digest = place[0] in ("files", "passes", "engine") and place[-1] != "from"
    return str(value)[:_SHORT] if is_digest else str(value)
