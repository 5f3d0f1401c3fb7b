"""Store the weights of a model as external data, which models above 2 GB require.

Nothing else changes. `surgery embed` does the opposite.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from surgery.interface.command_line import _output, _places, _settings

if TYPE_CHECKING:
    from surgery.model.storage import External, Layout


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `externalize`."""
    add_files(parser, _places.outputs)
    parser.add_argument("--data", metavar="NAME", help="the name of the external data file (default: FILE.data)")
    parser.add_argument(
        "--threshold", metavar="SIZE", default="1KiB", help="keep smaller tensors inside the model (default: 1KiB)"
    )
    parser.add_argument(
        "--shard-size", metavar="SIZE", help="split the weights into files of this size: NAME, NAME_1, NAME_2"
    )
    parser.add_argument(
        "--alignment",
        metavar="SIZE",
        help="align each tensor to a multiple of this (default: 64 bytes; 4KiB for tensors from 1MiB)",
    )


def add_files(parser: argparse.ArgumentParser, output: Callable[[str], object] = _places.output) -> None:
    """Add the arguments for the model and the output."""
    parser.add_argument("model", metavar="MODEL", type=_places.model, help="an .onnx file")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=output,
        required=True,
        help="write the model to FILE; may be MODEL itself",
    )
    parser.add_argument("--force", action="store_true", help="overwrite existing files")


def main(arguments: argparse.Namespace) -> int:
    """Write a model with external data."""
    from surgery.model.storage import External

    threshold, shard, alignment = (
        _settings.size(flag, getattr(arguments, flag.replace("-", "_")))
        for flag in ("threshold", "shard-size", "alignment")
    )
    return write(arguments, External(threshold or 0, arguments.data, shard, alignment or 1))


def write(arguments: argparse.Namespace, layout: Layout | External) -> int:
    """Write a model in a layout, and list the files."""
    from surgery.model import storage

    stored = storage.load(arguments.model)
    files = storage.save(stored.proto, Path(arguments.output), stored.weights, layout=layout, force=arguments.force)
    sizes = {str(path): path.stat().st_size for path in files}
    if arguments.format == "json":
        _output.write_json({"files": [{"path": path, "bytes": size} for path, size in sizes.items()]})
        return 0
    from surgery.interface.report.formatting import size

    for path, count in sizes.items():
        _output.write(f"{path}  {size(count)}", wrap=False)
    return 0
