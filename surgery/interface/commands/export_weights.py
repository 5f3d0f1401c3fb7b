"""Export the weights of a model to .safetensors, optionally sharded, or .npz.

Tensors have the names of the initializers. The pass import-weights reads such a file back into the model.
"""

from __future__ import annotations

import argparse

from surgery.interface.command_line import _output, _places, _settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `export-weights`."""
    parser.add_argument("model", metavar="MODEL", type=_places.model, help="an .onnx file")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=_places.outputs,
        required=True,
        help="the .safetensors or .npz file to write",
    )
    parser.add_argument(
        "--names",
        metavar="GLOB",
        nargs="+",
        default=[],
        help="the initializers to export, names or globs (default: all)",
    )
    parser.add_argument(
        "--shard-size", metavar="SIZE", help="split a .safetensors file into shards of this size, for example 5GB"
    )
    parser.add_argument("--force", action="store_true", help="overwrite existing files")


def main(arguments: argparse.Namespace) -> int:
    """Export weights."""
    from surgery import export_weights

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
        from surgery.interface.report.formatting import size

        for path in found.files:
            _output.write(str(path), wrap=False)
        _output.messages().print(f"wrote {found.tensors} tensors, {size(found.bytes)}", soft_wrap=True)
    return 0
