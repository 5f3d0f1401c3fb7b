"""Run two models in ONNX Runtime on the same inputs and compare their outputs.

A is the reference. B must accept every input that A accepts, have the same outputs, and pass the onnx checker if A
does. Input sets in a folder test_data_set_0 next to A are used as well.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from surgery.interface.command_line import _formats, _measuring, _output, _places, _plugins, _verification

if TYPE_CHECKING:
    from surgery.verification.inputs.spec import InputsSpec, VerifySpec

FORMATS = _formats.REPORTS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `verify`."""
    parser.add_argument("original", metavar="A", type=_places.model, help="the reference, an .onnx file")
    parser.add_argument("candidate", metavar="B", type=_places.model, help="the .onnx file to compare with it")
    parser.add_argument(
        "--by",
        choices=["name", "position"],
        default="name",
        help="how to pair the inputs and outputs of A and B (default: name)",
    )
    parser.add_argument(
        "--recipe", metavar="RECIPE", type=_places.recipe, help="use the sections 'inputs' and 'verify' of a recipe"
    )
    _plugins.add_trust_argument(parser)
    add_tolerances(parser)
    parser.add_argument("--exact", action="store_true", help="require bit-identical outputs")
    parser.add_argument(
        "--interface",
        choices=["keep", "may-narrow"],
        default="keep",
        help="whether B may accept less than A: fewer inputs, fixed or tied dims (default: keep)",
    )
    parser.add_argument(
        "--target",
        metavar="TARGET",
        help="the runtime that B is made for: it also runs there if that is installed, a name such as openvino, or a "
        "profile (.yaml)",
    )
    _verification.add_arguments(parser)


def add_tolerances(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the arguments for tolerances and the seed."""
    parser.add_argument("--rtol", type=_tolerance, help="relative tolerance (default: depends on the type)")
    parser.add_argument("--atol", type=_tolerance, help="absolute tolerance (default: depends on the type)")
    parser.add_argument("--seed", type=_measuring.natural, help="seed of the random inputs (default: 0)")


def _tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not math.isfinite(value) or value < 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a non-negative number such as 1e-4")
    return value


def main(arguments: argparse.Namespace) -> int:
    """Verify one model against another."""
    _verification.start()
    from surgery import Parity
    from surgery.model.targets import shipped
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
        deploys_on=shipped.find(arguments.target).deploys_on if arguments.target is not None else "",
    )
    if arguments.format == "json":
        _output.write_json(found.to_json())
    elif arguments.format not in _output.PLAIN:
        from surgery.interface.report.outcomes import of_pair

        _formats.write(arguments, of_pair(found, arguments.original, arguments.candidate))
    else:
        from surgery.interface.report import terminal

        every = arguments.verbose > 0
        _output.write(terminal.pair_headline(found) if arguments.quiet else terminal.pair(found, every=every))
    return 0 if found.ok else 1


def _specs(arguments: argparse.Namespace) -> tuple[InputsSpec, VerifySpec]:
    """Combine the specs of the recipe with the flags."""
    from surgery.engine import recipe as recipes
    from surgery.verification.inputs.spec import InputsSpec, VerifySpec

    inputs, spec = InputsSpec(), VerifySpec()
    if arguments.recipe is not None:
        recipe = recipes.load(arguments.recipe, trust=arguments.trust)
        inputs, spec = recipe.inputs, recipe.verify
    given = {name: value for name in ("rtol", "atol", "seed") if (value := getattr(arguments, name)) is not None}
    return _verification.combined(arguments, Path(arguments.original), inputs, replace(spec, **given))
