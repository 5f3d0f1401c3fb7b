"""Show the help of a command, as surgery COMMAND --help does.

Without a command, it lists all commands.
"""

from __future__ import annotations

import argparse

from surgery.interface import commands as cli


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `help`."""
    parser.add_argument("words", metavar="COMMAND", nargs="*", help="a command, and its action if it has actions")


def main(arguments: argparse.Namespace) -> int:
    """Show the help of a command."""
    return cli.main([*arguments.words, "--help"])
