"""Run one pass over a model, verified like a recipe of one step."""

from __future__ import annotations

import argparse
from pathlib import Path

from surgery.cli import _verification, apply
from surgery.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `run` takes."""
    parser.add_argument("name", metavar="PASS", help="a pass; 'surgery passes' lists them")
    parser.add_argument("model", metavar="MODEL", help="an .onnx file")
    parser.add_argument(
        "--set", metavar="OPTION=VALUE", action="append", default=[], dest="settings", help="set an option of the pass"
    )
    apply.add_output_arguments(parser)


def main(arguments: argparse.Namespace) -> int:
    """Run a pass."""
    _verification.start()
    from surgery import recipe as recipes
    from surgery import registry

    for plugin in arguments.plugin:
        registry.load_plugin(plugin)
    declared = registry.find(arguments.name)
    options = dict(_setting(text) for text in arguments.settings)
    declared.bind(options)
    return apply.execute(recipes.single_step(arguments.name, options), Path(arguments.model), arguments)


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"'{text}' is not of the form OPTION=VALUE")
    return name.strip().replace("-", "_"), value
