"""Split a model into files that run one after the other, verified in sequence against the whole.

Each file has the weights that it reads. Tensors keep their names: feed a piece by name what the model is given and what
earlier pieces made. MODEL.pieces.json says which is which.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from surgery.cli import _output, _verification

if TYPE_CHECKING:
    from surgery.splitting.split import Split


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `split` takes."""
    parser.add_argument("model", metavar="MODEL", help="an .onnx file")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--at",
        metavar="TENSOR",
        nargs="+",
        action="append",
        help="cut at each of these tensors, names or globs; A+B is one cut at two tensors",
    )
    where.add_argument("--parts", metavar="N", type=int, help="cut into N parts, where little crosses")
    parser.add_argument(
        "--balance",
        choices=["weights", "nodes"],
        default="weights",
        help="by what the parts are alike (default: weights)",
    )
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="write the pieces into this folder, made if it is missing"
    )
    parser.add_argument("--force", action="store_true", help="overwrite existing pieces")
    parser.add_argument(
        "--layout",
        choices=["keep", "single", "external"],
        default="keep",
        help="weights inside the files, in FILE.data next to them, or as the input has them (default: keep)",
    )
    _verification.add_arguments(parser)


def main(arguments: argparse.Namespace) -> int:
    """Split a model."""
    _verification.start()
    from surgery.splitting.split import split
    from surgery.verification.inputs.spec import InputsSpec, VerifySpec

    inputs, spec = _verification.combined(arguments, Path(arguments.model), InputsSpec(), VerifySpec())
    found = split(
        arguments.model,
        arguments.output,
        at=[item.split("+") if "+" in item else item for items in arguments.at or () for item in items],
        parts=arguments.parts,
        balance=arguments.balance,
        layout=arguments.layout,
        force=arguments.force,
        inputs=inputs,
        spec=spec,
    )
    if arguments.format == "json":
        _output.write_json(found.to_json())
    else:
        _show(found)
    return 0 if found.ok else 1


def _show(found: Split) -> None:
    from surgery.report import files

    _output.write(files.split(found))
    if found.files:
        wrote = f"wrote {len(found.files)} files into {found.files[0].parent}"
    else:
        wrote = "nothing written" if not found.ok else "nothing written: no output given (-o DIR)"
    _output.messages().print(wrote, soft_wrap=True)
