"""Open a model in the browser and edit it: every edit is a step of a recipe, and every step is verified.

The command starts a server that only this machine and the browser with the printed address can reach. It shows the
graph; what is selected can be edited, and each edit becomes a step, runs, and is compared with the original. Steps can
be undone, moved and switched off, and the recipe can be edited as text. Nothing is written until you save.

MODEL may also be a plan of 'surgery plan', which opens its model with its recipe and flags; skipped sites become
'except'. It may be the output folder, the ledger or the results of 'surgery batch', with --row for one of its models,
which is opened with its recipe; flags of the batch, such as --target, are not recorded. And it may be the folder that
'surgery bisect' wrote: the reduced model with the failing step.

--demo opens a small BERT in a temporary folder, with a guided tour of the page in eight steps.

Every change is kept in a draft, which is opened again after a crash; --fresh starts without it.

Besides the files that the given recipe names, steps can only read files in the folder of the model, and the result is
saved there. For a model at a URL, or on standard input, that is the current folder. It needs the extra 'workbench':
pip install 'onnx-surgery[workbench]'.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from surgery.base.errors import UsageError, first_few
from surgery.interface.command_line import _output, _places, _plan_file, _plugins, _verification
from surgery.interface.commands import apply

if TYPE_CHECKING:
    from surgery.engine.batching.ledger import LedgerRow
    from surgery.engine.pipeline.records import Observer
    from surgery.engine.recipe.from_python import Given
    from surgery.features.workbench.session import Session
    from surgery.model.storage import Staging

_HEAD = 1 << 12
_MOST_NAMED = 4


@dataclass(frozen=True)
class OpenedModel:
    """The model to open, the recipe to begin with, and the folder in which steps read files and results are saved."""

    model: Path
    recipe: Given | None = None

    @property
    def folder(self) -> Path:
        """The folder of the model; of a copy of a model at a URL, or on standard input, the current folder."""
        from surgery.model import storage

        return Path.cwd() if storage.is_copy(self.model) else self.model.resolve().parent


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `open`."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        type=_places.opened,
        help="an .onnx file, a plan, the output folder or results of a batch, or the folder of a bisection",
    )
    parser.add_argument(
        "--recipe", metavar="RECIPE", type=_places.recipe, help="a recipe file, or the name of a shipped recipe"
    )
    parser.add_argument("--demo", action="store_true", help="open a small BERT, with a guided tour of the page")
    parser.add_argument("--row", metavar="NAME", help="the model of a batch, as its report and ledger name it")
    parser.add_argument("--port", metavar="N", type=int, default=0, help="the port of the server (default: a free one)")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.add_argument("--fresh", action="store_true", help="ignore the draft of an earlier session")
    _plugins.add_trust_argument(parser)
    _plugins.add_argument(parser)


def main(arguments: argparse.Namespace) -> int:
    """Serve the workbench until it is interrupted."""
    try:
        from surgery.interface.workbench.serving import bound, serve
    except ModuleNotFoundError as error:
        todo = "pip install 'onnx-surgery[workbench]'"
        raise UsageError(f"the workbench needs {error.name}, which is not installed", todo=todo) from error
    from surgery.interface.workbench.shared_session import SharedSession

    _verification.start()
    _plugins.load(arguments)
    _require_one(arguments)
    with _places.fetching() as copies, bound(arguments.port) as socket, _demo(arguments) as demo:
        given = _opened(arguments, copies) if demo is None else demo
        shared = SharedSession(partial(_session, given, arguments), given.folder, has_tour=arguments.demo)
        with suppress(KeyboardInterrupt):
            serve(shared, socket, browser=not arguments.no_browser, say=_say)
        if demo is not None:
            shared.session.discard()
    return 0


def _require_one(arguments: argparse.Namespace) -> None:
    """Raise UsageError unless there is a model or --demo, and not both."""
    if arguments.model is None and not arguments.demo:
        raise UsageError("MODEL is missing", todo="name a model, or try 'surgery open --demo'")
    if arguments.demo and (arguments.model is not None or arguments.row is not None or arguments.recipe is not None):
        raise UsageError("--demo has a model of its own", todo="omit --demo, or MODEL, --recipe and --row")


@contextmanager
def _demo(arguments: argparse.Namespace) -> Iterator[OpenedModel | None]:
    """Yield the model of the demo, in a temporary folder, which stays if something was saved there; None without it."""
    if not arguments.demo:
        yield None
        return
    from surgery.features.workbench import demo_model
    from surgery.model import storage

    folder = Path(tempfile.mkdtemp(prefix="surgery-demo-"))
    try:
        model = storage.from_proto(demo_model.demo_model())
        storage.save(model.proto, folder / demo_model.NAME, model.weights)
        yield OpenedModel(folder / demo_model.NAME)
    finally:
        if [path.name for path in folder.iterdir()] in ([], [demo_model.NAME]):
            shutil.rmtree(folder, ignore_errors=True)
        else:
            _output.say(f"what you saved is in {folder}")


def _say(address: str) -> None:
    _output.write_text(f"{address}\n")


def _session(given: OpenedModel, arguments: argparse.Namespace, observer: Observer) -> Session:
    from surgery.features.workbench.session import Session

    session = Session.open(
        given.model,
        given.recipe,
        trust=arguments.trust,
        fresh=arguments.fresh,
        observer=observer,
        within=given.folder,
    )
    if session.shared_with is not None:
        what = f"another session of this model is open (process {session.shared_with}), and writes the same draft"
        _output.say(f"surgery: warning: {what}")
    return session


def _opened(arguments: argparse.Namespace, copies: Staging) -> OpenedModel:
    """Return what to open. Raises UsageError for a file or folder that is none of these, and PlanError."""
    given = Path(arguments.model)
    kind = _kind(given)
    if kind != "batch" and arguments.row is not None:
        raise UsageError("--row names a model of a batch", todo="name its output folder, or its results")
    if kind != "model" and arguments.recipe is not None:
        todo = "omit the flag, or name the model itself"
        raise UsageError(f"--recipe is for models, and '{arguments.model}' has a recipe", todo=todo)
    match kind:
        case "plan":
            return _planned(given, arguments, copies)
        case "batch":
            return _of_row(_row(given, arguments.row), copies)
        case "bisection":
            return _reduced(given)
    return OpenedModel(given, arguments.recipe)


def _kind(given: Path) -> Literal["model", "plan", "batch", "bisection"]:
    from surgery.engine.batching import results
    from surgery.features.bisection import repro_folder

    if repro_folder.is_one(given):
        return "bisection"
    if results.is_one(given):
        return "batch"
    if given.is_dir():
        what = "this folder is neither the output of surgery batch nor that of surgery bisect"
        raise UsageError(what, where=str(given), todo="name a model in it")
    return "plan" if _is_plan(given) else "model"


# Plans


def _is_plan(path: Path) -> bool:
    from surgery.features.planning.plan_document import is_plan

    try:
        with path.open("rb") as file:
            return is_plan(file.read(_HEAD))
    except OSError:
        return False  # whoever loads it as a model reports the problem


def _planned(where: Path, arguments: argparse.Namespace, copies: Staging) -> OpenedModel:
    """Return the model of a plan, and its recipe with the flags and without the sites that the plan has skipped."""
    from surgery.features.planning import following_run, skipped_sites
    from surgery.model import storage

    plan = _plan_file.read(where)
    flags = _flags_of_apply(arguments)
    found = _plan_file.Finder(where, copies)
    _plan_file.restore(plan, flags, found)
    flags.recipe = found.recipe(plan.basis.recipe)
    if plan.basis.model.path is not None:
        flags.model = found.model(plan.basis.model.path)
    loaded, model = apply.recipe_and_model(flags, "open")
    changed = _verification.applied(loaded, flags, model)
    following_run.require_unchanged(plan, storage.load(model), changed, where)
    changed = replace(changed, on_failure=flags.on_failure or changed.on_failure)
    recipe = skipped_sites.without_skipped(plan, changed, str(where))
    return OpenedModel(model, flags.recipe if recipe == loaded else skipped_sites.written_out(loaded, recipe))


def _flags_of_apply(arguments: argparse.Namespace) -> argparse.Namespace:
    """Return the flags of `apply` as if none were given, except those that this command has too."""
    parser = argparse.ArgumentParser()
    apply.add_arguments(parser)
    flags = parser.parse_args([str(arguments.model)])
    flags.plugin, flags.trust = arguments.plugin, arguments.trust
    return flags


# Batches


def _row(results_of: Path, name: str | None) -> LedgerRow:
    """Return the row of a batch with this name, or its only one."""
    from surgery.engine.batching import results
    from surgery.model.wire.globs import did_you_mean

    rows = {row.name: row for row in results.read(results_of)}
    if name is None and len(rows) == 1:
        return next(iter(rows.values()))
    if name is None:
        known = first_few([f"--row {one}" for one in rows], _MOST_NAMED)
        raise UsageError(f"this batch has {len(rows)} models", where=str(results_of), todo=f"choose one: {known}")
    if name not in rows:
        near = did_you_mean(name, rows) or f"it has {first_few([*rows], _MOST_NAMED)}"
        raise UsageError(f"this batch has no model '{name}'", where=str(results_of), todo=near)
    return rows[name]


def _of_row(row: LedgerRow, copies: Staging) -> OpenedModel:
    from surgery.model.remote import urls
    from surgery.model.storage import loading

    model = loading.fetched(row.model, copies) if urls.is_url(row.model) else Path(row.model)
    return OpenedModel(model, str(copies.copied(row.recipe)) if urls.is_url(row.recipe) else row.recipe)


# Bisections


def _reduced(folder: Path) -> OpenedModel:
    """Return the reduced model of a bisection, with the step that failed."""
    from surgery.features.bisection import repro_folder

    model, step = repro_folder.reduced(folder)
    return OpenedModel(model, step)
