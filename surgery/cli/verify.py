"""Run two models in ONNX Runtime on the same inputs and compare their outputs.

A is taken as right: both get the inputs of A, and B has to give the outputs of A, to take all that A takes, and to pass
the checker where A does. A folder test_data_set_0 next to A is used too.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from surgery.cli import _output, _verification

if TYPE_CHECKING:
    from surgery.verification.inputs.spec import InputsSpec, VerifySpec


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `verify` takes."""
    parser.add_argument("original", metavar="A", help="an .onnx file, taken as right")
    parser.add_argument("candidate", metavar="B", help="an .onnx file, compared with it")
    parser.add_argument(
        "--by",
        choices=["name", "position"],
        default="name",
        help="how inputs and outputs of A and B belong together (default: name)",
    )
    parser.add_argument("--recipe", metavar="RECIPE", help="take the sections 'inputs' and 'verify' of a recipe")
    parser.add_argument("--trust", action="store_true", help="run the local code that the recipe names")
    parser.add_argument("--rtol", type=_tolerance, help="relative tolerance (default: by type)")
    parser.add_argument("--atol", type=_tolerance, help="absolute tolerance (default: by type)")
    parser.add_argument("--seed", type=_seed, help="seed of the inputs (default: 0)")
    parser.add_argument("--exact", action="store_true", help="ask for bit-identical outputs")
    parser.add_argument(
        "--interface",
        choices=["keep", "may-narrow"],
        default="keep",
        help="whether B may take less than A: fewer inputs, dims that are fixed or tied (default: keep)",
    )
    _verification.add_arguments(parser)


def _tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not math.isfinite(value) or value < 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 0, such as 1e-4")
    return value


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 0")
    return int(text)


def main(arguments: argparse.Namespace) -> int:
    """Verify one model against another."""
    _verification.start()
    from surgery.promises import Parity
    from surgery.verification.verdict.pair import verify

    inputs, spec = _specs(arguments)
    found = verify(
        arguments.original,
        arguments.candidate,
        by=arguments.by,
        inputs=inputs,
        spec=spec,
        promise=Parity.EXACT if arguments.exact else Parity.CLOSE,
        interface=arguments.interface,
    )
    if arguments.format == "json":
        _output.write_json(found.to_json())
    else:
        from surgery.report import terminal

        _output.write(terminal.pair(found))
    return 0 if found.ok else 1


def _specs(arguments: argparse.Namespace) -> tuple[InputsSpec, VerifySpec]:
    """Read what the recipe says, and what the flags say besides it."""
    from surgery import recipe as recipes
    from surgery.verification.inputs.spec import InputsSpec, VerifySpec

    inputs, spec = InputsSpec(), VerifySpec()
    if arguments.recipe is not None:
        recipe = recipes.load(arguments.recipe, trust=arguments.trust)
        inputs, spec = recipe.inputs, recipe.verify
    given = {name: value for name in ("rtol", "atol", "seed") if (value := getattr(arguments, name)) is not None}
    return _verification.combined(arguments, Path(arguments.original), inputs, replace(spec, **given))
