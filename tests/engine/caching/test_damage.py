"""A cache that is damaged, pruned, full or shared: the bytes of the result are the same, whatever it holds."""

import random
import shutil
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest
from support.cached_runs import Run, entries, run, without_distances, write_model

from surgery.engine.caching import housekeeping, outcome_text
from surgery.engine.caching.cache_folder import PASSING, CacheFolder
from surgery.model.wire.weights import MappedFile

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    """A folder with a model and a cache that has seen it, and the run that filled it."""
    place = tmp_path_factory.mktemp("filled")
    return place, run(write_model(place / "model.onnx"), place / "cache")


@pytest.fixture
def copy(filled: tuple[Path, Run], tmp_path: Path) -> Path:
    shutil.copytree(filled[0], tmp_path / "copy")
    return tmp_path / "copy"


def flip(path: Path, place: int, bits: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= bits
    path.write_bytes(data)


# The head of an entry, its digest, the length of its text, its text and the model; the parts of a tensor.
SHARES = [0.0, 0.02, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 1.0]


@pytest.mark.parametrize("share", SHARES)
def test_flipped_bits_are_found_anywhere(filled: tuple[Path, Run], copy: Path, share: float) -> None:
    chance = random.Random(share)
    files = entries(copy / "cache")
    for path in files:
        size = path.stat().st_size
        place = min(int(share * size + chance.uniform(0, 0.05) * size), size - 1)
        flip(path, place, 1 << chance.randrange(8))
    found = run(copy / "model.onnx", copy / "cache")
    assert (found.sha256, found.report) == (filled[1].sha256, filled[1].report)
    assert found.cached == []
    assert found.warnings and all("removed from the cache, because it is damaged" in line for line in found.warnings)
    again = run(copy / "model.onnx", copy / "cache")
    assert again.sha256 == filled[1].sha256 and len(again.cached) == 6 and again.warnings == []


@pytest.mark.parametrize("number", range(11))
def test_each_file_may_be_damaged_alone(filled: tuple[Path, Run], copy: Path, number: int) -> None:
    files = entries(copy / "cache")
    if number >= len(files):
        pytest.skip(f"there are {len(files)} files")
    chance = random.Random(number)
    path = files[number]
    data = path.read_bytes()
    path.write_bytes(data[: chance.randrange(len(data))])
    found = run(copy / "model.onnx", copy / "cache")
    assert found.sha256 == filled[1].sha256
    assert without_distances(found.report) == without_distances(filled[1].report)


def test_a_run_writes_few_cache_entries(filled: tuple[Path, Run]) -> None:
    assert 8 <= len(entries(filled[0] / "cache")) <= 11


def test_an_entry_under_another_name_is_dropped(filled: tuple[Path, Run], copy: Path) -> None:
    steps = [path for path in entries(copy / "cache") if path.parent.parent.name == "runs"]
    contents = [path.read_bytes() for path in steps]
    for path, data in zip(steps, [*contents[1:], contents[0]]):
        path.write_bytes(data)
    found = run(copy / "model.onnx", copy / "cache")
    assert (found.sha256, found.report) == (filled[1].sha256, filled[1].report)
    assert found.cached == [] and found.warnings


def test_an_entry_of_another_version_is_dropped(filled: tuple[Path, Run], copy: Path) -> None:
    for path in entries(copy / "cache"):
        if path.parent.parent.name == "runs":
            path.write_bytes(path.read_bytes().replace(b"cache entry 1", b"cache entry 2"))
    found = run(copy / "model.onnx", copy / "cache")
    assert found.sha256 == filled[1].sha256 and found.cached == [] and found.warnings


def test_a_well_formed_entry_with_wrong_contents_is_dropped(filled: tuple[Path, Run], copy: Path) -> None:
    folder = CacheFolder(copy / "cache", pytest.fail)
    for path in entries(copy / "cache"):
        if path.parent.parent.name == "runs":
            run_name, name = path.parent.name, path.name
            text = zlib.compress(outcome_text.dump({"entry": f"{run_name}/{name}", "changed": "perhaps", "value": 3}))
            folder.write(run_name, name, len(text).to_bytes(4, "big") + text)
    found = run(copy / "model.onnx", copy / "cache")
    assert (found.sha256, found.report) == (filled[1].sha256, filled[1].report)
    assert found.cached == [] and found.warnings


def test_a_missing_tensor_is_recomputed_without_a_warning(filled: tuple[Path, Run], copy: Path) -> None:
    shutil.rmtree(copy / "cache" / "v1" / "tensors")
    found = run(copy / "model.onnx", copy / "cache")
    assert found.sha256 == filled[1].sha256 and found.warnings == []
    assert "fold-constants" in found.watcher.ran and "drop-identity" in found.cached


def test_an_unwritable_cache_warns_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno
    import tempfile

    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    model, cache = write_model(tmp_path / "model.onnx"), tmp_path / "cache"
    known = run(model, None)
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "mkstemp", full)
        found = run(model, cache)
    assert found.sha256 == known.sha256
    (line,) = found.warnings
    assert "the cache cannot be written and is no longer used for writing: No space left on device" in line


WRITER = """
import sys
from pathlib import Path
from support.cached_runs import run
for number in range(2):
    print(run(Path(sys.argv[1]), Path(sys.argv[2]), name=f"{sys.argv[3]}.onnx").sha256)
"""


def test_runs_share_a_cache_while_it_is_pruned(filled: tuple[Path, Run], copy: Path) -> None:
    from support import SUPPORT

    shutil.rmtree(copy / "cache")
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, copy / "model.onnx", copy / "cache", str(number)],
            cwd=SUPPORT.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    folder = CacheFolder(copy / "cache", pytest.fail)
    while any(one.poll() is None for one in runs):
        housekeeping.prune(folder, max_bytes=0)
        time.sleep(0.05)
    for one in runs:
        out, err = one.communicate()
        assert out.split() == [filled[1].sha256] * 2, err
        assert "Traceback" not in err


# The folder itself


def test_prune_removes_the_least_recently_used_entries(copy: Path) -> None:
    import os

    folder = CacheFolder(copy / "cache", pytest.fail)
    files = entries(copy / "cache")
    for age, path in enumerate(files):
        os.utime(path, (time.time() - 1000 * age,) * 2)
    before = housekeeping.contents(folder)
    old = housekeeping.prune(folder, older_than=2500.0)
    assert old.files == len(files) - 3 and {path for path in files if path.exists()} == set(files[:3])
    left = housekeeping.prune(folder, max_bytes=files[0].stat().st_size)
    assert left.left == files[0].stat().st_size and entries(copy / "cache") == files[:1]
    assert before.bytes == old.bytes + left.bytes + left.left
    assert housekeeping.remove_all(folder).left == 0
    empty = housekeeping.contents(folder)
    assert (empty.entries, empty.tensors, empty.bytes, empty.found, empty.missed) == (0, 0, 0, 0, 0)


def test_old_leftovers_of_killed_processes_are_removed(copy: Path) -> None:
    import os

    folder = CacheFolder(copy / "cache", pytest.fail)
    fresh, old = folder.root / f"{PASSING}fresh", folder.root / f"{PASSING}old"
    for path in (fresh, old):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    housekeeping.prune(folder, max_bytes=0)
    assert fresh.exists() and not old.exists()


def test_a_cache_stays_within_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SURGERY_CACHE_SIZE", "50KB")
    found = run(write_model(tmp_path / "model.onnx"), tmp_path / "cache")
    assert found.sha256
    assert sum(path.stat().st_size for path in entries(tmp_path / "cache")) <= 50_000


def test_digests_of_files_are_cached_until_the_files_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import hashlib

    from surgery.engine.caching import cache_folder as module

    folder = CacheFolder(tmp_path / "cache", pytest.fail)
    path = tmp_path / "data"
    path.write_bytes(b"a" * 1000)
    assert folder.digest_of(MappedFile(path)) == hashlib.sha256(b"a" * 1000).hexdigest()
    # It was written a moment ago, and may be written again within the same tick of the clock.
    assert not folder.expects([MappedFile(path)])
    monkeypatch.setattr(module, "_SETTLED", 0)
    folder.digest_of(MappedFile(path))
    assert folder.expects([MappedFile(path)])
    path.write_bytes(b"b" * 1000)
    assert not folder.expects([MappedFile(path)])
    assert folder.digest_of(MappedFile(path)) == hashlib.sha256(b"b" * 1000).hexdigest()
