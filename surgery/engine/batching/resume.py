"""The remaining work of a batch: the entries of this call, compared with the ledger."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

from surgery.base.errors import SurgeryError
from surgery.engine.batching.input_digests import digest_of_files
from surgery.engine.batching.ledger import BROKE, LedgerRow
from surgery.engine.batching.model_entry import BatchLimits, Entry
from surgery.engine.batching.output_folder import OutputFolder, sizes, versions
from surgery.engine.provenance.file_digests import digest_of
from surgery.model.remote import urls
from surgery.model.storage.saving import DATA_SUFFIX

_OF_THE_MACHINE: Final = ("lost", "output", "transfer")
"""Kinds of failures that are not due to the model; it runs again."""
_OF_LIMITS: Final = ("time", "memory")


@dataclass(frozen=True)
class RemainingWork:
    """The work of a run: `rows` are those of all its entries, `todo` the names of the models that must run."""

    rows: Mapping[str, LedgerRow]
    todo: tuple[str, ...]


@dataclass(frozen=True)
class Wanted:
    """The dependencies of the results of this call.

    `settings` is their digest, `recipes` are digests by recipe, `inputs` digests by path, `environment` has versions.
    `output_folder` is where the results go, as the ledger records it.
    """

    settings: str
    limits: BatchLimits
    recipes: Mapping[str, str]
    environment: Mapping[str, str]
    inputs: Mapping[str, str] = field(default_factory=dict)
    output_folder: str = "."
    retry_failed: bool = False
    force: bool = False

    def row(self, entry: Entry) -> LedgerRow:
        """Return the initial row of a model."""
        recipe = self.recipes[entry.recipe]
        plan = {
            "recipe": recipe,
            "settings": self.settings,
            "environment": dict(self.environment),
            "inputs": [[path, self.inputs.get(path)] for path in entry.inputs],
        }
        return LedgerRow(
            entry.name,
            urls.shown(entry.model) if urls.is_url(entry.model) else entry.model,
            urls.shown(entry.recipe) if urls.is_url(entry.recipe) else entry.recipe,
            state="skipped" if entry.skip else "queued",
            kind="skipped" if entry.skip else "",
            reason=entry.skip,
            recipe_sha256=recipe,
            plan_sha256=digest_of(plan),
            limits=json.dumps(self.limits.to_json()),
            output_folder=self.output_folder,
        )


def plan(
    entries: Sequence[Entry], known: Mapping[str, LedgerRow], wanted: Wanted, is_there: Callable[[LedgerRow], bool]
) -> RemainingWork:
    """Compare entries with the ledger. `is_there` returns whether the output of a finished model is still in place."""
    rows, todo = {}, []
    for entry in entries:
        fresh = wanted.row(entry)
        old = known.get(entry.name)
        if old is not None and not wanted.force and _holds(old, fresh, entry, wanted, is_there):
            rows[entry.name] = _refreshed(old, entry)
            continue
        # A model that was interrupted keeps its count of attempts; for one that ended, it starts again.
        begun = old is not None and old.state in ("queued", "running") and old.plan_sha256 == fresh.plan_sha256
        rows[entry.name] = replace(fresh, attempts=old.attempts if begun and old is not None else 0)
        if fresh.state == "queued":
            todo.append(entry.name)
    return RemainingWork(rows, tuple(todo))


def _holds(
    old: LedgerRow, fresh: LedgerRow, entry: Entry, wanted: Wanted, is_there: Callable[[LedgerRow], bool]
) -> bool:
    """Return whether the ledger entry is still valid, so that the model need not run again."""
    if (old.model, old.recipe, old.plan_sha256) != (fresh.model, fresh.recipe, fresh.plan_sha256):
        return False
    if fresh.state == "skipped" or old.state not in ("done", "failed"):
        return False
    if old.state == "failed" and (
        wanted.retry_failed or old.kind in _OF_THE_MACHINE or (old.kind in _OF_LIMITS and old.limits != fresh.limits)
    ):
        return False
    if old.state == "done" and (old.kind == BROKE or (old.kind and wanted.retry_failed)):
        return False
    return _is_same_input(old, entry) and (old.state == "failed" or is_there(old))


def _is_same_input(row: LedgerRow, entry: Entry) -> bool:
    """Return whether the files of a model are unchanged, by size and time or else by content."""
    noted = json.loads(row.input_files)
    if not noted:
        # It could not be read. Only a new run shows whether it can be read now.
        return False
    if urls.is_url(entry.model):
        return _is_same_object(noted, entry)
    paths = [path for path, *_ in noted]
    if sizes(paths) == noted:
        return True
    try:
        return digest_of_files([Path(path) for path in paths]) == row.input_sha256
    except OSError:
        return False


def _is_same_object(noted: list[list[Any]], entry: Entry) -> bool:
    """Return whether the objects of a model still have the recorded versions."""
    try:
        return versions(entry.model, [location for location, *_ in noted[1:]], entry.version) == noted
    except SurgeryError:
        return False


def _refreshed(row: LedgerRow, entry: Entry) -> LedgerRow:
    """Return the row with the current times of the files, so that they need not be read the next time."""
    if urls.is_url(entry.model):
        return row
    return replace(row, input_files=json.dumps(sizes([path for path, *_ in json.loads(row.input_files)])))


def is_in_place(row: LedgerRow, output: OutputFolder) -> bool:
    """Return whether the files of an output exist with the recorded sizes."""
    noted = json.loads(row.output_files)
    return bool(noted) and output.sizes(row.name, [name for name, _ in noted]) == [size for _, size in noted]


def of_folder(rows: Mapping[str, LedgerRow], output: OutputFolder, recorded: str) -> dict[str, LedgerRow]:
    """Return the rows of an output folder, given also as it is recorded; others say nothing about the files in it.

    A row without a folder is from an older release. It belongs to the folder if the files there have its digest.
    """
    found = {name: row for name, row in rows.items() if row.output_folder == recorded}
    for name, row in rows.items():
        if not row.output_folder and _has_digest(row, output):
            found[name] = replace(row, output_folder=recorded)
    return found


def _has_digest(row: LedgerRow, output: OutputFolder) -> bool:
    if output.is_remote or row.output_sha256 is None:
        return False
    place = Path(output.place(row.name))
    try:
        return digest_of_files([place.with_name(file) for file, _ in json.loads(row.output_files)]) == row.output_sha256
    except OSError:
        return False


def foreign(
    todo: Iterable[str], known: Mapping[str, LedgerRow], output: OutputFolder, layout: str = "keep"
) -> list[str]:
    """Return the files to be written that already exist but are not in the ledger, in a layout of weights."""
    found = []
    for name in todo:
        row = known.get(name)
        data = [] if layout == "single" else [f"{name}{DATA_SUFFIX}"]
        found += [output.place(file) for file in [name, *data] if not _is_own(file, row) and output.exists(file)]
    return found


def _is_own(file: str, row: LedgerRow | None) -> bool:
    """Return whether a batch has written a file, or may have: an interrupted run records no files."""
    if row is None:
        return False
    written = [name for name, _ in json.loads(row.output_files)]
    return file == row.name or not written or PurePosixPath(file).name in written
