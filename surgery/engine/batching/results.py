"""The results of a batch as files: one JSON line or Parquet row per model; writing and reading."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, Final

from surgery.base.errors import UsageError
from surgery.engine.batching import ledger
from surgery.engine.batching.ledger import LedgerRow
from surgery.model import storage
from surgery.model.storage.files import NewFile, write_together

LINES: Final = (".jsonl", ".ndjson")
PARQUET: Final = ".parquet"
_LEDGERS: Final = (".sqlite", ".db")

_KNOWN: Final = {field.name: str(field.type) for field in fields(LedgerRow) if field.name != "output_folder"}
_FILES: Final = ("input_files", "output_files")


def check(path: Path) -> None:
    """Raise UsageError or OutputError if results cannot be written to a file; called before the batch runs."""
    if path.suffix.lower() not in (*LINES, PARQUET):
        raise UsageError(
            f"results are written as {', '.join(LINES)} or {PARQUET}, not as '{path.suffix}'",
            where=str(path),
            todo="name a file with one of these endings",
        )
    if path.suffix.lower() == PARQUET:
        _pyarrow(path)
    storage.check_target(path, force=True)


def write(path: Path, rows: Sequence[LedgerRow]) -> None:
    """Write results atomically."""
    found = [row.to_json() for row in rows]
    if path.suffix.lower() == PARQUET:
        write_together({path: partial(_parquet, path=path, rows=found)})
        return
    text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in found)
    storage.write_texts({path: text})


def _parquet(file: NewFile, path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    pyarrow = _pyarrow(path)
    types = {"int": pyarrow.int64(), "float": pyarrow.float64(), "str": pyarrow.string()}
    schema = pyarrow.schema(
        [
            (name, pyarrow.list_(pyarrow.string()) if name in _FILES else types[kind.removesuffix(" | None")])
            for name, kind in _KNOWN.items()
        ],
        metadata={"format_version": str(ledger.FORMAT_VERSION)},
    )
    from pyarrow import parquet

    with file.stream() as stream:
        parquet.write_table(pyarrow.Table.from_pylist(list(rows), schema=schema), stream)


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise UsageError(
            "Parquet needs pyarrow, which is not installed", where=str(path), todo="pip install 'onnx-surgery[batch]'"
        ) from error
    return pyarrow


def is_one(path: Path) -> bool:
    """Return whether a path is an output folder of a batch, or has the name of a ledger or a file of results."""
    if path.is_dir():
        return (path / ledger.NAME).is_file()
    return path.suffix.lower() in (*LINES, PARQUET, *_LEDGERS)


def read(path: Path) -> list[LedgerRow]:
    """Read the results of a batch from its output folder, its ledger, or a file of `--results`. Raises UsageError."""
    if path.is_dir():
        path = path / ledger.NAME
        if not path.is_file():
            raise UsageError("there is no ledger in this folder", where=str(path.parent), todo="run surgery batch")
    if not path.is_file():
        raise UsageError("no such file or folder", where=str(path))
    suffix = path.suffix.lower()
    if suffix in LINES:
        return _lines(path)
    if suffix == PARQUET:
        return _table(path)
    if suffix in _LEDGERS:
        return ledger.read(path)
    raise UsageError(
        "these are not results of surgery batch",
        where=str(path),
        todo=f"name an output folder, a ledger, or a file with the ending {', '.join(LINES)} or {PARQUET}",
    )


def _lines(path: Path) -> list[LedgerRow]:
    found = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the results cannot be read: {error}", where=str(path)) from error
    for number, line in enumerate(lines, 1):
        try:
            found.append(_row(json.loads(line)))
        except (ValueError, TypeError) as error:
            raise UsageError(f"this is not a line of results: {error}", where=f"{path}:{number}") from error
    return found


def _table(path: Path) -> list[LedgerRow]:
    pyarrow = _pyarrow(path)
    from pyarrow import parquet

    try:
        return [_row(item) for item in parquet.read_table(path).to_pylist()]
    except (pyarrow.ArrowException, OSError, TypeError, ValueError) as error:
        raise UsageError(f"the results cannot be read: {error}", where=str(path)) from error


def _row(item: object) -> LedgerRow:
    """Return a row from plain values; unknown keys of newer versions are ignored. Raises ValueError and TypeError."""
    if not isinstance(item, dict) or not {"name", "model", "recipe", "state"} <= set(item):
        raise ValueError("it has no name, model, recipe and state")
    known = {name: value for name, value in item.items() if name in _KNOWN}
    for name in _FILES:
        known[name] = json.dumps([[path, 0, 0] for path in known.get(name) or ()])
    for name, value in known.items():
        kind = _KNOWN[name]
        right = {"int": int, "float": int | float, "str": str}[kind.removesuffix(" | None")]
        if not isinstance(value, right) and not (value is None and kind.endswith("| None")):
            raise TypeError(f"'{name}' is {json.dumps(value)}")
    return LedgerRow(**known)
