"""The ledger: what is written is there after any end of the process, and one run writes at a time."""

from __future__ import annotations

import errno
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.batches import row

from surgery.base.errors import OutputError, UsageError
from surgery.engine.batching import ledger
from surgery.engine.batching.ledger import Ledger, LedgerRow
from surgery.verification.comparing.details import Status


def test_rows_round_trip(tmp_path: Path) -> None:
    rows = [row("b", rtol=1e-5, tolerance=0.25, verdict="close"), row("a", state="failed", reason="no 'x' \u202e")]
    with Ledger(tmp_path) as found:
        found.put(rows)
        found.update("a", stage="check", attempts=2)
        assert found.rows()["b"] == rows[0]
    again = ledger.read(tmp_path / ledger.NAME)
    assert [one.name for one in again] == ["a", "b"]
    assert (again[0].stage, again[0].attempts, again[0].reason) == ("check", 2, "no 'x' \u202e")


def test_each_verdict_has_a_rank_of_its_own() -> None:
    ranks = [ledger.weakness(one) for one in (None, *Status)]
    assert len(set(ranks)) == len(ranks)
    assert ledger.weakness("equal") < ledger.weakness("unverified") < ledger.weakness("of a later release")


@pytest.mark.parametrize(
    ("state", "kind", "is_ok", "is_negative"),
    [
        ("done", "", True, False),
        ("done", "purpose", False, True),
        ("failed", "", False, True),
        ("failed", "crash", False, True),
        ("skipped", "skipped", True, False),
        ("running", "", False, False),
        ("queued", "purpose", False, False),
    ],
)
def test_a_row_is_good_bad_or_neither(state: str, kind: str, is_ok: bool, is_negative: bool) -> None:
    found = row("a", state=state, kind=kind)
    assert (found.is_ok, found.is_negative) == (is_ok, is_negative)


def test_a_closed_ledger_is_one_file_and_rows_of_older_releases_have_defaults(tmp_path: Path) -> None:
    with Ledger(tmp_path) as found:
        found.put([row("b", output_folder=".")])
        assert (tmp_path / f"{ledger.NAME}-wal").exists()
    assert not (tmp_path / f"{ledger.NAME}-wal").exists()
    base = sqlite3.connect(tmp_path / ledger.NAME)
    assert base.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    with base:
        base.execute("INSERT INTO models (name, model, recipe) VALUES ('a', 'm', 'r')")
    assert base.execute("SELECT stage, output_folder, verdict FROM models WHERE name = 'a'").fetchone() == (
        "",
        "",
        None,
    )
    base.close()


KILLED = """
import os, signal, sys
from pathlib import Path
from surgery.engine.batching.ledger import Ledger, LedgerRow
found = Ledger(Path(sys.argv[1]))
found.put([LedgerRow(name, name, "r") for name in "abc"])
found.update("a", state="running")
found.update("b", state="done")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_rows_written_before_a_kill_are_readable(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert run.returncode == -signal.SIGKILL
    assert [(one.name, one.state) for one in ledger.read(tmp_path / ledger.NAME)] == [
        ("a", "running"),
        ("b", "done"),
        ("c", "queued"),
    ]
    with Ledger(tmp_path) as found:
        assert found.requeue() == ["a"]
        assert found.rows()["a"].state == "queued"


def test_another_run_is_refused(tmp_path: Path) -> None:
    with Ledger(tmp_path), pytest.raises(UsageError) as error:
        Ledger(tmp_path)
    assert str(error.value) == f"{tmp_path}: another run is writing to this folder; wait for it, or name another folder"
    Ledger(tmp_path).close()


def test_a_ledger_is_read_while_a_run_writes(tmp_path: Path) -> None:
    with Ledger(tmp_path) as found:
        found.put([row("a")])
        assert [one.name for one in ledger.read(found.path)] == ["a"]


def test_reading_a_ledger_creates_no_files(tmp_path: Path) -> None:
    with Ledger(tmp_path) as found:
        found.put([row("a")])
    files = sorted(tmp_path.iterdir())
    assert [one.name for one in ledger.read(tmp_path / ledger.NAME)] == ["a"]
    assert sorted(tmp_path.iterdir()) == files


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_ledger_in_a_read_only_folder(tmp_path: Path) -> None:
    with Ledger(tmp_path) as found:
        found.put([row("a")])
    tmp_path.chmod(0o500)
    try:
        assert [one.name for one in ledger.read(tmp_path / ledger.NAME)] == ["a"]
    finally:
        tmp_path.chmod(0o700)


def test_files_that_are_not_ledgers(tmp_path: Path) -> None:
    path = tmp_path / ledger.NAME
    path.write_bytes(b"not a database, but long enough to be taken for one" * 9)
    with pytest.raises(UsageError, match="this is not a ledger of surgery batch: file is not a database"):
        Ledger(tmp_path)
    with pytest.raises(UsageError, match="this is not a ledger of surgery batch"):
        ledger.read(path)
    path.unlink()
    base = sqlite3.connect(path)
    base.executescript("CREATE TABLE other (a); PRAGMA user_version = 1;")
    base.close()
    with pytest.raises(UsageError, match="this is not a ledger of surgery batch; name another folder with --out"):
        Ledger(tmp_path)


def test_a_ledger_of_another_version(tmp_path: Path) -> None:
    Ledger(tmp_path).close()
    base = sqlite3.connect(tmp_path / ledger.NAME)
    base.execute("PRAGMA user_version = 99")
    base.close()
    with pytest.raises(UsageError, match="the ledger has format version 99, but this release reads 1"):
        Ledger(tmp_path)


def test_a_ledger_of_an_older_release_is_read_and_continued(tmp_path: Path) -> None:
    path = tmp_path / ledger.NAME
    with Ledger(tmp_path) as found:
        found.put([row("a", output_folder=".")])
    base = sqlite3.connect(path)
    base.execute("ALTER TABLE models DROP COLUMN output_folder")
    base.close()
    assert ledger.read(path) == [row("a")]
    with Ledger(tmp_path) as found:
        assert found.rows() == {"a": row("a")}
        found.put([row("a", output_folder=".")])
        assert found.rows()["a"].output_folder == "."
    # The older release goes on with it.
    base = sqlite3.connect(path)
    with base:
        base.execute("INSERT INTO models (name, model, recipe, input_files) VALUES ('b', 'b', 'r', '[]')")
    base.close()
    assert ledger.read(path)[1].output_folder == ""


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="cannot be written: Permission denied"):
        Ledger(tmp_path)


@pytest.mark.parametrize(
    ("code", "space", "problem"),
    [
        (sqlite3.SQLITE_FULL, True, "No space left on device; free some space"),
        (sqlite3.SQLITE_IOERR_SHMSIZE, False, "No space left on device; free some space"),
        (sqlite3.SQLITE_IOERR_SHMSIZE, True, "disk I/O error"),
    ],
)
def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, space: bool, problem: str) -> None:
    class Failing(sqlite3.Connection):
        def execute(self, *_: object) -> sqlite3.Cursor:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = code
            raise error

    def temporary(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, **more: connect(path, factory=Failing, **more))
    if not space:
        monkeypatch.setattr(tempfile, "TemporaryFile", temporary)
    with pytest.raises(OutputError) as error:
        Ledger(tmp_path)
    assert str(error.value) == f"{tmp_path / ledger.NAME}: the ledger cannot be written: {problem}"


def test_a_ledger_that_grows_beyond_the_disk(tmp_path: Path) -> None:
    with Ledger(tmp_path) as found:
        found._base.execute("PRAGMA max_page_count = 3")
        with pytest.raises(OutputError, match="the ledger cannot be written: No space left on device; free some space"):
            found.put([row(f"{number}", reason="x" * 9999) for number in range(9)])


def test_an_outcome_clears_the_previous_one() -> None:
    before = row("a", verdict="close", reason="old", plan_sha256="p", attempts=3)
    values = ledger.outcome_of(before, {"state": "failed", "reason": "new", "input_files": [["m", 1, 2]], "other": 1})
    assert {name: values[name] for name in ("state", "reason", "verdict", "nodes_after")} == {
        "state": "failed",
        "reason": "new",
        "verdict": None,
        "nodes_after": None,
    }
    assert values["input_files"] == '[["m", 1, 2]]'
    assert not {"attempts", "plan_sha256", "name", "other"} & set(values)


def test_results_name_files_without_times() -> None:
    found = LedgerRow("a", "a", "r", input_files=json.dumps([["/m/a.onnx", 7, 9], ["/m/a.data", 8, 9]])).to_json()
    assert found["input_files"] == ["/m/a.onnx", "/m/a.data"]
