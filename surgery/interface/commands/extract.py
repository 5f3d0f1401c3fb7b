"""Extract a submodel, verified against the intermediate values of the whole model.

A shorthand for 'surgery run extract' with flags for its options. The submodel is given by its boundary tensors or by
its nodes. Names may be globs: * matches any characters, ? matches one.
"""

from __future__ import annotations

import argparse
from typing import Any

from surgery.base.errors import UsageError
from surgery.interface.command_line import _formats, _places, _plugins, _settings, _verification
from surgery.interface.commands import run

FORMATS = _formats.REPORTS
_PASS = "extract"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `extract`."""
    parser.add_argument("model", metavar="MODEL", type=_places.model, help="an .onnx file")
    for flag, target, about in (
        ("--inputs", "starts", "tensors that become inputs (default: the inputs of the model)"),
        ("--outputs", "ends", "tensors that become outputs (default: the outputs of the model)"),
    ):
        about += "; may be repeated"
        parser.add_argument(flag, metavar="NAME[,NAME]", action="append", default=[], dest=target, help=about)
    parser.add_argument(
        "--nodes", metavar="SELECTOR", help="the nodes to extract, as a selector: 'encoder/*', '{op: If}'"
    )
    run.add_run_arguments(parser, sets="--input-data")


def main(arguments: argparse.Namespace) -> int:
    """Extract a submodel."""
    _verification.start()
    _plugins.load(arguments)
    return run.execute(arguments, _PASS, _options(arguments))


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Read the flags as options of the pass."""
    from surgery.engine.registry.catalog import catalog

    options: dict[str, Any] = {}
    for name, texts in (("inputs", arguments.starts), ("outputs", arguments.ends)):
        names = [part.strip() for text in texts for part in text.split(",")]
        if not all(names):
            raise UsageError(f"--{name}: a name is empty", todo=f"pass --{name} NAME,NAME")
        options |= {name: names} if names else {}
    if arguments.nodes is not None:
        options |= _settings.read(catalog.find(_PASS), [f"nodes={arguments.nodes}"])
    return options
