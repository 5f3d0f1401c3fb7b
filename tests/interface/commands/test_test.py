"""`surgery test`: the case files of a project that is not ours."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import SUPPORT

from surgery.features import testing
from surgery.interface import commands as cli

pytestmark = pytest.mark.slow

KILLERS = SUPPORT / "plugin_killers.py"
PASS = '''
from surgery import Builder, Match, Parity, Value, pattern_pass


@pattern_pass("NAME", match="n = Neg(x)\\ny = Neg(n)", parity=Parity.EXACT)
def double(m: Match, new: Builder) -> Value:
    """Drop two Neg that cancel."""
    m.require(m.x.dtype is not None and m.x.dtype.is_floating_point(), "not floating point")
    m.require(m.x.rank != 3, f"of rank {m.x.rank}")
    value: Value = m.x
    return value
'''
GRAPH = "g (float[k] a) => (float[k] y) { b = Neg(a) c = Neg(b) y = Relu(c) }"
FIRES = f"{GRAPH}\n\n# after\ng (float[k] a) => (float[k] y) {{ y = Relu(a) }}\n"
INTEGERS = f"# refused: not floating point\n{GRAPH.replace('float', 'int32')}\n"
CUBES = f"# refused: of rank 3\n{GRAPH.replace('[k]', '[k, 2, 2]')}\n"

Project = Callable[..., Path]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A folder with a pass and cases; each test gives the pass a separate name, for passes are known by name."""
    monkeypatch.chdir(tmp_path)

    def make(name: str, home: str = "cases", **cases: str) -> Path:
        (tmp_path / f"{name.replace('-', '_')}.py").write_text(PASS.replace("NAME", name))
        folder = tmp_path / home / name
        folder.mkdir(parents=True)
        for situation, source in (cases or {"fires": FIRES, "integers": INTEGERS, "cubes": CUBES}).items():
            (folder / f"{situation}.onnxtxt").write_text(source)
        return folder

    return make


def surgery(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("home", testing.HOMES)
def test_a_project_is_found(project: Project, capsys: pytest.CaptureFixture[str], home: str) -> None:
    folder = project(f"found-{home.replace('/', '-')}", home)
    code, out, err = surgery(capsys, "test")
    assert (code, err) == (0, "") and out.startswith("3 passed in ")
    for place in (folder, folder.parent, folder.parent.parent):
        code, out, _ = surgery(capsys, "test", place)
        assert code == 0 and out.startswith("3 passed in ")


def test_a_part_of_a_project_needs_no_cases_for_other_passes(
    project: Project, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = project("one-of-two")
    (tmp_path / "other.py").write_text(PASS.replace("NAME", "two-of-two"))
    assert surgery(capsys, "test")[0] == 1
    assert surgery(capsys, "test", folder)[0] == 0
    code, out, _ = surgery(capsys, "test", folder / "fires.onnxtxt")
    assert code == 0 and out.startswith("1 passed in ")
    (folder / "cubes.onnxtxt").unlink()
    code, out, _ = surgery(capsys, "test", folder)
    assert code == 1 and "one-of-two: no case in which it is refused because 'of rank …'" in out


def test_a_failing_case_is_a_line_and_a_difference(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = FIRES.replace("y = Relu(a)", "y = Abs(a)")
    project("wrong-cases", fires=FIRES, wrong=wrong, integers=INTEGERS, cubes=CUBES.replace("rank 3", "rank 4"))
    code, out, _ = surgery(capsys, "test")
    assert code == 1
    lines = out.splitlines()
    assert "failed cases/wrong-cases/wrong.onnxtxt: the result is different" in lines
    assert "    -y = Abs(a)" in lines and "    +y = Relu(a)" in lines
    assert any("cubes.onnxtxt: not refused because 'of rank 4'; the given reasons: ['of rank 3']" in s for s in lines)
    assert lines[-1].startswith("2 passed, 2 failed")


def test_uncovered_behaviour_is_reported(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    folder = project("half-shown", cubes=CUBES)
    code, out, _ = surgery(capsys, "test")
    assert code == 1
    assert "half-shown: no case in which it fires" in out
    assert "half-shown: no case in which it is refused because 'not floating point'" in out
    assert "of rank" not in out
    assert surgery(capsys, "test", "-k", "cubes")[0] == 0
    (folder / "fires.onnxtxt").write_text(FIRES)
    (folder / "integers.onnxtxt").write_text(INTEGERS)
    assert surgery(capsys, "test")[0] == 0


def test_a_pass_without_any_case_is_reported(
    project: Project, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    project("with-cases")
    (tmp_path / "more.py").write_text(PASS.replace("NAME", "without-cases"))
    (tmp_path / "unrelated.py").write_text("raise SystemExit('nobody asked')")
    (tmp_path / "test_x.py").write_text(PASS.replace("NAME", "of-a-test") + "raise RuntimeError")
    code, out, _ = surgery(capsys, "test")
    assert code == 1 and "without-cases: no case in which it fires" in out and "of-a-test" not in out


def test_malformed_cases_do_not_hide_the_others(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    folder = project("malformed-too")
    (folder / "bytes.onnxtxt").write_bytes(b"\xff\xfe")
    (folder / "folder.onnxtxt").mkdir()
    (folder / "silent.onnxtxt").write_text(GRAPH)
    (folder / "misspelt.onnxtxt").write_text(f"# refuse: not floating point\n{GRAPH}")
    (folder / "syntax.onnxtxt").write_text("# unchanged: x\ng (float[k] a) => {")
    (folder / "below.onnxtxt").write_text(f"{GRAPH}\n# after\ng (")
    (folder / "option.onnxtxt").write_text(f"# options: {{size: 3}}\n# unchanged: x\n{GRAPH}")
    (folder / "yaml.onnxtxt").write_text(f"# options: [\n# unchanged: x\n{GRAPH}")
    (folder / "list.onnxtxt").write_text(f"# options: [1]\n# unchanged: x\n{GRAPH}")
    other = folder.parent / "malformed-to" / "x.onnxtxt"
    other.parent.mkdir()
    other.write_text(FIRES)
    code, out, _ = surgery(capsys, "test")
    assert code == 2
    told = {line.split(": ")[0].rpartition("/")[2]: line for line in out.splitlines() if line.startswith("malformed ")}
    for file, words in {
        "bytes": "not UTF-8",
        "folder": "cannot be read",
        "silent": "--bless",
        "misspelt": "did you mean '# refused:'",
        "syntax": "not ONNX text",
        "below": "below '# after': not ONNX text",
        "option": "no option 'size'",
        "yaml": "not YAML",
        "list": "not a mapping",
        "x": "did you mean 'malformed-too'",
    }.items():
        assert words in told[f"{file}.onnxtxt"]
    assert out.splitlines()[-1].startswith("3 passed, 10 malformed")


@pytest.mark.parametrize("places", [[], ["nowhere"], ["empty"], ["file.txt"]])
def test_nothing_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], places: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("")
    code, out, err = surgery(capsys, "test", *places)
    assert (code, out, err.count("\n")) == (2, "", 1)
    if places in ([], ["empty"]):
        assert "tests/cases" in err and "surgery new pass" in err


def test_wrong_flags(project: Project, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    project("wrong-flags")
    (tmp_path / "bad.txt").write_text("")
    for flags, words in (
        (["-k", "nothing"], "none of 3 cases"),
        (["--timeout", "0"], "positive number"),
        (["--plugin", "nowhere.py"], "no plugin file"),
        (["--plugin", "no_such_module"], "no plugin module"),
    ):
        code, out, err = surgery(capsys, "test", *flags)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert words in err


@pytest.mark.parametrize("mistake", ["def f(:", "raise SystemExit(0)", "import no_such_module_at_all", "1 / 0"])
def test_a_plugin_that_cannot_be_imported(
    project: Project, capsys: pytest.CaptureFixture[str], tmp_path: Path, mistake: str
) -> None:
    project(f"next-to-{abs(hash(mistake))}")
    (tmp_path / "broken.py").write_text(f"from surgery import pattern_pass\npattern_pass('x', match='')\n{mistake}\n")
    code, out, err = surgery(capsys, "test")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "'broken.py' cannot be imported" in err


def test_a_crashing_pass_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = "# unchanged: x\ng (float[n] x) => (float[n] y) { i = Identity(x) r = Relu(i) y = Neg(r) }"
    for name in ("raise", "abort", "exit", "loop", "order", "return"):
        path = tmp_path / "cases" / f"kill-{name}" / "it.onnxtxt"
        path.parent.mkdir(parents=True)
        path.write_text(graph)
    code, out, _ = surgery(capsys, "test", "--plugin", KILLERS, "--timeout", "4")
    assert code == 3
    for words in (
        "kill-raise/it.onnxtxt: pass 'kill-raise' raised LookupError: no such luck",
        "'kill-abort' crashed with SIGABRT",
        "'kill-exit' ended the process with exit code 7",
        "'kill-loop' took more than 4 s",
        "created a cycle",
        "returned a str",
        "right-print: no case in which it fires",
    ):
        assert words in out
    assert "6 crashed" in out


def test_bless_updates_only_failing_cases(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    kept = FIRES.replace("y = Relu(a)", "y   =   Relu(a)")
    folder = project(
        "blessed-cases",
        fires=kept,
        integers=f"# a remark\n{INTEGERS.replace('point', 'points')}",
        new=GRAPH.replace("Relu", "Abs"),
        cubes=CUBES,
    )
    code, out, _ = surgery(capsys, "test", "--bless")
    assert code == 0 and "2 passed, 2 blessed" in out
    assert (folder / "fires.onnxtxt").read_text() == kept
    assert (folder / "cubes.onnxtxt").read_text() == CUBES
    assert (folder / "integers.onnxtxt").read_text().startswith("# refused: not floating point\n# a remark\n")
    assert testing.read_case(folder / "new.onnxtxt").after is not None
    assert surgery(capsys, "test")[0] == 0


def test_bless_does_not_make_a_wrong_result_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "cases" / "wrong-drop-relu" / "it.onnxtxt"
    path.parent.mkdir(parents=True)
    path.write_text("g (float[n] x) => (float[n] y) { r = Relu(x) y = Neg(r) }")
    plugin = SUPPORT / "plugin_wrong.py"
    code, out, _ = surgery(capsys, "test", "--plugin", plugin, "--bless", "-k", "wrong-drop")
    assert code == 1 and "parity: different" in out


def test_json(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project("in-json", fires=FIRES.replace("y = Relu(a)", "y = Abs(a)"), cubes=CUBES)
    code, out, _ = surgery(capsys, "test", "--format", "json")
    data = json.loads(out)
    assert code == 1 and data["ok"] is False
    assert data["counts"] == {"passed": 1, "blessed": 0, "failed": 1, "malformed": 0, "crashed": 0}
    failed = next(case for case in data["cases"] if case["status"] == "failed")
    assert failed["case"] == "in-json/fires" and failed["path"] == "cases/in-json/fires.onnxtxt"
    assert failed["findings"][0]["what"] == "the result is different" and "Abs" in failed["findings"][0]["diff"]
    assert len(data["incomplete"]) == 1


def test_many_cases_run_in_several_processes(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    folder = project("many-cases")
    for number in range(20):
        (folder / f"fires_{number:02}.onnxtxt").write_text(FIRES if number != 7 else FIRES.replace("Relu(a)", "Abs(a)"))
    code, out, _ = surgery(capsys, "test")
    assert code == 1 and "22 passed, 1 failed" in out and "fires_07.onnxtxt" in out


def test_an_installed_pass_is_complete_for_its_own_project(
    project: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cases for passes of others, surgery's own among them, oblige nobody to show all that those do."""
    project("of-the-project")
    path = tmp_path / "cases" / "drop-identity" / "mine.onnxtxt"
    path.parent.mkdir()
    path.write_text("# unchanged: nothing there\n" + GRAPH)
    code, out, _ = surgery(capsys, "test")
    assert code == 0 and "4 passed" in out


def test_the_lines_for_pytest_work(project: Project, tmp_path: Path) -> None:
    folder = project("in-pytest", home="tests/cases", fires=FIRES, wrong=FIRES.replace("Relu(a)", "Abs(a)"))
    _, start, rest = (testing.__doc__ or "").partition("    import pytest\n")
    lines = "\n".join(line[4:] for line in (start + rest.partition("\nThe passes")[0]).splitlines())
    assert "testing.check(case)" in lines
    plugin = 'from surgery.engine.registry.catalog import catalog\ncatalog.load_plugin("in_pytest.py")\n'
    (tmp_path / "tests" / "test_passes.py").write_text(plugin + lines)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert "1 failed, 1 passed" in done.stdout
    assert "in-pytest/wrong.onnxtxt: the result is different" in done.stdout
    shutil.rmtree(folder)
