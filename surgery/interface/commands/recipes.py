"""List the recipes that have a name: those of surgery and of installed packages.

`surgery recipe show NAME` prints one with all its steps; `surgery apply NAME MODEL` applies it.
"""

from __future__ import annotations

import argparse

from surgery.interface.command_line import _output


def add_arguments(_: argparse.ArgumentParser) -> None:
    """Add no arguments."""


def main(arguments: argparse.Namespace) -> int:
    """List recipes."""
    from surgery.engine import recipe as recipes
    from surgery.engine.recipe import recipe_lookup

    found = [
        {"name": one.name, "target": one.target, "summary": one.about}
        for one in map(recipes.load, recipe_lookup.names())
    ]
    if arguments.format == "json":
        _output.write_json({"recipes": found})
    else:
        _output.write(_output.columns(("recipe", "target", "summary"), (tuple(one.values()) for one in found)))
    return 0
