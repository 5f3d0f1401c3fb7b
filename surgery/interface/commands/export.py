"""Export a PyTorch module or program to ONNX, verify it against PyTorch, and clean it up with a recipe.

MODULE:CALLABLE is imported and called in a separate process; it returns a torch.nn.Module, or a module with example
inputs. Module and model run on several sets of inputs, at several sizes of each dynamic dim, to detect and report
branches and sizes that tracing froze. Nothing is written if they differ. Needs PyTorch: pip install
'onnx-surgery[torch]'.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from surgery.interface.command_line import _output
from surgery.interface.commands import verify

if TYPE_CHECKING:
    from surgery.verification.inputs.spec import VerifySpec


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `export`."""
    parser.add_argument(
        "target", metavar="TARGET", help="MODULE:CALLABLE, FILE.py:CALLABLE, or a program.pt2 of torch.export.save"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write the model to FILE; without it, only report")
    parser.add_argument("--force", action="store_true", help="overwrite existing files")
    parser.add_argument("--trust", action="store_true", help="allow the code of TARGET to be run")
    parser.add_argument(
        "--inputs",
        metavar="FILE",
        help="a YAML file with names, types and dims of the inputs (dynamic dims by name), or a .npz file with "
        "example inputs",
    )
    parser.add_argument(
        "--exporter",
        choices=["auto", "dynamo", "torchscript"],
        default="auto",
        help="the PyTorch exporter to use (default: dynamo, or torchscript if it fails)",
    )
    parser.add_argument("--opset", type=int, metavar="N", help="the opset to export to (default: the exporter's)")
    parser.add_argument(
        "--recipe",
        metavar="RECIPE",
        default="default",
        help="the recipe that optimizes the exported model (default: default)",
    )
    parser.add_argument("--raw", action="store_true", help="keep the model as exported")
    group = parser.add_argument_group("verification")
    verify.add_tolerances(group)
    group.add_argument(
        "--unverified",
        choices=["refuse", "accept"],
        default="refuse",
        help="whether an unverified result is a failure (default: refuse)",
    )


def main(arguments: argparse.Namespace) -> int:
    """Export."""
    from surgery import export
    from surgery.engine import recipe as recipes
    from surgery.features.frameworks import request
    from surgery.interface.report import exporting

    made = export(
        arguments.target,
        arguments.output,
        inputs=request.load(Path(arguments.inputs)) if arguments.inputs else None,
        exporter=arguments.exporter,
        opset=arguments.opset,
        recipe=None if arguments.raw else recipes.load(arguments.recipe, trust=arguments.trust),
        verify=_spec(arguments),
        trust=arguments.trust,
        force=arguments.force,
        show=(lambda name: _output.messages().print(f"{name} ...", style="dim")) if _output.is_interactive() else str,
    )
    if arguments.format == "json":
        _output.write_json(made.to_json())
        return 0 if made.ok else 1
    text = exporting.conclusion(made) if arguments.quiet else exporting.report(made, every=arguments.verbose > 0)
    _output.write(text, wrap=False)
    if made.written is not None:
        _output.messages().print(f"wrote {made.written}", soft_wrap=True)
    elif made.ok:
        _output.messages().print("no file written; use -o FILE to save the result", soft_wrap=True)
    return 0 if made.ok else 1


def _spec(arguments: argparse.Namespace) -> VerifySpec:
    from surgery.verification.inputs.spec import VerifySpec

    given = {name: value for name in ("rtol", "atol", "seed") if (value := getattr(arguments, name)) is not None}
    return replace(VerifySpec(unverified=arguments.unverified), **given)
