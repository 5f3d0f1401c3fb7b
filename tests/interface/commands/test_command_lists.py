"""What a person finds without knowing names: the help in groups, and the lists of recipes and targets."""

import json

import pytest

from surgery.engine.recipe import recipe_lookup as recipes
from surgery.interface import commands as cli
from surgery.model.targets import shipped as targets


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    try:
        code = cli.main(list(arguments))
    except SystemExit as ended:
        code = int(ended.code or 0)
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    return out


def test_the_help_lists_every_command_once_under_a_title(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "--help").splitlines()
    titles = {number: line for number, line in enumerate(lines) if line.endswith(":") and not line.startswith(" ")}
    assert [*titles.values()] == [*(f"{title}:" for title in cli.GROUPS), "options:"]
    found = [line.split()[0] for line in lines[min(titles) : max(titles)] if line.startswith("  ") and line[2] != " "]
    assert found == list(cli.COMMANDS)
    assert len(set(found)) == len(found)


def test_without_arguments_the_help_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    whole = printed(capsys, "--help")
    assert cli.main([]) == 2
    assert capsys.readouterr() == ("", whole)


@pytest.mark.parametrize("words", [(), ("apply",), ("recipe",), ("recipe", "show")])
def test_help_is_the_help_of_the_command(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "help", *words) == printed(capsys, *words, "--help")


def test_help_of_an_unknown_command_suggests_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["help", "aply"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == "surgery: no command 'aply'; did you mean 'surgery apply'?\n"


def test_all_recipes_are_listed_with_target_and_summary(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(capsys, "recipes", "--format", "json"))["recipes"]
    assert [one["name"] for one in found] == list(recipes.names())
    assert all(one["summary"] for one in found)
    assert {one["name"]: one["target"] for one in found}["ort"] == "ort-cpu"
    line = next(line for line in printed(capsys, "recipes").splitlines() if line.startswith("ort "))
    assert "ort-cpu" in line and "ONNX Runtime" in line


def test_all_targets_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(capsys, "targets", "--format", "json"))["targets"]
    assert [one["name"] for one in found] == list(targets.names())
    shown = printed(capsys, "targets").splitlines()[1:]
    assert [line.split()[0] for line in shown] == list(targets.names())


def test_a_target_is_described_by_its_profile(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(capsys, "targets", "rknn-like", "--format", "json"))
    profile = targets.find("rknn-like")
    assert (found["opsets"], found["rank"], found["dynamic_dims"]) == (list(profile.opset), profile.limits.rank, False)
    assert len(found["operators"]) == len(profile.operators)
    lines = dict(line.split("  ", 1) for line in printed(capsys, "targets", "rknn-like").splitlines() if line[0] != " ")
    assert lines["dynamic dims"].strip() == "no"
    lines = dict(line.split("  ", 1) for line in printed(capsys, "targets", "standard").splitlines() if line[0] != " ")
    assert lines["opsets"].strip() == lines["operators"].strip() == "any"


def test_an_unknown_target_names_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["targets", "npu"]) == 2
    assert "no target 'npu'; there are coreml, " in capsys.readouterr().err
