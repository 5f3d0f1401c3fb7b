"""Split a model into submodels that run in sequence, verified together against the whole.

Each file contains its own weights. Tensors keep their names: feed each piece, by name, the inputs of the
model and the outputs of earlier pieces. MODEL.pieces.json lists the inputs and outputs of each piece.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from surgery.base.errors import UsageError
from surgery.interface.command_line import _output, _places, _verification


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `split`."""
    parser.add_argument("model", metavar="MODEL", type=_places.model, help="an .onnx file")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--at",
        metavar="TENSOR",
        nargs="+",
        action="append",
        help="cut at each of these tensors, names or globs; A+B is a single cut through two tensors",
    )
    where.add_argument("--parts", metavar="N", type=int, help="split into N parts, cutting where few bytes cross")
    where.add_argument("count", metavar="N", nargs="?", help="the same as --parts")
    parser.add_argument(
        "--balance",
        choices=["weights", "nodes"],
        default="weights",
        help="what to distribute evenly over the parts (default: weights)",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        type=_places.folder,
        help="write the pieces into DIR, which is created if missing",
    )
    parser.add_argument("--force", action="store_true", help="overwrite existing files")
    parser.add_argument(
        "--layout",
        choices=["keep", "single", "external"],
        default="keep",
        help="where to store the weights: as in the input, inside the files, or in FILE.data (default: keep)",
    )
    _verification.add_arguments(parser)


def main(arguments: argparse.Namespace) -> int:
    """Split a model."""
    _verification.start()
    from surgery import split
    from surgery.verification.inputs.spec import InputsSpec, VerifySpec

    inputs, spec = _verification.combined(arguments, Path(arguments.model), InputsSpec(), VerifySpec())
    found = split(
        arguments.model,
        arguments.output,
        at=[item.split("+") if "+" in item else item for items in arguments.at or () for item in items],
        parts=_parts(arguments),
        balance=arguments.balance,
        layout=arguments.layout,
        force=arguments.force,
        inputs=inputs,
        spec=spec,
    )
    if found.files:
        _places.send_folder(arguments.output, found.files)
    if arguments.format == "json":
        _output.write_json(found.to_json())
    else:
        from surgery.interface.report import written_files

        _output.write(written_files.split(found))
        _output.messages().print(_written(found.files, ok=found.ok), soft_wrap=True)
    return 0 if found.ok else 1


def _parts(arguments: argparse.Namespace) -> int | None:
    count: str | None = arguments.count
    if count is not None and not count.isdecimal():
        raise UsageError(f"'{count}' is not a number of parts", todo="for a tensor, pass --at TENSOR")
    return arguments.parts if count is None else int(count)


def _written(files: Sequence[Path], *, ok: bool) -> str:
    if files:
        return f"wrote {len(files)} files into {files[0].parent}"
    return "no file written; use -o DIR to save the pieces" if ok else "no file written"
