"""What the doctor finds: each thing is broken here once."""

import importlib.metadata
import json
import resource
import tempfile
from pathlib import Path
from typing import Any

import pytest

from surgery.engine.recipe import trust
from surgery.engine.registry.catalog import catalog
from surgery.interface import commands as cli
from surgery.interface.command_line import _installation as doctor


def levels(check: str) -> set[str]:
    return {level for level, _, _ in doctor.CHECKS[check]()}


def texts(check: str, level: str) -> str:
    return "\n".join(f"{text}; {todo}" for found, text, todo in doctor.CHECKS[check]() if found == level)


@pytest.mark.slow
def test_this_installation_is_fine(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] and {one["check"] for one in report["findings"] if one["level"] == "ok"} >= {
        *("python", "packages", "workers", "runtime", "memory", "passes", "recipes", "trust", "run")
    }


def test_a_crash_ends_the_worker_only() -> None:
    assert levels("workers") == {"ok"}


def test_a_package_that_is_missing_or_old(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "rich":
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.0" if name == "onnx" else "99.0"

    required = importlib.metadata.requires("onnx-surgery") or ()
    (bound,) = (one[len("onnx") :] for one in required if one.startswith("onnx>") and "extra" not in one)
    monkeypatch.setattr(importlib.metadata, "version", version)
    found = texts("packages", "broken")
    assert "rich is not installed; pip install 'rich>=14'" in found
    assert f"onnx 1.0 is installed, but surgery needs {bound}; pip install 'onnx{bound}'" in found
    assert "numpy 99.0" not in found


def test_conflicting_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    assert texts("conflicts", "broken") == ""
    monkeypatch.setattr(doctor, "_distributions", lambda: iter(["onnxruntime", "onnxruntime_gpu", "onnx"]))
    assert texts("conflicts", "broken").startswith("onnxruntime and onnxruntime-gpu are installed: all of them install")


def test_the_newest_supported_formats_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    import onnx
    import onnxruntime

    found = doctor.newest()
    assert found["loads_ir"] <= found["writes_ir"] == onnx.IR_VERSION
    # What is said to load does, and what would be one newer does not.
    onnxruntime.InferenceSession(doctor._relu(found["loads_ir"], found["loads_opset"]))
    monkeypatch.setattr(onnx, "IR_VERSION", 99)
    assert doctor.newest()["loads_ir"] < 99


def test_few_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda what: (128, 4096))
    assert texts("files", "note") == "128 open files are allowed; ulimit -n 4096"


def test_a_folder_for_temporary_files_that_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "none"))
    assert texts("space", "broken") == f"{tmp_path / 'none'} cannot be written: No such file or directory; set TMPDIR"


def test_passes_of_a_package_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "warnings", lambda: ["the passes 'x' of acme 1.0 cannot be loaded: ImportError"])
    assert texts("passes", "broken") == (
        "the passes 'x' of acme 1.0 cannot be loaded: ImportError; update or uninstall that package"
    )


def test_a_trust_list_with_mistakes_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    trust.config_file().parent.mkdir()
    trust.config_file().write_text("trust: [relative/path]\n")

    def wrong() -> Any:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(doctor, "CHECKS", {"trust": doctor.CHECKS["trust"], "other": wrong})
    assert cli.main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "broken  trust" in out and "config.yaml:1:9" in out
    # A check that fails is a finding, and not the end.
    assert "internal error: RuntimeError: no such thing" in out and "2 broken, 0 notes" in out


def test_one_note_is_no_plural(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "CHECKS", {"other": lambda: [("note", "look", "")]})
    assert cli.main(["doctor"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no problems; 1 note"
