"""Run a single pass over a model, verified like a recipe with one step.

Options of the pass may be written like those of the command: `--scale 1/255` is `--set scale=1/255`. The equivalent
recipe is printed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from surgery.base.errors import SurgeryError
from surgery.interface.command_line import (
    _excepted,
    _formats,
    _output,
    _parsing,
    _places,
    _plugins,
    _settings,
    _verification,
)
from surgery.interface.commands import apply

FORMATS = _formats.REPORTS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `run`."""
    parser.add_argument("name", metavar="PASS", help="a pass, or a task such as uint8-input; see 'surgery passes'")
    parser.add_argument("model", metavar="MODEL", type=_places.model, help="an .onnx file")
    _settings.add_argument(parser)
    add_run_arguments(parser)
    if isinstance(parser, _parsing.Parser):
        parser.rewrite = partial(_with_settings, parser)


def _with_settings(parser: _parsing.Parser, texts: list[str]) -> list[str]:
    """Turn unknown options that the pass has into settings."""
    from surgery.engine.registry.catalog import catalog

    try:
        meant = catalog.meant(next((text for text in texts if not text.startswith("-")), ""))
        declared = catalog.get(meant.name)
    except SurgeryError:
        return texts
    names = {option.name for option in declared.options} if declared is not None else set()
    rest, found = _settings.free_options(texts, parser.is_unknown, {*names, *meant.renamed}.__contains__)
    return [*rest, *(part for name, value in found for part in ("--set", f"{meant.renamed.get(name, name)}={value}"))]


def add_run_arguments(parser: argparse.ArgumentParser, sets: str = "--inputs") -> None:
    """Add the arguments for running a pass; `sets` is the name of the flag for input sets."""
    parser.add_argument("--save-recipe", metavar="FILE", help="write the equivalent recipe to FILE")
    apply.add_output_arguments(parser, sets)


def main(arguments: argparse.Namespace) -> int:
    """Run a pass."""
    _verification.start()
    from surgery.engine.registry.catalog import catalog

    _plugins.load(arguments)
    meant = catalog.meant(arguments.name)
    options = _settings.read(catalog.find(meant.name), arguments.settings)
    return execute(arguments, meant.name, {**meant.options, **options})


def execute(
    arguments: argparse.Namespace, name: str, options: dict[str, Any], shown: Mapping[str, str] | None = None
) -> int:
    """Run a pass with options in the format of a recipe.

    `shown` has the options that the equivalent recipe has instead: files of the user, not temporary ones.
    """
    from surgery.engine import recipe as recipes
    from surgery.engine.registry.catalog import catalog
    from surgery.model import storage

    saved = Path(arguments.save_recipe) if arguments.save_recipe is not None else None
    if saved is not None:
        storage.check_target(saved, force=arguments.force)
    folder = saved.parent if saved is not None else Path()
    files = {one.name for one in catalog.find(name).options if one.is_file}
    listed = {**options, **(shown or {})}
    written = {key: os.path.relpath(value, folder) if key in files else value for key, value in listed.items()}
    text = _recipe(arguments, name, written, folder)
    step = recipes.single_step(name, options)
    code = apply.execute(step, Path(arguments.model), arguments, {"yaml": text})
    if saved is not None:
        storage.write_texts({saved: text})
    if arguments.format == "text":
        said = f"wrote {saved}" if saved is not None else f"equivalent recipe:\n{text.rstrip()}"
        _output.messages().print(said, soft_wrap=True)
    return code


def _recipe(arguments: argparse.Namespace, name: str, options: dict[str, Any], folder: Path) -> str:
    """Return the recipe that is equivalent to the arguments, with paths relative to a folder."""
    from surgery.engine.recipe.writer import written

    def path(given: str) -> str:
        return os.path.relpath(given, folder)

    plugins = [f"./{path(name)}" if name.endswith(".py") else name for name in arguments.plugin]
    verify = {
        "custom_op_library": [path(library) for library in arguments.custom_op_library],
        "providers": arguments.provider,
        "unverified": arguments.unverified,
        "deployment": "off" if arguments.no_deployment else None,
    }
    accuracy = _accuracy(arguments, path)
    inputs = {"dims": _verification.dims(arguments), "data": _data_of(arguments, arguments.inputs, path)}
    return written(
        {
            "recipe": name,
            "plugins": plugins,
            "inputs": inputs,
            "verify": verify,
            **accuracy,
            "target": _target(arguments, path),
            "on_failure": arguments.on_failure,
            "steps": [_step(name, options, _excepted.read(arguments))],
        }
    )


def _step(name: str, options: dict[str, Any], excepted: list[Any]) -> Any:
    """Return the step, in the shortest form."""
    if excepted:
        return {"pass": name, **({"with": options} if options else {}), "except": excepted}
    return {name: options} if options else name


def _data_of(arguments: argparse.Namespace, given: list[str], path: Callable[[str], str]) -> list[Any]:
    return [one.written(lambda place: path(str(place))) for one in _verification.data_specs(arguments, given)]


def _target(arguments: argparse.Namespace, path: Callable[[str], str]) -> str | None:
    """Return the name of the target, or the path of its profile."""
    from surgery.model.targets.shipped import SUFFIXES

    given: str | None = arguments.target
    return path(given) if given is not None and given.endswith(SUFFIXES) else given


def _accuracy(arguments: argparse.Namespace, path: Callable[[str], str]) -> dict[str, Any]:
    """Return the keys of a recipe for the flags about accuracy."""
    from surgery.verification.accuracy.budget import by_output

    limits = by_output(_verification.accuracy_limits(arguments))
    metric = _verification.user_metric(arguments)
    scored = (
        None
        if metric is None
        else {
            "function": f"{path(str(metric.file))}:{metric.function}",
            "drop": arguments.drop or _verification.DROP,
            "better": "lower" if metric.lower else None,
        }
    )
    accuracy = {"budget": limits or None, "metric": scored, "data": _data_of(arguments, arguments.evaluation, path)}
    calibration = {"data": _data_of(arguments, arguments.calibration, path)}
    return {"accuracy": accuracy, "calibration": calibration}
