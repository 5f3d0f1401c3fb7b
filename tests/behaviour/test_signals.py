"""Signals where Python lets no exception through: the command ends all the same, without a traceback."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

END = """
    time.sleep(60)
except KeyboardInterrupt as error:
    _signals.finish()
    print(*_signals.account(error))
"""
"""The end of each script, which says how the command ends."""

ENDED = f"ended by SIGTERM; nothing was written {128 + signal.SIGTERM}"

SWALLOWING = """
import os, signal, time
from surgery.interface.command_line import _signals

class Callback:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)

_signals._AGAIN = 0.2
_signals.install()
try:
    Callback()
    print("went on", flush=True)
"""

IMPORTED = """
import os, signal, time

os.kill(os.getpid(), signal.SIGTERM)
time.sleep(0.1)
print("imported", flush=True)
"""

IMPORTING = """
import time
from surgery.interface.command_line import _signals

_signals.install()
try:
    import imported
"""

FORKING = """
import os, signal, time
from surgery.interface.command_line import _signals
from surgery.base.workers import fork

def callback():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.1)
    print("forked", flush=True)

os.register_at_fork(after_in_parent=callback)
_signals.install()
try:
    if not fork.forking():
        os._exit(0)
"""


def ran(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "end.py").write_text(script + END)
    return subprocess.run([sys.executable, folder / "end.py"], capture_output=True, text=True, timeout=50)


def test_an_interrupt_turned_into_an_import_error_still_ends_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from surgery.interface import commands as cli
    from surgery.interface.command_line import _signals
    from surgery.interface.commands import passes

    def imports(arguments: object) -> int:
        raise ImportError("PyCapsule_Import could not import module")

    monkeypatch.setattr(passes, "main", imports)
    monkeypatch.setattr(_signals, "_received", [_signals.Ended(signal.SIGTERM)])
    assert cli.main(["passes"]) == 128 + signal.SIGTERM
    assert "ended by SIGTERM" in capsys.readouterr().err


def test_an_interrupt_swallowed_by_a_callback_is_raised_again(tmp_path: Path) -> None:
    assert ran(SWALLOWING, tmp_path).stdout.splitlines() == ["went on", ENDED]


def test_an_interrupt_waits_for_the_end_of_an_import(tmp_path: Path) -> None:
    (tmp_path / "imported.py").write_text(IMPORTED)
    assert ran(IMPORTING, tmp_path).stdout.splitlines() == ["imported", ENDED]


def test_an_interrupt_waits_for_the_callbacks_of_a_fork(tmp_path: Path) -> None:
    run = ran(FORKING, tmp_path)
    assert run.stdout.splitlines() == ["forked", ENDED]
    assert run.stderr == ""
