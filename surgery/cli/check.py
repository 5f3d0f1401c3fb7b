"""Check that models are valid: onnx checker, strict shape inference, and loading in ONNX Runtime.

The exit code is 0 if all models are valid, 1 if one is not, 2 if a file cannot be read. To compare two models, use
`surgery verify`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery.cli import _formats, _output, _places, _verification
from surgery.errors import ModelFileError

if TYPE_CHECKING:
    from surgery.verification.inputs.spec import VerifySpec

FORMATS = _output.REPORTS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `check`."""
    parser.add_argument("models", metavar="MODEL", type=_places.model, nargs="+", help="an .onnx file")
    _verification.add_library_argument(parser)


_NOT_JSON = ("text", "validity")


def main(arguments: argparse.Namespace) -> int:
    """Check models one after another."""
    _verification.start()
    from surgery.verification.inputs.spec import VerifySpec

    spec = VerifySpec(custom_op_library=_verification.libraries(arguments), providers=tuple(arguments.provider))
    answers, code = [], 0
    for name in arguments.models:
        answer = _checked(name, spec)
        code = max(code, ModelFileError.exit_code if answer["problem"] else int(not answer["valid"]))
        answers.append(answer)
        if arguments.format == "text" and not (arguments.quiet and answer["valid"]):
            _output.write(f"{name}: {answer['problem'] or answer['text']}", wrap=False)
    if arguments.format == "json":
        _output.write_json(
            {"models": [{key: answer[key] for key in answer if key not in _NOT_JSON} for answer in answers]}
        )
    elif arguments.format not in _output.PLAIN:
        from surgery.report.outcomes import of_models

        found = [(answer["model"], answer["problem"] or answer["validity"]) for answer in answers]
        _formats.write(arguments, of_models(found, code))
    elif arguments.quiet:
        _output.write(f"{sum(answer['valid'] for answer in answers)} of {len(answers)} models are valid")
    return code


def _checked(name: str, spec: VerifySpec) -> dict[str, Any]:
    """Return the findings about one model, or the reason why it cannot be read."""
    from surgery import storage
    from surgery.verification.verdict.validity import validity

    try:
        found = validity(storage.load(Path(name)), spec)
    except ModelFileError as error:
        problem = str(error).removeprefix(f"{name}: ")
        return {
            "model": name,
            "valid": False,
            "findings": [],
            "runtime": None,
            "problem": problem,
            "text": "",
            "validity": None,
        }
    return {"model": name, **found.to_json(), "problem": None, "text": str(found), "validity": found}
