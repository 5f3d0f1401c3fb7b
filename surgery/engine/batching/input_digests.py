"""Digests of everything that the result of a model depends on; with equal digests, the model need not run again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from surgery.engine.batching.model_entry import Settings
from surgery.engine.provenance.file_digests import digest_of, file_or_folder
from surgery.model.wire.digests import file_digest


def digest_of_files(paths: Sequence[Path]) -> str:
    """Return the SHA-256 of a file; for several files, that of the list of their digests in this order."""
    found = [file_digest(path) for path in paths]
    return found[0] if len(found) == 1 else digest_of(found)


def recipe_digest(recipe: str, settings: Settings) -> str:
    """Load a recipe and return the digest of its whole content. Raises RecipeError and UsageError like loading.

    It covers the recipe with the recipes that it uses, the files that it names, and the source of its passes.
    """
    from surgery.engine.provenance.code_digests import sources
    from surgery.engine.provenance.recipe_closure import closure_of, passes_of
    from surgery.engine.recipe import load
    from surgery.engine.registry.catalog import catalog

    for plugin in settings.plugins:
        catalog.load_plugin(plugin)
    found = load(recipe, trust=settings.trust)
    passes = {name: asdict(source) for name, source in sources(passes_of(found)).items()}
    return digest_of({"files": dict(closure_of(found).files), "passes": passes})


def settings_digest(settings: Settings) -> str:
    """Return the digest of the settings, with the content of the files that they name. Raises UsageError."""
    named = filter(None, (*settings.plugins, settings.target, *settings.custom_op_libraries))
    files = {name: file_or_folder(Path(name)) for name in named if Path(name).is_file()}
    return digest_of({**settings.to_json(), "files": files})


def environment() -> Mapping[str, str]:
    """Return the versions of the packages that results depend on, and the digest of the source of surgery."""
    from surgery.engine.provenance.code_digests import engine
    from surgery.engine.provenance.packages import packages

    return {**packages(), "source": engine()}
