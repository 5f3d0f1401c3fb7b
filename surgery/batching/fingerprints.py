"""What the result of a model depends on, as digests: the same digests, and the model need not be run again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from surgery.batching.entry import Settings


def digest_of_files(paths: Sequence[Path]) -> str:
    """Return the SHA-256 of a file; of several, that of the list of theirs in this order."""
    found = [_digest(path) for path in paths]
    return found[0] if len(found) == 1 else digest_of(found)


def digest_of(value: Mapping[str, Any] | Iterable[str]) -> str:
    """Return the SHA-256 of plain values."""
    plain = value if isinstance(value, Mapping) else list(value)
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def recipe_digest(recipe: str, settings: Settings) -> str:
    """Load a recipe and return the digest of all files that it consists of. RecipeError and UsageError as for loading.

    It covers the recipes that it uses, its plugins, the files that it names, and the passes of installed packages.
    """
    from surgery.recipe import loader
    from surgery.registry.catalog import catalog

    for plugin in settings.plugins:
        catalog.load_plugin(plugin)
    found = loader.load(recipe, trust=settings.trust)
    return digest_of({"recipe": repr(found)})


def environment() -> dict[str, str]:
    """Return the versions of the packages that results depend on."""
    from importlib.metadata import version

    return {name: version(name) for name in ("onnx-surgery", "onnx", "onnxruntime", "onnx-ir", "numpy")}
