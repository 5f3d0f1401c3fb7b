"""Defaults of flags from files: where they are looked for, what counts, and what a project cannot ask for."""

import json
from pathlib import Path

import onnx
import pytest

from surgery.interface import commands as cli
from surgery.model.graph import text

MODEL = "g (float[batch, 4] x) => (float[batch, 4] y) { i = Identity(x) y = Relu(i) }"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a folder in it, which is the current one, and a home of the user's."""
    project = tmp_path / "project"
    (project / "work").mkdir(parents=True)
    (tmp_path / "home" / "surgery").mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(project / "work")
    onnx.save(text.parse(MODEL), "m.onnx")
    return project


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.main(list(arguments))
    return code, *capsys.readouterr()


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, tuple[object, str]]:
    code, out, err = run(capsys, "config", "show", *arguments, "--format", "json")
    assert (code, err) == (0, "")
    found = [one for one in json.loads(out)["values"] if not one["overridden"]]
    return {one["flag"]: (one["value"], one["from"]) for one in found}


def test_a_file_of_the_project_sets_defaults(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "surgery.toml").write_text('[check]\nformat = "json"\n')
    assert json.loads(run(capsys, "check", "m.onnx")[1])
    assert "m.onnx: valid" in run(capsys, "check", "m.onnx", "--format", "text")[1]
    assert "m.onnx: valid" in run(capsys, "check", "m.onnx", "--isolated")[1]
    # That of a nearer folder takes its place.
    Path("pyproject.toml").write_text('[project]\nname = "x"\n[tool.surgery]\nverbose = 1\n')
    assert "m.onnx: valid" in run(capsys, "check", "m.onnx")[1]


def test_a_pyproject_without_the_table_does_not_count(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "surgery.toml").write_text("quiet = true\n")
    Path("pyproject.toml").write_text('[project]\nname = "not-surgery"\n')
    assert shown(capsys)["--quiet"] == (True, f"{folder / 'surgery.toml'}:1")


def test_precedence_of_settings(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    user = folder.parent / "home" / "surgery" / "config.toml"
    user.write_text('unverified = "accept"\ntarget = "standard"\n\n[apply]\ntarget = "ort-cuda"\n')
    project = folder / "pyproject.toml"
    project.write_text('[tool.surgery]\ntarget = "ort-cpu"\n[tool.surgery.apply]\ndims = ["batch=1,2"]\n')
    found = shown(capsys, "apply")
    # The project as a whole comes after the user, even where the user is more specific.
    assert found["--target"] == ("ort-cpu", f"{project}:2")
    assert found["--dims"] == (["batch=1,2"], f"{project}:4")
    assert found["--unverified"] == ("accept", f"{user}:1")
    assert found["--layout"] == ("keep", "default")
    assert "--dims" not in [name for name, (_, where) in shown(capsys, "verify").items() if where != "default"]
    other = folder / "other.toml"
    other.write_text('target = "qnn"\n')
    found = shown(capsys, "apply", "--config", str(other))
    assert found["--target"] == ("qnn", f"{other}:1") and found["--unverified"][1] == "default"
    assert all(where == "default" for _, where in shown(capsys, "apply", "--isolated").values())


def test_a_flag_on_the_command_line_replaces_the_value(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "surgery.toml").write_text('quiet = true\n[apply]\nformat = "json"\ndims = ["batch=2,3"]\n')

    def dims(*arguments: str) -> set[int]:
        report = json.loads(run(capsys, "apply", "tidy", "m.onnx", *arguments)[1])
        return {binding["dims"]["batch"] for binding in report["bindings"]}

    assert dims() == {2, 3}
    # A list is replaced as well, not extended.
    assert dims("--dims", "batch=5") == {5}
    # --quiet of the file and --verbose exclude each other.
    out = run(capsys, "apply", "tidy", "m.onnx", "-v", "--format", "text")[1]
    assert "drop-identity" in out


def test_a_path_is_relative_to_the_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "surgery.toml").write_text('[apply]\ntarget = "./mine.yaml"\n')
    code, out, err = run(capsys, "apply", "tidy", "m.onnx")
    assert (code, out) == (2, "") and str(folder / "mine.yaml") in err


def test_all_mistakes_are_listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / "surgery.toml"
    file.write_text(
        'vebose = 1\n[aply]\nstrict = true\n[apply]\nstrict = "yes"\nlayout = "singel"\nseconds = 3\n'
        "[recipe.chek]\nquiet = true\n[bench]\nstrict = 1\ndims = [true]\n"
    )
    code, out, err = run(capsys, "check", "m.onnx")
    assert (code, out) == (2, "")
    assert err.removeprefix("surgery: ").splitlines() == [
        f"{file}:1:1: no flag 'vebose'; did you mean 'verbose'?",
        f"{file}:2:1: no command 'aply'; did you mean 'apply'?",
        f"{file}:5:1: 'strict' takes true or false",
        f"{file}:6:1: 'layout' cannot be 'singel'; did you mean 'single'?",
        f"{file}:7:1: no flag 'seconds' of surgery apply",
        f"{file}:8:1: no command 'chek' of surgery recipe; did you mean 'check'?",
        f"{file}:11:1: no flag 'strict' of surgery bench",
        f"{file}:12:1: 'dims' takes text or a number",
    ]


def test_a_number_in_quotes_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / "surgery.toml"
    file.write_text('[batch]\njobs = "2"\nexclude = "*/old/*"\n')
    code, _, err = run(capsys, "check", "m.onnx")
    assert (code, err) == (2, f"{file}:2:1: 'jobs' takes a number, without quotes\n")


def test_a_value_that_the_flag_refuses_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "surgery.toml").write_text("[bench]\nrepeats = -3\n")
    code, _, err = run(capsys, "bench", "m.onnx", "m.onnx")
    assert code == 2 and err.startswith(f"surgery: {folder / 'surgery.toml'}:2: 'repeats': ") and err.count("\n") == 1


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("trust", "true", "a file of default flags cannot grant trust"),
        ("plugin", '["./evil.py"]', "a project's file cannot set 'plugin'"),
        ("custom_op_library", '["./evil.so"]', "a project's file cannot set 'custom_op_library'"),
        ("metric", '"evil.py:f"', "a project's file cannot set 'metric'"),
        ("in_process", "true", "a project's file cannot set 'in_process'"),
        ("output", '"/etc/x"', "a project's file cannot set 'output'"),
        ("report", '"/etc/x"', "a project's file cannot set 'report'"),
        ("force", "true", "a project's file cannot set 'force'"),
        ("log-file", '"/etc/x"', "a project's file cannot set 'log-file'"),
    ],
)
def test_a_project_cannot_ask_for_trust(
    folder: Path, capsys: pytest.CaptureFixture[str], key: str, value: str, words: str
) -> None:
    (folder / "evil.py").write_text("open('was-here', 'w')")
    (folder / "surgery.toml").write_text(f"[apply]\n{key} = {value}\n")
    code, out, err = run(capsys, "apply", "tidy", "m.onnx")
    assert (code, out) == (2, "") and words in err and err.count("\n") == 1
    assert [path.name for path in folder.rglob("was-here")] == []
    # The user's own file can set all but trust.
    (folder / "surgery.toml").replace(folder.parent / "home" / "surgery" / "config.toml")
    assert ("grant trust" in run(capsys, "config", "show")[2]) == (key == "trust")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[apply\n", ":1:7: this is not TOML: Expected ']' at the end of a table declaration"),
        (b"\xff\xfe", "cannot be read"),
        (b"a = 1\na = 2\n", ":2:6: this is not TOML: Cannot overwrite a value"),
    ],
)
def test_a_file_that_is_not_toml(folder: Path, capsys: pytest.CaptureFixture[str], content: bytes, words: str) -> None:
    (folder / "surgery.toml").write_bytes(content)
    code, out, err = run(capsys, "check", "m.onnx")
    assert (code, out) == (2, "") and words in err and err.count("\n") == 1


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "check", "m.onnx", "--config", "none.toml")
    assert (code, err) == (2, "surgery: --config none.toml: no such file\n")
