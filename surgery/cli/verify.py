"""Run two models in ONNX Runtime on the same inputs and compare their outputs by name."""

from __future__ import annotations

import argparse

from surgery.cli import _output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `verify` takes."""
    parser.add_argument("original", metavar="A", help="an .onnx file, taken as right")
    parser.add_argument("candidate", metavar="B", help="an .onnx file, compared with it")
    parser.add_argument("--rtol", type=float, help="relative tolerance (default: by type)")
    parser.add_argument("--atol", type=float, help="absolute tolerance (default: by type)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the inputs (default: 0)")
    parser.add_argument("--exact", action="store_true", help="ask for bit-identical outputs")


def main(arguments: argparse.Namespace) -> int:
    """Verify one model against another."""
    from surgery.parity import Parity
    from surgery.recipe.schema import VerifySpec
    from surgery.verify import verify

    spec = VerifySpec(rtol=arguments.rtol, atol=arguments.atol, seed=arguments.seed)
    promise = Parity.EXACT if arguments.exact else Parity.CLOSE
    found = verify(arguments.original, arguments.candidate, spec=spec, promise=promise)
    if arguments.format == "json":
        _output.write_json(found.to_json())
    else:
        from surgery.report import terminal

        _output.write(terminal.pair(found))
    return 0 if found.verdict.passed else 1
