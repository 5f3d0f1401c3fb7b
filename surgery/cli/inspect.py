"""Show what a model is made of: inputs, outputs, opsets, operators, parameters, bytes."""

from __future__ import annotations

import argparse

from surgery.cli import _output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `inspect` takes."""
    parser.add_argument("model", metavar="MODEL", help="an .onnx file")


def main(arguments: argparse.Namespace) -> int:
    """Inspect a model."""
    from surgery.inspect import inspect

    facts = inspect(arguments.model)
    if arguments.format == "json":
        _output.write_json(facts.to_json())
        return 0
    from surgery.report import terminal

    _output.write(terminal.inspection(facts))
    return 0
