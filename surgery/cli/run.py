"""Run one pass over a model, verified like a recipe of one step.

The recipe of that step is shown too: what was tried here goes from there into a recipe.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from surgery.cli import _output, _plugins, _settings, _verification, apply


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `run` takes."""
    parser.add_argument("name", metavar="PASS", help="a pass; 'surgery passes' lists them")
    parser.add_argument("model", metavar="MODEL", help="an .onnx file")
    _settings.add_argument(parser)
    add_run_arguments(parser)


def add_run_arguments(parser: argparse.ArgumentParser, sets: str = "--inputs") -> None:
    """Declare how a pass is run and what becomes of the result; `sets` is the flag for sets of inputs."""
    parser.add_argument("--save-recipe", metavar="FILE", help="write the recipe of this run here")
    apply.add_output_arguments(parser, sets)


def main(arguments: argparse.Namespace) -> int:
    """Run a pass."""
    _verification.start()
    from surgery.registry import declare

    _plugins.load(arguments)
    return execute(arguments, arguments.name, _settings.read(declare.find(arguments.name), arguments.settings))


def execute(arguments: argparse.Namespace, name: str, options: dict[str, Any]) -> int:
    """Run the pass of that name with options as a recipe gives them."""
    from surgery import recipe as recipes
    from surgery import storage
    from surgery.registry import declare

    saved = Path(arguments.save_recipe) if arguments.save_recipe is not None else None
    if saved is not None:
        storage.check_target(saved, force=arguments.force)
    folder = saved.parent if saved is not None else Path()
    files = {one.name for one in declare.find(name).options if one.is_file}
    written = {key: os.path.relpath(value, folder) if key in files else value for key, value in options.items()}
    text = _recipe(arguments, name, written, folder)
    step = recipes.single_step(name, options)
    code = apply.execute(step, Path(arguments.model), arguments, {"yaml": text})
    if saved is not None:
        storage.write_texts({saved: text})
    if arguments.format == "text":
        said = f"wrote {saved}" if saved is not None else f"the same as a recipe:\n{text.rstrip()}"
        _output.messages().print(said, soft_wrap=True)
    return code


def _recipe(arguments: argparse.Namespace, name: str, options: dict[str, Any], folder: Path) -> str:
    """Write the recipe that does what the arguments say, with paths from a folder."""
    from surgery.recipe.writer import written

    def path(given: str) -> str:
        return os.path.relpath(given, folder)

    plugins = [f"./{path(name)}" if name.endswith(".py") else name for name in arguments.plugin]
    verify = {
        "custom_op_library": [path(library) for library in arguments.custom_op_library],
        "unverified": arguments.unverified,
    }
    inputs = {"dims": _verification.dims(arguments), "data": [path(given) for given in arguments.inputs]}
    return written(
        {
            "recipe": name,
            "plugins": plugins,
            "inputs": inputs,
            "verify": verify,
            "on_failure": arguments.on_failure,
            "steps": [{name: options} if options else name],
        }
    )
