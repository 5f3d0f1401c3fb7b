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


def file_of(path: Path, data: bytes) -> MappedFile:
    path.write_bytes(data)
    return MappedFile(path)


def test_a_tensor_has_its_digest_where_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = CacheFolder(tmp_path / "cache", pytest.fail)
    folder._writes = False
    assert folder.store(file_of(tmp_path / "data", b"abc"), 0, 3) == hashlib.sha256(b"abc").hexdigest()
    warnings: list[str] = []
    folder = CacheFolder(tmp_path / "cache", warnings.append)

    def full(fd: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cache_folder, "_PIECE", 1)
    monkeypatch.setattr(cache_folder, "_write_all", full)
    assert folder.store(MappedFile(tmp_path / "data"), 0, 3) == hashlib.sha256(b"abc").hexdigest()
    assert len(warnings) == 1 and [path for path in folder.root.rglob("*") if path.is_file()] == []


def test_a_range_beyond_a_file_is_damaged(tmp_path: Path) -> None:
    folder = CacheFolder(tmp_path / "cache", pytest.fail)
    with pytest.raises(Damaged, match="data: cut short"):
        folder.store(file_of(tmp_path / "data", b"abc"), 1, 3)


@pytest.mark.parametrize(("failures", "placed"), [(0, True), (1, True), (8, True), (9, False)])
def test_a_folder_that_disappears_is_created_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int, placed: bool
) -> None:
    tries: list[Path] = []
    replace = Path.replace

    def vanishing(self: Path, target: Path) -> Path:
        tries.append(target)
        if len(tries) <= failures:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        return replace(self, target)

    passing = tmp_path / "passing"
    passing.write_bytes(b"abc")
    monkeypatch.setattr(Path, "replace", vanishing)
    if placed:
        cache_folder._put_in_place(passing, tmp_path / "sub" / "file")
        assert (tmp_path / "sub" / "file").read_bytes() == b"abc" and len(tries) == failures + 1
    else:
        with pytest.raises(FileNotFoundError):
            cache_folder._put_in_place(passing, tmp_path / "sub" / "file")


def test_digests_of_files_that_have_settled_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = CacheFolder(tmp_path / "cache", pytest.fail)
    new = file_of(tmp_path / "data", b"abc")
    digest = hashlib.sha256(b"abc").hexdigest()
    assert folder.digest_of(new) == digest and not folder.expects([new])
    changed = max(new.opened.st_mtime_ns, new.opened.st_ctime_ns)
    for later, remembered in ((2_000_000_000, False), (2_000_000_001, True)):
        monkeypatch.setattr(cache_folder.time, "time_ns", lambda later=later: changed + later)
        assert folder.digest_of(new) == digest
        assert folder.expects([new]) is remembered
    assert not folder.expects([]) and not folder.expects([new, file_of(tmp_path / "other", b"x")])
    monkeypatch.setattr(cache_folder, "_pieces", lambda *_: pytest.fail("it was read"))
    assert folder.digest_of(new) == digest
    assert len(list(folder.digests.iterdir())) == 1


def test_a_file_that_changes_while_it_is_read_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = CacheFolder(tmp_path / "cache", pytest.fail)
    new = file_of(tmp_path / "data", b"abc")
    os.utime(tmp_path / "data", (1, 1))
    monkeypatch.setattr(cache_folder, "_settled", lambda _: True)
    folder.digest_of(new)
    assert not folder.expects([new]) and list(folder.digests.iterdir()) == []


def test_keys_of_parts_do_not_run_together() -> None:
    keys = [cache_folder.key_of(*parts) for parts in (("ab", "c"), ("a", "bc"), ("abc",), (1,), ("1", ""), ("\udcff",))]
    assert len(set(keys)) == len(keys) and cache_folder.key_of(1) == cache_folder.key_of("1")
