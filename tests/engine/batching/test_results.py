"""Results as files, and read back."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from support.batches import row

from surgery.base.errors import OutputError, UsageError
from surgery.engine.batching import results
from surgery.engine.batching.ledger import NAME, Ledger, LedgerRow

FILES = {"input_files": '[["/m/a.onnx", 1, 2]]', "output_files": '[["a.onnx", 3]]'}
ROWS = [
    row("a", verdict="close", rtol=1.5e-5, tolerance=0.25, refused=0, attempts=1, **FILES),
    row("b", state="failed", kind="crash", reason="no 'x' \u00e9\u202e\n", nodes_after=None, bytes_after=None),
]


def written(folder: Path, name: str) -> Path:
    path = folder / name
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow", exc_type=ImportError)
    results.check(path)
    results.write(path, ROWS)
    return path


@pytest.mark.parametrize("name", ["r.jsonl", "r.ndjson", "r.parquet"])
def test_results_round_trip(tmp_path: Path, name: str) -> None:
    found = results.read(written(tmp_path, name))
    assert [one.to_json() for one in found] == [one.to_json() for one in ROWS]
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_lines_are_objects_for_other_tools(tmp_path: Path) -> None:
    lines = written(tmp_path, "r.jsonl").read_text(encoding="utf-8").splitlines()
    first = json.loads(lines[0])
    assert (first["name"], first["verdict"], first["rtol"]) == ("a", "close", 1.5e-5)
    assert first["input_files"] == ["/m/a.onnx"]


def test_columns_of_parquet_have_types(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", exc_type=ImportError)
    table = parquet.read_table(written(tmp_path, "r.parquet"))
    types = {field.name: str(field.type) for field in table.schema}
    assert (types["nodes_after"], types["rtol"], types["reason"]) == ("int64", "double", "string")
    assert table.column("nodes_after").to_pylist() == [5, None]


def test_ledgers_and_their_folders(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        ledger.put(ROWS)
    assert results.read(tmp_path) == results.read(tmp_path / NAME) == ROWS


def test_files_that_are_not_results(tmp_path: Path) -> None:
    texts = {
        "a.jsonl": ("[1]", "a.jsonl:1: this is not a line of results: it has no name, model, recipe and state"),
        "b.jsonl": ("{", "b.jsonl:1: this is not a line of results: Expecting"),
        "c.jsonl": ('{"name": "a", "model": "m", "recipe": "r", "state": "done", "rtol": "x"}', "'rtol' is \"x\""),
        "d.onnx": ("", "these are not results of surgery batch; name an output folder, a ledger, or a file"),
        "e.parquet": ("no table", "e.parquet: the results cannot be read"),
    }
    for name, (text, problem) in texts.items():
        (tmp_path / name).write_text(text)
        if name.endswith(".parquet"):
            pytest.importorskip("pyarrow", exc_type=ImportError)
        with pytest.raises(UsageError) as error:
            results.read(tmp_path / name)
        assert problem in str(error.value)
    with pytest.raises(UsageError, match="there is no ledger in this folder"):
        results.read(tmp_path)
    with pytest.raises(UsageError, match="no such file or folder"):
        results.read(tmp_path / "gone.jsonl")


def test_results_of_a_newer_version(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text('{"name": "a", "model": "m", "recipe": "r", "state": "done", "mood": "good"}\n')
    assert results.read(tmp_path / "r.jsonl") == [LedgerRow("a", "m", "r", "done")]


def test_results_that_cannot_be_written_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"results are written as \.jsonl, \.ndjson or \.parquet, not as '\.csv'"):
        results.check(tmp_path / "r.csv")
    with pytest.raises(OutputError, match=r"the folder .* does not exist"):
        results.check(tmp_path / "gone" / "r.jsonl")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install 'onnx-surgery\[batch\]'"):
        results.check(tmp_path / "r.parquet")
