"""Mistakes of the command line: one line with what was probably meant, and the exit code 2."""

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import ROOT
from support.breadth import sampled

from surgery.base.errors import closest
from surgery.interface import commands as cli


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    yield from () if nested else (parser,)
    for action in nested:
        for command in action.choices.values():
            yield from commands(command)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    try:
        code = cli.main(list(arguments))
    except SystemExit as ended:
        code = int(ended.code or 0)
    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1), err
    return err.removesuffix("\n")


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("aply tidy", "surgery: no command 'aply'; did you mean 'surgery apply'?"),
        ("Inspect m.onnx", "surgery: no command 'Inspect'; did you mean 'surgery inspect'?"),
        ("slim m.onnx", "surgery: no command 'slim'; did you mean 'surgery apply'?"),
        ("histogram m.onnx", "surgery: no command 'histogram'; did you mean 'surgery inspect'?"),
        (
            "list",
            "surgery: no command 'list'; did you mean 'surgery passes', 'surgery recipes' or 'surgery targets'?",
        ),
        (
            "apply m.onnx --no-verify",
            "surgery apply: unknown option --no-verify; every step is verified; to keep a result that cannot be "
            "compared, pass --unverified accept",
        ),
        (
            "optimize m.onnx --overwrite-input-shape x:1,3",
            "surgery apply: unknown option --overwrite-input-shape; to fix the shape, run 'surgery set-dims m.onnx "
            "NAME=1,3,224,224'; to choose sizes for runs, pass --dims NAME=N",
        ),
        (
            "verify a.onnx b.onnx --batch_size=2",
            "surgery verify: unknown option --batch_size; to fix the batch, run 'surgery set-dims a.onnx "
            "--batch-size N'; to choose sizes for runs, pass --dims NAME=N",
        ),
        (
            "apply tidy m.onnx --opset=17",
            "surgery apply: unknown option --opset; run 'surgery upgrade m.onnx OPSET' or 'surgery downgrade m.onnx "
            "OPSET'",
        ),
        ("inspect m.onnx --json", "surgery inspect: unknown option --json; for the report as JSON, pass --format json"),
        (
            "optimize m.onnx --skip_fusion_patterns x",
            "surgery apply: unknown option --skip_fusion_patterns; 'surgery recipe show default' prints all steps; "
            "delete those to skip, and apply the rest",
        ),
        ("inspect m.onnx --dry-run", "surgery inspect: unknown option --dry-run; no model is written without -o"),
        (
            "optimize bert-tiny.onnx out.onnx",
            "surgery: out.onnx: no such file; to write the result there, pass it by -o: -o out.onnx",
        ),
        ("m.onnx", "surgery: no command 'm.onnx'; did you mean 'surgery inspect m.onnx'?"),
        ("int8 m.onnx", "surgery: no command 'int8'; did you mean 'surgery apply int8'?"),
        ("fuse-gelu m.onnx", "surgery: no command 'fuse-gelu'; did you mean 'surgery run fuse-gelu'?"),
        ("zzz", "surgery: no command 'zzz'; see 'surgery --help'"),
        ("verify a.onnx", "surgery verify: B is missing; see 'surgery verify --help'"),
        ("recipe chek r.yaml", "surgery recipe: no action 'chek'; did you mean 'surgery recipe check'?"),
        ("diff a b --verfy", "surgery diff: unknown option --verfy; did you mean --verify?"),
        ("apply tidy m.onnx --ouput=o", "surgery apply: unknown option --ouput; did you mean --output?"),
        ("apply a -q b c", "surgery apply: unexpected argument 'c'; see 'surgery apply --help'"),
        ("apply a b c", "surgery apply: unexpected argument 'c'; see 'surgery apply --help'"),
        ("check m --format jsno", "surgery check: argument --format: invalid choice: 'jsno'; did you mean 'json'?"),
        (
            "apply a b --layout X",
            "surgery apply: argument --layout: invalid choice: 'X'; choose from keep, single, external",
        ),
        ("--strict apply", "surgery apply: RECIPE is missing; see 'surgery apply --help'"),
        (
            "--quiet check m.onnx",
            "surgery: unknown option --quiet; options of a command come after it: surgery COMMAND --quiet",
        ),
        ("run fuse-gelo m.onnx", "surgery: no pass 'fuse-gelo'; did you mean 'fuse-gelu'?"),
        ("apply tdy m.onnx", "surgery: no recipe 'tdy'; did you mean 'tidy'?"),
        ("run fuse-gelu bert-tiny.onxx", "surgery: bert-tiny.onxx: no such file; did you mean 'bert-tiny.onnx'?"),
        ("inspect sub/Bert.onnx", "surgery: sub/Bert.onnx: no such file; did you mean 'sub/bert-tiny.onnx'?"),
        ("inspect elsewhere/m.onnx", "surgery: elsewhere/m.onnx: no such file; check the path"),
    ],
)
def test_suggestions_for_mistyped_commands(
    typed: str, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    for folder in (".", "sub"):
        shutil.copy(ROOT / "models" / "bert-tiny.onnx", folder)
    err = said(capsys, *typed.split())
    assert err == answer


@pytest.mark.parametrize("command", sampled([one.prog for one in commands(cli.parser())], 10))
def test_every_option_with_a_letter_missing_is_suggested(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = next(one for one in commands(cli.parser()) if one.prog == command)
    positional = [action for action in found._actions if not action.option_strings]
    choices = [action.choices for action in positional]
    values = [next(iter(choice)) if choice else "x" for choice in choices]
    options = [name for name in found._option_string_actions if name.startswith("--") and len(name) > 5]
    for option in options:
        wrong = f"{option[:3]}{option[4:]}"
        # What still begins another option stands for that.
        if any(other.startswith(wrong) for other in found._option_string_actions):
            continue
        assert f"unknown option {wrong}; did you mean {closest(wrong, found._option_string_actions)}?" in said(
            capsys, *command.split()[1:], *values, wrong
        )


@pytest.mark.parametrize(
    "typed",
    [
        "apply -o out.onnx tidy m.onnx",
        "apply tidy -o out.onnx m.onnx",
        "apply tidy -q m.onnx -o out.onnx",
        "apply tidy -o out.onnx -- m.onnx",
    ],
)
def test_options_may_stand_between_recipe_and_model(typed: str) -> None:
    found = cli.parser().parse_args(typed.split())
    assert (found.recipe, found.model, str(found.output)) == ("tidy", "m.onnx", "out.onnx")


def test_the_closest_name() -> None:
    assert closest("FUSE-gelu", ["fuse-gelu", "fuse-silu"]) == "fuse-gelu"
    assert closest("qqq", ["fuse-gelu"]) is None


def test_the_list_of_commands_is_that_of_their_modules(capsys: pytest.CaptureFixture[str]) -> None:
    """`surgery --help` reads the first line of each module, and imports none of them."""
    for given in (["--help"], ["-h"]):
        with pytest.raises(SystemExit):
            cli.main(given)
        assert capsys.readouterr().out == cli.parser().format_help()


@pytest.mark.parametrize("name", sampled(["optimize", "simplify"], 2))
def test_apply_has_the_names_of_other_tools(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "models" / "resnet-tiny.onnx", "m.onnx")
    assert cli.main([name, "m.onnx", "-o", "out.onnx", "-q", "--html", "out.html"]) == 0
    assert "nodes" in capsys.readouterr().out
    assert Path("out.onnx").is_file() and Path("out.html").is_file()


@pytest.mark.parametrize("flag", sampled(["-n", "--dry-run"], 2))
def test_a_dry_run_writes_no_model(
    flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "models" / "resnet-tiny.onnx", "m.onnx")
    Path("r.yaml").write_text("output: named.onnx\nsteps: [drop-identity]\n")
    assert cli.main(["apply", "r.yaml", "m.onnx", flag, "-q"]) == 0
    assert cli.main(["rename", "m.onnx", "pixel_values=x", "-o", "out.onnx", flag, "-q"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx", "r.yaml"]
