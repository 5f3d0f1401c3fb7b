"""Measure how fast models run against each other in ONNX Runtime, on the CPU or another device.

The first model is the baseline. All models run alternately on the same inputs in one process; the speed of a model is
the time of the baseline divided by its own, with a confidence interval. Rounds are added until the intervals are narrow
enough or the time is used up. A run on a device (--provider) ends when its outputs are in the memory of the CPU. Memory
is measured in a separate process for each model. Outputs are not compared; use 'surgery verify' for that.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from surgery.interface.command_line import _measuring, _output, _places, _plugins, _report_file, _verification


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bench`."""
    parser.add_argument("model", metavar="MODEL", type=_places.model, help="the baseline, an .onnx file")
    parser.add_argument(
        "others", metavar="MODEL", type=_places.model, nargs="*", help="the .onnx files to measure against it"
    )
    _add_input_arguments(parser)
    _measuring.add_arguments(parser, "the intervals")
    parser.add_argument(
        "--optimization",
        choices=["all", "extended", "basic", "off"],
        default="all",
        help="graph optimization level of ONNX Runtime (default: all)",
    )
    parser.add_argument(
        "--clock",
        choices=["processor", "wall"],
        help="measure CPU time, which other processes affect less, or wall-clock time (default: processor with "
        "one thread on the CPU, wall with several or with a --provider)",
    )
    budget = parser.add_mutually_exclusive_group()
    budget.add_argument(
        "--seconds", metavar="S", type=_measuring.positive, default=15.0, help="time for the measurement (default: 15)"
    )
    budget.add_argument(
        "--repeats", metavar="N", type=_measuring.count, help="measure N rounds, however long they take"
    )
    parser.add_argument(
        "--width",
        metavar="R",
        type=_measuring.share,
        default=0.01,
        help="stop when an interval is the speed +- R times the speed (default: 0.01)",
    )
    parser.add_argument(
        "--warmup", metavar="N", type=_measuring.count, default=3, help="untimed runs of a session (default: 3)"
    )
    parser.add_argument(
        "--expect",
        metavar="R",
        type=_measuring.positive,
        help="exit with 1 unless the low end of each interval is at least R times the speed of the baseline",
    )
    _report_file.add_page_argument(parser)
    parser.add_argument("--profile", action="store_true", help="show the time of each operator")


def _add_input_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--inputs",
        metavar="PATH",
        action="append",
        default=[],
        help="run on these inputs: a .npz file, a folder with input_0.pb, a folder of either, or a folder of images; "
        "may be repeated (default: one set that the baseline accepts)",
    )
    _verification.add_image_argument(parser)
    parser.add_argument(
        "--dims",
        metavar="NAME=N",
        action="append",
        default=[],
        help="sizes of dynamic dims: batch=1,sequence=128; may be repeated",
    )
    parser.add_argument("--recipe", metavar="RECIPE", type=_places.recipe, help="use the section 'inputs' of a recipe")
    _plugins.add_trust_argument(parser)
    _verification.add_library_argument(parser)


def main(arguments: argparse.Namespace) -> int:
    """Measure models."""
    _verification.start()
    _report_file.check_page(arguments)
    from surgery import BenchSpec, InputsSpec, VerifySpec, bench

    inputs, libraries = InputsSpec(), _verification.libraries(arguments)
    providers = tuple(arguments.provider)
    if arguments.recipe is not None:
        from surgery.engine import recipe as recipes

        recipe = recipes.load(arguments.recipe, trust=arguments.trust)
        inputs, libraries = recipe.inputs, libraries + recipe.verify.custom_op_library
        providers = providers or recipe.verify.providers
    # One size each, because two sizes would need two measurements.
    _verification.sizes(arguments)
    arguments.unverified, arguments.no_deployment = None, True
    inputs, _ = _verification.combined(arguments, Path(arguments.model), inputs, VerifySpec())
    spec = BenchSpec(
        threads=arguments.threads,
        clock=arguments.clock,
        optimization=arguments.optimization,
        level=arguments.level,
        width=arguments.width,
        seconds=arguments.seconds,
        repeats=arguments.repeats,
        warmup=arguments.warmup,
        seed=arguments.seed,
        custom_op_library=libraries,
        providers=providers,
    )
    models = [arguments.model, *arguments.others]
    found = bench(*models, inputs=inputs, spec=spec, decide=arguments.expect, profile=arguments.profile)
    missed = found.slower_than(arguments.expect) if arguments.expect is not None else ()
    if arguments.format == "json":
        _output.write_json({"ok": not missed, **found.to_json()})
    else:
        from surgery.interface.report import speed

        _output.write(speed.comparison(found))
        for one in missed:
            _output.say(
                f"{one.name} is not shown to reach {arguments.expect:g} times the speed of {found.baseline.name}"
            )
    if arguments.html is not None:
        from surgery.interface.pages import measurement_pages

        _report_file.write_page(arguments, measurement_pages.bench(found.to_json()))
    return 1 if missed else 0
