"""The flag `--plugin`, which many commands take. Who names a plugin there trusts it."""

from __future__ import annotations

import argparse
import sys


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Declare the flag."""
    parser.add_argument(
        "--plugin", metavar="MODULE", action="append", default=[], help="a module, or a .py file, with more passes"
    )


def load(arguments: argparse.Namespace) -> None:
    """Import the plugins that were named, and say how those of a recipe are to be imported."""
    in_process = getattr(arguments, "in_process", False)
    if in_process or "surgery.registry.discovery" in sys.modules:
        from surgery.registry import discovery

        discovery.contained.set(not in_process)
    for plugin in arguments.plugin:
        from surgery.registry import declare

        declare.load_plugin(plugin)
