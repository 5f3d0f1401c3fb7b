"""The first guesses of a stranger do what was meant: see `support.first_guesses`."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from support import page_blocks
from support.first_guesses import GUESSES, Guess, Ran, write_workplace

pytestmark = pytest.mark.usefixtures("standard_passes")


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the guesses name."""
    folder = tmp_path_factory.mktemp("guesses")
    write_workplace(folder)
    return folder


QUICK = [one for one in GUESSES if not one.slow][::6]


@pytest.mark.parametrize(
    "guess", [pytest.param(one, id=one.task, marks=() if one in QUICK else pytest.mark.slow) for one in GUESSES]
)
def test_the_first_guess(guess: Guess, workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(workplace, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    for written in re.findall(r"-o (\S+\.onnx)", guess.command):
        Path(written).unlink(missing_ok=True)
    ran = Ran(*page_blocks.run(guess.command))
    assert guess.check(ran), f"exit code {ran.code}\n{ran.printed}"


def test_there_are_forty() -> None:
    assert len({one.task for one in GUESSES}) == len(GUESSES) == 40
