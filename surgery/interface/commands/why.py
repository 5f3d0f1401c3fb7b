"""Explain where a pass fires and why it does not fire elsewhere: sites, near misses, refusals.

A near miss is a place that matches most of a pattern; the report names the node that differs, the expected and the
actual value. With --recipe, the steps before the pass are run first. Nothing is verified or written.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from surgery.interface.command_line import _output, _places, _plugins, _settings, _targets

if TYPE_CHECKING:
    from surgery.engine.recipe import Recipe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `why`."""
    parser.add_argument("name", metavar="PASS", help="the name of a pass; see 'surgery passes'")
    parser.add_argument("model", metavar="MODEL", type=_places.model, help="an .onnx file")
    parser.add_argument("--at", metavar="NODE", help="explain a single node, given by its name or by an output")
    parser.add_argument(
        "--limit", metavar="N", type=_count, default=10, help="show at most N entries of each kind (default: 10)"
    )
    _settings.add_argument(parser)
    parser.add_argument(
        "--recipe",
        metavar="RECIPE",
        type=_places.recipe,
        help="first run the steps that precede the pass in this recipe",
    )
    parser.add_argument(
        "--remedies",
        action="store_true",
        help="find changes of the recipe that make the pass fire at more places: another order, opset, target, or "
        "sizes",
    )
    _plugins.add_trust_argument(parser)
    _plugins.add_argument(parser)
    _targets.add_argument(parser)


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive integer")
    return int(text)


def main(arguments: argparse.Namespace) -> int:
    """Explain a pass."""
    from surgery.engine.pipeline.run_until import run_until
    from surgery.engine.why import explain
    from surgery.model import storage

    _plugins.load(arguments)
    recipe = _recipe(arguments)
    stored = storage.load(arguments.model)
    reached = run_until(stored, recipe, arguments.name)
    given = _settings.read(reached.declared, arguments.settings)
    found = explain.explain(
        reached.declared,
        reached.proto,
        stored.weights,
        {**reached.step.options, **given},
        at=arguments.at,
        limit=arguments.limit,
        target=recipe.profile,
        excepted=reached.step.excepted,
        said=lambda printed: _output.messages().out(printed.rstrip("\n"), highlight=False),
    )
    tried = None
    if arguments.remedies:
        from surgery.features.bisection.remedies import remedies

        tried = remedies(stored, recipe, arguments.name, given)
    if arguments.format == "json":
        more = {"remedies": tried.to_json()} if tried is not None else {}
        _output.write_json({"model": arguments.model, **found.to_json(), **more})
        return 0
    from surgery.interface.report import why as report

    _output.write(report.why(found, arguments.limit))
    if tried is not None:
        _output.write(report.remedies(tried))
    return 0


def _recipe(arguments: argparse.Namespace) -> Recipe:
    """Return the given recipe, or a recipe with only the pass."""
    from surgery.engine import recipe as recipes
    from surgery.engine.recipe.schema import PassStep
    from surgery.engine.recipe.schema import Recipe as Loaded

    if arguments.recipe is None:
        found = Loaded(arguments.name, (PassStep(arguments.name),))
    else:
        found = recipes.load(arguments.recipe, trust=arguments.trust)
    return _targets.aimed(found, arguments)
