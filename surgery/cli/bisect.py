"""Find the site that makes a step of a recipe fail, and write a small model that shows it.

The first step that fails is taken, whatever the recipe would do about it. The folder gets two models of a few nodes
each, their inputs and outputs, and a script for plain onnxruntime. Exit code 0: no step fails.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from surgery.cli import _output, _plugins, _verification, apply


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `bisect` takes."""
    parser.add_argument("recipe", metavar="RECIPE", help="a recipe file, or the name of a shipped recipe")
    parser.add_argument("model", metavar="MODEL", nargs="?", help="an .onnx file (default: the recipe's own model)")
    parser.add_argument(
        "-o", "--output", metavar="FOLDER", help="write the small model here (default: MODEL.repro in this folder)"
    )
    parser.add_argument("--force", action="store_true", help="write into a folder that exists")
    parser.add_argument("--trust", action="store_true", help="run the local code that the recipe names")
    _plugins.add_argument(parser)
    _verification.add_arguments(parser)


def main(arguments: argparse.Namespace) -> int:
    """Bisect a recipe."""
    _verification.start()
    from surgery.bisection.bisect import bisect
    from surgery.report.progress import Progress

    recipe, model = apply.recipe_and_model(arguments, "bisect")
    inputs, verify = _verification.combined(arguments, model, recipe.inputs, recipe.verify)
    recipe = replace(recipe, inputs=inputs, verify=verify)
    folder = arguments.output or f"{model.stem}.repro"
    with Progress(_output.messages(), verbose=arguments.verbose > 0) as observer:
        found = bisect(model, recipe, output=folder, force=arguments.force, observer=observer)
    if arguments.format == "json":
        _output.write_json(found.to_json())
    else:
        from surgery.report import blame

        _output.write(blame.blame(found))
    return found.exit_code
