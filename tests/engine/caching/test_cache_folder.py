"""The folder of the cache: what is stored is read as it was, or not at all."""

import errno
import hashlib
import os
import random
import tempfile
from pathlib import Path

import pytest

from surgery.base.errors import UsageError
from surgery.engine.caching import cache_folder
from surgery.engine.caching.cache_folder import PASSING, CacheFolder, Damaged
from surgery.model.wire.weights import MappedFile


def test_a_tensor_is_checked_while_it_is_read(tmp_path: Path) -> None:
    warnings: list[str] = []
    folder = CacheFolder(tmp_path / "cache", warnings.append)
    data = random.Random(0).randbytes(9_000_000)
    (tmp_path / "data").write_bytes(data)
    digest = folder.store(MappedFile(tmp_path / "data"), 100, 8_999_000)
    assert b"".join(folder.tensor(digest)) == data[100 : 100 + 8_999_000]
    (path,) = (path for path in (tmp_path / "cache").rglob(digest))
    changed = bytearray(path.read_bytes())
    changed[8_000_000] ^= 4
    path.write_bytes(changed)
    with pytest.raises(Damaged):
        list(folder.tensor(digest))
    assert not path.exists() and len(warnings) == 1
    with pytest.raises(FileNotFoundError):
        folder.tensor(digest)


def test_entries_are_read_as_they_were_written(tmp_path: Path) -> None:
    warnings: list[str] = []
    folder = CacheFolder(tmp_path / "cache", warnings.append)
    assert folder.names("run") == frozenset() and folder.read("run", "step") is None
    folder.write("run", "step", b"outcome")
    folder.write("run", "other", b"")
    (folder.runs / "run" / f"{PASSING}half").write_bytes(b"ou")
    assert folder.names("run") == {"step", "other"}
    assert (folder.read("run", "step"), folder.read("run", "other")) == (b"outcome", b"")
    path = folder.runs / "run" / "step"
    os.utime(path, (1, 1))
    assert folder.read("run", "step") == b"outcome" and path.stat().st_mtime > 1  # it was used
    assert [*folder.root.glob(f"{PASSING}*")] == []
    for damage in (b"outcome", path.read_bytes()[:-1], path.read_bytes() + b"x", b""):
        path.write_bytes(damage)
        assert folder.read("run", "step") is None and not path.exists()
    assert warnings == [f"{path}: removed from the cache, because it is damaged"] * 4


def test_a_folder_that_is_emptied_meanwhile_is_made_again(tmp_path: Path) -> None:
    folder = CacheFolder(tmp_path / "cache", pytest.fail)
    folder.runs.rmdir()
    folder.runs.mkdir()
    folder.write("run", "step", b"outcome")
    assert folder.read("run", "step") == b"outcome"
    assert CacheFolder(tmp_path / "none", pytest.fail, create=False).names("run") == frozenset()
    assert not (tmp_path / "none").exists()


def test_a_disk_that_refuses_ends_all_writing_with_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    folder = CacheFolder(tmp_path / "cache", warnings.append)
    folder.used(3, 4)
    folder.used(0, 0)
    folder.used(0, 1)
    assert folder.uses.read_text() == "3 4\n0 1\n"

    def full(*_: object, **__: object) -> tuple[int, str]:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as changed:
        changed.setattr(tempfile, "mkstemp", full)
        folder.write("run", "step", b"outcome")
    folder.write("run", "step", b"outcome")
    folder.remember("key", "digest")
    folder.used(5, 6)
    assert len(warnings) == 1
    assert warnings[0].endswith(
        "the cache cannot be written and is no longer used for writing: No space left on device"
    )
    assert folder.names("run") == frozenset() and folder.remembered("key") is None
    assert folder.uses.read_text() == "3 4\n0 1\n"
    # A tensor still has its digest.
    (tmp_path / "data").write_bytes(b"abc")
    digest = folder.store(MappedFile(tmp_path / "data"), 1, 2)
    assert digest == hashlib.sha256(b"bc").hexdigest()
    with pytest.raises(FileNotFoundError):
        folder.tensor(digest)


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = CacheFolder(tmp_path / "cache", pytest.fail)
    monkeypatch.setattr(cache_folder, "_put_in_place", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        folder.write("run", "step", b"outcome")
    assert [path.name for path in folder.root.iterdir() if path.is_file()] == []


def test_a_remembered_digest_is_checked(tmp_path: Path) -> None:
    warnings: list[str] = []
    folder = CacheFolder(tmp_path / "cache", warnings.append)
    assert folder.remembered("key") is None
    folder.remember("key", "1234")
    folder.remember("other", "1234")
    assert folder.remembered("key") == "1234"
    (folder.digests / "key").write_bytes((folder.digests / "other").read_bytes())
    assert folder.remembered("key") is None and not (folder.digests / "key").exists()
    assert folder.remembered("other") == "1234" and len(warnings) == 1


def test_a_file_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"")
    with pytest.raises(
        UsageError, match=r"the cache cannot be used: Not a directory; name another folder with --cache-dir"
    ):
        CacheFolder(tmp_path / "cache", pytest.fail)


@pytest.mark.parametrize(
    ("given", "home", "folder"),
    [
        ("/here", "/there", "/here"),
        ("", "/there", "/there/surgery"),
        ("", "there", "~/.cache/surgery"),
        ("", "", "~/.cache/surgery"),
    ],
)
def test_the_folder_follows_from_the_environment(
    given: str, home: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SURGERY_CACHE_DIR", given)
    monkeypatch.setenv("XDG_CACHE_HOME", home)
    assert cache_folder.default_folder() == Path(folder).expanduser()
