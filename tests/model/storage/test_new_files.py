"""Files that are written next to their target."""

from __future__ import annotations

from pathlib import Path

import pytest

from surgery.model.storage import Weights, files


def test_a_profiler_may_keep_views_of_the_bytes_that_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps frames with their local variables, and a bytearray of which there are views cannot be cleared."""
    kept = []
    write = files._write_all
    monkeypatch.setattr(files, "_BUFFER", 4)
    monkeypatch.setattr(files, "_write_all", lambda target, data: (kept.append(memoryview(data)), write(target, data)))
    with files.NewFile(tmp_path / "new") as new:
        new.write([b"abcd", b"ef", b"ghij"], Weights())
        new.commit(tmp_path / "new")
    assert (tmp_path / "new").read_bytes() == b"abcdefghij"
    assert len(kept) == 3
