"""Find the optional steps of a recipe that make a model faster on this machine, and write a recipe with these steps.

Lossy steps, and those given by --optional, are optional. Each is tried within the accuracy budget and measured against
the best model so far; then groups of its sites are tried. Steps that are not measurably faster are left out. The
resulting recipe runs as a whole before it is written, and is not written if it makes the model slower.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from surgery.interface.command_line import _measuring, _output, _places, _plugins, _targets, _verification
from surgery.interface.commands import apply

if TYPE_CHECKING:
    from surgery.features.tuning.tune_recipe import Tuned
    from surgery.features.tuning.tuning import TuneSpec
    from surgery.verification.inputs.spec import VerifySpec


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `tune`."""
    apply.add_subject_arguments(parser)
    parser.add_argument(
        "--optional",
        metavar="PASS",
        action="append",
        default=[],
        help="also treat the steps of this pass as optional; may be repeated",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=_places.recipe_output,
        help="write the recipe to FILE (default: the model's name with .tuned.yaml)",
    )
    parser.add_argument(
        "--model-output", metavar="FILE", type=_places.model_file, help="write the resulting model to FILE"
    )
    parser.add_argument("--force", action="store_true", help="overwrite existing files")
    _targets.add_argument(parser)
    _plugins.add_trust_argument(parser)
    _plugins.add_argument(parser)
    _plugins.add_in_process_argument(parser)
    _add_measuring_arguments(parser)
    _verification.add_arguments(parser)
    _verification.add_accuracy_arguments(parser)


def _add_measuring_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("measuring")
    _measuring.add_arguments(group, "each decision")
    group.add_argument(
        "--seconds",
        metavar="S",
        type=_measuring.positive,
        default=15.0,
        help="time limit of one measurement, which ends early when it is decided (default: 15)",
    )
    group.add_argument(
        "--measurements", metavar="N", type=_measuring.count, default=20, help="measure at most N times (default: 20)"
    )
    group.add_argument(
        "--gain",
        metavar="R",
        type=_measuring.positive,
        default=1.0,
        help="keep a step only if it makes the model more than R times as fast (default: 1)",
    )
    group.add_argument(
        "--groups",
        metavar="N",
        type=_measuring.natural,
        default=8,
        help="divide the sites of a step into at most N groups, if weight shapes allow it; 0 tries steps as a "
        "whole (default: 8)",
    )


def main(arguments: argparse.Namespace) -> int:
    """Tune a recipe."""
    from surgery.features.tuning.tune_recipe import tune
    from surgery.interface.report import tune as report
    from surgery.interface.report.progress import Progress
    from surgery.model import storage

    _verification.start()
    recipe, model = apply.recipe_and_model(arguments, "tune")
    target = Path(arguments.output or f"{model.stem}.tuned.yaml")
    for path in (target, arguments.model_output):
        if path is not None:
            storage.check_target(path, force=arguments.force)
    plugins = tuple(dict.fromkeys([*recipe.plugins, *arguments.plugin]))
    recipe = replace(_verification.applied(recipe, arguments, model), plugins=plugins)
    with Progress(_output.messages(), interactive=_output.is_interactive(), verbose=arguments.verbose > 0) as observer:
        found = tune(
            *(storage.load(model), recipe, arguments.optional, _spec(arguments, recipe.verify), observer),
            contained=not arguments.in_process,
        )
    written = _write(found, target, arguments)
    if arguments.format == "json":
        _output.write_json({"model": str(model), **found.to_json(), "written": [str(path) for path in written]})
    else:
        _output.write(report.tuned(found))
        if written:
            _output.messages().print(f"wrote {' and '.join(map(str, written))}", soft_wrap=True)
    return 1 if found.complaint else 0


def _spec(arguments: argparse.Namespace, verify: VerifySpec) -> TuneSpec:
    """Return the settings of the measurement."""
    from surgery import BenchSpec
    from surgery.features.tuning.tuning import TuneSpec

    measuring = BenchSpec(
        threads=arguments.threads,
        level=arguments.level,
        seconds=arguments.seconds,
        seed=arguments.seed,
        timeout=verify.timeout,
        memory=verify.memory,
        custom_op_library=verify.custom_op_library,
        providers=verify.providers,
    )
    return TuneSpec(measuring, arguments.measurements, arguments.gain, arguments.groups)


def _write(found: Tuned, target: Path, arguments: argparse.Namespace) -> list[Path]:
    """Write the recipe and, if requested, the model; return the files."""
    from surgery.model import storage

    if found.complaint or found.result is None:
        return []
    storage.write_texts({target: found.text})
    if arguments.model_output is None:
        return [target]
    found.result.save(arguments.model_output, force=arguments.force)
    return [target, Path(arguments.model_output)]
