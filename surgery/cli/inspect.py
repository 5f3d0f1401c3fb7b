"""Show what a model is made of: inputs, outputs, opsets, operators, parameters, bytes; or where its nodes come from.

With --lineage: which pass made each node, of which nodes of the original. "What became of the Softmax of layer 7?" is

    surgery inspect optimized.onnx --from /layer.7/attention/Softmax
"""

from __future__ import annotations

import argparse
import sys

from surgery.cli import _output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `inspect` takes."""
    parser.add_argument("model", metavar="MODEL", help="an .onnx file")
    parser.add_argument("--lineage", action="store_true", help="tell which passes made the nodes, and of which nodes")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--node", metavar="NAME", help="the lineage of this node, or of what makes this value")
    which.add_argument(
        "--from", metavar="NAME", dest="origin", help="the nodes that come from this node of the original"
    )


def main(arguments: argparse.Namespace) -> int:
    """Inspect a model; 1 when nothing comes from the node that was asked for."""
    if arguments.lineage or arguments.node is not None or arguments.origin is not None:
        return _lineage(arguments)
    from surgery.inspect import inspect

    facts = inspect(arguments.model)
    if arguments.format == "json":
        _output.write_json(facts.to_json())
        return 0
    from surgery.report import terminal

    _output.write(terminal.inspection(facts))
    return 0


def _lineage(arguments: argparse.Namespace) -> int:
    from surgery.descent import descent

    found = descent(arguments.model)
    if arguments.node is not None:
        found = found.named(arguments.node)
    if arguments.origin is not None:
        found = found.descendants(arguments.origin)
    if arguments.format == "json":
        _output.write_json(found.to_json())
    else:
        from surgery.report import lineage

        every = {"most": sys.maxsize} if arguments.verbose or arguments.node is not None else {}
        _output.write(lineage.descent(found, arguments.origin, **every))
    return 1 if arguments.origin is not None and not found.found else 0
