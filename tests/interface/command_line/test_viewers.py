"""Netron and Model Explorer, as stand-ins on the PATH."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from surgery.base.errors import SurgeryError, UsageError
from surgery.interface.command_line import _viewers

STAND_IN = """#!{python}
import json, pathlib, sys
pathlib.Path({log!r}).write_text(json.dumps(sys.argv[1:]))
{more}
"""


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is all of the PATH; the folder of this Python has no viewers either."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    return folder


def stand_in(folder: Path, name: str, more: str = "") -> Path:
    log = folder.parent / f"{name}.json"
    path = folder / name
    path.write_text(STAND_IN.format(python=sys.base_prefix + "/bin/python3", log=str(log), more=more))
    path.chmod(0o755)
    return log


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "a model.onnx"
    path.write_bytes(b"")
    return path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("netron", lambda path: ["--browse", path]),
        ("model-explorer", lambda path: [path, "--extensions=model_explorer_onnx"]),
    ],
)
def test_a_viewer_gets_the_file_itself(name, expected, bin_folder: Path, model: Path, monkeypatch) -> None:
    log = stand_in(bin_folder, name)
    monkeypatch.chdir(model.parent)
    # Not a copy: the external data is next to the model.
    assert _viewers.open_with(name, Path(model.name)) == 0
    assert json.loads(log.read_text()) == expected(str(model))


@pytest.mark.parametrize("name", _viewers.VIEWERS)
def test_a_missing_viewer_is_reported_with_the_install_command(
    name, bin_folder: Path, model: Path, monkeypatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda package: None)
    with pytest.raises(UsageError) as error:
        _viewers.open_with(name, model)
    assert str(error.value).startswith(f"{name} is not installed; install it: pip install ")
    assert "\n" not in str(error.value)


def test_a_package_without_executable_is_run_by_this_python(bin_folder: Path, model: Path, monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda package: package)
    log = stand_in(bin_folder, "python")
    assert _viewers.open_with("netron", model) == 0
    assert json.loads(log.read_text()) == ["-m", "netron", "--browse", str(model)]


def test_an_unsupported_file_is_reported_before_the_viewer_starts(bin_folder: Path, tmp_path: Path) -> None:
    log = stand_in(bin_folder, "model-explorer")
    odd = tmp_path / "a,b.onnx"
    odd.write_bytes(b"")
    with pytest.raises(UsageError, match="comma"):
        _viewers.open_with("model-explorer", odd)
    with pytest.raises(UsageError, match="no such file"):
        _viewers.open_with("model-explorer", tmp_path / "none.onnx")
    with pytest.raises(UsageError, match="is a directory"):
        _viewers.open_with("model-explorer", tmp_path)
    assert not log.exists()


def test_a_viewer_that_fails_is_an_error(bin_folder: Path, model: Path) -> None:
    stand_in(bin_folder, "netron", "sys.exit(7)")
    with pytest.raises(SurgeryError, match="ended with exit code 7; run it yourself"):
        _viewers.open_with("netron", model)


def test_a_viewer_that_does_not_start_is_an_error(bin_folder: Path, model: Path) -> None:
    path = bin_folder / "netron"
    path.write_text("#!/no/such/interpreter\n")
    path.chmod(0o755)
    with pytest.raises(SurgeryError, match="netron cannot be started"):
        _viewers.open_with("netron", model)


def test_an_interrupt_ends_the_viewer_and_is_not_a_failure(tmp_path: Path, model: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    log = stand_in(folder, "netron", "import time\ntime.sleep(60)")
    code = "import sys; from pathlib import Path; from surgery.interface.command_line import _viewers; "
    code += f"sys.exit(_viewers.open_with('netron', Path({str(model)!r})))"
    process = subprocess.Popen([sys.executable, "-c", code], env={"PATH": str(folder)}, stderr=subprocess.DEVNULL)
    started = time.monotonic()
    while not log.exists() and time.monotonic() - started < 30:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 0
