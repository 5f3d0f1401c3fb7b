"""The log of a run: written while it runs, the same on the terminal with and without it."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import onnx
import pytest
from support import SUPPORT

from surgery.interface import commands as cli
from surgery.model.graph import text

MODEL = "g (float[4] x) => (float[4] y) { i = Identity(x) r = Relu(i) y = Neg(r) }"
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR) +surgery[.\w]*: .+")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(text.parse(MODEL), "m.onnx")
    return tmp_path


def test_each_step_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["apply", "tidy", "m.onnx", "-o", "a.onnx"]) == 0
    plain = capsys.readouterr()
    assert cli.main(["apply", "tidy", "m.onnx", "-o", "a.onnx", "--force", "--log-file", "run.log"]) == 0
    logged = capsys.readouterr()
    # The terminal stays as it is, but for the seconds.
    assert [re.sub(r"[\d.]+", "", one) for one in plain] == [re.sub(r"[\d.]+", "", one) for one in logged]
    lines = Path("run.log").read_text().splitlines()
    assert all(LINE.fullmatch(line) for line in lines)
    assert "surgery apply tidy m.onnx -o a.onnx --force" in lines[0] and "exit code 0 after" in lines[-1]
    assert any("drop-identity: committed, 3 -> 2 nodes, 1 sites" in line for line in lines)
    assert any("drop-dropout: unchanged" in line for line in lines)
    assert any("surgery.terminal: wrote a.onnx" in line for line in lines)
    # Another run is appended.
    assert cli.main(["check", "m.onnx", "--log-file", "run.log"]) == 0
    assert Path("run.log").read_text().splitlines()[: len(lines)] == lines


def test_json_lines_have_the_facts(capsys: pytest.CaptureFixture[str]) -> None:
    plugin = SUPPORT / "plugin_wrong.py"
    arguments = ["run", "wrong-drop-relu", "m.onnx", "--plugin", str(plugin), "--on-failure", "rollback"]
    cli.main([*arguments, "--log-file", "run.jsonl"])
    records = [json.loads(line) for line in Path("run.jsonl").read_text().splitlines()]
    assert {one["format_version"] for one in records} == {1}
    step = next(one for one in records if one.get("status") == "rolled_back")
    assert (step["step"], step["level"], step["verdict"]) == ("wrong-drop-relu", "warning", "different")
    assert records[-1]["message"].startswith("exit code ")


def test_errors_have_their_traceback_in_the_log_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["apply", "tdy", "m.onnx", "--log-file", "e.log"]) == 2
    assert capsys.readouterr().err == "surgery: no recipe 'tdy'; did you mean 'tidy'?\n"
    log = Path("e.log").read_text()
    assert "ERROR   surgery.terminal: surgery: no recipe 'tdy'" in log
    assert "DEBUG   surgery.terminal: Traceback (most recent call last):" in log


def test_a_file_that_is_not_a_log_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    before = Path("m.onnx").read_bytes()
    for name, words in (("m.onnx", "the file exists and is no log"), (".", "directory"), ("no/x.log", "No such file")):
        assert cli.main(["check", "m.onnx", "--log-file", name]) == 2
        assert words in capsys.readouterr().err
    assert Path("m.onnx").read_bytes() == before


def test_a_record_starts_on_its_own_line(folder: Path) -> None:
    Path("log.jsonl").write_text('{"format_version": 1, "mess', encoding="utf-8")
    for _ in range(2):
        assert cli.main(["check", "m.onnx", "--log-file", "log.jsonl", "-q"]) == 0
    first, *others = Path("log.jsonl").read_text().splitlines()
    assert first == '{"format_version": 1, "mess' and all(json.loads(line) for line in others)


def test_the_log_is_written_while_the_command_runs(folder: Path) -> None:
    (folder / "slow.py").write_text(
        "import time\nfrom surgery import Graph, Parity, graph_pass\n\n\n"
        "@graph_pass('slow', parity=Parity.EXACT)\ndef slow(graph: Graph) -> None:\n"
        '    """Wait for long."""\n    time.sleep(600)\n'
    )
    command = [sys.executable, "-m", "surgery", "run", "slow", "m.onnx", "--plugin", "slow.py", "--log-file", "s.log"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ)
    try:
        while process.poll() is None and not (Path("s.log").exists() and "slow: pass" in Path("s.log").read_text()):
            time.sleep(0.05)
        assert "slow: pass" in Path("s.log").read_text()
    finally:
        process.terminate()
        assert process.wait() == 143
    assert Path("s.log").read_text().splitlines()[-1].partition("Z ")[2].startswith("INFO    surgery: exit code 143")


def test_credentials_in_urls_are_not_logged(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = "https://user:secret@127.0.0.1:9/m.onnx?token=secret"
    cli.main(["inspect", url, "--log-file", "log.txt"])
    log = Path("log.txt").read_text()
    assert "inspect https://127.0.0.1:9/m.onnx" in log and "secret" not in log
    assert "secret" not in capsys.readouterr().err
