"""`surgery batch` from end to end: results, resuming, interruption, kills, and what is said of mistakes."""

from __future__ import annotations

import json
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support import batches, lacking
from support.corpus import models

from surgery.engine.batching import ledger
from surgery.engine.batching.ledger import NAME, LedgerRow
from surgery.engine.provenance.file_digests import file_or_folder
from surgery.interface import commands as cli

pytestmark = pytest.mark.slow


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "surgery", "batch", *map(str, arguments)]


def run(*arguments: object) -> int:
    return cli.main(["batch", *map(str, arguments)])


def rows(folder: Path) -> dict[str, LedgerRow]:
    return {row.name: row for row in ledger.read(folder / NAME)}


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    batches.recipe(tmp_path)
    folder = batches.write(tmp_path / "zoo", "a.onnx", "deep/b.onnx", "deep/c.onnx")
    (folder / "broken.onnx").write_bytes(b"\x08\x0a no model")
    return folder


def test_models_are_run_and_reported(zoo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe, out = tmp_path / "quick.yaml", tmp_path / "out"
    code = run(
        recipe, zoo, "--out", out, "--jobs", 2, "--results", tmp_path / "r.jsonl", "--report", tmp_path / "r.html"
    )
    said = capsys.readouterr()
    assert code == 1
    assert re.search(r"^failed: 1 of 4 models, 3 done; 9 -> 3 nodes \(-67 %\), .*; \d.* s$", said.out, re.MULTILINE)
    assert said.out.count("broken.onnx") == 1 and str(zoo) not in said.out
    assert "broken.onnx" in said.out and "model-file" in said.out
    assert f"the ledger is {out / NAME}" in said.err and f"wrote {tmp_path / 'r.html'}" in said.err
    found = rows(out)
    assert {name: row.state for name, row in found.items()} == {
        "a.onnx": "done",
        "broken.onnx": "failed",
        "deep/b.onnx": "done",
        "deep/c.onnx": "done",
    }
    done = found["deep/c.onnx"]
    assert (done.nodes_before, done.nodes_after, done.verdict, done.attempts, done.tolerance) == (4, 1, "equal", 1, 0.0)
    assert done.bytes_before == (zoo / "deep/c.onnx").stat().st_size
    written = onnx.load(out / "deep/c.onnx")
    del written.metadata_props[:]
    assert done.bytes_after == written.ByteSize() < (out / "deep/c.onnx").stat().st_size
    assert [node.op_type for node in onnx.load(out / "deep/c.onnx").graph.node] == ["Relu"]
    assert found["broken.onnx"].kind == "model-file" and found["broken.onnx"].stage == "reading"
    assert not (out / "broken.onnx").exists()
    lines = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert [line["name"] for line in lines] == list(found)
    assert "1 model of 4 failed." in (tmp_path / "r.html").read_text()


def test_the_result_equals_that_of_apply(zoo: Path, tmp_path: Path) -> None:
    run(tmp_path / "quick.yaml", zoo, "--out", tmp_path / "out", "--jobs", 1, "-q")
    assert (
        cli.main(["apply", str(tmp_path / "quick.yaml"), str(zoo / "deep/c.onnx"), "-o", str(tmp_path / "c.onnx")]) == 0
    )
    assert (tmp_path / "out/deep/c.onnx").read_bytes() == (tmp_path / "c.onnx").read_bytes()


def test_the_same_command_runs_only_what_changed(
    zoo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (zoo / "broken.onnx").unlink()
    monkeypatch.chdir(tmp_path)
    again = ("quick.yaml", "zoo", "--out", "out", "--jobs", 1, "--format", "json")
    assert run(*again) == 0
    assert json.loads(capsys.readouterr().out)["run"] == 3
    first = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.onnx")}
    assert run(*again) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["run"], found["counts"], found["format_version"]) == (0, {"done": 3}, 1)
    assert {path: path.stat().st_mtime_ns for path in first} == first
    onnx.save(batches.model(7), zoo / "a.onnx")
    (tmp_path / "out/deep/b.onnx").unlink()
    assert run(*again) == 0
    assert json.loads(capsys.readouterr().out)["run"] == 2
    assert {name: row.nodes_before for name, row in rows(tmp_path / "out").items()} == {
        "a.onnx": 8,
        "deep/b.onnx": 3,
        "deep/c.onnx": 4,
    }
    (tmp_path / "quick.yaml").write_text("recipe: quick\nsteps: [drop-identity, drop-dead]\n")
    assert run(*again) == 0
    assert json.loads(capsys.readouterr().out)["run"] == 3


def test_a_manifest_with_recipes_outputs_and_reasons(zoo: Path, tmp_path: Path) -> None:
    (tmp_path / "keep.yaml").write_text("recipe: keep\nsteps: [drop-dead]\n")
    (tmp_path / "list.jsonl").write_text(
        '{"model": "zoo/a.onnx", "recipe": "keep.yaml", "output": "kept.onnx"}\n'
        '{"model": "zoo/deep/b.onnx"}\n{"model": "zoo/broken.onnx", "skip": "cut short"}\n'
    )
    assert run(tmp_path / "quick.yaml", tmp_path / "list.jsonl", "--out", tmp_path / "out", "--jobs", 1) == 0
    assert {name: (row.state, row.nodes_after, row.reason) for name, row in rows(tmp_path / "out").items()} == {
        "kept.onnx": ("done", 2, ""),
        "zoo/broken.onnx": ("skipped", None, "cut short"),
        "zoo/deep/b.onnx": ("done", 1, ""),
    }


def test_inputs_of_a_manifest_are_read_once_and_again_if_they_change(
    zoo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from surgery.engine.batching import batch

    read: list[Path] = []
    monkeypatch.setattr(batch, "file_or_folder", lambda path: read.append(path) or file_or_folder(path))
    np.savez(tmp_path / "x.npz", x=np.zeros(2, np.float32))
    (tmp_path / "list.jsonl").write_text(
        '{"model": "zoo/a.onnx", "inputs": "x.npz"}\n{"model": "zoo/deep/b.onnx", "inputs": "x.npz"}\n'
        '{"model": "zoo/deep/c.onnx", "inputs": "gone.npz", "skip": "no inputs yet"}\n'
    )
    asked = (tmp_path / "quick.yaml", tmp_path / "list.jsonl", "--out", tmp_path / "out", "--jobs", 1)
    for run_again in (2, 0):
        assert run(*asked, "--format", "json") == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["run"], found["counts"]) == (run_again, {"done": 2, "skipped": 1})
    assert read == [tmp_path / "x.npz"] * 2
    np.savez(tmp_path / "x.npz", x=np.ones(2, np.float32))
    assert run(*asked, "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["run"] == 2


def test_a_changed_target_profile_runs_models_again(
    zoo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (zoo / "broken.onnx").unlink()
    target = tmp_path / "t.yaml"
    asked = (tmp_path / "quick.yaml", zoo, "--out", tmp_path / "out", "--target", target, "--jobs", 1)
    for about, run_again in (("one", 3), ("one", 0), ("another", 3)):
        target.write_text(f"target: own\nabout: {about}\ndomains: [ai.onnx]\n")
        assert run(*asked, "--format", "json") == 0
        assert json.loads(capsys.readouterr().out)["run"] == run_again


def waited(condition: Callable[[], Any], run: subprocess.Popen[str]) -> None:
    """Wait until something is so, while a command runs."""
    deadline = time.monotonic() + 120
    while run.poll() is None and time.monotonic() < deadline:
        try:
            if condition():
                return
        except (sqlite3.Error, OSError, Exception):
            pass
        time.sleep(0.02)
    raise AssertionError(f"the command ended too early, or never began: {run.communicate(timeout=5)}")


def many(folder: Path, count: int) -> Path:
    return batches.write(folder, *(f"m{number:02}.onnx" for number in range(count)))


def children(pid: int) -> list[str]:
    return [text for path in Path(f"/proc/{pid}/task").glob("*/children") for text in path.read_text().split()]


def test_an_interrupt_ends_the_batch_cleanly(tmp_path: Path) -> None:
    recipe, out = batches.recipe(tmp_path), tmp_path / "out"
    asked = command(recipe, many(tmp_path / "zoo", 60), "--out", out, "--jobs", 1)
    begun = subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    waited(lambda: any(row.state == "done" for row in rows(out).values()), begun)
    below = children(begun.pid)
    begun.send_signal(signal.SIGINT)
    said = begun.communicate(timeout=60)[1]
    assert begun.returncode == 130
    assert "surgery: interrupted; " in said and said.rstrip().endswith("left; run the same command again to continue")
    found = rows(out)
    assert {row.state for row in found.values()} == {"done", "queued"}
    assert {path.name for path in out.glob("*.onnx")} <= set(found)
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in below) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert below and not any(Path(f"/proc/{pid}").exists() for pid in below)


def compared(reference: Path, out: Path, in_flight: dict[str, int]) -> None:
    """Assert that two runs have the same ledgers, but for seconds and attempts, and the same files."""
    first, second = ({name: row.to_json() for name, row in rows(folder).items()} for folder in (reference, out))
    for found in (first, second):
        for row in found.values():
            attempts = row.pop("attempts")
            row.pop("seconds")
            assert attempts <= 1 + in_flight.get(row["name"], 0), row["name"]
    assert first == second
    names = {path.relative_to(reference) for path in reference.rglob("*.onnx")}
    assert names == {path.relative_to(out) for path in out.rglob("*.onnx")}
    assert all((reference / name).read_bytes() == (out / name).read_bytes() for name in names)


def killed(asked: list[str], out: Path, chance: random.Random, seconds: float, in_flight: dict[str, int]) -> None:
    """Kill a batch at a random moment after it began with a model."""
    begun = subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    waited(lambda: any(row.state == "running" for row in rows(out).values()), begun)
    time.sleep(chance.uniform(0, seconds))
    begun.kill()
    begun.communicate(timeout=60)
    for name, row in rows(out).items():
        in_flight[name] = in_flight.get(name, 0) + (row.state == "running")


def test_a_killed_batch_is_resumed(tmp_path: Path) -> None:
    recipe, zoo = batches.recipe(tmp_path), many(tmp_path / "zoo", 24)
    reference, out = tmp_path / "reference", tmp_path / "out"
    assert run(recipe, zoo, "--out", reference, "--jobs", 2, "-q") == 0
    in_flight: dict[str, int] = {}
    asked = command(recipe, zoo, "--out", out, "--jobs", 2, "-q")
    for _ in range(2):
        killed(asked, out, random.Random(0), 0.5, in_flight)
    assert run(recipe, zoo, "--out", out, "--jobs", 2, "-q") == 0
    compared(reference, out, in_flight)


@pytest.mark.slow
def test_a_batch_of_onnx_test_models_is_resumed_after_many_kills(tmp_path: Path) -> None:
    zoo, chosen = tmp_path / "zoo", list(models())[::34]
    for name, model in chosen:
        path = zoo / (name if name.endswith(".onnx") else f"{name}.onnx")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(model if isinstance(model, bytes) else model.read_bytes())
    reference, out = tmp_path / "reference", tmp_path / "out"
    run("default", zoo, "--out", reference, "--jobs", 2, "-q")
    assert len(rows(reference)) == len(chosen)
    assert lacking.are_old() or len(chosen) >= 2033 // 34  # an older onnx brings fewer models
    in_flight: dict[str, int] = {}
    chance = random.Random(1)
    for _ in range(5):
        killed(command("default", zoo, "--out", out, "--jobs", 2, "-q"), out, chance, 1.5, in_flight)
    run("default", zoo, "--out", out, "--jobs", 2, "-q")
    compared(reference, out, in_flight)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nope", "zoo"], "no recipe 'nope'; shipped are"),
        (["quick.yaml", "zoo/none.onnx"], "zoo/none.onnx: no such file or folder"),
        (["quick.yaml", "zoo", "--jobs", "0"], "--jobs must be at least 1, not 0"),
        (["quick.yaml", "zoo", "--timeout", "-1"], "--timeout must be a number of seconds, not -1"),
        (["quick.yaml", "zoo", "--memory", "much"], "--memory: 'much' is not a size such as 4096, 64KiB or 1MB"),
        (["quick.yaml", "zoo", "--executor", "dusk:x"], "there is no executor 'dusk'; did you mean 'dask'?"),
        (["quick.yaml", "zoo", "--executor", "local:4"], "--executor local takes no address"),
        (["quick.yaml", "zoo", "--executor", "dask"], "--executor dask needs the address of a scheduler"),
        (["quick.yaml", "zoo", "--out", "-"], "standard output takes one file, and this command writes several"),
        (["quick.yaml", "zoo", "--results", "r.csv"], "r.csv: results are written as .jsonl"),
        (["quick.yaml", "zoo", "--report", "gone/r.html"], "does not exist"),
    ],
)
def test_mistakes(
    zoo: Path,
    tmp_path: Path,
    arguments: list[str],
    problem: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("--out", "out", *arguments) == 2
    assert problem in capsys.readouterr().err


def test_the_recipe_may_be_a_file_url(zoo: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run((tmp_path / "quick.yaml").as_uri(), zoo / "a.onnx", "--out", out, "--jobs", 1, "-q") == 0
    assert rows(out)["a.onnx"].recipe == str(tmp_path / "quick.yaml")


def test_a_finished_batch_reports_mistakes_in_the_executor(
    zoo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = (tmp_path / "quick.yaml", zoo / "a.onnx", "--out", tmp_path / "out", "--jobs", 1)
    assert run(*asked) == 0
    assert "ok: 1 model: 1 done; 2 -> 1 nodes" in capsys.readouterr().out
    assert run(*asked) == 0
    assert capsys.readouterr().out.rstrip().endswith("; 1 was finished before")
    for name in ("nowhere", "local:4", "dask"):
        assert run(*asked, "--executor", name) == 2
        assert "executor" in capsys.readouterr().err


def test_skipped_models_were_not_finished_before(zoo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = tmp_path / "list.jsonl"
    listed = ['{"model": "zoo/a.onnx"}', '{"model": "zoo/deep/b.onnx", "skip": "waits"}']
    asked = (tmp_path / "quick.yaml", manifest, "--out", tmp_path / "out", "--jobs", 1)
    manifest.write_text("\n".join(listed))
    assert run(*asked) == 0
    said = capsys.readouterr()
    assert "finished before" not in said.err + said.out
    manifest.write_text("\n".join([*listed, '{"model": "zoo/deep/c.onnx"}']))
    assert run(*asked) == 0
    said = capsys.readouterr()
    assert said.out.rstrip().endswith(" s; 1 was finished before") and "finished before" not in said.err
    manifest.write_text("\n".join([*listed, '{"model": "zoo/deep/c.onnx", "output": "other.onnx"}']))
    assert run(*asked, "-v") == 0
    assert "1 of 2 models was finished before" in capsys.readouterr().err


def test_foreign_files_are_not_overwritten(zoo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    (out / "deep").mkdir(parents=True)
    (out / "deep/b.onnx").write_bytes(b"precious")
    assert run(tmp_path / "quick.yaml", zoo, "--out", out) == 2
    assert "the file exists, but is not in the ledger; name another folder, or use --force" in capsys.readouterr().err
    assert (out / "deep/b.onnx").read_bytes() == b"precious"
    assert not (out / "a.onnx").exists()
    run(tmp_path / "quick.yaml", zoo, "--out", out, "--force", "-q", "--jobs", 1)
    assert [node.op_type for node in onnx.load(out / "deep/b.onnx").graph.node] == ["Relu"]


def test_a_ledger_says_nothing_about_files_in_another_output_folder(
    zoo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (zoo / "broken.onnx").unlink()
    first, own, equal = tmp_path / "first", tmp_path / "own", tmp_path / "equal"
    asked = ("--ledger", tmp_path / "ledger", "--jobs", 1, "-q")
    assert run(tmp_path / "quick.yaml", zoo, "--out", first, *asked) == 0
    for folder, content in ((own, b"precious"), (equal, bytes((first / "a.onnx").stat().st_size))):
        folder.mkdir()
        (folder / "a.onnx").write_bytes(content)
        assert run(tmp_path / "quick.yaml", zoo, "--out", folder, *asked) == 2
        assert "a.onnx: the file exists, but is not in the ledger" in capsys.readouterr().err
        assert (folder / "a.onnx").read_bytes() == content
    assert run(tmp_path / "quick.yaml", zoo, "--out", own, *asked, "--force") == 0
    assert (own / "a.onnx").read_bytes() == (first / "a.onnx").read_bytes()


def test_foreign_external_data_is_not_overwritten(
    zoo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "a.onnx.data").write_bytes(b"precious")
    assert run(tmp_path / "quick.yaml", zoo, "--out", out, "--layout", "external") == 2
    assert "a.onnx.data: the file exists, but is not in the ledger" in capsys.readouterr().err
    assert (out / "a.onnx.data").read_bytes() == b"precious"


def test_local_code_needs_trust(zoo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.py").write_text("")
    (tmp_path / "own.yaml").write_text("recipe: own\nplugins: [own.py]\nsteps: [drop-identity]\n")
    assert run(tmp_path / "own.yaml", zoo, "--out", tmp_path / "out") == 2
    assert "--trust" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_models_that_fail_stop_the_batch_when_asked(zoo: Path, tmp_path: Path) -> None:
    (zoo / "0.onnx").write_bytes(b"")
    out = tmp_path / "out"
    assert run(tmp_path / "quick.yaml", zoo, "--out", out, "--jobs", 1, "--max-failures", 1, "-q") == 1
    assert [row.state for row in rows(out).values()] == ["failed", *["queued"] * 4]
    (zoo / "0.onnx").unlink()
    (zoo / "broken.onnx").unlink()
    # What is not among the sources any more is no part of the result.
    assert run(tmp_path / "quick.yaml", zoo, "--out", out, "--jobs", 1, "-q") == 0


def test_the_name_of_a_recipe_makes_no_result_worse(
    zoo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (zoo / "broken.onnx").unlink()
    for name in ("short", "long"):
        recipe = tmp_path / f"{name}.yaml"
        recipe.write_text(f"recipe: {name * (1 + 20 * (name == 'long'))}\nsteps: [drop-identity]\n")
        assert run(recipe, zoo, "--out", tmp_path / name, "--jobs", 1, "-q") == 0
    capsys.readouterr()
    before, after = tmp_path / "short", tmp_path / "long"
    assert (before / "a.onnx").stat().st_size < (after / "a.onnx").stat().st_size
    # Times say more about the machine than about the models.
    assert cli.main(["corpus", str(before), str(after), "--exit-code", "--seconds", "100000 %"]) == 0
    assert "3 models changed, 0 of them got worse" in capsys.readouterr().out


def test_two_runs_are_compared(zoo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe, before, after = tmp_path / "quick.yaml", tmp_path / "before", tmp_path / "after"
    run(recipe, zoo, "--out", before, "--jobs", 1, "-q")
    onnx.save(batches.model(1), zoo / "broken.onnx")
    (zoo / "deep/b.onnx").write_bytes(b"")
    run(recipe, zoo, "--out", after, "--jobs", 1, "-q")
    capsys.readouterr()
    any_time = ("--seconds", "100000 %")
    assert cli.main(["corpus", str(before), str(after), "--exit-code", *any_time]) == 1
    said = capsys.readouterr().out
    assert "2 models changed, 1 of them got worse, 2 are the same" in said
    assert cli.main(["corpus", str(before), str(after), "--format", "json", *any_time]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(change["name"], change["what"], change["worse"]) for change in found["changes"]] == [
        ("broken.onnx", "fixed", False),
        ("deep/b.onnx", "broken", True),
    ]
    assert cli.main(["corpus", str(before), str(after), "--format", "markdown"]) == 0
    assert "| `deep/b.onnx` | broken | done | failed |" in capsys.readouterr().out
    assert cli.main(["corpus", str(before), str(before), "--exit-code", "-q"]) == 0
    assert "no change in 4 models" in capsys.readouterr().out
    assert cli.main(["corpus", str(before), str(tmp_path), "--bytes", "5"]) == 2
    assert "--bytes '5': expected a share such as '5 %'" in capsys.readouterr().err
