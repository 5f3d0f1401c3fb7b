"""Explain where a pass fires and why it does not fire elsewhere: sites, near misses, refusals.

A near miss is a place that matches most of a pattern; the report names the node that differs, the expected and the
actual value. With --recipe, the steps before the pass are run first. Nothing is verified or written.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from surgery.cli import _output, _plugins, _settings

if TYPE_CHECKING:
    import onnx

    from surgery.registry.passes import Pass
    from surgery.storage import StoredModel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `why`."""
    parser.add_argument("name", metavar="PASS", help="the name of a pass; see 'surgery passes'")
    parser.add_argument("model", metavar="MODEL", help="an .onnx file")
    parser.add_argument("--at", metavar="NODE", help="explain a single node, given by its name or by an output")
    parser.add_argument(
        "--limit", metavar="N", type=_count, default=10, help="show at most N entries of each kind (default: 10)"
    )
    _settings.add_argument(parser)
    parser.add_argument("--recipe", metavar="RECIPE", help="first run the steps that precede the pass in this recipe")
    parser.add_argument("--trust", action="store_true", help="allow the recipe to run local code")
    _plugins.add_argument(parser)


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive integer")
    return int(text)


def main(arguments: argparse.Namespace) -> int:
    """Explain a pass."""
    from surgery.why import explain

    _plugins.load(arguments)
    declared, options, stored, proto = _subject(arguments)
    given = _settings.read(declared, arguments.settings)
    found = explain.explain(
        declared, proto, stored.weights, {**options, **given}, at=arguments.at, limit=arguments.limit
    )
    if arguments.format == "json":
        _output.write_json({"model": arguments.model, **found.to_json()})
        return 0
    from surgery.report.why import why as shown

    _output.write(shown(found, arguments.limit))
    return 0


def _subject(arguments: argparse.Namespace) -> tuple[Pass, dict[str, Any], StoredModel, onnx.ModelProto]:
    """Return the pass, its options in the recipe, and the model before that step."""
    from surgery import storage
    from surgery.registry.catalog import catalog

    if arguments.recipe is None:
        declared = catalog.find(arguments.name)
        stored = storage.load(arguments.model)
        return declared, {}, stored, stored.proto
    from surgery import recipe as recipes
    from surgery.engine.run_until import run_until

    recipe = recipes.load(arguments.recipe, trust=arguments.trust)
    stored = storage.load(arguments.model)
    reached = run_until(stored, recipe, arguments.name)
    return reached.declared, dict(reached.step.options), stored, reached.proto
