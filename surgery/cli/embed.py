"""Write a model with all its weights inside the one file, which must stay below 2 GiB.

The model stays as it is; the opposite is externalize.
"""

from __future__ import annotations

import argparse

from surgery.cli import externalize


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `embed` takes."""
    externalize.add_files(parser)


def main(arguments: argparse.Namespace) -> int:
    """Write a model as a single file."""
    return externalize.write(arguments, "single")
