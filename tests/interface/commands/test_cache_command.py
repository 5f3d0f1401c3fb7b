"""`surgery cache`, and the flags of the cache: what is typed, and what is answered."""

import json
from pathlib import Path

import pytest
from support.cached_runs import RECIPE, write_model

from surgery.interface import commands as cli


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SURGERY_CACHE_DIR", "cache")
    write_model(tmp_path / "model.onnx")
    (tmp_path / "test.yaml").write_text(RECIPE)
    return tmp_path


def surgery(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


APPLY = ("apply", "test.yaml", "model.onnx")


def test_reports_mark_cached_steps(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, plain, _ = surgery(capsys, *APPLY, "-o", "plain.onnx")
    assert "cache" not in plain and not (place / "cache").exists()
    _, cold, _ = surgery(capsys, *APPLY, "-o", "cold.onnx", "--cache")
    assert "cache" not in cold
    code, warm, _ = surgery(capsys, *APPLY, "-o", "warm.onnx", "--cache", "--report", "report.html")
    assert code == 0
    assert "From the cache: 6 of 6 steps and the verdict on the whole model" in " ".join(warm.split())
    assert [line.split()[-1] for line in warm.splitlines() if line.startswith(("drop-identity", "cut-relu"))] == [
        "cached",
        "cached",
    ]
    page = (place / "report.html").read_text()
    assert "From the cache" in page and page.count(">cached<") == 6
    assert len({(place / f"{name}.onnx").read_bytes() for name in ("plain", "cold", "warm")}) == 1
    _, quiet, _ = surgery(capsys, *APPLY, "--cache", "-q")
    assert "From the cache: 6 of 6 steps" in " ".join(quiet.split())
    _, summary, _ = surgery(capsys, *APPLY, "--cache", "--format", "markdown")
    assert "From the cache: 6 of 6 steps" in summary
    _, data, _ = surgery(capsys, *APPLY, "--cache", "--format", "json")
    assert json.loads(data)["cached"] == {"steps": 6, "end": True}
    assert all(step["cached"] for step in json.loads(data)["steps"])


def test_run_uses_the_cache_too(capsys: pytest.CaptureFixture[str]) -> None:
    for cached in (0, 1):
        _, out, _ = surgery(capsys, "run", "fold-constants", "model.onnx", "--cache", "--format", "json")
        assert json.loads(out)["cached"]["steps"] == cached


def test_resume_reports_the_step_it_starts_at(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = surgery(capsys, *APPLY, "--resume")
    assert "nothing to resume: no step of this run is cached; starting at step 1 of 6" in err
    # As if the run had been killed: the last entries are missing.
    steps = sorted((place / "cache" / "v1" / "runs").glob("*/*"), key=lambda path: path.stat().st_mtime_ns)
    for path in steps[-5:]:
        path.unlink()
    _, _, err = surgery(capsys, *APPLY, "--resume")
    assert "resumed at step 5 of 6" in err
    _, _, err = surgery(capsys, *APPLY, "--resume", "-o", "done.onnx")
    assert "resume" not in err and "wrote done.onnx" in err


def test_resume_reports_why_it_cannot(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        _, _, err = surgery(capsys, *APPLY, "--resume", "--in-process")
    assert "nothing to resume: passes run in this process, for debugging; starting at step 1 of 6" in err


def test_info_and_prune(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        surgery(capsys, *APPLY, "--cache", "-q")
    code, out, _ = surgery(capsys, "cache", "info")
    rows = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert code == 0 and rows["folder"] == "cache" and rows["entries"] == "9 of 1 set of runs"
    # Six steps, both verdicts on the whole and what is said of the original were found, and the steps missed once.
    assert rows["found"] == "9 of 15 (60%)" and rows["size"].endswith("of at most 10.0 GB")
    _, out, _ = surgery(capsys, "cache", "info", "--format", "json")
    data = json.loads(out)
    assert (data["format_version"], data["entries"], data["tensors"]) == (1, 9, 1)
    assert data["tensor_bytes"] == 160 * 160 * 4
    _, out, _ = surgery(capsys, "cache", "prune", "--older-than", "1h")
    assert out.startswith("removed 0 files (0 B); ")
    _, out, _ = surgery(capsys, "cache", "prune", "--max-size", "105KB")
    assert out.startswith("removed ") and not out.startswith("removed 0")
    _, out, _ = surgery(capsys, "cache", "prune", "--all", "--format", "json")
    assert json.loads(out)["left"] == 0
    assert not [path for path in (place / "cache").rglob("*") if path.is_file()]


def test_info_and_prune_create_no_folder(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SURGERY_CACHE_DIR", "none")
    code, out, _ = surgery(capsys, "cache", "info")
    assert code == 0 and "entries  0 of 0 sets of runs" in out
    assert surgery(capsys, "cache", "prune", "--all") == (0, "removed 0 files (0 B); 0 B left\n", "")
    for arguments in (("info",), ("prune", "--all")):
        code, _, err = surgery(capsys, "cache", *arguments, "--cache-dir", "cahce")
        assert code == 2 and err.startswith("surgery: cahce: there is no such folder; name the folder of a cache")
    assert not Path("none").exists() and not Path("cahce").exists()


def test_a_run_that_adds_nothing_removes_entries_above_the_limit(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    surgery(capsys, *APPLY, "--cache", "-q")
    monkeypatch.setenv("SURGERY_CACHE_SIZE", "10B")
    surgery(capsys, *APPLY, "--cache", "-q")
    assert not list((place / "cache" / "v1" / "runs").glob("*/*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cache", "prune"), "nothing to remove is selected; pass --older-than 30d, --max-size 2GB or --all"),
        (
            ("cache", "prune", "--older-than", "soon"),
            "--older-than 'soon' is not a time; write a number with s, m, h, d or w",
        ),
        (("cache", "prune", "--max-size", "big"), "--max-size: 'big' is not a size such as 4096, 64KiB or 1MB"),
        (("cache", "prune", "--all", "--max-size", "1MB"), "--all removes everything; omit --older-than and"),
        (("cache", "info", "--cache-dir", "model.onnx"), "model.onnx: the cache cannot be used: Not a directory; name"),
        ((*APPLY, "--cache-dir", "model.onnx"), "model.onnx: the cache cannot be used: Not a directory; name another"),
        ((*APPLY, "--resume", "--no-cache"), "--no-cache does not go with --resume; omit one of them"),
    ],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str) -> None:
    code, out, err = surgery(capsys, *arguments)
    assert code == 2 and out == "" and err.startswith(f"surgery: {message}") and err.count("\n") == 1


def test_a_wrong_size_in_the_environment_is_reported_before_a_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SURGERY_CACHE_SIZE", "lots")
    code, _, err = surgery(capsys, *APPLY, "--cache")
    assert code == 2 and err.startswith("surgery: SURGERY_CACHE_SIZE: 'lots' is not a size")


def test_the_cache_folder_follows_the_xdg_specification(monkeypatch: pytest.MonkeyPatch) -> None:
    from surgery.engine.caching.cache_folder import default_folder

    monkeypatch.delenv("SURGERY_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert default_folder() == Path("/xdg/surgery")
    for relative in ("", "somewhere"):
        monkeypatch.setenv("XDG_CACHE_HOME", relative)
        assert default_folder() == Path.home() / ".cache" / "surgery"


def test_a_damaged_entry_gives_one_warning(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    surgery(capsys, *APPLY, "--cache", "-q")
    steps = sorted((place / "cache" / "v1" / "runs").glob("*/*"), key=lambda path: path.stat().st_mtime_ns)
    steps[1].write_bytes(steps[1].read_bytes()[:-1])
    code, _, err = surgery(capsys, *APPLY, "--cache", "-q")
    assert code == 0
    assert err == f"surgery: warning: {steps[1].relative_to(place)}: removed from the cache, because it is damaged\n"
