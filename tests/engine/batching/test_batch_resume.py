"""What runs again: what has changed or was in flight, and nothing else."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from support import batches

from surgery.base import workers
from surgery.base.errors import ModelFileError
from surgery.engine.batching import job
from surgery.engine.batching.input_digests import digest_of_files, environment, recipe_digest, settings_digest
from surgery.engine.batching.ledger import LedgerRow, outcome_of
from surgery.engine.batching.model_entry import BatchLimits, Entry, Settings
from surgery.engine.batching.output_folder import OutputFolder, sizes
from surgery.engine.batching.resume import RemainingWork, Wanted, foreign, is_in_place, of_folder, plan
from surgery.engine.batching.schedule import job_of

WANTED = Wanted("settings", BatchLimits(), {"r": "digest of r", "other": "digest of other"}, {"onnx": "1.0"})


@pytest.fixture
def entry(tmp_path: Path) -> Entry:
    path = tmp_path / "a.onnx"
    path.write_bytes(b"model")
    return Entry("a.onnx", str(path), "r")


def finished(entry: Entry, state: str = "done", **values: Any) -> LedgerRow:
    """Return the row of a model that was run as WANTED says."""
    paths = [Path(entry.model)]
    found = {"input_files": json.dumps(sizes(paths)), "input_sha256": digest_of_files(paths), "attempts": 1}
    return replace(WANTED.row(entry), state=state, **{**found, **values})


def planned(entry: Entry, row: LedgerRow, wanted: Wanted = WANTED, is_there: bool = True) -> RemainingWork:
    return plan([entry], {entry.name: row}, wanted, lambda _: is_there)


@pytest.mark.parametrize("state", ["done", "failed"])
def test_a_finished_model_is_not_run_again(entry: Entry, state: str) -> None:
    row = finished(entry, state, kind="crash")
    assert planned(entry, row) == RemainingWork({entry.name: row}, ())


def test_a_new_or_interrupted_model_is_queued(entry: Entry) -> None:
    assert plan([entry], {}, WANTED, lambda _: True).todo == (entry.name,)
    for state in ("queued", "running"):
        found = planned(entry, replace(WANTED.row(entry), state=state, attempts=2))
        assert found.todo == (entry.name,)
        # It goes on to count.
        assert (found.rows[entry.name].state, found.rows[entry.name].attempts) == ("queued", 2)


@pytest.mark.parametrize(
    "wanted",
    [
        replace(WANTED, settings="other settings"),
        replace(WANTED, recipes={"r": "another digest"}),
        replace(WANTED, environment={"onnx": "1.1"}),
        replace(WANTED, force=True),
    ],
)
def test_changed_settings_recipes_and_versions_run_again(entry: Entry, wanted: Wanted) -> None:
    found = planned(entry, finished(entry), wanted)
    assert found.todo == (entry.name,)
    assert found.rows[entry.name].attempts == 0


def test_a_different_model_or_recipe_of_the_same_name_runs_again(entry: Entry, tmp_path: Path) -> None:
    assert planned(replace(entry, recipe="other"), finished(entry)).todo
    assert planned(replace(entry, model=str(tmp_path / "b.onnx")), finished(entry)).todo


def test_changed_inputs_of_a_model_run_again(entry: Entry) -> None:
    entry = replace(entry, inputs=("/sets",))
    before, after = (replace(WANTED, inputs={"/sets": digest}) for digest in ("1", "2"))
    row = replace(finished(entry), plan_sha256=before.row(entry).plan_sha256)
    assert not planned(entry, row, before).todo
    assert planned(entry, row, after).todo


def test_a_changed_model_runs_again_but_a_touched_file_does_not(entry: Entry) -> None:
    row = finished(entry)
    os.utime(entry.model, (1, 1))
    touched = planned(entry, row)
    assert not touched.todo
    # The time is noted, so that the file is not read again.
    assert json.loads(touched.rows[entry.name].input_files) == sizes([entry.model])
    Path(entry.model).write_bytes(b"other")
    assert planned(entry, row).todo
    Path(entry.model).unlink()
    assert planned(entry, row).todo


def test_a_lost_output_is_rebuilt(entry: Entry, tmp_path: Path) -> None:
    assert planned(entry, finished(entry), is_there=False).todo
    row = finished(entry, output_files=json.dumps([["a.onnx", 3], ["a.onnx.data", 2]]))
    out = OutputFolder(str(tmp_path / "out"))
    output = tmp_path / "out" / "a.onnx"
    output.parent.mkdir()
    assert not is_in_place(row, out)
    output.write_bytes(b"123")
    output.with_name("a.onnx.data").write_bytes(b"12")
    assert is_in_place(row, out)
    output.write_bytes(b"1234")
    assert not is_in_place(row, out)
    assert not is_in_place(finished(entry), out)


def test_failures_of_the_machine_run_again(entry: Entry) -> None:
    for kind in ("lost", "output"):
        assert planned(entry, finished(entry, "failed", kind=kind)).todo
    for kind in ("time", "memory"):
        row = finished(entry, "failed", kind=kind)
        assert not planned(entry, row).todo
        assert planned(entry, row, replace(WANTED, limits=BatchLimits(timeout=9.0))).todo
    verdict = finished(entry, "failed", kind="verdict")
    assert not planned(entry, verdict, replace(WANTED, limits=BatchLimits(timeout=9.0))).todo
    assert planned(entry, verdict, replace(WANTED, retry_failed=True)).todo


def test_a_model_that_ended_its_process_is_not_run_again(
    entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the job sends before it runs the recipe is enough to recognize the files."""
    onnx.save(batches.model(), entry.model)
    notes: list[Any] = []
    monkeypatch.setattr(workers, "note", notes.append)
    out, recipe = OutputFolder(str(tmp_path / "out")), str(batches.recipe(tmp_path))
    assert job.run(job_of(replace(entry, recipe=recipe), WANTED.row(entry), out, Settings()))["state"] == "done"
    assert [sorted(note) for note in notes] == [["input_files"], ["input_files"], ["input_files", "input_sha256"]]
    for note in notes:
        failed = {**note, "state": "failed", "stage": "parity", "kind": "time", "reason": "took more than 1 s"}
        ended = replace(WANTED.row(entry), **outcome_of(WANTED.row(entry), failed))
        assert not planned(entry, ended).todo
    os.utime(entry.model, (1, 1))
    assert not planned(entry, ended).todo
    Path(entry.model).write_bytes(b"other")
    assert planned(entry, ended).todo


def test_a_model_to_skip_is_not_run(entry: Entry) -> None:
    found = planned(replace(entry, skip="known"), finished(entry))
    assert found.todo == ()
    assert (found.rows[entry.name].state, found.rows[entry.name].reason) == ("skipped", "known")
    assert planned(entry, found.rows[entry.name]).todo == (entry.name,)


def test_files_not_written_by_a_batch_are_refused(tmp_path: Path, entry: Entry) -> None:
    for name in ("a.onnx", "b.onnx"):
        (tmp_path / name).write_bytes(b"")
    known = {"a.onnx": finished(entry)}
    assert foreign(["a.onnx", "b.onnx", "c.onnx"], known, OutputFolder(str(tmp_path))) == [str(tmp_path / "b.onnx")]


def test_foreign_external_data_is_not_overwritten(tmp_path: Path, entry: Entry) -> None:
    out, data = OutputFolder(str(tmp_path)), tmp_path / "a.onnx.data"
    data.write_bytes(b"precious")
    assert foreign(["a.onnx"], {}, out) == [str(tmp_path / "a.onnx"), str(data)]
    single = {"a.onnx": finished(entry, output_files='[["a.onnx", 3]]')}
    assert foreign(["a.onnx"], single, out) == [str(data)]
    assert foreign(["a.onnx"], single, out, "single") == []
    both = {"a.onnx": finished(entry, output_files='[["a.onnx", 3], ["a.onnx.data", 8]]')}
    assert foreign(["a.onnx"], both, out) == []
    # An interrupted run may have written it.
    assert foreign(["a.onnx"], {"a.onnx": replace(WANTED.row(entry), state="running")}, out) == []


def test_objects_that_cannot_be_listed_are_not_taken_for_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec")
    files = fsspec.filesystem("memory")
    files.pipe("/listed/a.onnx", b"precious")
    assert foreign(["a.onnx", "b.onnx"], {}, OutputFolder("memory://listed")) == ["memory://listed/a.onnx"]
    assert foreign(["a.onnx"], {}, OutputFolder("memory://absent")) == []

    def denied(*arguments: object, **more: object) -> None:
        raise PermissionError("Access Denied")

    monkeypatch.setattr(type(files), "find", denied)
    with pytest.raises(ModelFileError, match="memory://listed: access is denied"):
        foreign(["a.onnx"], {}, OutputFolder("memory://listed"))


def test_rows_of_another_output_folder_are_unknown(entry: Entry, tmp_path: Path) -> None:
    row = finished(entry, output_folder=str(tmp_path / "other"))
    assert of_folder({"a.onnx": row}, OutputFolder(str(tmp_path)), ".") == {}
    assert of_folder({"a.onnx": row}, OutputFolder(str(tmp_path)), str(tmp_path / "other")) == {"a.onnx": row}
    assert OutputFolder(str(tmp_path)).recorded(tmp_path) == "."
    assert OutputFolder(str(tmp_path / "x")).recorded(tmp_path) == str(tmp_path / "x")
    assert OutputFolder("s3://zoo/v1?key=secret").recorded(tmp_path).startswith("s3://zoo/v1")


def test_rows_of_older_releases_belong_to_files_with_their_digest(entry: Entry, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "a.onnx").write_bytes(b"result")
    digest = digest_of_files([out / "a.onnx"])
    row = finished(entry, output_folder="", output_files='[["a.onnx", 6]]', output_sha256=digest)
    assert of_folder({"a.onnx": row}, OutputFolder(str(out)), ".") == {"a.onnx": replace(row, output_folder=".")}
    (out / "a.onnx").write_bytes(b"another")
    assert of_folder({"a.onnx": row}, OutputFolder(str(out)), ".") == {}
    (out / "a.onnx").unlink()
    assert of_folder({"a.onnx": row}, OutputFolder(str(out)), ".") == {}


def test_the_digest_of_a_recipe_covers_used_recipes(tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner.yaml", tmp_path / "outer.yaml"
    inner.write_text("recipe: inner\nsteps: [drop-identity]\n")
    outer.write_text("recipe: outer\nsteps: [{use: inner.yaml}]\n")
    before = recipe_digest(str(outer), Settings())
    assert recipe_digest(str(outer), Settings()) == before
    inner.write_text("recipe: inner\nsteps: [drop-identity, drop-dead]\n")
    assert recipe_digest(str(outer), Settings()) != before


def test_the_digest_of_settings_covers_files_that_they_name(tmp_path: Path) -> None:
    target, plugin, library = tmp_path / "t.yaml", tmp_path / "own.py", tmp_path / "ops.so"
    settings = Settings(target=str(target), plugins=(str(plugin), "acme.passes"), custom_op_libraries=(str(library),))
    digests = [settings_digest(settings)]
    for path in (target, plugin, library):
        path.write_bytes(b"1")
        digests.append(settings_digest(settings))
        path.write_bytes(b"2")
        digests.append(settings_digest(settings))
    assert len(set(digests)) == 7
    assert settings_digest(settings) == digests[-1]
    assert settings_digest(Settings(strict=True)) != settings_digest(Settings())


def test_the_environment_names_versions() -> None:
    assert environment()["onnx"] == onnx.__version__
