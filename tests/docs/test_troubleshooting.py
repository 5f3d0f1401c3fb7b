"""Troubleshooting: each message is printed by a command under it, or is one that the source has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from support import ROOT, page_blocks
from support.breadth import sampled

pytestmark = pytest.mark.usefixtures("standard_passes")

PAGE = (ROOT / "docs" / "how-to" / "troubleshooting.md").read_text(encoding="utf-8")
HEAD, *_ = PAGE.partition("\n## ")
SECTIONS = dict(re.findall(r"^### `(.+)`\n((?:(?!^##).*\n)*)", PAGE, flags=re.MULTILINE))
PRINTED = [message for message, body in SECTIONS.items() if re.search(r"# exit code [12]$", body, re.MULTILINE)]
ANY = "…"


def _texts(node: ast.AST) -> Iterator[str]:
    """Yield the texts of an expression, with ANY for what is filled in."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else ANY for part in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


@cache
def sources() -> tuple[str, ...]:
    """Read all files of the source."""
    files = [*(ROOT / "surgery").rglob("*.py"), *(ROOT / "passes").rglob("*.py")]
    return tuple(path.read_text(encoding="utf-8") for path in files)


def is_given(message: str) -> bool:
    """Return whether a text in the source is, or has in it, a message; only files with all its words are parsed."""
    words = re.findall(r"\w+", message)
    trees = [ast.parse(source) for source in sources() if all(word in source for word in words)]
    texts = (text for tree in trees for node in ast.walk(tree) for text in _texts(node))
    return any(re.search(pattern(message), text) for text in texts)


def pattern(message: str) -> str:
    return ".*".join(map(re.escape, message.split(ANY)))


def parts(message: str) -> list[str]:
    """The parts of a message that the code has as one text: what, and what to do; without what is filled in."""
    found = [part.strip(" ,();") for part in re.split(r"; |: …|did you mean|\(.*?\),?", message)]
    return [part for part in found if len(part.replace(ANY, "").strip("' ?.")) > 5]


@pytest.mark.parametrize("message", [one for one in SECTIONS if one not in PRINTED])
def test_the_code_can_give_the_message(message: str) -> None:
    assert parts(message)
    for part in parts(message):
        assert is_given(part), part


def test_most_messages_are_printed() -> None:
    assert len(SECTIONS) > 25 and len(PRINTED) > 20


def test_another_message_is_not_found() -> None:
    assert is_given("the model has no dynamic dim '…'")
    assert not is_given("the model has no dynamic size '…'")


@pytest.mark.parametrize("message", sampled([one for one, body in SECTIONS.items() if "```console" in body], 6))
def test_the_commands_give_the_message_and_remedy_it(
    message: str, short_models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").symlink_to(short_models)
    monkeypatch.chdir(tmp_path)
    blocks = page_blocks.fenced(HEAD) + page_blocks.fenced(SECTIONS[message])
    for _, body in blocks:
        name = page_blocks.file_name(body)
        if name is not None:
            Path(name).write_text(body)
    failed = ""
    for command in [line for language, body in blocks if language == "console" for line in body.splitlines()]:
        code, printed = page_blocks.run(command)
        assert code == page_blocks.expected_code(command), f"{command}\n{printed}"
        failed += printed if code else ""
    if message in PRINTED:
        assert re.search(pattern(message), " ".join(failed.split())), failed
