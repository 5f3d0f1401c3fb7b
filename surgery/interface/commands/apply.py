"""Apply a recipe to a model and verify each step against the original.

Without -o, and without `output` in the recipe, no file is written: the report shows the result of a dry run.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from surgery.base.errors import SurgeryError, UsageError
from surgery.engine.recipe.schema import ON_FAILURE
from surgery.interface.command_line import (
    _caching,
    _excepted,
    _formats,
    _inputs,
    _output,
    _places,
    _plan_file,
    _plugins,
    _provenance,
    _report_file,
    _targets,
    _verification,
)

if TYPE_CHECKING:
    from surgery.engine.caching.cache_folder import CacheFolder
    from surgery.engine.pipeline.records import Observer, Result
    from surgery.engine.pipeline.reference_start import ReferenceStart
    from surgery.engine.recipe import Recipe
    from surgery.features.planning.following_run import Follower
    from surgery.interface.report.formats.outcome import Outcome

FORMATS = _formats.REPORTS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `apply`."""
    add_subject_arguments(parser, ", or a plan of 'surgery plan'")
    parser.add_argument(
        "--skip",
        metavar="STEP:SITE",
        action="append",
        default=[],
        help="skip a site of a plan, given by the numbers of the step and the site; may be repeated",
    )
    parser.add_argument(
        "--freeze-weights",
        action="store_true",
        help="first make constants of initializers that are also listed as inputs, as old exporters list all weights",
    )
    parser.add_argument("--no-baseline", action="store_true", help="do not compare with the baseline of the recipe")
    add_output_arguments(parser)


def add_subject_arguments(parser: argparse.ArgumentParser, more: str = "") -> None:
    """Add the arguments for a recipe and a model; a model alone is accepted."""
    parser.add_argument(
        "recipe",
        metavar="RECIPE",
        type=_places.recipe,
        help=f"a recipe file, the name of a shipped recipe{more}; an .onnx file alone means the recipe 'default'",
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        type=_places.model,
        nargs="?",
        help="an .onnx file (default: the model named in the recipe)",
    )


def add_output_arguments(parser: argparse.ArgumentParser, sets: str = "--inputs") -> None:
    """Add the arguments for writing a changed model; `sets` is the name of the flag for input sets."""
    parser.add_argument("-o", "--output", metavar="FILE", type=_places.output, help="write the result to FILE")
    parser.add_argument(
        *("-n", "--dry-run"), action="store_true", help="write no model, even if -o or the recipe names one"
    )
    parser.add_argument("--force", action="store_true", help="overwrite existing files")
    _report_file.add_argument(parser)
    _targets.add_argument(parser)
    _excepted.add_argument(parser)
    parser.add_argument(
        "--layout",
        choices=["keep", "single", "external"],
        default="keep",
        help="where to store the weights: as in the input, inside the file, or in FILE.data (default: keep)",
    )
    parser.add_argument(
        "--on-failure",
        choices=ON_FAILURE,
        help="if a step fails: abort, undo the step, undo only its wrong sites, or keep the result (default: as "
        "the recipe "
        "specifies, else abort)",
    )
    parser.add_argument(
        "--strict", action="store_true", help="write no file and exit with 1 if any part of a step was undone"
    )
    parser.add_argument(
        "--locked", action="store_true", help="refuse to run if something changed since 'surgery lock' was run"
    )
    parser.add_argument(
        "--lock", metavar="FILE", type=_places.data, help="the lock file for --locked; implies --locked"
    )
    parser.add_argument(
        "--trust", action="store_true", help="allow the recipe to run local code and to choose where to write"
    )
    _plugins.add_argument(parser)
    _plugins.add_in_process_argument(parser)
    _provenance.add_arguments(parser)
    _verification.add_arguments(parser, sets)
    _verification.add_accuracy_arguments(parser)
    _caching.add_arguments(parser)


def main(arguments: argparse.Namespace) -> int:
    """Apply a recipe, or a plan."""
    _verification.start()
    _plan_file.use_default_recipe(arguments)
    if _plan_file.kind(arguments.recipe) == "plan":
        return _apply_plan(arguments)
    if arguments.skip:
        raise UsageError("--skip is for plans", todo="make one: surgery plan RECIPE MODEL -o plan.json")
    if arguments.output is not None and not arguments.dry_run:
        from surgery.model import storage

        storage.check_target(arguments.output, force=arguments.force)  # before any work
    cache = _caching.asked(arguments)
    with _Original(arguments, cache) as original:
        recipe, model = _subject(arguments, original.begin)
        return execute(recipe, model, arguments, reference=original.reference, folder=cache)


def _subject(arguments: argparse.Namespace, on_read: Callable[[Recipe], object] | None = None) -> tuple[Recipe, Path]:
    """Return the recipe, without its baseline if --no-baseline is given, and the model."""
    recipe, model = recipe_and_model(arguments, "apply", on_read)
    if arguments.freeze_weights:
        recipe = _freezing(recipe)
    return (replace(recipe, baseline=None) if arguments.no_baseline else recipe), model


def _freezing(recipe: Recipe) -> Recipe:
    """Return a recipe that first makes constants of the initializers that are also inputs.

    These inputs go, so the recipe cannot expect an unchanged signature; recipes that it uses can, of what they get.
    """
    from surgery.engine.recipe.schema import PassStep
    from surgery.verification.verdict.validity import FREEZING

    expect = replace(recipe.expect, signature=None)
    return replace(recipe, steps=(PassStep(FREEZING), *recipe.steps), expect=expect)


def _apply_plan(arguments: argparse.Namespace) -> int:
    """Apply a plan, after checking that all its dependencies are unchanged."""
    from surgery.features.planning import following_run
    from surgery.model import storage

    where, arguments.plan = Path(arguments.recipe), arguments.recipe
    plan = following_run.skipping(_plan_file.read(where), arguments.skip)
    with _places.fetching() as copies:
        found = _plan_file.Finder(where, copies)
        _plan_file.restore(plan, arguments, found)
        arguments.recipe = found.recipe(plan.basis.recipe)
        if arguments.model is None and plan.basis.model.path is not None:
            arguments.model = found.model(plan.basis.model.path)
        recipe, model = _subject(arguments)

        def follower(recipe: Recipe) -> Follower:
            following_run.require_unchanged(plan, storage.load(model), recipe, where)
            return following_run.Follower(plan, recipe, where)

        return execute(recipe, model, arguments, following=follower)


class _Original:
    """The run of the original, started before the passes of the recipe are imported."""

    def __init__(self, arguments: argparse.Namespace, cache: CacheFolder | None) -> None:
        self.reference: ReferenceStart | None = None
        self._arguments = arguments
        self._cache = cache

    def __enter__(self) -> _Original:
        return self

    def __exit__(self, *_: object) -> None:
        if self.reference is not None:
            self.reference.tracker.close()

    def begin(self, recipe: Recipe) -> None:
        """Start the run. Errors are ignored here; they are reported when the run needs the result."""
        from surgery.engine.pipeline.reference_start import begin
        from surgery.model import storage

        named = self._arguments.model or recipe.model
        if named is not None:
            model = Path(named)
            with suppress(SurgeryError):
                specs = _verification.combined(self._arguments, model, recipe.inputs, recipe.verify)
                stored = storage.load(model)
                early = self._cache is None or not self._cache.expects(stored.weights.files())
                self.reference = begin(stored, *specs, early=early)


def recipe_and_model(
    arguments: argparse.Namespace, command: str, on_read: Callable[[Recipe], object] | None = None
) -> tuple[Recipe, Path]:
    """Load the plugins and the recipe, and return the recipe with the model that it applies to."""
    from surgery.engine import recipe as recipes

    _plan_file.use_default_recipe(arguments)
    _plugins.load(arguments)
    recipe = recipes.load(arguments.recipe, trust=arguments.trust, on_read=on_read)
    model = arguments.model or recipe.model
    if model is None:
        raise UsageError(f"recipe '{recipe.name}' names no model", todo=f"pass one: surgery {command} RECIPE MODEL")
    _inputs.require_spared_by_recipe(arguments, recipe, Path(model))
    return recipe, Path(model)


def execute(
    recipe: Recipe,
    model: Path,
    arguments: argparse.Namespace,
    more: Mapping[str, Any] | None = None,
    reference: ReferenceStart | None = None,
    following: Callable[[Recipe], Follower] | None = None,
    folder: CacheFolder | None = None,
) -> int:
    """Run a loaded recipe, write the result and print the report; `more` is added to the JSON report.

    `following` creates the observer that enforces a plan, from the recipe combined with the flags. `folder` is the
    folder of the cache.
    """
    cache = _caching.steps(folder or _caching.asked(arguments))
    from surgery.engine.pipeline import runner
    from surgery.engine.pipeline.agenda import Agenda
    from surgery.interface.report.progress import Progress

    output = None if arguments.dry_run else target(recipe, model, arguments.output, trust=arguments.trust)
    recipe = _verification.applied(recipe, arguments, model)
    follower = following(recipe) if following is not None else None
    console, shows = _output.messages(), _output.is_interactive()
    progress = Progress(console, verbose=arguments.verbose > 0, agenda=Agenda(recipe), interactive=shows)
    with _report_file.RunReport(arguments, recipe.name) as page, progress as observer:
        watching = page.observed(observer)
        watching = follower.observed(watching) if follower is not None else watching
        if cache is not None and arguments.resume:
            watching = cast("Observer", _caching.Resuming(watching, cache, Agenda(recipe)))
        result = runner.apply(
            model,
            recipe,
            output=output,
            force=arguments.force,
            layout=arguments.layout,
            lock=arguments.lock or arguments.locked,
            options=runner.RunOptions(
                observer=watching,
                contained=not arguments.in_process,
                reference=reference,
                on_failure=arguments.on_failure,
                strict=arguments.strict,
                history=page.history,
                cache=cache,
                choice=follower,
                accept=follower.accept if follower is not None else None,
                provenance=_provenance.sidecar(arguments),
            ),
        )
    more = {**(more or {}), **page.evidence(result), **({"plan": follower.to_json()} if follower is not None else {})}
    if follower is not None and result.failure is None:
        console.print(follower.summary(), soft_wrap=True)
    report(result, recipe, output, arguments, more)
    page.write(result, more)
    return result.exit_code


def target(recipe: Recipe, model: Path, given: str | None, *, trust: bool = False) -> Path | None:
    """Return the output path: the given one, else the recipe's `output`.

    Raise UsageError if a recipe that is not trusted names a path outside of the current folder.
    """
    from surgery.engine.recipe.output_names import with_stem

    if given is not None:
        return Path(with_stem(given, model))
    if recipe.output is None:
        return None
    found = Path(with_stem(recipe.output, model))
    if not trust and _leads_out(found) and not _is_trusted(recipe):
        raise UsageError(
            f"recipe '{recipe.name}' writes to '{found}', outside of the current folder",
            todo="name the file with -o, or pass --trust",
        )
    return found


def _leads_out(path: Path) -> bool:
    """Return whether a path, with links resolved, is outside of the current folder."""
    return path.is_absolute() or ".." in path.parts or not path.resolve().is_relative_to(Path.cwd().resolve())


def _is_trusted(recipe: Recipe) -> bool:
    """Return whether the user's configuration trusts the file of a recipe."""
    from surgery.engine.recipe import trust

    return recipe.path is not None and trust.trusted(recipe.path, trust.entries())


def report(
    result: Result, recipe: Recipe, output: Path | None, arguments: argparse.Namespace, more: Mapping[str, Any]
) -> None:
    """Write the report to stdout."""
    if arguments.format == "json":
        _output.write_json({**result.to_json(), **more})
        return
    if arguments.format not in _output.PLAIN:
        _formats.write(arguments, _outcome(result, recipe, arguments))
        return
    from surgery.interface.report import terminal

    if arguments.quiet:
        _output.write(terminal.brief(result))
        return
    below = _written(result, output, arguments)
    pages = [f"wrote {arguments.report}"] if arguments.report is not None else []
    height = _output.height(*below, *pages)
    _output.write(terminal.result(result, every=arguments.verbose > 0, height=height))
    for line in below:
        _output.messages().print(line, soft_wrap=True)


def _written(result: Result, output: Path | None, arguments: argparse.Namespace) -> list[str]:
    """Return the line about the written model, if the run ended well."""
    if not result.ok:
        return []
    if output is None:
        return [f"no file written{'' if arguments.dry_run else '; use -o FILE to save the result'}"]
    stated = _provenance.written(arguments, output)
    wrote = f"wrote {result.output.path}"
    return [f"{wrote}, {stated}" if stated else wrote]


def _outcome(result: Result, recipe: Recipe, arguments: argparse.Namespace) -> Outcome:
    """Return the outcome for the formats of other tools, with positions in the given recipe."""
    from surgery.engine.pipeline.agenda import Agenda, users
    from surgery.interface.report.outcomes import of_result

    steps = Agenda(recipe).steps
    about = {one.step.name: one.step.find().summary for one in steps}
    return of_result(result, _formats.command(arguments), users(steps), about)
