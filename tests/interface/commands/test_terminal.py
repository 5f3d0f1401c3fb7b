"""Commands in a terminal: what they show while they run, and what they leave behind."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import onnx
import pytest
from support import ROOT

from surgery.interface import commands as cli
from surgery.model.graph import text

pytestmark = pytest.mark.slow

SURGERY = [str(Path(sys.executable).parent / "surgery")]
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


@dataclass
class Terminal:
    """A process in a terminal: all that it has written so far."""

    process: subprocess.Popen[bytes]
    end: int
    started: float
    text: str = ""
    first: float | None = field(default=None)

    def read(self, until: str | None = None, seconds: float = 60.0) -> str:
        """Read until a text comes, or to the end."""
        limit = time.monotonic() + seconds
        while time.monotonic() < limit and (until is None or until not in self.text):
            if not select.select([self.end], [], [], 0.05)[0]:
                if self.process.poll() is not None:
                    break
                continue
            try:
                data = os.read(self.end, 65536)
            except OSError:  # the other end is closed
                break
            if not data:
                break
            self.first = self.first or time.monotonic() - self.started
            self.text += data.decode()
        return self.text


@contextmanager
def terminal(*arguments: str, width: int = 80, lines: int = 24, **environment: str) -> Iterator[Terminal]:
    """Run a command with all streams on a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, width, 0, 0))
    names = ("CI", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
    given = {name: value for name, value in os.environ.items() if name not in names}
    process = subprocess.Popen(
        [*SURGERY, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**given, "TERM": "xterm-256color", **environment},
        start_new_session=True,
    )
    found = Terminal(process, ours, time.monotonic())
    os.close(theirs)
    try:
        yield found
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "m.onnx"
    onnx.save(text.parse("g (float[n] x) => (float[n] y) { i = Identity(x) y = Relu(i) }"), path)
    return str(path)


def without_escapes(shown: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)


def test_a_loading_message_is_shown_before_imports(model: str) -> None:
    with terminal("apply", "tidy", model) as found:
        shown = found.read("loading")
        assert shown.startswith("loading")
        found.read()
        assert found.process.wait(30) == 0
    # Time on a shared machine is measured against that of the interpreter with the parser alone.
    with terminal("--version") as bare:
        bare.read()
    assert found.first < max(0.3, 3 * bare.first)


def test_only_the_report_is_left_at_the_end(model: str) -> None:
    with terminal("apply", "tidy", model) as found:
        shown = found.read()
        assert found.process.wait(30) == 0
    assert "\x1b[1m" in shown
    assert shown.count(HIDE) == shown.count(SHOW) > 0
    end = without_escapes(shown).split("\r")[-12:]
    assert any("no file written" in line for line in end) and not any("loading" in line for line in end)
    # Which steps are seen depends on the pace; a stage of the run itself stands in parentheses.
    assert re.search(r"step \d+/(7|14), (\([a-z ]+\)|[a-z -]+), \d+ s", without_escapes(shown))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_the_cursor(number: signal.Signals) -> None:
    with terminal("apply", "default", str(ROOT / "models" / "bert-tiny.onnx")) as found:
        found.read("step ")
        found.process.send_signal(number)
        shown = found.read()
        assert found.process.wait(30) == 128 + number
    assert shown.rindex(SHOW) > shown.rindex(HIDE)
    assert without_escapes(shown).rstrip().splitlines()[-1].endswith("nothing was written")


@pytest.mark.parametrize(
    "environment", [{"TERM": "dumb"}, {"CI": "true"}, {"CI": "true", "NO_COLOR": "1", "FORCE_COLOR": "1"}]
)
def test_no_animation_without_an_interactive_terminal(environment: dict[str, str], model: str) -> None:
    with terminal("apply", "tidy", model, **environment) as found:
        shown = found.read()
        assert found.process.wait(30) == 0
    assert "loading" not in shown and HIDE not in shown and "\x1b[2K" not in shown


def test_no_color_turns_colors_off(model: str) -> None:
    with terminal("apply", "tidy", model, NO_COLOR="1") as found:
        shown = found.read()
        assert found.process.wait(30) == 0
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", shown)


@pytest.mark.parametrize("lines", [16, 24])
def test_the_steps_and_the_verdict_stay_on_the_screen(lines: int, short_models: Path, tmp_path: Path) -> None:
    model, result = str(short_models / "bert-dropout-tiny.onnx"), tmp_path / ("a" * 90 + ".onnx")
    page = tmp_path / "page.html"
    with terminal("apply", "default", model, "-o", str(result), "--report", str(page), lines=lines) as found:
        shown = found.read()
        assert found.process.wait(60) == 0
    _, _, screen = without_escapes(shown).replace("\r\n", "\n").rpartition("\nstep ")
    below = screen.split("\n")
    assert below[-1] == "" and below[-2].startswith("wrote ") and any(line.startswith("ok: ") for line in below)
    # The file name takes more than one line; the prompt follows on the last one.
    assert sum(max(1, -(-len(line) // 80)) for line in below) <= lines


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_exceeds_the_terminal(width: int, model: str) -> None:
    with terminal("apply", "default", model, width=width, lines=24) as found:
        shown = found.read()
        assert found.process.wait(60) == 0
    # What is erased and overwritten is between carriage returns.
    for line in re.split(r"[\r\n]+", without_escapes(shown)):
        assert len(line.rstrip()) <= width or line.startswith("no file written"), line


def test_pipes_get_no_escapes_and_no_loading_message(model: str) -> None:
    ran = subprocess.run([*SURGERY, "apply", "tidy", model], capture_output=True, text=True, check=True)
    assert "\x1b" not in ran.stdout + ran.stderr and "loading" not in ran.stderr
    assert ran.stderr == "no file written; use -o FILE to save the result\n"


# --quiet


def test_quiet_runs_print_only_the_result(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["apply", "tidy", model, "-q"]) == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 1 and shown.out.startswith("ok: 2 -> 1 nodes") and shown.err == ""
    assert cli.main(["run", "drop-identity", model, "-q"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_quiet_runs_print_errors(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["apply", "no-such", model, "-q"]) == 2
    assert capsys.readouterr().err.startswith("surgery: no recipe 'no-such'")


@pytest.mark.parametrize(
    ("arguments", "start"),
    [
        (["verify", "MODEL", "MODEL"], "equal"),
        (["check", "MODEL"], "1 of 1 models are valid"),
        (["diff", "MODEL", "MODEL"], "the models are the same; 2 -> 2 nodes"),
        (["inspect", "MODEL", "--target", "ort-cpu"], "ort-cpu runs all 2 nodes"),
    ],
)
def test_other_commands_are_quiet(arguments, start, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*(model if one == "MODEL" else one for one in arguments), "--quiet"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(start) and len(shown.out.splitlines()) == 1 and shown.err == ""


def test_quiet_and_verbose_exclude_each_other(model: str) -> None:
    with pytest.raises(SystemExit):
        cli.main(["check", model, "-q", "-v"])
