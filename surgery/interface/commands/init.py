"""Create a recipe, a test and a workflow for a model, from the passes that change it.

The recipe has the steps of `default` that change the model, and expects their results. All files are tested before they
are written.
"""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from surgery.interface.command_line import _output, _verification

if TYPE_CHECKING:
    from surgery.interface.command_line._new_project import NewProject


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `init`."""
    parser.add_argument("model", metavar="MODEL", help="an .onnx file")
    parser.add_argument("--dir", metavar="DIR", default=".", help="the folder of the project (default: .)")
    parser.add_argument(
        "--recipe", metavar="RECIPE", default="default", help="use the steps of this recipe (default: default)"
    )
    parser.add_argument("--target", metavar="TARGET", help="the runtime to optimize for")
    parser.add_argument("--force", action="store_true", help="overwrite existing files")


def main(arguments: argparse.Namespace) -> int:
    """Write the files, and print the next commands."""
    _verification.start()
    from surgery.interface.command_line._new_project import propose
    from surgery.interface.report.progress import Progress

    model, folder = Path(arguments.model), Path(arguments.dir)
    console, shows = _output.messages(), _output.is_interactive()
    with Progress(console, verbose=arguments.verbose > 0, interactive=shows) as observer:
        found = propose(
            model,
            folder,
            source=arguments.recipe,
            target=arguments.target,
            force=arguments.force,
            observer=observer,
        )
    found.write(force=arguments.force)
    if arguments.format == "json":
        _output.write_json({**found.to_json(), "next": _commands(found)})
        return 0
    count, before, after = len(found.steps), found.result.input.nodes, found.result.output.nodes
    if count:
        steps = "1 step changes" if count == 1 else f"{count} steps change"
        lines = [f"{steps} {model}: {before} -> {after} nodes"]
    else:
        lines = [f"no step of {arguments.recipe} changes {model}"]
    lines += [f"wrote {path}" for path in found.texts]
    lines += ["", "next:", *(f"  {command}" for command in _commands(found))]
    _output.write_text("".join(f"{line}\n" for line in lines))
    return 0


def _commands(found: NewProject) -> list[str]:
    """List the commands that use the written files."""
    output = os.path.relpath(found.model.with_suffix(".opt.onnx"))
    return [
        shlex.join(["surgery", "apply", str(found.recipe), "-o", output]),
        shlex.join(["pytest", str(found.test)]),
    ]
