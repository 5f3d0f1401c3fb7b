"""Functions in files of the user."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from surgery.verification.inputs import local_function
from surgery.verification.inputs.local_function import LocalFunctionError, find

SOURCE = """import os
from os.path import join
import beside

count = 0
other = 3

def make():
    return [os.getcwd(), beside.VALUE]

def _hidden():
    pass

class Made:
    pass
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(local_function, "_modules", {})
    for name in ("beside", "surgery_local_own"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "code").mkdir()
    (tmp_path / "work").mkdir()
    (tmp_path / "code" / "beside.py").write_text("VALUE = 7\n", encoding="utf-8")
    (tmp_path / "code" / "own.py").write_text(SOURCE, encoding="utf-8")
    yield str(tmp_path / "code" / "own.py")
    sys.modules.pop("beside", None)
    sys.modules.pop("surgery_local_own", None)


def test_a_function_runs_in_the_folder_with_the_files_next_to_it(file: str, tmp_path: Path) -> None:
    made = find(file, "make", str(tmp_path / "work"))
    assert made() == [str(tmp_path / "work"), 7]
    Path(file).write_text("raise ValueError\n", encoding="utf-8")
    assert find(file, "make", str(tmp_path / "work")) is made  # a file is imported once


@pytest.mark.parametrize("name", ["count", "join", "nothing"])
def test_what_is_no_function_of_the_file_is_refused(name: str, file: str, tmp_path: Path) -> None:
    with pytest.raises(LocalFunctionError, match=f"no function '{name}' in it; it has make, Made$"):
        find(file, name, str(tmp_path))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "no function 'make' in it; it has none"),
        ("\n\nraise ValueError('no\\n  way')", "line 3: ValueError: no way"),
        ("def f():\n    raise KeyError\n\nf()\n", "line 2: KeyError"),
        ("x = 1\ndef (\n", "line 2: SyntaxError: invalid syntax"),
        ("import not_there_at_all", "line 1: ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("raise SystemExit(3)", "line 1: SystemExit: 3"),
    ],
)
def test_a_file_that_cannot_be_imported_says_why(source: str, message: str, file: str, tmp_path: Path) -> None:
    Path(file).write_text(source, encoding="utf-8")
    with pytest.raises(LocalFunctionError) as refused:
        find(file, "make", str(tmp_path))
    assert str(refused.value) == message
