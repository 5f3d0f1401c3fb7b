"""Compare two models: operators before and after, which nodes became which, signature, sizes, opsets, metadata.

Nodes are matched by their lineage where passes of surgery left it, else by names, structure, and the values they make.
"""

from __future__ import annotations

import argparse

from surgery.cli import _output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `diff` takes."""
    parser.add_argument("before", metavar="BEFORE", help="an .onnx file")
    parser.add_argument("after", metavar="AFTER", help="an .onnx file")
    parser.add_argument("--exit-code", action="store_true", help="return 1 when the models differ")


def main(arguments: argparse.Namespace) -> int:
    """Compare two models."""
    from surgery.diff import diff

    found = diff(arguments.before, arguments.after)
    if arguments.format == "json":
        _output.write_json(found.to_json())
    else:
        from surgery.report import terminal

        _output.write(terminal.difference(found, every=arguments.verbose > 0))
    return 1 if arguments.exit_code and not found.same else 0
