"""Write the weights of a model into a file of tensors: .safetensors, in shards if you like, or .npz.

The names are those of the initializers. What such a file holds, edited or trained further, goes back into the model by
the pass import-weights.
"""

from __future__ import annotations

import argparse

from surgery.cli import _output, _settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `export-weights` takes."""
    parser.add_argument("model", metavar="MODEL", help="an .onnx file")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="a .safetensors or .npz file to write")
    parser.add_argument(
        "--names", metavar="GLOB", nargs="+", default=[], help="initializers to write, by name or glob (default: all)"
    )
    parser.add_argument(
        "--shard-size", metavar="SIZE", help="divide a .safetensors file into files of so many bytes, such as 5GB"
    )
    parser.add_argument("--force", action="store_true", help="overwrite existing files")


def main(arguments: argparse.Namespace) -> int:
    """Export weights."""
    from surgery.storage.export_weights import export_weights

    found = export_weights(
        arguments.model,
        arguments.output,
        names=arguments.names,
        shard_size=_settings.size("shard-size", arguments.shard_size),
        force=arguments.force,
    )
    if arguments.format == "json":
        _output.write_json(found.to_json())
    else:
        from surgery.report.terminal import size

        for path in found.files:
            _output.write(str(path), wrap=False)
        _output.messages().print(f"wrote {found.tensors} tensors, {size(found.bytes)}", soft_wrap=True)
    return 0
