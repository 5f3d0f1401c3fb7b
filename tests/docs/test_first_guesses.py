"""The first guesses of a stranger do what was meant: see `support.first_guesses`."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import onnx
import pytest
from support import page_blocks
from support.first_guesses import GUESSES, Guess, Ran, write_workplace
from support.short_models import without_residuals

pytestmark = pytest.mark.usefixtures("standard_passes")


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the guesses name."""
    folder = tmp_path_factory.mktemp("guesses")
    write_workplace(folder)
    return folder


@pytest.fixture(scope="module")
def smaller(tmp_path_factory: pytest.TempPathFactory, short_models: Path) -> Path:
    """A folder with models of fewer layers, for the guesses that take long."""
    folder = tmp_path_factory.mktemp("smaller")
    for name in ("bert-tiny", "bert-tiny.ts", "gpt2-tiny"):
        shutil.copy(short_models / f"{name}.onnx", folder)
    onnx.save(without_residuals("mobilenet-tiny"), folder / "mobilenet-tiny.onnx")
    return folder


QUICK = [one for one in GUESSES if not one.slow][::6]


@pytest.mark.parametrize(
    "guess", [pytest.param(one, id=one.task, marks=() if one in QUICK else pytest.mark.slow) for one in GUESSES]
)
def test_the_first_guess(
    guess: Guess, workplace: Path, smaller: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(workplace, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    if guess.slow:
        shutil.copytree(smaller, "models", dirs_exist_ok=True)
    for written in re.findall(r"-o (\S+\.onnx)", guess.command):
        Path(written).unlink(missing_ok=True)
    quickly = " --seconds 2" if guess.command.startswith("surgery bench ") else ""
    ran = Ran(*page_blocks.run(guess.command + quickly))
    assert guess.check(ran), f"exit code {ran.code}\n{ran.printed}"


def test_there_are_forty() -> None:
    assert len({one.task for one in GUESSES}) == len(GUESSES) == 40
