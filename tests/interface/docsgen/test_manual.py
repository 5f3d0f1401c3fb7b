"""The manual pages: one for each command, and groff has nothing to say against them."""

import re
import shutil
import subprocess

import pytest
from support.breadth import sampled

from surgery.interface import commands as cli
from surgery.interface.docsgen import manual
from surgery.interface.docsgen.commands import commands_of

PAGES = manual.pages(cli.parser())


def shown(page: str) -> str:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("groff is not installed")
    ran = subprocess.run(
        [groff, "-man", "-Tutf8", "-ww", "-P-c", "-rLL=200n"], input=page, capture_output=True, text=True, check=True
    )
    assert ran.stderr == ""
    return re.sub(r".\x08", "", ran.stdout)


@pytest.mark.parametrize("name", sampled(PAGES, 6))
def test_groff_formats_the_page(name: str) -> None:
    text = shown(PAGES[name])
    assert name.removesuffix(".1") in text and "EXIT STATUS" in text


def test_every_command_and_flag_is_documented() -> None:
    for name, command in commands_of(cli.parser()):
        text = shown(PAGES[f"{name.replace(' ', '-')}.1"])
        flags = [flag for action in command._actions for flag in action.option_strings]
        assert [flag for flag in flags if flag not in text] == []
        assert name.replace(" ", "-") in shown(PAGES["surgery.1"])


def test_text_cannot_be_a_request() -> None:
    assert manual._text(".so /etc/passwd") == "\\&.so /etc/passwd"
    assert manual._text("a\\b - ~c") == "a\\eb \\- \\(tic"
