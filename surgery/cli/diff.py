"""Show what changed between two models: operators, nodes, constants, signature, opsets and sizes.

Nodes are matched by name, by the lineage that passes of surgery record, by structure, and by the values they compute.
With --verify, both models are also run on the same inputs, like `surgery verify BEFORE AFTER`.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from surgery.cli import _formats, _output, _verification
from surgery.errors import UsageError

if TYPE_CHECKING:
    from surgery.differences.diff import Difference
    from surgery.verification.verdict.pair import Pair

FORMATS = _output.REPORTS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `diff`."""
    parser.add_argument("before", metavar="BEFORE", help="an .onnx file")
    parser.add_argument("after", metavar="AFTER", help="an .onnx file")
    parser.add_argument(
        "--exit-code", action="store_true", help="exit with 1 if the models differ in more than node names"
    )
    parser.add_argument(
        "--costs", action="store_true", help="also compare the number of operations of a run; takes longer"
    )
    parser.add_argument(
        "--verify", action="store_true", help="also run both models; exit with 1 if their outputs differ"
    )
    _verification.add_arguments(parser)


def main(arguments: argparse.Namespace) -> int:
    """Compare two models; return 1 if --verify fails, or with --exit-code if they differ."""
    if arguments.verify:
        _verification.start()
    elif (
        arguments.inputs or arguments.dims or arguments.custom_op_library or arguments.provider or arguments.unverified
    ):
        raise UsageError("--inputs, --dims, --custom-op-library and --unverified require --verify", todo="add --verify")
    from surgery.differences.diff import diff

    found = diff(arguments.before, arguments.after, costs=arguments.costs)
    if arguments.verify:
        found = replace(found, parity=_parity(arguments))
    negative = found.parity is not None and not found.parity.ok
    code = 1 if negative or (arguments.exit_code and not found.same) else 0
    _report(found, code, arguments)
    return code


def _report(found: Difference, code: int, arguments: argparse.Namespace) -> None:
    """Write the answer in the format that was asked for."""
    if arguments.format == "json":
        _output.write_json(found.to_json())
    elif arguments.format not in _output.PLAIN:
        from surgery.report.outcomes import of_difference

        _formats.write(arguments, of_difference(found, code))
    else:
        from surgery.report.difference import difference, headline

        _output.write(headline(found) if arguments.quiet else difference(found, every=arguments.verbose > 0))


def _parity(arguments: argparse.Namespace) -> Pair:
    from surgery.verification.inputs.spec import InputsSpec, VerifySpec
    from surgery.verification.verdict.pair import verify

    inputs, spec = _verification.combined(arguments, Path(arguments.before), InputsSpec(), VerifySpec())
    return verify(arguments.before, arguments.after, inputs=inputs, spec=spec)
