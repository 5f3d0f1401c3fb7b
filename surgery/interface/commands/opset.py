"""List the opsets that a model can be converted to, what prevents lower ones, and the releases that support each.

Without conversion, the lowest opset is the newest one that any node requires by its operator, attributes, inputs and
types. For the others, the passes upgrade-opset and downgrade-opset are tried; nothing is verified or written. To
convert and verify a model, run

    surgery downgrade model.onnx 13 -o out.onnx
"""

from __future__ import annotations

import argparse

from surgery.interface.command_line import _output, _places

_HIGHER, _LOWER = "upgrade-opset", "downgrade-opset"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `opset`."""
    parser.add_argument("model", metavar="MODEL", type=_places.model, help="an .onnx file")
    parser.add_argument(
        "--to", type=int, metavar="N", help="report on opset N only; exit with 1 if the model cannot be converted to it"
    )


def main(arguments: argparse.Namespace) -> int:
    """List the opsets of a model; return 1 if it cannot be converted to the opset given by --to."""
    from surgery.engine.registry.catalog import catalog
    from surgery.features.inspection.opsets import study
    from surgery.model import storage

    known = catalog.passes()
    stored = storage.load(arguments.model)
    found = study(stored, known.get(_LOWER), known.get(_HIGHER), arguments.to)
    if arguments.format == "json":
        _output.write_json(found.to_json())
    else:
        from surgery.interface.report import opsets

        _output.write(opsets.study(found, verbose=bool(arguments.verbose)), wrap=False)
    return int(arguments.to is not None and not all(candidate.is_reached for candidate in found.candidates))
