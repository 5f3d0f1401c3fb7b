"""Plugins that hang, crash or leave while they are imported: one line that names them, and surgery lives on."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from test_discovery import PASS, python, unpack, write_wheel

from surgery.base.errors import RecipeError, UsageError
from surgery.engine import recipe
from surgery.engine.registry import discovery
from surgery.engine.registry.catalog import catalog
from surgery.interface import commands as cli

FATES = {
    "import os; os._exit(0)": "its import ended the process with exit code 0",
    "import os; os._exit(7)": "its import ended the process with exit code 7",
    "import ctypes; ctypes.string_at(0)": "its import crashed with SIGSEGV",
    "import os; os.abort()": "its import crashed with SIGABRT",
    "raise ValueError('no such luck')": "ValueError: no such luck (bad.py:1)",
    "import sys; sys.exit('enough')": "SystemExit: enough (bad.py:1)",
}


@pytest.mark.parametrize("threads", [1, 2], ids=["in a fork", "in a worker"])
@pytest.mark.parametrize(
    ("source", "message"),
    [*FATES.items(), pytest.param("while True: pass", "its import took more than 5 s", marks=pytest.mark.slow)],
)
def test_a_failed_import_is_reported_in_one_line(
    source: str,
    message: str,
    threads: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(discovery, "TIMEOUT", 5.0)
    monkeypatch.setattr("threading.active_count", lambda: threads)
    plugin = tmp_path / "bad.py"
    plugin.write_text(source)
    assert cli.main(["passes", "drop-identity", "--plugin", str(plugin)]) == 2
    assert capsys.readouterr().err == f"surgery: plugin '{plugin}' cannot be imported: {message}\n"


def test_a_module_is_tried_too_and_a_recipe_names_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "leaving_module.py").write_text("import os; os._exit(3)")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UsageError, match=r"plugin 'leaving_module' cannot be imported: .* with exit code 3"):
        catalog.load_plugin("leaving_module")
    assert "leaving_module" not in sys.modules
    (tmp_path / "r.yaml").write_text("recipe: r\nplugins: [./leaving_module.py]\nsteps: [drop-identity]\n")
    with pytest.raises(RecipeError, match=r"r\.yaml:2:11: .*its import ended the process with exit code 3"):
        recipe.load(tmp_path / "r.yaml", trust=True)


@pytest.mark.parametrize("in_process", [False, True])
def test_under_a_debugger_imports_run_only_in_its_process(
    in_process: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note, plugin = tmp_path / "pids", tmp_path / f"telling_{in_process}.py"
    plugin.write_text(f"import os\nwith open({str(note)!r}, 'a') as file:\n    file.write(f'{{os.getpid()}}\\n')\n")
    before = discovery.contained.set(True)
    try:
        arguments = ["run", "drop-identity", str(tmp_path / "none.onnx"), "--plugin", str(plugin)]
        assert cli.main([*arguments, "--in-process"] if in_process else arguments) == 2
    finally:
        discovery.contained.reset(before)
    pids = [int(line) for line in note.read_text().split()]
    assert pids[-1] == os.getpid() and len(pids) == (1 if in_process else 2)
    assert len(set(pids)) == len(pids)


def test_an_installed_package_that_exits_on_import_is_skipped(tmp_path: Path) -> None:
    unpack(tmp_path, write_wheel(tmp_path, "leaving", "1.0", "import os; os._exit(0)"))
    unpack(tmp_path, write_wheel(tmp_path, "staying", "2.0", PASS.format(name="stay-here")))
    found = python(tmp_path, "-m", "surgery", "passes", "stay-here")
    assert found.returncode == 0 and "stay-here" in found.stdout
    wanted = "the passes 'leaving' of leaving 1.0 cannot be loaded: its import ended the process with exit code 0"
    assert f"surgery: warning: {wanted}\n" in found.stderr
