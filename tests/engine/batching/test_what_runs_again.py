"""Which outcomes in a ledger hold for a further run of the batch, in a table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from surgery.base.errors import TransferError
from surgery.engine.batching import resume
from surgery.engine.batching.input_digests import digest_of_files
from surgery.engine.batching.ledger import BROKE, LedgerRow
from surgery.engine.batching.model_entry import BatchLimits, Entry
from surgery.engine.batching.output_folder import OutputFolder, sizes
from surgery.engine.batching.resume import Wanted, of_folder, plan

WANTED = Wanted("settings", BatchLimits(), {"r": "digest of r", "s3://b/r.yaml?key=1": "2"}, {"onnx": "1.0"})
OTHER_LIMITS = {"limits": BatchLimits(timeout=9.0)}


def finished(folder: Path, state: str, **values: Any) -> tuple[Entry, LedgerRow]:
    path = folder / "a.onnx"
    path.write_bytes(b"model")
    entry = Entry("a.onnx", str(path), "r")
    files = {"input_files": json.dumps(sizes([path])), "input_sha256": digest_of_files([path]), "attempts": 2}
    return entry, replace(WANTED.row(entry), state=state, **{**files, **values})


@pytest.mark.parametrize(
    ("state", "kind", "wanted", "is_there", "runs"),
    [
        ("done", "", {}, True, False),
        ("done", "", {}, False, True),
        ("done", "", {"retry_failed": True}, True, False),
        ("done", "", OTHER_LIMITS, True, False),
        ("done", "purpose", {}, True, False),
        ("done", "purpose", {"retry_failed": True}, True, True),
        ("done", BROKE, {}, True, True),
        ("done", "lost", {}, True, False),
        ("failed", "crash", {}, True, False),
        ("failed", "crash", {}, False, False),
        ("failed", "crash", {"retry_failed": True}, True, True),
        ("failed", "crash", OTHER_LIMITS, True, False),
        ("failed", BROKE, {}, True, False),
        ("failed", "lost", {}, True, True),
        ("failed", "output", {}, True, True),
        ("failed", "transfer", {}, True, True),
        ("failed", "time", {}, True, False),
        ("failed", "time", OTHER_LIMITS, True, True),
        ("failed", "memory", OTHER_LIMITS, True, True),
        ("done", "", {"force": True}, True, True),
        ("queued", "", {}, True, True),
        ("running", "", {}, True, True),
        ("skipped", "", {}, True, True),
    ],
)
def test_what_runs_again(
    tmp_path: Path, state: str, kind: str, wanted: dict[str, Any], is_there: bool, runs: bool
) -> None:
    entry, row = finished(tmp_path, state, kind=kind)
    found = plan([entry], {"a.onnx": row}, replace(WANTED, **wanted), lambda _: is_there)
    assert found.todo == (("a.onnx",) if runs else ())
    assert found.rows["a.onnx"].state == ("queued" if runs else state)
    # Only a run that was interrupted goes on counting.
    assert found.rows["a.onnx"].attempts == (0 if runs and state not in ("queued", "running") else 2)


def test_a_model_of_which_no_file_was_read_runs_again(tmp_path: Path) -> None:
    entry, row = finished(tmp_path, "failed", kind="crash", input_files="[]", input_sha256=digest_of_files([]))
    assert plan([entry], {"a.onnx": row}, WANTED, lambda _: True).todo == ("a.onnx",)


def test_other_models_are_looked_at_after_one_that_holds(tmp_path: Path) -> None:
    entry, row = finished(tmp_path, "done")
    new = replace(entry, name="b.onnx")
    assert plan([entry, new], {"a.onnx": row}, WANTED, lambda _: True).todo == ("b.onnx",)


def test_a_file_with_the_recorded_size_and_time_is_not_read(tmp_path: Path) -> None:
    entry, row = finished(tmp_path, "done", input_sha256="of something else")
    assert plan([entry], {"a.onnx": row}, WANTED, lambda _: True).todo == ()


@pytest.mark.parametrize(("now", "runs"), [("1", False), ("2", True), (None, True)])
def test_an_object_is_recognized_by_its_version(monkeypatch: pytest.MonkeyPatch, now: str | None, runs: bool) -> None:
    entry = Entry("a.onnx", "s3://user:secret@b/a.onnx?key=1", "s3://b/r.yaml?key=1")
    files = [["s3://b/a.onnx", 0, "1"], ["a.data", 0, "1"]]
    row = replace(WANTED.row(entry), state="done", input_files=json.dumps(files))
    assert (row.model, row.recipe) == ("s3://b/a.onnx", "s3://b/r.yaml")

    def versions(model: str, locations: list[str], known: str) -> list[list[Any]]:
        assert (model, locations) == (entry.model, ["a.data"])
        if now is None:
            raise TransferError("it is gone")
        return [["s3://b/a.onnx", 0, now], ["a.data", 0, now]]

    monkeypatch.setattr(resume, "versions", versions)
    found = plan([entry], {"a.onnx": row}, WANTED, lambda _: True)
    assert found.todo == (("a.onnx",) if runs else ())
    assert runs or found.rows["a.onnx"] == row


def test_the_first_row_of_a_model() -> None:
    row = WANTED.row(Entry("a.onnx", "/m/a.onnx", "r", skip="known"))
    assert (row.model, row.recipe, row.state, row.kind, row.reason) == ("/m/a.onnx", "r", "skipped", "skipped", "known")
    row = WANTED.row(Entry("a.onnx", "/m/a.onnx", "r"))
    assert (row.state, row.kind, row.reason, row.recipe_sha256) == ("queued", "", "", "digest of r")
    assert (Wanted("", BatchLimits(), {}, {}).retry_failed, Wanted("", BatchLimits(), {}, {}).force) == (False, False)


def test_rows_without_a_folder_belong_to_no_remote_one(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(b"result")
    digest = digest_of_files([tmp_path / "a.onnx"])
    _, row = finished(tmp_path / "..", "done", output_folder="", output_files='[["a.onnx", 6]]', output_sha256=digest)
    out = OutputFolder(str(tmp_path))
    assert of_folder({"a.onnx": row}, out, ".") == {"a.onnx": replace(row, output_folder=".")}
    assert of_folder({"a.onnx": replace(row, output_folder="elsewhere")}, out, ".") == {}
    none = replace(row, output_sha256=None, output_files="[]")
    assert of_folder({"a.onnx": none}, out, ".") == {}
    out.is_remote = True
    assert of_folder({"a.onnx": row}, out, ".") == {}
