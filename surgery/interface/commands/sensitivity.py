"""Measure what each site of a lossy step costs in accuracy: a table and a plot, the most sensitive site first.

Each site is converted separately, and the outputs are compared with those of the model before the step. Earlier steps
of the recipe run without verification. Nothing is written.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from surgery.interface.command_line import _output, _places, _plugins, _report_file, _settings, _targets, _verification


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `sensitivity`."""
    parser.add_argument("model", metavar="MODEL", type=_places.model, help="an .onnx file")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--recipe", metavar="RECIPE", type=_places.recipe, help="measure the first lossy step of a recipe"
    )
    what.add_argument("--pass", dest="name", metavar="PASS", help="measure this pass on the model itself")
    parser.add_argument("--step", metavar="PASS", help="measure this step of the recipe instead of the first lossy one")
    parser.add_argument("--limit", metavar="N", type=int, default=20, help="show at most N sites (default: 20)")
    _settings.add_argument(parser)
    _report_file.add_page_argument(parser)
    _plugins.add_trust_argument(parser)
    _plugins.add_argument(parser)
    _targets.add_argument(parser)
    _verification.add_arguments(parser)
    _verification.add_accuracy_arguments(parser)


def main(arguments: argparse.Namespace) -> int:
    """Measure the sites of a step."""

    from surgery.engine import recipe as recipes
    from surgery.engine.registry.catalog import catalog
    from surgery.features.tuning.sensitivity_study import study
    from surgery.interface.report import sensitivity
    from surgery.interface.report.progress import Progress
    from surgery.model import storage

    _verification.start()
    _plugins.load(arguments)
    if arguments.recipe is not None:
        recipe = recipes.load(arguments.recipe, trust=arguments.trust)
    else:
        options = _settings.read(catalog.find(arguments.name), arguments.settings)
        recipe = recipes.single_step(arguments.name, options)
    _report_file.check_page(arguments)
    model = Path(arguments.model)
    recipe = _verification.applied(recipe, arguments, model)
    with Progress(_output.messages(), interactive=_output.is_interactive()) as observer:
        found = study(storage.load(model), recipe, arguments.step, observer)
    if arguments.format == "json":
        _output.write_json({"model": arguments.model, **found.to_json()})
    else:
        _output.write(sensitivity.study(found, arguments.limit))
    if arguments.html is not None:
        from surgery.interface.pages import measurement_pages

        _report_file.write_page(arguments, measurement_pages.sensitivity({"model": arguments.model, **found.to_json()}))
    return 0
