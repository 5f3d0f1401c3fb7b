"""The scripts for shells, asked in the shells themselves."""

import os
import pty
import re
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from surgery.engine.recipe import recipe_lookup
from surgery.engine.registry.catalog import catalog
from surgery.interface import commands as cli
from surgery.interface.commands import completion

ASKED = [
    ("surgery ap", {"apply"}),
    ("surgery apply def", {"default"}),
    ("surgery apply tidy ", {"model.onnx", "sub/"}),
    ("surgery apply mi", {"mine.yaml"}),
    ("surgery apply tidy model.onnx --on-failure ", {"abort", "rollback", "bisect", "keep"}),
    ("surgery apply tidy --targ", {"--target"}),
    ("surgery apply tidy --target ort-c", {"ort-cpu", "ort-cuda"}),
    ("surgery run fuse-gem", {"fuse-gemm-activation", "fuse-gemm-add"}),
    ("surgery passes fuse-gem", {"fuse-gemm-activation", "fuse-gemm-add"}),
    ("surgery passes --theme s", {"shapes", "structure"}),
    ("surgery recipe ", {"check", "show"}),
    ("surgery recipe check ti", {"tidy"}),
    ("surgery inspect model.onnx --form", {"--format"}),
    ("surgery check model.onnx --format j", {"json", "junit"}),
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work" / "sub").mkdir(parents=True)
    for name in ("model.onnx", "mine.yaml", "notes.txt"):
        (tmp_path / "work" / name).touch()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


@pytest.fixture(scope="module")
def scripts() -> dict[str, str]:
    return {shell: completion.script(cli.parser(), shell) for shell in completion.SHELLS}


def require(shell: str) -> str:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    return found


def test_bash(folder: Path, scripts: dict[str, str]) -> None:
    (folder / "surgery.bash").write_text(scripts["bash"])
    asks = "".join(
        f"COMP_WORDS=({line} {'' if line[-1] != ' ' else repr('')}); COMP_CWORD=$((${{#COMP_WORDS[@]}}-1))\n"
        '_shtab_surgery surgery "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"; echo "${COMPREPLY[*]}"\n'
        for line, _ in ASKED
    )
    (folder / "ask.bash").write_text(f"compopt() {{ :; }}\nsource {folder}/surgery.bash\n{asks}")
    ran = subprocess.run([require("bash"), "--norc", folder / "ask.bash"], capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    answers = [{word for word in line.split() if word != "sub"} for line in ran.stdout.splitlines()]
    # Folders are marked by the shell itself.
    assert answers == [words - {"sub/"} for _, words in ASKED]


def test_fish(folder: Path, scripts: dict[str, str]) -> None:
    (folder / "surgery.fish").write_text(scripts["fish"])
    asks = "".join(f"echo (complete -C '{line}' | string split -f1 \\t)\n" for line, _ in ASKED)
    (folder / "ask.fish").write_text(f"source {folder}/surgery.fish\n{asks}")
    environment = {**os.environ, "HOME": str(folder)}
    ran = subprocess.run(
        [require("fish"), "--no-config", folder / "ask.fish"],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert ran.stderr == ""
    assert [set(line.split()) for line in ran.stdout.splitlines()] == [words for _, words in ASKED]


def test_zsh(folder: Path, scripts: dict[str, str]) -> None:
    """zsh completes in its line editor only, so it gets a terminal."""
    zsh = require("zsh")
    (folder / "functions").mkdir()
    (folder / "functions" / "_surgery").write_text(scripts["zsh"])
    process, terminal = pty.fork()
    if process == 0:
        os.environ.update(TERM="xterm", HOME=str(folder), COLUMNS="200")
        os.execv(zsh, [zsh, "-f", "-i"])
    try:
        begin = f"PS1='%%'; fpath=({folder}/functions $fpath); autoload -Uz compinit; compinit -u -D; print rea''dy\n"
        os.write(terminal, begin.encode())
        read_until(terminal, {"ready"})
        for line, words in ASKED:
            # Ctrl-U empties the line; Ctrl-D lists what is possible, or deletes nothing.
            os.write(terminal, b"\x15" + line.encode() + b"\t\t")
            seen = read_until(terminal, words)
            assert "notes.txt" not in seen
    finally:
        os.kill(process, 9)
        os.waitpid(process, 0)
        os.close(terminal)


def read_until(terminal: int, words: set[str]) -> str:
    """Read what a terminal shows until all words are in it."""
    seen, end = b"", time.monotonic() + 60
    while time.monotonic() < end:
        if select.select([terminal], [], [], 1)[0]:
            seen += os.read(terminal, 65536)
            shown = re.sub(r"\x1b\[[\d;?]*[A-Za-z]|[\x00-\x09\x0b-\x1f]", "", seen.decode(errors="replace"))
            if all(word in shown for word in words):
                return shown
    raise AssertionError(f"{words} did not appear: {seen!r}")


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_all_names_are_in_the_script(shell: str, scripts: dict[str, str]) -> None:
    known = {*(name for name, one in catalog.passes().items() if one.is_standard), *recipe_lookup.names()}
    assert [name for name in known if name not in scripts[shell]] == []


def test_the_command_prints_the_script(capsys: pytest.CaptureFixture[str], scripts: dict[str, str]) -> None:
    assert cli.main(["completion", "bash"]) == 0
    assert capsys.readouterr().out == scripts["bash"]
    with pytest.raises(SystemExit):
        cli.main(["completion", "powershel"])
    assert capsys.readouterr().err == (
        "surgery completion: argument SHELL: invalid choice: 'powershel'; choose from bash, zsh, fish\n"
    )
