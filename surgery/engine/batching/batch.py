"""Run a recipe over many models: sources, ledger, executor and results in one call."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surgery.base.errors import OutputError, UsageError
from surgery.base.json_record import Record
from surgery.engine.batching import failure_groups, model_selection, resume
from surgery.engine.batching.executors import maker
from surgery.engine.batching.input_digests import environment, recipe_digest, settings_digest
from surgery.engine.batching.ledger import STATES, Ledger, LedgerRow
from surgery.engine.batching.model_entry import BatchLimits, Entry, Settings
from surgery.engine.batching.output_folder import OutputFolder, absolute, local_recipe
from surgery.engine.batching.schedule import Rules, Schedule, Watcher
from surgery.engine.provenance.file_digests import file_or_folder
from surgery.model.remote import urls

FORMAT_VERSION = 1
"""The format version of the JSON document."""


@dataclass(frozen=True)
class Batch:
    """The configuration of a batch.

    `output` is a folder or its URL, `ledger` the folder of the ledger if it is a different one; a ledger is for one
    output folder at a time. `jobs` None means one per processor.
    """

    recipe: str
    sources: tuple[str, ...]
    output: str
    settings: Settings = field(default_factory=Settings)
    limits: BatchLimits = field(default_factory=BatchLimits)
    rules: Rules = field(default_factory=Rules)
    ledger: Path | None = None
    jobs: int | None = None
    executor: str = "local"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    retry_failed: bool = False
    force: bool = False


@dataclass(frozen=True)
class BatchResult(Record, keys="totals failures models=rows ledger seconds:3"):
    """The result of a batch. `rows` are those of its models, `fresh` the names of the models that this call has run."""

    rows: tuple[LedgerRow, ...]
    fresh: tuple[str, ...]
    ledger: Path
    seconds: float

    @property
    def counts(self) -> dict[str, int]:
        """The number of models in each state that occurs."""
        found = Counter(row.state for row in self.rows)
        return {state: found[state] for state in STATES if found[state]}

    @property
    def failures(self) -> tuple[failure_groups.FailureGroup, ...]:
        """The models that failed or do not meet their purpose, grouped by cause."""
        return failure_groups.groups(self.rows)

    @property
    def ok(self) -> bool:
        """Whether every model is done, with its purpose met, or skipped."""
        return all(row.is_ok for row in self.rows)

    @property
    def exit_code(self) -> int:
        """The exit code: 0 if ok, else 1."""
        return 0 if self.ok else 1

    @property
    def totals(self) -> dict[str, int]:
        """The total nodes and bytes of the finished models, before and after."""
        done = [row for row in self.rows if row.state == "done"]
        names = ("nodes_before", "nodes_after", "bytes_before", "bytes_after")
        return {name: sum(getattr(row, name) or 0 for row in done) for name in names}

    def to_json(self) -> dict[str, Any]:
        """Return the JSON document of `surgery batch`."""
        head = {"format_version": FORMAT_VERSION, "ok": self.ok, "counts": self.counts, "run": len(self.fresh)}
        return {**head, **super().to_json()}


def batch(given: Batch, watcher: Watcher) -> BatchResult:
    """Run a batch, or continue an interrupted one. Raises UsageError, RecipeError and OutputError.

    A failed model raises no error: check `BatchResult.ok`.
    """
    started = time.monotonic()
    make = maker(given.executor)
    output = OutputFolder(given.output)
    folder = _ledger_folder(given, output)
    choice = model_selection.ModelSelection(
        given.recipe, None if output.is_remote else Path(output.text), given.include, given.exclude
    )
    entries = model_selection.entries(given.sources, choice)
    recipes = _recipes(entries, given.settings)
    wanted = resume.Wanted(
        settings_digest(given.settings),
        given.limits,
        {name: digest for name, (digest, _) in recipes.items()},
        environment(),
        _inputs(entries),
        output.recorded(folder),
        retry_failed=given.retry_failed,
        force=given.force,
    )
    _make(folder)
    with Ledger(folder) as ledger:
        # What an interrupted batch was working on may be half done.
        ledger.requeue()
        recorded = ledger.rows()
        known = resume.of_folder(recorded, output, wanted.output_folder)
        plan = resume.plan(entries, known, wanted, lambda row: resume.is_in_place(row, output))
        # Files that this batch did not write are not overwritten, and that must be known before the first model runs.
        if not given.force:
            _spare(resume.foreign(plan.todo, known, output, given.settings.layout))
        ledger.put(row for name, row in plan.rows.items() if recorded.get(name) != row)
        todo = {name: plan.rows[name] for name in plan.todo}
        watcher.begin(len(entries), [row for name, row in plan.rows.items() if name not in todo])
        if todo:
            who = make(given.jobs or os.cpu_count() or 1, given.limits)
            contents = {name: content for name, (_, content) in recipes.items() if content is not None}
            Schedule(ledger, entries, todo, output, given.settings, given.rules, watcher, contents=contents).run(who)
        rows = ledger.rows()
        found = tuple(rows[name] for name in plan.rows)
        return BatchResult(found, plan.todo, ledger.path, time.monotonic() - started)


def _ledger_folder(given: Batch, output: OutputFolder) -> Path:
    """Return the folder of the ledger. UsageError if there is no local one: SQLite needs a local file."""
    if given.ledger is None and output.is_remote:
        raise UsageError(
            "the ledger must be a local file, but --out is a URL", todo="name a folder for it: --ledger DIR"
        )
    return absolute(given.ledger) if given.ledger is not None else Path(output.text)


def _recipes(entries: Sequence[Entry], settings: Settings) -> Mapping[str, tuple[str, str | None]]:
    """Load each recipe once, to find errors before anything runs. Return its digest, and its content if at a URL."""
    found: dict[str, tuple[str, str | None]] = {}
    for entry in entries:
        if entry.recipe not in found:
            try:
                with local_recipe(entry.recipe) as path:
                    digest = recipe_digest(path, settings)
                    is_copy = path != entry.recipe
                    found[entry.recipe] = digest, Path(path).read_bytes().decode() if is_copy else None
            except UsageError as error:
                raise UsageError(error.what, where=error.where or entry.where or None, todo=error.todo) from error
    return found


def _inputs(entries: Sequence[Entry]) -> Mapping[str, str]:
    """Return the digests of the inputs of all models to run, each read once. UsageError if one cannot be read."""
    found: dict[str, str] = {}
    for entry in entries:
        for path in entry.inputs:
            if not entry.skip and path not in found:
                try:
                    found[path] = file_or_folder(Path(path))
                except UsageError as error:
                    raise UsageError(error.what, where=entry.where or None) from error
    return found


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"the folder cannot be created: {error.strerror}", where=str(folder)) from error


def _spare(paths: Sequence[str]) -> None:
    """Raise OutputError if files that no batch has written would be overwritten."""
    if paths:
        more = f" and {len(paths) - 1} more of the outputs" if len(paths) > 1 else ""
        verb = "exist" if more else "exists"
        raise OutputError(
            f"the file{more} {verb}, but is not in the ledger",
            where=urls.shown(paths[0]) if urls.is_url(paths[0]) else paths[0],
            todo="name another folder, or use --force",
        )
