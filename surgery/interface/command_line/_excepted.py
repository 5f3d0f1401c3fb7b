"""The flag `--except`: nodes that all steps of a run leave alone."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from surgery.base.errors import UsageError

if TYPE_CHECKING:
    from surgery.engine.recipe.schema import Recipe


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--except`."""
    parser.add_argument(
        "--except",
        metavar="NODES",
        action="append",
        default=[],
        dest="excepted",
        help="leave nodes alone, in every step: a name, a glob such as 'head/*', or a selector of recipes such as "
        "'{op: Softmax}'; may be repeated",
    )


def read(arguments: argparse.Namespace) -> list[Any]:
    """Return the selectors, in the form of recipes; raise UsageError for a wrong one."""
    return [_selector(text) for text in arguments.excepted]


def excepting(recipe: Recipe, arguments: argparse.Namespace) -> Recipe:
    """Return the recipe, all steps of which also leave these nodes alone."""
    from surgery.engine.recipe.schema import excepting

    return replace(recipe, steps=excepting(recipe.steps, tuple(read(arguments))))


def _selector(text: str) -> Any:
    from surgery.engine.recipe.step_forms import selectors
    from surgery.engine.yaml.yaml_nodes import Scalar, YamlNode
    from surgery.engine.yaml.yaml_tree import compose

    node: YamlNode = Scalar(1, 1, text, text)
    if text.startswith("{"):
        document = compose(text)
        if document.mistakes or document.root is None:
            raise UsageError(f"--except {text}: {document.mistakes[0][2] if document.mistakes else 'is empty'}")
        node = document.root
    try:
        (found,) = selectors(node)
    except ValueError as error:
        what = str(error).removeprefix("'except': ")
        raise UsageError(f"--except {text}: {what}") from None
    return found
