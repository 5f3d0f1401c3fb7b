"""The dependencies of a plan, and their changes: the model, the recipe with all its files, the passes, the packages."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from surgery.base.errors import first_few
from surgery.engine.provenance import lock
from surgery.engine.provenance.model_digests import identity_of
from surgery.features.planning.plan_document import Basis, ModelBasis
from surgery.model import storage
from surgery.model.storage import staging

if TYPE_CHECKING:
    from surgery.engine.recipe.schema import Recipe

_MOST_PARTS: Final = 50_000
"""Maximum number of parts whose digests a plan stores, to name changed parts; otherwise only the whole is stored."""

_PART_DIGITS: Final = 16
_MOST_NAMED: Final = 3


def basis(
    stored: storage.StoredModel, recipe: Recipe, given: str, folder: Path, settings: Mapping[str, Any] | None = None
) -> Basis:
    """Return the dependencies of a plan.

    `given` is the name of a shipped recipe, or the path of a recipe from the `folder` of the plan. Reads the weights.
    Raises UsageError when a file of the recipe cannot be read.
    """
    identity = identity_of(stored)
    parts = identity.parts if len(identity.parts) <= _MOST_PARTS else ()
    # If another processor or Python version matters, the sites differ, or verification fails.
    pins = {name: value for name, value in lock.pins(recipe).items() if name not in lock.OPTIONAL}
    return Basis(
        model=ModelBasis(
            path=_relative(stored.path, folder),
            digest=identity.whole,
            parts={part.place: part.digest[:_PART_DIGITS] for part in parts},
        ),
        recipe=given,
        pins=pins,
        settings=settings or {},
    )


def changes(planned: Basis, now: Basis) -> list[str]:
    """List the changed dependencies since the plan was made, one line each, with digests or versions."""
    return [*_model(planned.model, now.model), *map(str, lock.changes(planned.pins, now.pins))]


def _model(planned: ModelBasis, now: ModelBasis) -> Iterator[str]:
    if planned.digest != now.digest:
        where = _parts(planned.parts, now.parts)
        yield f"model '{now.path or 'in memory'}'{where}: {planned.digest[:12]} -> {now.digest[:12]}"


def _parts(planned: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Name the first parts of a model that differ."""
    if not planned or not now:
        return ""
    changed = [place for place, digest in now.items() if planned.get(place) != digest]
    gone = [f"{place} (gone)" for place in planned if place not in now]
    named = [f"{place} (new)" if place not in planned else place for place in changed] + gone
    return f" in {first_few(named, _MOST_NAMED)}"


def _relative(path: Path | None, folder: Path) -> str | None:
    """Return the path of a model relative to a folder, or its URL; None for a stream, and if the folder is at a URL."""
    if path is None or storage.is_copy(path):
        return None if path is None else staging.url_of(path)
    return None if staging.is_sent_elsewhere(folder) else os.path.relpath(path, folder)
