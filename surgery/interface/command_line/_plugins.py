"""The flags on code that is not shipped: `--plugin`, `--trust` and `--in-process`. A plugin given there is trusted."""

from __future__ import annotations

import argparse
import sys


def add_trust_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--trust`."""
    parser.add_argument("--trust", action="store_true", help="allow the recipe to run local code")


def add_in_process_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--in-process`."""
    parser.add_argument(
        "--in-process", action="store_true", help="run all passes in this process, for debugging; a crash ends the run"
    )


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--plugin`."""
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
