"""The flag `--plugin`. A plugin given there is trusted."""

from __future__ import annotations

import argparse
import sys


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add the flag."""
    parser.add_argument(
        "--plugin",
        metavar="MODULE",
        action="append",
        default=[],
        help="load passes from a module or a .py file; may be repeated",
    )


def load(arguments: argparse.Namespace) -> None:
    """Import the given plugins, and set whether those of a recipe are imported in a separate process."""
    in_process = getattr(arguments, "in_process", False)
    if in_process or "surgery.engine.registry.discovery" in sys.modules:
        from surgery.engine.registry import discovery

        discovery.contained.set(not in_process)
    for plugin in arguments.plugin:
        from surgery.engine.registry.catalog import catalog

        catalog.load_plugin(plugin)
