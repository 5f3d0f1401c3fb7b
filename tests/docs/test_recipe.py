"""The examples of the guide to recipes are run, in order, in one folder."""

import re
import shlex
from pathlib import Path

import pytest
from support import ROOT
from support.breadth import sampled

from surgery.engine.recipe import trust
from surgery.interface import commands as cli

GUIDE = (ROOT / "docs" / "how-to" / "write-a-recipe.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", GUIDE, flags=re.MULTILINE | re.DOTALL)
COMMANDS = [line for language, body in BLOCKS if language == "console" for line in body.splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, short_models: Path) -> Path:
    """A folder with all files that the guide shows under a name."""
    folder = tmp_path_factory.mktemp("guide")
    (folder / "models").symlink_to(short_models)
    for _, body in BLOCKS:
        named = re.match(r"# ([\w.-]+)\n", body)
        if named:
            (folder / named.group(1)).write_text(body)
    return folder


@pytest.mark.parametrize("command", sampled(COMMANDS, 3))
def test_commands(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    expected = re.search(r"# exit code (\d)$", command)
    assert cli.main(shlex.split(command, comments=True)[1:]) == int(expected.group(1) if expected else 0)


def test_the_page_has_many_commands() -> None:
    assert len(COMMANDS) >= 12


def test_the_mistakes_that_are_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    cli.main(["recipe", "check", "wrong.yaml"])
    assert capsys.readouterr().err in [body for _, body in BLOCKS]


def test_the_configuration_that_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (config,) = [body for language, body in BLOCKS if language == "yaml" and body.startswith("trust:")]
    home = tmp_path / "home"
    (home / "onnx" / "passes").mkdir(parents=True)
    (home / "downloads").mkdir()
    (home / "downloads" / "theirs.py").write_text("foo")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", "")
    trust.config_file().parent.mkdir(parents=True)
    trust.config_file().write_text(config)
    entries = trust.entries()
    assert [entry.path.name for entry in entries] == ["passes", "theirs.py"]
    assert trust.trusted(home / "downloads" / "theirs.py", entries)
