"""The runtime that a model is made for, as an argument."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from surgery.recipe.schema import Recipe


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--target`, which overrides what a recipe says."""
    parser.add_argument(
        "--target",
        metavar="TARGET",
        help="the runtime that the model is made for: a name such as ort-cpu, or a profile (.yaml) "
        "(default: as the recipe specifies, else standard)",
    )


def aimed(recipe: Recipe, arguments: argparse.Namespace) -> Recipe:
    """Return a recipe for the target of the arguments, if they name one."""
    return recipe if arguments.target is None else replace(recipe, target=arguments.target)
