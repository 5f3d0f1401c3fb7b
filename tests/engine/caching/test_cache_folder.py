"""The folder of the cache: what is stored is read as it was, or not at all."""

import random
from pathlib import Path

import pytest

from surgery.engine.caching.cache_folder import CacheFolder, Damaged
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
