"""Create a pass: a working example to edit, with two case files.

The example turns -(a - b) into b - a and is commented line by line. Existing files are kept unless --force is given.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from surgery.interface.command_line import _output

if TYPE_CHECKING:
    from surgery.interface.command_line._new_pass import NewPass


KINDS = ("pattern", "graph", "gs", "onnx_ir", "proto")
"""The APIs that a pass can be written in; each has a template of that name."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `new`."""
    parser.add_argument("what", metavar="pass", choices=["pass"], help="the kind of file to create")
    parser.add_argument("name", metavar="NAME", help="the name of the pass: lower-case words joined by hyphens")
    parser.add_argument("--kind", choices=KINDS, default="pattern", help="the API to use (default: pattern)")
    parser.add_argument("--dir", metavar="DIR", default=".", help="the folder to write to (default: .)")
    parser.add_argument("--force", action="store_true", help="overwrite existing files")


def main(arguments: argparse.Namespace) -> int:
    """Write the files of a new pass, and print the next commands."""
    from surgery.interface.command_line._new_pass import plan as make

    plan = make(arguments.name, Path(arguments.dir), arguments.kind)
    plan.write(force=arguments.force)
    if arguments.format == "json":
        _output.write_json({**plan.to_json(), "next": _commands(plan)})
        return 0
    lines = [f"wrote {path}" for path in plan.texts]
    lines += ["", "next:", *(f"  {command}" for command in _commands(plan))]
    if plan.entry_point is not None:
        where = plan.root / "pyproject.toml"
        lines += ["", f"to offer it with your package, add to {where} and install the package again:"]
        lines += ['  [project.entry-points."surgery.passes"]', f"  {plan.entry_point}"]
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 0


def _commands(plan: NewPass) -> list[str]:
    """List the commands that try the pass."""
    test = ["surgery", "test"] if plan.root.absolute() == Path.cwd() else ["surgery", "test", str(plan.root)]
    if not plan.is_beside:
        test += ["--plugin", str(plan.file)]
    run = ["surgery", "run", plan.name, "model.onnx", "--plugin", str(plan.file)]
    return [shlex.join(test), shlex.join(run)]
