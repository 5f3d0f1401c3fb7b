"""Digests of everything that the outcome of a step depends on: the run and the step itself.

Steps that may depend on anything else are not cached; see `refusal` and `step_key`.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from surgery.base.errors import SurgeryError
from surgery.engine.caching.cache_folder import VERSION, CacheFolder, key_of
from surgery.engine.provenance import code_digests, packages
from surgery.engine.provenance.file_digests import digest_of, file_or_folder
from surgery.engine.provenance.recipe_closure import paths_in
from surgery.engine.recipe.rules import RulePass
from surgery.model.proto.randomness import counts_runs

if TYPE_CHECKING:
    from surgery.engine.pipeline.step_cache_interface import RunStart
    from surgery.engine.recipe.schema import PassStep
    from surgery.engine.registry.passes import Pass

_VARIABLES: Final = ("ONNX", "ORT_", "OMP_", "MKL_", "OPENBLAS_")
"""Prefixes of the environment variables that native code reads."""

_WHOLE_FILES: Final = (".npz", ".npy", ".safetensors", ".txt", ".csv", ".yaml", ".yml", ".json", ".pb")
"""Suffixes of self-contained files. Others, such as .onnx, may refer to more files."""


def refusal(run: RunStart) -> str:
    """Return why a run must not reuse outcomes of earlier runs; empty if it may."""
    inputs, verify = run.recipe.inputs, run.recipe.verify
    if not run.contained:
        return "passes run in this process, for debugging"
    if run.chosen:
        return "a plan selects the sites"
    if verify.providers:
        return f"results of {', '.join(verify.providers)} depend on drivers, whose versions are not known"
    data = (*inputs.data, *inputs.calibration.data, *verify.accuracy.samples.data)
    if inputs.generator is not None or verify.accuracy.metric is not None or any(one.function for one in data):
        return "inputs or metrics come from Python code, which may depend on anything"
    if counts_runs(run.first.proto):
        return "the model draws random numbers, so each run adds evidence"
    return ""


def run_key(run: RunStart, original: str, folder: CacheFolder) -> str:
    """Return the digest of the common dependencies of all steps of a run. `original` is the digest of the original
    model.

    UsageError if a file with inputs cannot be read.
    """
    verify = run.recipe.verify
    paths = [*paths_in(run.recipe.inputs), *paths_in(verify)]
    found = {
        "version": VERSION,
        "original": original,
        "inputs": repr(run.recipe.inputs),
        "verify": repr(verify),
        "files": [[str(path), file_or_folder(path)] for path in paths],
        # Input sets next to the model are found by its path.
        "sets": _found_sets(run),
        "target": _plain(run.target),
        "empty": run.recipe.expect.empty,
        "engine": _engine(folder),
        "packages": dict(packages.packages()),
        "python": platform.python_version(),
        "processor": packages.processor(),
        "environment": {name: text for name, text in sorted(os.environ.items()) if name.startswith(_VARIABLES)},
    }
    return digest_of(found)


def _plain(value: Any) -> Any:
    """Return a value as lists and strings that are equal in all processes, unlike the order of a set."""
    if is_dataclass(value):
        return [[one.name, _plain(getattr(value, one.name))] for one in fields(value)]
    if isinstance(value, Mapping):
        return sorted(([repr(key), _plain(item)] for key, item in value.items()), key=lambda pair: str(pair[0]))
    if isinstance(value, frozenset | set):
        return sorted(map(repr, value))
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return repr(value)


def _found_sets(run: RunStart) -> list[list[str]]:
    from surgery.verification.inputs.given import with_found_sets

    inputs = with_found_sets(run.recipe.inputs, run.stored.path)
    return [[str(one.path), file_or_folder(one.path)] for one in inputs.data if one.found]


def _engine(folder: CacheFolder) -> str:
    """Return the digest of the source of surgery, recomputed only if one of its files has changed."""
    root = Path(code_digests.__file__).parents[2]
    stamps = []
    for place in sorted(root.rglob("*")):
        if place.suffix != ".pyc":
            found = place.stat()
            stamps.append((str(place), found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino))
    key = key_of(repr(stamps))
    known = folder.remembered(key)
    if known is None:
        known = code_digests.engine()
        folder.remember(key, known)
    return known


def step_key(step: PassStep) -> str | None:
    """Return the digest of a step: its pass with the source, and its options with the files that they name.

    None for a step that is not cached: one whose pass is not part of surgery, and so may read anything, or one with a
    file that may refer to other files.
    """
    declared = step.find()
    source = _source(declared)
    try:
        given = json.dumps(step.options, sort_keys=True)
        files = [[name, [_content(path) for path in paths_in(value)]] for name, value in step.bind().items()]
    except (TypeError, ValueError, SurgeryError):
        return None
    if source is None or any(None in contents for _, contents in files):
        return None
    # Stopping and undoing the step differ only in what follows it.
    on_failure = step.on_failure if step.on_failure in ("bisect", "keep") else ""
    others = json.dumps([step.excepted, step.keeps_empty], sort_keys=True)
    return digest_of([step.name, source, declared.parity.value, given, on_failure, files, others])


def _source(declared: Pass) -> Any:
    """Return a complete identification of a pass, or None."""
    if isinstance(declared, RulePass):
        return declared.written
    if not declared.is_standard:
        return None
    tool = packages.version_of(declared.requires) if declared.requires else ""
    return [code_digests.source_of(declared).digest, tool]


def _content(path: Path) -> str | None:
    """Return the digest of a file; None if it may refer to others."""
    whole = path.suffix in _WHOLE_FILES and not path.name.endswith(".index.json") and not path.is_dir()
    return file_or_folder(path) if whole else None
