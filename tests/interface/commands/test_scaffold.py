"""`surgery new pass`: what it writes works at once, and nothing of anybody's is overwritten."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from support import ROOT

from surgery.interface import commands as cli
from surgery.interface.command_line._new_pass import plan
from surgery.interface.commands.new import KINDS
from surgery.model.graph import text

pytestmark = pytest.mark.slow

MODEL = "g (float[n] a, float[n] b) => (float[n] y) { d = Sub(a, b) e = Neg(d) y = Relu(e) }"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def surgery(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("kind", KINDS)
def test_generated_files_work_unchanged(folder: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    name = f"begun-{kind.replace('_', '-')}"
    module = name.replace("-", "_")
    code, out, _ = surgery(capsys, "new", "pass", name, "--kind", kind)
    assert code == 0
    cases = [f"cases/{name}/keeps_integers.onnxtxt", f"cases/{name}/swaps_the_operands.onnxtxt"]
    written = [path for path in files(folder) if not path.endswith(".pyc")]
    assert written == sorted([*cases, f"{module}.py"])
    onnx.save(text.parse(MODEL), "model.onnx")
    commands = [line.strip() for line in out.splitlines() if line.startswith("  surgery ")]
    assert len(commands) == 2
    for command in commands:
        code, answer, _ = surgery(capsys, *shlex.split(command)[1:])
        assert code == 0, answer
    assert "committed" in answer
    code, answer, _ = surgery(capsys, "test", "--format", "json")
    assert json.loads(answer)["counts"]["passed"] == 2 and code == 0


def test_generated_files_pass_linters_and_type_checkers(folder: Path) -> None:
    """All kinds in one run of each tool: for mypy, reading surgery is nearly all of the work."""
    plans = [plan(f"clean-{kind.replace('_', '-')}", folder, kind) for kind in KINDS]
    for written in plans:
        written.write()
    (folder / "path").mkdir()
    (folder / "path" / "surgery").symlink_to(ROOT / "surgery")
    environment = {**os.environ, "MYPYPATH": str(folder / "path")}
    for command in (
        ["ruff", "check", "--isolated"],
        ["ruff", "format", "--isolated", "--check"],
        ["mypy", "--follow-imports=silent", "--config-file="],
    ):
        done = subprocess.run(
            [sys.executable, "-m", *command, *(str(written.file) for written in plans)],
            capture_output=True,
            text=True,
            env=environment,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_of_every_template_fires(folder: Path) -> None:
    from surgery.engine.registry.catalog import catalog
    from surgery.features import testing

    for kind in KINDS:
        name = f"shown-{kind.replace('_', '-')}"
        written = plan(name, folder, kind)
        written.write()
        catalog.load_plugin(str(written.file))
        example = testing.example(catalog.find(name))
        assert example is not None and "Sub (b, a)" in example.after


def test_existing_files_are_overwritten_only_with_force(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "not_mine.py").write_text("mine")
    code, out, err = surgery(capsys, "new", "pass", "not-mine")
    assert (code, out, err.count("\n")) == (2, "", 1) and "not_mine.py" in err and "--force" in err
    assert files(folder) == ["not_mine.py"]
    assert surgery(capsys, "new", "pass", "not-mine", "--force")[0] == 0
    assert "pattern_pass" in (folder / "not_mine.py").read_text()
    case = folder / "cases" / "not-mine" / "keeps_integers.onnxtxt"
    case.write_text("mine")
    (folder / "not_mine.py").unlink()
    assert surgery(capsys, "new", "pass", "not-mine")[0] == 2
    assert case.read_text() == "mine" and not (folder / "not_mine.py").exists()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("My_Pass", "such as 'my-pass'"),
        ("fuseConvBN", "such as 'fuse-conv-bn'"),
        ("-", "hyphens"),
        ("", "hyphens"),
        ("über", "hyphens"),
        ("../evil", "hyphens"),
        ("fuse-abs", "there is a pass 'fuse-abs' already, from surgery"),
        ("onnx", "hide the module 'onnx'"),
        ("json", "hide the module 'json'"),
        ("sys", "hide the module 'sys'"),
    ],
)
def test_impossible_names_are_refused(folder: Path, capsys: pytest.CaptureFixture[str], name: str, words: str) -> None:
    code, out, err = surgery(capsys, "new", "pass", f"--dir={folder}", "--", name)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err
    assert files(folder) == []


def test_a_keyword_of_python_is_a_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert surgery(capsys, "new", "pass", "lambda")[0] == 0
    assert (folder / "lambda_.py").is_file()
    assert surgery(capsys, "test")[0] == 0


def test_impossible_folders_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "file").write_text("")
    for given, words in (("nowhere", "no such folder"), ("file", "not a folder")):
        code, out, err = surgery(capsys, "new", "pass", "placeless", "--dir", given)
        assert (code, out, err.count("\n")) == (2, "", 1) and words in err
    (folder / "cases").write_text("in the way")
    code, out, err = surgery(capsys, "new", "pass", "placeless")
    assert (code, out, err.count("\n")) == (2, "", 1) and "cannot be written" in err
    assert files(folder) == ["cases", "file"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_to(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.chmod(0o500)
    code, out, err = surgery(capsys, "new", "pass", "closed-out")
    folder.chmod(0o700)
    assert (code, out, err.count("\n")) == (2, "", 1) and "cannot be written" in err


def test_no_file_remains_if_one_cannot_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from surgery.base.errors import OutputError
    from surgery.model.storage import files as storage_files

    class Full(storage_files.NewFile):
        def write_text(self, text: str) -> None:
            if "onnxtxt" in str(self._path):
                raise OSError(28, "No space left on device")
            super().write_text(text)

    monkeypatch.setattr(storage_files, "NewFile", Full)
    with pytest.raises(OutputError, match="No space left"):
        plan("too-much", folder).write()
    assert files(folder) == []


def test_a_project_with_a_package(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "pyproject.toml").write_text('[project]\nname = "acme"\nversion = "1"\n')
    package = folder / "src" / "acme" / "passes"
    package.mkdir(parents=True)
    (folder / "tests").mkdir()
    code, out, _ = surgery(capsys, "new", "pass", "acme-swap", "--dir", "src/acme/passes")
    assert code == 0
    assert '[project.entry-points."surgery.passes"]\n  acme-swap = "acme.passes.acme_swap"\n' in out
    assert (folder / "tests" / "cases" / "acme-swap" / "keeps_integers.onnxtxt").is_file()
    command = next(line.strip() for line in out.splitlines() if line.startswith("  surgery test"))
    assert command == "surgery test --plugin src/acme/passes/acme_swap.py"
    code, out, _ = surgery(capsys, *shlex.split(command)[1:])
    assert code == 0 and "2 passed" in out
    lines = '[project.entry-points."surgery.passes"]\nacme = "acme.passes.acme_other"\n'
    (folder / "pyproject.toml").write_text((folder / "pyproject.toml").read_text() + lines)
    code, out, _ = surgery(capsys, "new", "pass", "acme-other", "--dir", "src/acme/passes", "--format", "json")
    assert json.loads(out)["entry_point"] is None


def test_a_pyproject_above_the_current_folder_is_ignored(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pyproject.toml").write_text("")
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")
    assert plan("further-down", Path()).root == Path()


def test_a_broken_pyproject_does_no_harm(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "pyproject.toml").write_text("[project")
    code, out, _ = surgery(capsys, "new", "pass", "next-to-a-broken-one")
    assert code == 0 and "entry-points" not in out
    assert surgery(capsys, "test")[0] == 0
