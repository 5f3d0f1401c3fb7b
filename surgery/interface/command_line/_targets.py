"""The flag `--target`."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from surgery.engine.recipe.schema import Recipe


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--target`, which overrides the recipe."""
    parser.add_argument(
        "--target",
        metavar="TARGET",
        help="the runtime to optimize for: a name such as ort-cpu, or a profile (.yaml) "
        "(default: as the recipe specifies, else standard)",
    )


def aimed(recipe: Recipe, arguments: argparse.Namespace) -> Recipe:
    """Return the recipe with the target of the arguments, if given."""
    return recipe if arguments.target is None else replace(recipe, target=arguments.target)
