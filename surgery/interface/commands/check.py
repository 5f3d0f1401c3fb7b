"""Check that models are valid: onnx checker, strict shape inference, and a run in ONNX Runtime.

Each model runs once, on inputs that are legal for it. The exit code is 0 if all models are valid, 1 if one is not, or
fails on every input that was tried, 2 if a file cannot be read. To compare two models, use `surgery verify`. With
--fix, what can be repaired is repaired, such as the order of nodes and declared shapes: by the recipe `tidy` and the
pass `redeclare-shapes`, whose run decides the exit code.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.base.errors import ModelFileError, UsageError
from surgery.interface.command_line import _formats, _output, _parsing, _places, _verification

if TYPE_CHECKING:
    from surgery.verification.inputs.spec import InputsSpec, VerifySpec

FORMATS = _formats.REPORTS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `check`."""
    parser.add_argument("models", metavar="MODEL", type=_places.model, nargs="+", help="an .onnx file")
    parser.add_argument(
        "--inputs",
        metavar="PATH",
        type=_places.data,
        action="append",
        default=[],
        help="run on these inputs first: a .npz file, a folder with input_0.pb, or a folder of either; may be repeated",
    )
    parser.add_argument(
        "--dims",
        metavar="NAME=N[,N]",
        action="append",
        default=[],
        help="use these sizes of a dynamic dim; may be repeated",
    )
    parser.add_argument("--no-run", action="store_true", help="only load the models in ONNX Runtime")
    fix = parser.add_argument_group("repair")
    fix.add_argument("--fix", action="store_true", help="repair the model, and write the result to -o")
    fix.add_argument("-o", "--output", metavar="FILE", type=_places.output, help="the file that --fix writes")
    fix.add_argument("--force", action="store_true", help="overwrite an existing file")
    _verification.add_library_argument(parser)


def _fix(arguments: argparse.Namespace) -> int:
    """Run the repairs over the model, as `surgery apply` does; return its exit code."""
    from surgery.engine import recipe as recipes
    from surgery.interface.commands import apply

    if arguments.output is None or len(arguments.models) != 1:
        raise UsageError("--fix writes one model", todo="pass one MODEL, and -o FILE")
    parser = _parsing.Parser()
    apply.add_arguments(parser)
    flags = (("--dims", arguments.dims), ("--inputs", arguments.inputs), ("--provider", arguments.provider))
    more = [f"{flag}={text}" for flag, texts in flags for text in texts]
    more += [f"--custom-op-library={text}" for text in arguments.custom_op_library]
    given = parser.parse_args(["tidy", *arguments.models, *more])
    settings = argparse.Namespace(**{**vars(given), **vars(arguments), "model": arguments.models[0]})
    return apply.execute(recipes.parse(_REPAIRS), Path(arguments.models[0]), settings, {"yaml": _REPAIRS})


_REPAIRS = "recipe: repair\nsteps:\n  - use: tidy\n  - redeclare-shapes\n"
_NOT_JSON = ("text", "validity")


def main(arguments: argparse.Namespace) -> int:
    """Check models one after another, or repair one."""
    if arguments.fix:
        return _fix(arguments)
    if arguments.output is not None:
        raise UsageError("-o is for --fix; without it, no file is written", todo="pass --fix, too")
    _verification.start()
    from surgery.base.frozen_dict import FrozenDict
    from surgery.verification.inputs.spec import DataSpec, InputsSpec, VerifySpec

    inputs = None
    if not arguments.no_run:
        data = tuple(DataSpec.of(path) for path in arguments.inputs)
        inputs = InputsSpec(dims=FrozenDict(_verification.dims(arguments)), data=data)
    spec = VerifySpec(custom_op_library=_verification.libraries(arguments), providers=tuple(arguments.provider))
    answers, code = [], 0
    for name in arguments.models:
        answer = _checked(name, inputs, spec)
        code = max(code, ModelFileError.exit_code if answer["problem"] else int(not answer["valid"]))
        answers.append(answer)
        if arguments.format == "text" and not (arguments.quiet and answer["valid"]):
            _output.write(f"{name}: {answer['problem'] or answer['text']}", wrap=False)
    if arguments.format == "json":
        _output.write_json(
            {"models": [{key: answer[key] for key in answer if key not in _NOT_JSON} for answer in answers]}
        )
    elif arguments.format not in _output.PLAIN:
        from surgery.interface.report.outcomes import of_models

        found = [(answer["model"], answer["problem"] or answer["validity"]) for answer in answers]
        _formats.write(arguments, of_models(found, code))
    elif arguments.quiet:
        _output.write(f"{sum(answer['valid'] for answer in answers)} of {len(answers)} models are valid")
    return code


def _checked(name: str, inputs: InputsSpec | None, spec: VerifySpec) -> dict[str, Any]:
    """Return the findings about one model, or the reason why it cannot be read."""
    from surgery.model import storage
    from surgery.verification.verdict.validity import validity, validity_of_run

    try:
        stored = storage.load(Path(name))
        found = validity(stored, spec) if inputs is None else validity_of_run(stored, inputs, spec)
    except ModelFileError as error:
        problem = str(error).removeprefix(f"{name}: ")
        return {
            "model": name,
            "valid": False,
            "findings": [],
            "runtime": None,
            "failure": None,
            "overridable": 0,
            "repaired": None,
            "problem": problem,
            "text": "",
            "validity": None,
        }
    return {"model": name, **found.to_json(), "problem": None, "text": str(found), "validity": found}
