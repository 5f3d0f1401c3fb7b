"""Compare two models: operators before and after, which nodes became which, constants, signature, sizes, opsets.

Nodes are matched by their lineage where passes of surgery left it, else by names, structure, and the values they make.
With --verify both models also run on the same inputs, as with `surgery verify BEFORE AFTER`.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from surgery.cli import _output, _verification
from surgery.errors import UsageError

if TYPE_CHECKING:
    from surgery.verification.verdict.pair import Pair


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `diff` takes."""
    parser.add_argument("before", metavar="BEFORE", help="an .onnx file")
    parser.add_argument("after", metavar="AFTER", help="an .onnx file")
    parser.add_argument(
        "--exit-code", action="store_true", help="return 1 when the models differ in more than names of nodes"
    )
    parser.add_argument("--costs", action="store_true", help="count the operations of one run too, which takes longer")
    parser.add_argument("--verify", action="store_true", help="run both models too; return 1 when outputs differ")
    _verification.add_arguments(parser)


def main(arguments: argparse.Namespace) -> int:
    """Compare two models; 1 when parity is asked for and does not hold, or with --exit-code when they differ."""
    if arguments.verify:
        _verification.start()
    elif arguments.inputs or arguments.dims or arguments.custom_op_library or arguments.unverified:
        raise UsageError(
            "--inputs, --dims, --custom-op-library and --unverified are about --verify", todo="add --verify"
        )
    from surgery.differences.diff import diff

    found = diff(arguments.before, arguments.after, costs=arguments.costs)
    if arguments.verify:
        found = replace(found, parity=_parity(arguments))
    if arguments.format == "json":
        _output.write_json(found.to_json())
    else:
        from surgery.report.difference import difference

        _output.write(difference(found, every=arguments.verbose > 0))
    negative = found.parity is not None and not found.parity.ok
    return 1 if negative or (arguments.exit_code and not found.same) else 0


def _parity(arguments: argparse.Namespace) -> Pair:
    from surgery.verification.inputs.spec import InputsSpec, VerifySpec
    from surgery.verification.verdict.pair import verify

    inputs, spec = _verification.combined(arguments, Path(arguments.before), InputsSpec(), VerifySpec())
    return verify(arguments.before, arguments.after, inputs=inputs, spec=spec)
