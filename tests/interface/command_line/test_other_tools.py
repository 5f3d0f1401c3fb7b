"""Commands and options of other tools are answered in one line, with a command that exists and runs."""

import argparse
import re
import shlex
import subprocess
import sys

import pytest
from support.breadth import sampled

from surgery.engine.recipe import recipe_lookup
from surgery.engine.registry.catalog import catalog
from surgery.interface import commands as cli
from surgery.interface.command_line import _other_tools

ONLY_THERE = {
    "onnxsim": {
        *("--ort-profile", "--merge-ort-profile", "--node-reduction-plot", "--ternary-quantize", "--fp8-quantize"),
        *("--fp8-format", "--skip-schema-import", "--enable-fuse-bn", "--initializers-as-non-constants"),
    },
    "onnxslim": set[str](),
    "onnxoptimizer": set[str](),
}
"""Options without an answer, besides those of converters to other formats."""


def said(capsys: pytest.CaptureFixture[str], typed: str) -> str:
    with pytest.raises(SystemExit) as ended:
        cli.main(shlex.split(typed))
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (2, "", 1), err
    return err.removesuffix("\n")


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (
            "simplify m.onnx out.onnx 3",
            "surgery apply: unexpected argument '3'; every step is verified on many inputs; to write the result, "
            "pass -o FILE",
        ),
        (
            "simplify m.onnx --no-large-tensor 1M",
            "surgery apply: unknown option --no-large-tensor; run 'surgery run fold-constants m.onnx --set "
            "max_growth=64KiB', or set this option in a recipe",
        ),
        (
            "apply m.onnx --inputs x:fp16",
            "surgery apply: argument --inputs: invalid value: 'x:fp16'; to change the type of an input, run "
            "'surgery run set-dtype m.onnx --set inputs={x:float16}'",
        ),
        (
            "extract m.onnx --inputs x:0:auto:auto",
            "surgery extract: argument --inputs: invalid value: 'x:0:auto:auto'; names are enough, types and shapes "
            "are inferred: --inputs x:0",
        ),
        (
            "extract m.onnx --outputs y:[1,3]:float32",
            "surgery extract: argument --outputs: invalid value: 'y:[1,3]:float32'; names are enough, types and "
            "shapes are inferred: --outputs y",
        ),
        ("inspect model m.onnx", "surgery inspect: unexpected argument 'm.onnx'; leave out 'model'"),
        (
            "surgeon extract m.onnx",
            "surgery: no command 'surgeon'; did you mean 'surgery extract', 'surgery insert' or 'surgery apply'?",
        ),
        (
            "extract -if m.onnx -ion a -oon b -of o.onnx",
            "surgery extract: unknown option -if; the model is given without a flag, and the result by -o FILE",
        ),
        ("apply tidy m.onnx -of o.onnx", "surgery apply: unknown option -of; to write the result, pass -o FILE"),
        (
            "rename m.onnx --mode inputs",
            "surgery rename: unknown option --mode; to rename only inputs or outputs, pass --kind inputs or --kind "
            "outputs",
        ),
        (
            "optimize --model_name_or_path m.onnx --precision int4",
            "surgery apply: unknown option --model_name_or_path; the model is given without a flag, and the result "
            "by -o FILE",
        ),
        (
            "quantize m.onnx",
            "surgery: no command 'quantize'; did you mean 'surgery apply int8', 'surgery apply int8-dynamic' or "
            "'surgery apply int4'?",
        ),
        (
            "apply ort m.onnx --disable_gelu",
            "surgery apply: unknown option --disable_gelu; 'surgery recipe show ort' prints all steps; delete those "
            "to skip, and apply the rest",
        ),
        (
            "apply --input m.onnx --output o.onnx",
            "surgery apply: argument --inputs: invalid value: 'm.onnx'; a model is not an input set; the model is "
            "given without a flag, and the result by -o FILE",
        ),
    ],
)
def test_what_people_type_elsewhere_is_answered(typed: str, answer: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, typed) == answer


@pytest.mark.parametrize("typed", ["extract m.onnx --inputs x:0 --outputs y:1", "apply m.onnx --inputs C:/x.npz"])
def test_values_that_only_resemble_those_of_other_tools_are_taken(typed: str) -> None:
    assert typed.split()[3] in str(vars(cli.parser().parse_args(typed.split())))


def options(tool: str) -> set[str]:
    ran = subprocess.run([sys.executable, "-m", tool, "--help"], capture_output=True, text=True, check=True, timeout=60)
    listed = re.findall(r"^  (?:-\w[^\n-]*, )?(--[a-z][\w-]+)", ran.stdout, flags=re.MULTILINE)
    return set(listed) - {"--help", "--version"}


@pytest.mark.parametrize("tool", sampled(ONLY_THERE, 3))
def test_every_option_of_a_tool_is_ours_or_answered(tool: str) -> None:
    pytest.importorskip(tool)
    [apply] = (found for found in commands() if found.prog == "surgery apply")
    unanswered = {
        name
        for name in options(tool)
        if name not in apply._option_string_actions and _other_tools.option_instead("apply", name, "m.onnx") is None
    }
    converters = re.compile(r"--(emit|mlir|onnx-mlir|coreml|tflite)\b.*|--calibration-samples|.*-quantize-.*")
    assert {name for name in unanswered if not converters.fullmatch(name)} == ONLY_THERE[tool]


def commands() -> list[argparse.ArgumentParser]:
    [action] = (one for one in cli.parser()._actions if isinstance(one, argparse._SubParsersAction))
    return list(action.choices.values())


ANSWERS = {
    **_other_tools._OPTIONS,
    **{f"word {word}": f"'surgery {command}'" for word, command in _other_tools.COMMANDS.items()},
    "value": _other_tools._TO_TYPE,
}


@pytest.mark.parametrize("option", sampled(ANSWERS, 12))
def test_answers_name_commands_flags_passes_and_recipes_that_exist(option: str) -> None:
    known = {command.prog.split()[1]: command for command in commands()}
    flags = {flag for command in known.values() for flag in command._option_string_actions}
    for flag in re.findall(r"(?<![\w-])--?[a-z][\w-]*", ANSWERS[option]):
        assert flag in flags, flag
    for line in re.findall(r"'surgery ([^']+)'", ANSWERS[option]):
        name, *words = line.split()
        assert name in known, line
        for word in words:
            assert not word.startswith("-") or word in known[name]._option_string_actions, line
        if name == "run" and words[:1] not in ([], ["PASS"]):
            assert catalog.get(words[0]) is not None, line
        if name == "apply" and words and words[0].islower():
            assert words[0] in recipe_lookup.names(), line
