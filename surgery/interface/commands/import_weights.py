"""Import the weights of checkpoints into a model: PyTorch, safetensors, npz or GGUF, in one file or in shards.

Each tensor is imported into the initializer of the same name. Code in a checkpoint is never run. Matrices that the
model reads transposed are transposed, and floats are converted to the model's types; the report lists these. Without
--partial, nothing is written if anything does not fit.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from surgery.interface.command_line import _output, _places

if TYPE_CHECKING:
    from surgery.features.frameworks.importing import Imported


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `import-weights`."""
    parser.add_argument("model", metavar="MODEL", type=_places.model, help="an .onnx file")
    parser.add_argument(
        "checkpoints",
        metavar="CHECKPOINT",
        type=_places.data,
        nargs="+",
        help="a .pt, .pth, .bin, .safetensors, .npz or .gguf file, or the .index.json of shards",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=_places.output,
        help="write the model to FILE; without it, only report",
    )
    parser.add_argument("--force", action="store_true", help="overwrite existing files")
    parser.add_argument(
        "--map", metavar="FILE", type=_places.data, help="a YAML file that maps initializers to tensors"
    )
    parser.add_argument(
        "--name",
        metavar="INITIALIZER=TENSOR",
        action="append",
        default=[],
        help="the tensor for an initializer, or for all that match a pattern: 'model.*=*'; may be repeated",
    )
    parser.add_argument("--key", metavar="KEY", help="the key of the weights in a PyTorch checkpoint")
    parser.add_argument(
        "--layout",
        choices=["auto", "torch", "onnx"],
        default="auto",
        help="whether matrices of linear layers are [out, in] as in PyTorch, or as in the model (default: detected)",
    )
    parser.add_argument("--partial", action="store_true", help="import the tensors that fit, and keep the rest")
    parser.add_argument("--suggest", metavar="FILE", help="write likely pairs of names to a mapping file")


def main(arguments: argparse.Namespace) -> int:
    """Import weights."""
    from surgery import import_weights
    from surgery.features.frameworks import mapping

    found = import_weights(
        arguments.model,
        arguments.checkpoints,
        arguments.output,
        mapping=mapping.load(Path(arguments.map)) if arguments.map else None,
        names=mapping.of_flags(arguments.name),
        key=arguments.key,
        layout=arguments.layout,
        partial=arguments.partial,
        force=arguments.force,
    )
    if arguments.suggest:
        _write_suggestions(found, Path(arguments.suggest), force=arguments.force)
    if arguments.format == "json":
        _output.write_json(found.to_json())
        return 0 if found.ok else 1
    from surgery.interface.report import imported_weights

    text = (
        imported_weights.conclusion(found)
        if arguments.quiet
        else imported_weights.report(found, every=arguments.verbose > 0)
    )
    _output.write(text, wrap=False)
    if found.written:
        _output.messages().print(f"wrote {', '.join(map(str, found.written))}", soft_wrap=True)
    elif found.ok:
        _output.messages().print("no file written; use -o FILE to save the result", soft_wrap=True)
    return 0 if found.ok else 1


def _write_suggestions(found: Imported, path: Path, *, force: bool) -> None:
    """Write a mapping file, if there is anything to suggest."""
    from surgery.model import storage

    if not found.suggestions:
        _output.say("nothing to suggest; no mapping file written")
        return
    target = storage.check_target(path, force=force)
    storage.write_texts({target: found.suggestions.document()})
