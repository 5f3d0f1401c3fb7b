"""Tell which opsets a model can have, what stands in the way of lower ones, and which releases run them.

As it stands a model can go down to the newest opset that one of its nodes needs, by operator, attributes, inputs and
types. The passes upgrade-opset and downgrade-opset are tried for the others. Nothing is verified or written:

    surgery run downgrade-opset model.onnx --set to=13 -o out.onnx

does both. With --to, the exit code is 1 when the model cannot get there.
"""

from __future__ import annotations

import argparse

from surgery.cli import _output

_HIGHER, _LOWER = "upgrade-opset", "downgrade-opset"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `opset` takes."""
    parser.add_argument("model", metavar="MODEL", help="an .onnx file")
    parser.add_argument("--to", type=int, metavar="N", help="tell about this opset alone; exit code 1 if out of reach")


def main(arguments: argparse.Namespace) -> int:
    """Tell which opsets a model can have; 1 when the one that was asked for is out of reach."""
    from surgery import storage
    from surgery.opsets.study import study
    from surgery.registry import declare

    known = declare.passes()
    stored = storage.load(arguments.model)
    found = study(stored, known.get(_LOWER), known.get(_HIGHER), arguments.to)
    if arguments.format == "json":
        _output.write_json(found.to_json())
    else:
        from surgery.report import opsets

        _output.write(opsets.study(found, verbose=bool(arguments.verbose)), wrap=False)
    return int(arguments.to is not None and not all(candidate.is_reached for candidate in found.candidates))
