"""Find the rewrite that makes a recipe fail, and write a minimal model that reproduces the failure.

The first failing step is examined, whatever its on_failure. The output folder gets two models of a few nodes each,
their inputs and outputs, and a script that needs only onnxruntime. The exit code is 0 if no step fails.
"""

from __future__ import annotations

import argparse

from surgery.interface.command_line import _output, _places, _plugins, _targets, _verification
from surgery.interface.commands import apply


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bisect`."""
    apply.add_subject_arguments(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FOLDER",
        type=_places.folder,
        help="write the minimal model to FOLDER (default: MODEL.repro)",
    )
    parser.add_argument("--force", action="store_true", help="write into an existing folder")
    _plugins.add_trust_argument(parser)
    _plugins.add_argument(parser)
    _targets.add_argument(parser)
    _verification.add_arguments(parser)


def main(arguments: argparse.Namespace) -> int:
    """Bisect a recipe."""
    _verification.start()
    from surgery import bisect
    from surgery.features.bisection.repro_folder import written
    from surgery.interface.report.progress import Progress

    recipe, model = apply.recipe_and_model(arguments, "bisect")
    recipe = _verification.applied(recipe, arguments, model)
    folder = arguments.output or f"{model.stem}.repro"
    with Progress(_output.messages(), interactive=_output.is_interactive(), verbose=arguments.verbose > 0) as observer:
        found = bisect(model, recipe, output=folder, force=arguments.force, observer=observer)
    if found.folder is not None:
        _places.send_folder(folder, written(found.folder))
    if arguments.format == "json":
        _output.write_json(found.to_json())
    else:
        from surgery.interface.report import blame

        _output.write(blame.blame(found))
    return found.exit_code
