"""Merge two models into one, verified against running the first and then the second.

A shorthand for 'surgery run merge' with flags for its options. If the models import different opsets, the one with the
lower opset is converted first, by the pass upgrade-opset, and the conversion is verified as well. Weights are not
loaded into memory.

By default, outputs of the first model go into inputs of the second that have the same names, or the only output into
the only input:

    surgery merge detector.onnx classifier.onnx --connect features=images -o both.onnx

With --parallel, the models stay next to each other, and inputs of the same name become one.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from surgery.base.errors import UsageError
from surgery.interface.command_line import _formats, _output, _places, _plugins, _verification
from surgery.interface.commands import apply, run

FORMATS = _formats.REPORTS
_PASS, _CONVERSION = "merge", "upgrade-opset"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `merge`."""
    parser.add_argument("model", metavar="FIRST", type=_places.model, help="an .onnx file")
    parser.add_argument("second", metavar="SECOND", type=_places.model, help="the .onnx file that comes after it")
    parser.add_argument(
        "--connect",
        metavar="TENSOR=INPUT",
        action="append",
        default=[],
        help="a tensor of the first model, and the input of the second that it goes to; may be repeated",
    )
    parser.add_argument("--parallel", action="store_true", help="keep all outputs of the first model")
    parser.add_argument("--prefix", metavar="TEXT", help="a prefix for all names of the second model, such as head/")
    parser.add_argument(
        "--keep",
        metavar="NAME[,NAME]",
        action="append",
        default=[],
        help="outputs of the first model to keep although they go into the second; may be repeated",
    )
    run.add_run_arguments(parser)


def main(arguments: argparse.Namespace) -> int:
    """Merge two models."""
    from surgery.model.wire.leftovers import ScratchFolder

    _verification.start()
    _plugins.load(arguments)
    options = _options(arguments)
    opsets = {name: _opset(getattr(arguments, name)) for name in ("model", "second")}
    wanted = max(opsets.values())
    older = next((name for name, opset in opsets.items() if 0 < opset < wanted), None)
    if older is None:
        return run.execute(arguments, _PASS, options)
    with ScratchFolder() as folder:
        given = Path(getattr(arguments, older))
        converted, command = _by_hand(given, wanted)
        if older == "second" and arguments.save_recipe is not None:
            raise UsageError("a recipe cannot convert the second model", todo=f"run '{command}', and merge its output")
        made = folder / given.name
        code = _convert(arguments, given, wanted, made)
        if code:
            return code
        _output.messages().print(
            f"{given.name} is converted from opset {opsets[older]} to {wanted} first, as by '{command}'", soft_wrap=True
        )
        if older == "model":
            arguments.model = str(made)
            return run.execute(arguments, _PASS, options)
        # A path, unlike a text, is part of the recipe by its name and its contents only: the folder is temporary.
        return run.execute(arguments, _PASS, {**options, "model": made}, {"model": str(converted)})


def _by_hand(given: Path, wanted: int) -> tuple[Path, str]:
    """Return the file and the command of the same conversion as a step of its own."""
    converted = given.with_name(f"{given.stem}.opset{wanted}.onnx")
    return converted, f"surgery run {_CONVERSION} {given} --set to={wanted} -o {converted}"


def _convert(arguments: argparse.Namespace, given: Path, wanted: int, made: Path) -> int:
    """Write a model in another opset, verified; return the exit code, after a report unless it is 0."""
    from surgery.engine.pipeline import runner
    from surgery.engine.recipe import single_step

    # The inputs and dims of the call are those of the result.
    own = argparse.Namespace(
        **{**vars(arguments), "dims": [], "inputs": [], "evaluation": [], "calibration": [], "image": []}
    )
    recipe = _verification.applied(single_step(_CONVERSION, {"to": wanted}), own, given)
    stated = not arguments.no_provenance
    result = runner.apply(
        given, recipe, output=made, options=runner.RunOptions(on_failure=arguments.on_failure, provenance=stated)
    )
    if result.exit_code:
        apply.report(result, recipe, None, arguments, {})
    return result.exit_code


def _opset(path: str) -> int:
    """Return the opset of the default domain that a model imports; 0 if it imports none."""
    from surgery.model import storage
    from surgery.model.storage.summary import opset

    return opset(storage.load(path).proto)


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Read the flags as options of the pass."""
    options: dict[str, Any] = {"model": arguments.second}
    connect: dict[str, list[str]] = {}
    for text in arguments.connect:
        tensor, equals, name = text.rpartition("=")
        if not (equals and tensor and name):
            raise UsageError(f"--connect {text}: this is not TENSOR=INPUT", todo="pass --connect y=features")
        connect.setdefault(tensor, []).append(name)
    keep = [part.strip() for text in arguments.keep for part in text.split(",")]
    if not all(keep):
        raise UsageError("--keep: a name is empty", todo="pass --keep NAME,NAME")
    options |= {"connect": {key: one[0] if len(one) == 1 else one for key, one in connect.items()}} if connect else {}
    options |= {"mode": "parallel"} if arguments.parallel else {}
    options |= {"prefix": arguments.prefix} if arguments.prefix else {}
    return {**options, "keep": keep} if keep else options
