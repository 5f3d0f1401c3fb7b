"""Show what a recipe would do to a model, site by site, without writing the result.

Each match site is listed with the nodes that it removes and adds, and the savings in nodes, bytes of weights and
operations. `surgery apply plan.json` then applies exactly this plan. Without a recipe, `default` is used.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from surgery.base.errors import UsageError
from surgery.engine.recipe.schema import ON_FAILURE
from surgery.interface.command_line import _excepted, _output, _places, _plan_file, _plugins, _targets, _verification
from surgery.interface.commands import apply

if TYPE_CHECKING:
    from surgery.features.planning.plan_making import Planning

FORMATS = (*_output.PLAIN, "markdown")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `plan`."""
    apply.add_subject_arguments(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=_places.one_text,
        help="write the plan to FILE (JSON), for 'surgery apply'; - is standard output",
    )
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")
    parser.add_argument(
        "--verify",
        choices=["none", "each", "end"],
        default="none",
        help="what to verify: nothing, so that the plan has all sites; each step, so that it has only correct "
        "sites; or the result as a whole (default: none)",
    )
    parser.add_argument("--exit-code", action="store_true", help="exit with 1 if anything would change")
    parser.add_argument("--on-failure", choices=ON_FAILURE, help="what to do if a step fails (see 'surgery apply')")
    _plugins.add_trust_argument(parser)
    _targets.add_argument(parser)
    _excepted.add_argument(parser)
    _plugins.add_argument(parser)
    _plugins.add_in_process_argument(parser)
    _verification.add_arguments(parser)
    _verification.add_accuracy_arguments(parser)


def main(arguments: argparse.Namespace) -> int:
    """Make a plan."""
    if arguments.verify != "none":
        _verification.start()
    from surgery.engine.pipeline.agenda import Agenda
    from surgery.features.planning.plan_making import make
    from surgery.interface.report.progress import Progress
    from surgery.model import storage

    output = Path(arguments.output) if arguments.output is not None else None
    if output is not None:
        if arguments.recipe == _places.STREAM:
            raise UsageError("a plan cannot refer to a recipe on standard input", todo="name the file of the recipe")
        storage.check_target(output, force=arguments.force)
    folder = _places.base_of(arguments.output)
    recipe, model = apply.recipe_and_model(arguments, "plan")
    settings = _plan_file.settings(arguments, folder)
    recipe = _verification.applied(recipe, arguments, model)
    shows = _output.is_interactive()
    with Progress(_output.messages(), agenda=Agenda(recipe), interactive=shows) as observer:
        planning = make(
            storage.load(model),
            recipe,
            _plan_file.given(arguments.recipe, folder),
            folder=folder,
            verify=arguments.verify,
            settings=settings,
            observer=observer,
            contained=not arguments.in_process,
            on_failure=arguments.on_failure,
        )
    if output is not None and planning.ok:
        storage.write_texts({output: planning.plan.text()})
    _report(planning, output, arguments)
    changes = arguments.exit_code and planning.plan.steps
    return planning.exit_code or (1 if changes else 0)


def _report(planning: Planning, output: Path | None, arguments: argparse.Namespace) -> None:
    """Write the plan to stdout."""
    from surgery.interface.report import plans

    if arguments.format == "json":
        _output.write_json({**planning.plan.to_json(), "ok": planning.ok, "failure": _failure(planning)})
        return
    if arguments.format == "markdown":
        _output.write_text(plans.markdown(planning))
        return
    if arguments.quiet:
        _output.write(plans.conclusion(planning))
        return
    _output.write(plans.plan(planning, every=arguments.verbose > 0))
    if planning.ok:
        said = f"wrote {output}" if output is not None else "no plan written; use -o FILE to save it"
        _output.messages().print(said, soft_wrap=True)


def _failure(planning: Planning) -> dict[str, object] | None:
    return planning.failure.to_json() if planning.failure is not None else None
