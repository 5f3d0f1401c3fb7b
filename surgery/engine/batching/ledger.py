"""The results of the models of a batch, in a crash-safe SQLite file.

Only the process that runs the batch writes. A model is `queued`, then `running`; it is `done` only when its output is
in place. So models that a killed run left as `running` may have an unverified output, and run again.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Self

from surgery.base.errors import OutputError, UsageError

NAME: Final = "ledger.sqlite"
FORMAT_VERSION: Final = 1
_LOCK: Final = "ledger.lock"
_APPLICATION: Final = 0x53524759
"""The application ID in the SQLite file: "SRGY"."""
_LEAST_SPACE: Final = 1 << 17
"""Bytes that the first transaction needs, with its log and the index of the log."""

BROKE: Final = "broke"
"""The kind of a model whose result lacks a step that broke."""

STATES: Final = ("queued", "running", "done", "failed", "skipped")

_VERDICTS: Final = (None, "equal", "close", "intended", "lossy", "unverified", "different")
"""The verdicts from the strongest to the weakest: nothing was changed, ..., the result differs."""


def weakness(verdict: str | None) -> int:
    """Return the rank of a verdict, from 0 for the strongest; one that is not known is the weakest."""
    return _VERDICTS.index(verdict) if verdict in _VERDICTS else len(_VERDICTS)


@dataclass(frozen=True)
class LedgerRow:
    """The entry of one model in the ledger.

    `name` identifies it. `kind` is a word for the kind of failure ("verdict", "crash", "time", ...), `reason` a
    one-line message, for a lossy result its metrics against the budget, `stage` the stage of the run. A model that is
    done has a kind if its purpose is not met ("purpose") or a step broke. Sizes are in
    bytes, and `bytes_after` is that of the files of the result without the statement of provenance; `rtol`, `atol`
    and `tolerance` (the used fraction of the allowed tolerance) are the values that the verdict needed.
    `input_files` has path, size and modification time of each file, `output_files` name and size. `output_folder`
    is the output folder of the batch, "." if it also has the ledger, and empty in ledgers of older releases, which
    did not record it. `plan_sha256` stands for everything that the result depends on except the model: recipe,
    settings, inputs, versions. `attempts` counts how often the model was started, more than once if a worker was
    lost.
    """

    name: str
    model: str
    recipe: str
    state: str = "queued"
    stage: str = ""
    kind: str = ""
    reason: str = ""
    verdict: str | None = None
    unverified: str | None = None
    rtol: float | None = None
    atol: float | None = None
    tolerance: float | None = None
    refused: int | None = None
    nodes_before: int | None = None
    nodes_after: int | None = None
    bytes_before: int | None = None
    bytes_after: int | None = None
    seconds: float | None = None
    attempts: int = 0
    input_sha256: str | None = None
    output_sha256: str | None = None
    recipe_sha256: str | None = None
    plan_sha256: str | None = None
    limits: str = ""
    input_files: str = "[]"
    output_files: str = "[]"
    output_folder: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether it is skipped, or done with its purpose met."""
        return self.state == "skipped" or (self.state == "done" and not self.kind)

    @property
    def is_negative(self) -> bool:
        """Whether it failed, or its result is written and does not meet its purpose."""
        return self.state == "failed" or (self.state == "done" and bool(self.kind))

    def to_json(self) -> dict[str, Any]:
        """Return the fields of a result, without sizes and times of files and without the output folder."""
        found = {name: getattr(self, name) for name in COLUMNS if name != "output_folder"}
        for files in ("input_files", "output_files"):
            found[files] = [path for path, *_ in json.loads(found[files])]
        return found


COLUMNS: Final = tuple(field.name for field in fields(LedgerRow))
_TYPES: Final = {"int": "INTEGER", "float": "REAL", "str": "TEXT"}


class Ledger:
    """The ledger of an output folder, open for one run at a time. UsageError if another run uses it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._lock = _locked(folder / _LOCK)
        try:
            self._base = _opened(self.path)
        except BaseException:
            os.close(self._lock)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, which is then complete by itself, and release it for other runs."""
        self._base.close()
        os.close(self._lock)

    def rows(self) -> dict[str, LedgerRow]:
        """Return all rows by name."""
        return {row.name: row for row in _rows(self._base)}

    def put(self, rows: Iterable[LedgerRow]) -> None:
        """Write rows atomically, replacing those with the same names."""
        marks = ", ".join("?" for _ in COLUMNS)
        values = [[getattr(row, column) for column in COLUMNS] for row in rows]
        with self._written():
            self._base.executemany(f"INSERT OR REPLACE INTO models ({', '.join(COLUMNS)}) VALUES ({marks})", values)

    def update(self, name: str, **values: object) -> None:
        """Change columns of one row."""
        texts = ", ".join(f"{column} = ?" for column in values)
        with self._written():
            self._base.execute(f"UPDATE models SET {texts} WHERE name = ?", (*values.values(), name))

    def requeue(self) -> list[str]:
        """Requeue the models that an ended run left as running, and return their names."""
        found = [row.name for row in _rows(self._base) if row.state == "running"]
        with self._written():
            self._base.execute("UPDATE models SET state = 'queued', stage = '' WHERE state = 'running'")
        return found

    @contextmanager
    def _written(self) -> Iterator[None]:
        try:
            with self._base:
                yield
        except sqlite3.Error as error:
            raise _unwritten(error, self.path) from error


def read(path: Path) -> list[LedgerRow]:
    """Read a ledger, even while a run writes it. UsageError if the file is not a ledger.

    The folder may be read-only, and is not changed.
    """
    file = path.resolve()
    # Without a log, the file is complete. SQLite would create a log and its index even for reading.
    more = "" if file.with_name(f"{file.name}-wal").exists() else "&immutable=1"
    try:
        base = sqlite3.connect(f"{file.as_uri()}?mode=ro{more}", uri=True)
    except sqlite3.Error as error:
        raise UsageError(f"the ledger cannot be opened: {error}", where=str(path)) from error
    try:
        _check(base, path)
        return list(_rows(base))
    except sqlite3.OperationalError as error:
        raise UsageError(f"the ledger cannot be read: {error}", where=str(path)) from error
    except sqlite3.Error as error:
        raise UsageError(f"this is not a ledger of surgery batch: {error}", where=str(path)) from error
    finally:
        base.close()


def _rows(base: sqlite3.Connection) -> Iterator[LedgerRow]:
    present = _present(base)
    columns = [column for column in COLUMNS if column in present]
    for values in base.execute(f"SELECT {', '.join(columns)} FROM models ORDER BY name"):
        yield LedgerRow(**dict(zip(columns, values)))


def _present(base: sqlite3.Connection) -> set[str]:
    """Return the columns of the table, which are fewer in ledgers of older releases."""
    return {str(name) for (name,) in base.execute("SELECT name FROM pragma_table_info('models')")}


def _opened(path: Path) -> sqlite3.Connection:
    try:
        base = sqlite3.connect(path, isolation_level="IMMEDIATE")
    except sqlite3.Error as error:
        raise OutputError(f"the ledger cannot be opened: {error}", where=str(path)) from error
    try:
        # Killing the process loses no commit; a commit lost by a power failure only makes one model run again.
        base.execute("PRAGMA journal_mode = WAL")
        base.execute("PRAGMA synchronous = NORMAL")
        (version,) = base.execute("PRAGMA user_version").fetchone()
        if version == 0:
            _create(base)
        _check(base, path)
        if "output_folder" not in _present(base):
            base.execute("ALTER TABLE models ADD COLUMN output_folder TEXT DEFAULT ''")
    except sqlite3.OperationalError as error:
        base.close()
        raise _unwritten(error, path) from error
    except sqlite3.Error as error:
        base.close()
        raise UsageError(
            f"this is not a ledger of surgery batch: {error}", where=str(path), todo="name another folder with --out"
        ) from error
    except BaseException:
        base.close()
        raise
    return base


def _unwritten(error: sqlite3.Error, path: Path) -> OutputError:
    """Return the error for a ledger that cannot be written."""
    # The lower byte is the kind of an error.
    kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if kind == sqlite3.SQLITE_FULL or (kind == sqlite3.SQLITE_IOERR and _is_full(path.parent)):
        reason = os.strerror(errno.ENOSPC)
        return OutputError(f"the ledger cannot be written: {reason}", where=str(path), todo="free some space")
    return OutputError(f"the ledger cannot be written: {error}", where=str(path))


def _is_full(folder: Path) -> bool:
    """Return whether a file system or a quota has no space for the files of SQLite, which only says "I/O error"."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_LEAST_SPACE))
            file.flush()
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return False


def _create(base: sqlite3.Connection) -> None:
    columns = []
    for field in fields(LedgerRow):
        kind = _TYPES[str(field.type).removesuffix(" | None")]
        # Older releases write rows without the newer columns.
        more = " PRIMARY KEY" if field.name == "name" else " DEFAULT ''" if field.default == "" else ""
        columns.append(f"{field.name} {kind}{more}")
    with base:
        base.execute("BEGIN IMMEDIATE")
        base.execute(f"CREATE TABLE models ({', '.join(columns)}) WITHOUT ROWID")
        base.execute(f"PRAGMA application_id = {_APPLICATION}")
        base.execute(f"PRAGMA user_version = {FORMAT_VERSION}")


def _check(base: sqlite3.Connection, path: Path) -> None:
    (application,) = base.execute("PRAGMA application_id").fetchone()
    (version,) = base.execute("PRAGMA user_version").fetchone()
    if application != _APPLICATION:
        raise UsageError(
            "this is not a ledger of surgery batch", where=str(path), todo="name another folder with --out"
        )
    if version != FORMAT_VERSION:
        raise UsageError(
            f"the ledger has format version {version}, but this release reads {FORMAT_VERSION}",
            where=str(path),
            todo="name another folder with --out, or use the version of surgery that wrote it",
        )


def _locked(path: Path) -> int:
    """Lock the folder for one run. The lock ends with the process, however that ends."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise OutputError(f"cannot be written: {error.strerror}", where=str(path)) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise UsageError(
            "another run is writing to this folder", where=str(path.parent), todo="wait for it, or name another folder"
        ) from None
    except OSError:
        # On a file system without locks, the user must not start two runs.
        pass
    return lock


def outcome_of(row: LedgerRow, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that the outcome of a job sets; the others are reset as in a new row."""
    blank = LedgerRow(row.name, row.model, row.recipe)
    kept = ("name", "model", "recipe", "attempts", "recipe_sha256", "plan_sha256", "limits", "output_folder")
    values = {column: getattr(blank, column) for column in COLUMNS if column not in kept}
    for column, value in found.items():
        if column in values:
            values[column] = json.dumps(value) if column in ("input_files", "output_files") else value
    return values
