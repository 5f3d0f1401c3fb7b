"""Write a model with its weights in files next to it, as a model above 2 GB must have them.

The model stays as it is; the opposite is embed.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from surgery.cli import _output, _settings

if TYPE_CHECKING:
    from surgery.storage import External, Layout


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `externalize` takes."""
    add_files(parser)
    parser.add_argument("--data", metavar="NAME", help="what the file of weights is called (default: FILE.data)")
    parser.add_argument(
        "--threshold", metavar="SIZE", default="1KiB", help="tensors from this size on lie outside (default: 1KiB)"
    )
    parser.add_argument(
        "--shard-size", metavar="SIZE", help="divide the weights into files of so many bytes, NAME, NAME_1, NAME_2"
    )
    parser.add_argument(
        "--alignment",
        metavar="SIZE",
        help="let each tensor start at a multiple of this (default: 64, and 4KiB from 1MiB on)",
    )


def add_files(parser: argparse.ArgumentParser) -> None:
    """Declare the model and where to write it."""
    parser.add_argument("model", metavar="MODEL", help="an .onnx file")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="write the model here; may be MODEL")
    parser.add_argument("--force", action="store_true", help="overwrite existing files")


def main(arguments: argparse.Namespace) -> int:
    """Write a model with external data."""
    from surgery.storage import External

    threshold, shard, alignment = (
        _settings.size(flag, getattr(arguments, flag.replace("-", "_")))
        for flag in ("threshold", "shard-size", "alignment")
    )
    return write(arguments, External(threshold or 0, arguments.data, shard, alignment or 1))


def write(arguments: argparse.Namespace, layout: Layout | External) -> int:
    """Write a model in a layout, and say which files that made."""
    from surgery import storage

    stored = storage.load(arguments.model)
    files = storage.save(stored.proto, Path(arguments.output), stored.weights, layout=layout, force=arguments.force)
    sizes = {str(path): path.stat().st_size for path in files}
    if arguments.format == "json":
        _output.write_json({"files": [{"path": path, "bytes": size} for path, size in sizes.items()]})
        return 0
    from surgery.report.terminal import size

    for path, count in sizes.items():
        _output.write(f"{path}  {size(count)}", wrap=False)
    return 0
