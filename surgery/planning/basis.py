"""What a plan rests on: the model, the recipe with all its files, the passes, the packages; and what changed of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from surgery.identity.model import identity_of
from surgery.identity.packages import packages
from surgery.identity.recipe import closure_of, passes_of
from surgery.identity.sources import engine, sources
from surgery.planning.document import Basis, ModelBasis, PassBasis, RecipeBasis

if TYPE_CHECKING:
    from surgery import storage
    from surgery.recipe.schema import Recipe

_MOST_PARTS: Final = 50_000
"""Parts of a model whose digests a plan has, to name those that changed; of a larger model it has the whole alone."""

_PART_DIGITS: Final = 16
_MOST_NAMED: Final = 3


def basis(
    stored: storage.StoredModel, recipe: Recipe, given: str, folder: Path, settings: Mapping[str, Any] | None = None
) -> Basis:
    """Return what a plan rests on.

    `given` is the name of a shipped recipe, or the path of a recipe from the `folder` of the plan. Reads the weights.
    Raises UsageError when a file of the recipe cannot be read.
    """
    identity = identity_of(stored)
    parts = identity.parts if len(identity.parts) <= _MOST_PARTS else ()
    return Basis(
        model=ModelBasis(
            path=os.path.relpath(stored.path, folder) if stored.path is not None else None,
            digest=identity.whole,
            parts={part.place: part.digest[:_PART_DIGITS] for part in parts},
        ),
        recipe=RecipeBasis(given=given, name=recipe.name, files=closure_of(recipe).files),
        passes={
            name: PassBasis(origin=one.origin, digest=one.digest) for name, one in sources(passes_of(recipe)).items()
        },
        engine=engine(),
        packages=packages(),
        settings=settings or {},
    )


def changes(planned: Basis, now: Basis) -> list[str]:
    """List what is not as it was when the plan was made, one line for each thing, with its digests or versions."""
    return [*_model(planned.model, now.model), *_recipe(planned, now), *_packages(planned, now)]


def _model(planned: ModelBasis, now: ModelBasis) -> Iterator[str]:
    if planned.digest == now.digest:
        return
    yield f"model '{now.path or 'in memory'}' changed{_parts(planned.parts, now.parts)}: {_digests(planned, now)}"


def _parts(planned: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Name the first parts of a model that differ."""
    if not planned or not now:
        return ""
    changed = [place for place, digest in now.items() if planned.get(place) != digest]
    gone = [f"{place} (gone)" for place in planned if place not in now]
    named = [f"{place} (new)" if place not in planned else place for place in changed] + gone
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    return f" in {', '.join(named[:_MOST_NAMED])}{more}"


def _digests(planned: Any, now: Any) -> str:
    return f"{_short(planned.digest)} -> {_short(now.digest)}"


def _short(digest: str | None) -> str:
    return f"sha256 {digest[:12]}" if digest else "none"


def _recipe(planned: Basis, now: Basis) -> Iterator[str]:
    before, after = planned.recipe.files, now.recipe.files
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            what = "changed" if name in before and name in after else "is new" if name in after else "is gone"
            yield f"recipe file '{name}' {what}: {_short(before.get(name))} -> {_short(after.get(name))}"
    for name in sorted({*planned.passes, *now.passes}):
        old, new = planned.passes.get(name), now.passes.get(name)
        if old is None or new is None:
            yield f"pass '{name}' {'is new in the recipe' if old is None else 'is no longer in the recipe'}"
        elif old.origin != new.origin:
            yield f"pass '{name}' comes from elsewhere: {old.origin} -> {new.origin}"
        elif old.digest != new.digest:
            yield f"the source of pass '{name}' changed: {_digests(old, new)}"


def _packages(planned: Basis, now: Basis) -> Iterator[str]:
    for name in sorted({*planned.packages, *now.packages}):
        old, new = planned.packages.get(name, "not considered"), now.packages.get(name, "not considered")
        if old != new:
            yield f"package {name} changed: {old} -> {new}"
    if planned.engine != now.engine:
        yield f"the source of surgery itself changed: {_short(planned.engine)} -> {_short(now.engine)}"
