"""What a cache holds, and what is removed from it: by age, by size, and left by processes that died."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from surgery.base.errors import UsageError
from surgery.engine.caching import housekeeping
from surgery.engine.caching.cache_folder import PASSING, CacheFolder

HOUR = 3600.0


@pytest.fixture
def folder(tmp_path: Path) -> CacheFolder:
    """Return a cache of two runs and a tensor; `oldest` was used five hours ago, `newest` one."""
    found = CacheFolder(tmp_path / "cache", pytest.fail)
    now = time.time()
    places = {
        found.runs / "a" / "oldest": (100, 5),
        found.tensors / "12" / "older": (1000, 4),
        found.runs / "a" / "newer": (10, 2),
        found.runs / "b" / "newest": (1, 1),
    }
    for path, (size, age) in places.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
        os.utime(path, (now - age * HOUR,) * 2)
    found.uses.write_text("3 4\nnot numbers\n5\n1 -2\n10 20\n", encoding="ascii")
    return found


def left(folder: CacheFolder) -> set[str]:
    return {path.name for path in folder.root.rglob("*") if path.is_file() and path != folder.uses}


def test_the_contents_are_counted(folder: CacheFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SURGERY_CACHE_SIZE", raising=False)
    found = housekeeping.contents(folder)
    expected = {"bytes": 1111, "limit": 10_000_000_000, "sets": 2, "entries": 3, "tensors": 1, "tensor_bytes": 1000}
    assert found.to_json() == {
        "format_version": 1,
        "folder": str(folder.path),
        "found": 13,
        "missed": 24,
        **expected,
    }


@pytest.mark.parametrize(
    ("older_than", "most", "kept", "pruned"),
    [
        (None, None, {"oldest", "older", "newer", "newest"}, (0, 0, 1111)),
        (3 * HOUR, None, {"newer", "newest"}, (2, 1100, 11)),
        (None, 1011, {"older", "newer", "newest"}, (1, 100, 1011)),
        (None, 1010, {"newer", "newest"}, (2, 1100, 11)),
        (4.5 * HOUR, 11, {"newer", "newest"}, (2, 1100, 11)),
        (None, 0, set(), (4, 1111, 0)),
    ],
)
def test_old_files_are_removed_first(
    older_than: float | None, most: int | None, kept: set[str], pruned: tuple[int, int, int], folder: CacheFolder
) -> None:
    found = housekeeping.prune(folder, older_than=older_than, max_bytes=most)
    assert left(folder) == kept
    files, size, rest = pruned
    assert found.to_json() == {"format_version": 1, "files": files, "bytes": size, "left": rest}
    # Empty folders go, too, and the counts stay.
    assert (folder.tensors / "12").exists() is ("older" in kept)
    assert folder.uses.exists()


def test_files_that_are_being_written_stay_for_an_hour(folder: CacheFolder) -> None:
    for name, age in (("fresh", 0.9), ("abandoned", 1.1)):
        path = folder.root / f"{PASSING}{name}"
        path.write_bytes(b"half")
        os.utime(path, (time.time() - age * HOUR,) * 2)
    assert housekeeping.prune(folder) == housekeeping.Pruned(1, 4, 1115)
    found = housekeeping.prune(folder, max_bytes=0)
    assert left(folder) == {f"{PASSING}fresh"} and found.left == 4


def test_removing_everything_resets_the_counts(folder: CacheFolder) -> None:
    assert housekeeping.remove_all(folder).files == 4
    found = housekeeping.contents(folder)
    assert (found.bytes, found.sets, found.found, found.missed) == (0, 0, 0, 0)
    assert housekeeping.remove_all(folder).files == 0


def test_a_cache_above_its_limit_is_pruned_to_nine_tenths(folder: CacheFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    first = folder.runs / "a" / "first"
    first.write_bytes(b"x" * 200)
    os.utime(first, (0, 0))
    for limit, kept in ((1311, 5), (1235, 4), (1111, 4), (1110, 2)):
        monkeypatch.setenv("SURGERY_CACHE_SIZE", str(limit))
        housekeeping.bound(folder)
        assert len(left(folder)) == kept
    monkeypatch.setenv("SURGERY_CACHE_SIZE", "2KB")
    assert housekeeping.limit() == 2000
    monkeypatch.setenv("SURGERY_CACHE_SIZE", "much")
    with pytest.raises(UsageError, match="SURGERY_CACHE_SIZE: "):
        housekeeping.limit()
    monkeypatch.setenv("SURGERY_CACHE_SIZE", "")
    assert housekeeping.limit() == housekeeping.MOST_BYTES


def test_a_file_that_cannot_be_removed_is_not_counted(folder: CacheFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    unlink = Path.unlink

    def fails(path: Path, missing_ok: bool = False) -> None:
        if path.name == "oldest":
            raise OSError
        unlink(path, missing_ok=missing_ok)
        if path.name == "older":
            unlink(path.parents[2] / "runs" / "b" / "newest")  # another process is faster

    monkeypatch.setattr(Path, "unlink", fails)
    assert housekeeping.prune(folder, older_than=4.5 * HOUR) == housekeeping.Pruned(0, 0, 1111)
    assert housekeeping.prune(folder, max_bytes=0) == housekeeping.Pruned(3, 1011, 100)
    assert left(folder) == {"oldest"}
