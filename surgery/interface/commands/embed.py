"""Store all weights of a model inside the .onnx file, which must stay below 2 GiB.

Nothing else changes. `surgery externalize` does the opposite.
"""

from __future__ import annotations

import argparse

from surgery.interface.commands import externalize


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `embed`."""
    externalize.add_files(parser)


def main(arguments: argparse.Namespace) -> int:
    """Write a model as a single file."""
    return externalize.write(arguments, "single")
