"""Saving: layouts, what the system may refuse, and an old file that stays whole at every moment."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import TESTS, corpus
from support.corpus import floats, model_of, same

from surgery.base.errors import ModelFileError, OutputError, UsageError
from surgery.model import storage
from surgery.model.storage import files, saving


def stored_file(folder: Path, model: onnx.ModelProto, name: str = "m.onnx") -> storage.StoredModel:
    path = folder / name
    path.write_bytes(model.SerializeToString())
    return storage.load(path)


def externally(folder: Path, model: onnx.ModelProto, name: str = "m.onnx") -> storage.StoredModel:
    """Save a model with external data and load it again."""
    stored = storage.from_proto(model)
    storage.save(stored.proto, folder / name, stored.weights, layout="external", force=True)
    return storage.load(folder / name)


def refused(stored: storage.StoredModel, path: Path | str, **options: Any) -> str:
    before = sorted(Path(path).parent.iterdir()) if Path(path).parent.is_dir() else []
    with pytest.raises(OutputError) as caught:
        storage.save(stored.proto, path, stored.weights, **options)
    assert "\n" not in str(caught.value)
    if before:
        assert sorted(Path(path).parent.iterdir()) == before, "a temporary file was left"
    return str(caught.value)


def bits(model: onnx.ModelProto) -> dict[str, bytes]:
    """Return the values of all tensors, whatever field they are in."""
    return {
        f"{index} {tensor.name}": numpy_helper.to_array(tensor).tobytes()
        for index, tensor in enumerate(storage.all_tensors(model))
        if tensor.data_type != TensorProto.STRING and not tensor.HasField("segment")
    }


NEW = model_of(floats("w", 4000, seed=5), floats("v", 300, seed=6))
TWO = model_of(floats("w", 4000), floats("v", 300, seed=1), floats("small", 3))


# Layouts


def test_a_single_file_keeps_its_bytes(tmp_path: Path) -> None:
    model = corpus.everything()
    corpus.add_unknown_fields(model)
    stored = stored_file(tmp_path, model)
    assert storage.save(stored.proto, tmp_path / "out.onnx", stored.weights) == [tmp_path / "out.onnx"]
    assert (tmp_path / "out.onnx").read_bytes() == model.SerializeToString()


def test_external_layout(tmp_path: Path) -> None:
    model = corpus.everything()
    stored = stored_file(tmp_path, model)
    written = storage.save(stored.proto, tmp_path / "out.onnx", stored.weights, layout="external")
    assert written == [tmp_path / "out.onnx", tmp_path / "out.onnx.data"]
    raw = onnx.load(tmp_path / "out.onnx", load_external_data=False)
    for tensor in raw.graph.initializer:
        payload = storage.payload_bytes(tensor)
        assert (tensor.data_location == TensorProto.EXTERNAL) == (payload >= 1024 and tensor.data_type != 8)
    # What readers of external data do not look at stays inside.
    assert raw.training_info == model.training_info
    assert raw.graph.sparse_initializer == model.graph.sparse_initializer
    assert raw.functions[0].attribute_proto == model.functions[0].attribute_proto
    constants = [node.attribute[0].t for node in (raw.graph.node[1], raw.functions[0].node[1])]
    assert all(tensor.data_location == TensorProto.EXTERNAL for tensor in constants)
    assert bits(onnx.load(tmp_path / "out.onnx")) == bits(model)
    again = storage.load(tmp_path / "out.onnx")
    assert again.external
    assert bits(storage.resolve(again.proto, again.weights)) == bits(model)


def test_external_data_is_aligned_and_stored_once(tmp_path: Path) -> None:
    shared = floats("a", 300_000)
    stored = storage.from_proto(model_of(floats("first", 257), shared))
    twin = stored.proto.graph.initializer.add()
    twin.CopyFrom(stored.proto.graph.initializer[1])
    twin.name = "twin"
    storage.save(stored.proto, tmp_path / "m.onnx", stored.weights, layout="external")
    offsets = [
        int(entry.value)
        for tensor in onnx.load(tmp_path / "m.onnx", load_external_data=False).graph.initializer
        for entry in tensor.external_data
        if entry.key == "offset"
    ]
    assert offsets == [0, 4096, 4096]
    assert (tmp_path / "m.onnx.data").stat().st_size == 4096 + 1_200_000
    stored = storage.load(tmp_path / "m.onnx")
    storage.save(stored.proto, tmp_path / "n.onnx", stored.weights)
    assert (tmp_path / "n.onnx.data").read_bytes() == (tmp_path / "m.onnx.data").read_bytes()


def test_keep_keeps_the_layout(tmp_path: Path) -> None:
    single = stored_file(tmp_path, TWO)
    assert len(storage.save(single.proto, tmp_path / "a.onnx", single.weights)) == 1
    external = externally(tmp_path, TWO, "e.onnx")
    assert len(storage.save(external.proto, tmp_path / "b.onnx", external.weights)) == 2
    assert same(onnx.load(tmp_path / "a.onnx"), TWO)
    assert bits(onnx.load(tmp_path / "b.onnx")) == bits(TWO)
    assert len(storage.save(external.proto, tmp_path / "c.onnx", external.weights, layout="single")) == 1
    assert same(onnx.load(tmp_path / "c.onnx"), TWO)


def test_keep_leaves_inline_tensors_inline(tmp_path: Path) -> None:
    model = model_of(floats("outside", 400), helper.make_tensor("inside", 1, [400], range(400)))
    model.graph.initializer[0].ClearField("raw_data")
    model.graph.initializer[0].data_location = TensorProto.EXTERNAL
    model.graph.initializer[0].external_data.add(key="location", value="w.bin")
    (tmp_path / "w.bin").write_bytes(bytes(1600))
    stored = stored_file(tmp_path, model)
    added = stored.proto.graph.initializer.add()
    added.CopyFrom(storage.from_proto(model_of(floats("new", 400))).proto.graph.initializer[0])
    extra = storage.from_proto(model_of(floats("new", 400)))
    added.CopyFrom(extra.proto.graph.initializer[0])
    storage.save(stored.proto, tmp_path / "out.onnx", stored.weights)
    raw = onnx.load(tmp_path / "out.onnx", load_external_data=False)
    assert [tensor.data_location for tensor in raw.graph.initializer] == [1, 0, 1]
    assert raw.graph.initializer[1] == model.graph.initializer[1]


def test_beyond_2_gib_only_external_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "PROTOBUF_LIMIT", 10_000)
    stored = stored_file(tmp_path, TWO)
    assert "use the layout 'external'" in refused(stored, tmp_path / "a.onnx", layout="single")
    assert len(storage.save(stored.proto, tmp_path / "b.onnx", stored.weights)) == 2
    monkeypatch.setattr(saving, "PROTOBUF_LIMIT", 100)
    assert "cannot be external" in refused(stored, tmp_path / "c.onnx")
    with pytest.raises(OutputError, match="too large for one"):
        storage.resolve(stored.proto, stored.weights)


def test_an_unknown_layout(tmp_path: Path) -> None:
    stored = storage.from_proto(TWO)
    with pytest.raises(UsageError, match="no layout"):
        storage.save(stored.proto, tmp_path / "a.onnx", stored.weights, layout="both")  # type: ignore[arg-type]


@pytest.mark.parametrize("layout", ["single", "external"])
def test_equal_models_give_equal_bytes(tmp_path: Path, layout: saving.Layout) -> None:
    contents = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        stored = stored_file(folder, corpus.everything(), "in.onnx")
        written = storage.save(stored.proto, folder / "out.onnx", stored.weights, layout=layout)
        again = storage.save(stored.proto, folder / "out.onnx", stored.weights, layout=layout, force=True)
        assert again == written
        contents.append([path.read_bytes() for path in written])
    assert contents[0] == contents[1]


def test_edited_tensors_are_encoded_for_their_new_type(tmp_path: Path) -> None:
    """The bits of a typed tensor may be given another data type, for which its field would be wrong."""
    stored = stored_file(tmp_path, model_of(helper.make_tensor("w", 1, [400], range(400))))
    stored.proto.graph.initializer[0].data_type = TensorProto.INT32
    storage.save(stored.proto, tmp_path / "out.onnx", stored.weights)
    (tensor,) = onnx.load(tmp_path / "out.onnx").graph.initializer
    assert tensor.HasField("raw_data") and not tensor.float_data
    assert numpy_helper.to_array(tensor).tobytes() == np.arange(400, dtype=np.float32).tobytes()


# The same file in and out


@pytest.mark.parametrize("before", ["single", "external"])
@pytest.mark.parametrize("after", ["single", "external"])
def test_output_over_input(tmp_path: Path, before: saving.Layout, after: saving.Layout) -> None:
    path = tmp_path / "m.onnx"
    first = storage.from_proto(TWO)
    storage.save(first.proto, path, first.weights, layout=before)
    for round_ in range(3):
        stored = storage.load(path)
        stored.proto.doc_string = f"round {round_}"
        written = storage.save(stored.proto, path, stored.weights, layout=after, force=True)
        names = {"m.onnx", "m.onnx.data"} if "external" in (before, after) else {"m.onnx"}
        assert {entry.name for entry in tmp_path.iterdir()} == names
        assert written == [tmp_path / name for name in ("m.onnx", "m.onnx.data")[: 1 + (after == "external")]]
        # The model that was loaded still reads its own bytes, although its files have been replaced.
        assert bits(storage.resolve(stored.proto, stored.weights)) == bits(TWO)
        loaded = onnx.load(path)
        assert loaded.doc_string == f"round {round_}" and bits(loaded) == bits(TWO)
    for entry in tmp_path.iterdir():
        assert entry.stat().st_nlink == 1


@pytest.mark.parametrize("before", ["single", "external"])
@pytest.mark.parametrize("after", ["single", "external"])
def test_the_model_is_whole_after_every_step(
    tmp_path: Path, before: saving.Layout, after: saving.Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Look at the folder before each change of the file system: somebody else could load the model then."""
    old, new = TWO, NEW
    path = tmp_path / "m.onnx"
    first = storage.from_proto(old)
    storage.save(first.proto, path, first.weights, layout=before)
    seen: list[str] = []

    def watch(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **options: Any) -> Any:
            loaded = onnx.load(path)
            assert bits(loaded) in (bits(old), bits(new))
            seen.append("new" if bits(loaded) == bits(new) else "old")
            return real(*arguments, **options)

        return step

    changed = storage.from_proto(new)
    with monkeypatch.context() as patch:
        for name in ("replace", "rename", "unlink", "write", "fsync", "copy_file_range"):
            patch.setattr(os, name, watch(name, getattr(os, name)))
        storage.save(changed.proto, path, changed.weights, layout=after, force=True)
    assert (seen == sorted(seen, reverse=True) and set(seen) == {"old", "new"}) or set(seen) == {"old"}
    assert len(seen) >= 4
    assert bits(onnx.load(path)) == bits(new)


KILLED = """
import os, signal, sys
path, layout, tests = sys.argv[1:]
sys.path[:0] = [tests, tests + "/model/storage"]
import onnx
from support.corpus import floats, model_of
from surgery.model import storage
from test_saving import NEW, TWO, bits

def deadly(real):
    def call(*arguments, **options):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **options)
    return call

stored = storage.from_proto(TWO)
storage.save(stored.proto, path, stored.weights, layout=layout)
stored = storage.from_proto(NEW)
for steps in range(100):
    if os.fork() == 0:
        left = steps
        for name in ("replace", "rename", "unlink", "write", "fsync", "copy_file_range"):
            setattr(os, name, deadly(getattr(os, name)))
        storage.save(stored.proto, path, stored.weights, layout=layout, force=True)
        os._exit(0)
    status = os.wait()[1]
    found = bits(onnx.load(path))
    assert found in (bits(TWO), bits(NEW)), steps
    if status == 0:
        break
    assert os.WTERMSIG(status) == signal.SIGKILL
print(steps)
"""


@pytest.mark.parametrize("layout", ["single", "external"])
def test_a_killed_process_leaves_a_whole_model(tmp_path: Path, layout: saving.Layout) -> None:
    """Kill a process with SIGKILL at the n-th change of the file system, for every n."""
    path = tmp_path / "m.onnx"
    arguments = [str(path), layout, str(TESTS)]
    command = [sys.executable, "-c", KILLED, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(done.stdout) >= (5 if layout == "single" else 12)
    # A later save is not hindered by what the killed ones left behind.
    stored = storage.load(path)
    storage.save(stored.proto, path, stored.weights, layout=layout, force=True)
    assert bits(onnx.load(path)) == bits(NEW)


def test_data_that_is_right_already_is_left_alone(tmp_path: Path) -> None:
    stored = externally(tmp_path, TWO)
    before = (tmp_path / "m.onnx.data").stat()  # it may be read, so that the time of access says nothing
    stored.proto.doc_string = "new words"
    written = storage.save(stored.proto, tmp_path / "m.onnx", stored.weights, force=True)
    assert written == [tmp_path / "m.onnx", tmp_path / "m.onnx.data"]
    after = (tmp_path / "m.onnx.data").stat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)
    assert onnx.load(tmp_path / "m.onnx").doc_string == "new words"
    # Without one of the tensors the data is another one.
    del stored.proto.graph.initializer[0]
    storage.save(stored.proto, tmp_path / "m.onnx", stored.weights, force=True)
    assert (tmp_path / "m.onnx.data").stat().st_size == 1200


def test_without_room_for_a_second_copy_the_first_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    externally(tmp_path, TWO)
    real = os.unlink

    def fill_the_disk(path: Any, **options: Any) -> None:
        real(path, **options)
        monkeypatch.setattr(os, "fsync", refuse)

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "unlink", fill_the_disk)
    stored = storage.from_proto(NEW)
    written = storage.save(stored.proto, tmp_path / "m.onnx", stored.weights, layout="external", force=True)
    assert written == [tmp_path / "m.onnx", tmp_path / "m.onnx.1.data"]
    # The journal, by which the next save removes this data.
    (journal,) = {entry.name for entry in tmp_path.iterdir()} - {"m.onnx", "m.onnx.1.data"}
    assert journal.endswith(".files")
    assert bits(onnx.load(tmp_path / "m.onnx")) == bits(NEW)


def test_weights_of_the_input_are_not_overwritten(tmp_path: Path) -> None:
    stored = externally(tmp_path, TWO, "b.onnx")
    (tmp_path / "b.onnx").rename(tmp_path / "a.onnx")
    stored = storage.load(tmp_path / "a.onnx")
    assert "holds weights of the input" in refused(stored, tmp_path / "b.onnx", force=True)
    assert "holds weights of the input" in refused(stored, tmp_path / "b.onnx.data", force=True, layout="single")
    assert bits(onnx.load(tmp_path / "a.onnx")) == bits(TWO)


# Refusals


def test_an_existing_output_needs_force(tmp_path: Path) -> None:
    stored = stored_file(tmp_path, TWO)
    assert "--force" in refused(stored, tmp_path / "m.onnx")
    with pytest.raises(OutputError, match="exists"):
        storage.check_target(tmp_path / "m.onnx")
    assert storage.check_target(tmp_path / "m.onnx", force=True) == tmp_path / "m.onnx"
    (tmp_path / "new.onnx.data").write_bytes(b"precious")
    assert "external data exists" in refused(stored, tmp_path / "new.onnx", layout="external")
    assert (tmp_path / "new.onnx.data").read_bytes() == b"precious"


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    stored = storage.from_proto(TWO)
    assert "does not exist" in refused(stored, tmp_path / "absent" / "m.onnx")
    assert "a directory" in refused(stored, tmp_path, force=True)
    assert "not a regular file" in refused(stored, "/dev/null", force=True)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    assert "cannot be written" in refused(stored, tmp_path / ("m" * 300))
    assert "cannot be written" in refused(stored, "m\0.onnx")
    (tmp_path / "d.onnx.data").mkdir()
    assert "not a regular file" in refused(stored, tmp_path / "d.onnx", layout="external", force=True)


def test_a_folder_that_is_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The tests may run as root, for whom permissions do not count.
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(OutputError, match="no permission to write into"):
        storage.check_target(tmp_path / "m.onnx")


@pytest.mark.parametrize("layout", ["single", "external"])
@pytest.mark.parametrize("existing", [False, True], ids=["new", "over the old one"])
@pytest.mark.parametrize(
    ("call", "number", "remedy"),
    [
        ("copy_file_range", errno.ENOSPC, "free some space"),
        ("write", errno.ENOSPC, "free some space"),
        ("fsync", errno.EDQUOT, "free some space"),
        ("open", errno.EROFS, "a folder that you may write to"),
        ("open", errno.EACCES, "a folder that you may write to"),
    ],
)
def test_system_errors_are_reported_with_a_remedy(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    layout: saving.Layout,
    existing: bool,
    call: str,
    number: int,
    remedy: str,
) -> None:
    path = tmp_path / "m.onnx"
    (tmp_path / "other").write_bytes(b"")

    def refuse(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    # Closed at the end: its folder could not be removed while the next test has nothing opened.
    stored = storage.from_proto(TWO)
    with stored.weights:
        if existing:
            storage.save(stored.proto, path, stored.weights, layout=layout)
        with monkeypatch.context() as patch:
            patch.setattr(os, call, refuse)
            text = refused(stored, path, layout=layout, force=True)
    assert remedy in text and str(tmp_path) in text
    if existing:
        assert bits(onnx.load(path)) == bits(TWO)


def test_a_real_full_disk(tmp_path: Path) -> None:
    """A limit on the size of files has the same effect as a full disk, and needs no mount."""
    path = tmp_path / "m.onnx"
    path.write_bytes(model_of(floats("w", 200_000)).SerializeToString())
    code = (
        "import resource, signal, sys\n"
        "from surgery.model import storage\n"
        "from surgery.base.errors import MachineError, OutputError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "stored = storage.load(sys.argv[1])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "for attempt in (lambda: storage.save(stored.proto, sys.argv[2], stored.weights),\n"
        "                lambda: stored.weights.spill(bytes(200_000))):\n"
        "    try:\n"
        "        attempt()\n"
        "    except (MachineError, OutputError) as error:\n"
        "        print(error)\n"
        "small = stored.weights.spill(b'still works')\n"
        "assert bytes(stored.weights.view(small)) == b'still works' and small.offset == 0\n"
    )
    arguments = [str(path), str(tmp_path / "out.onnx")]
    done = subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True)
    first, second = done.stdout.splitlines()
    assert "File too large" in first and "new tensor data cannot be written" in second
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.onnx"]


def test_missing_weights_are_reported_before_writing(tmp_path: Path) -> None:
    stored = externally(tmp_path, TWO)
    proto, stored = stored.proto, storage.from_proto(model_of())
    (tmp_path / "m.onnx.data").unlink()
    with pytest.raises(ModelFileError, match="cannot be read"):
        storage.save(proto, tmp_path / "out.onnx", storage.Weights())
    assert not (tmp_path / "out.onnx").exists()


def test_a_source_that_shrinks_is_noticed(tmp_path: Path) -> None:
    stored = stored_file(tmp_path, TWO)
    source = stored.weights.source(str(tmp_path / "m.onnx")[1:])
    with (tmp_path / "target").open("wb") as target:
        size = source.size
        os.truncate(tmp_path / "m.onnx", 100)
        with pytest.raises(ModelFileError, match="bytes are missing"):
            files.copy_range(source, 0, size, target.fileno())


@pytest.mark.parametrize("number", [errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, None])
def test_copying_without_copy_file_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int | None) -> None:
    def refuse(*_: Any) -> int:
        if number is None:
            return 0
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "copy_file_range", refuse)
    stored = stored_file(tmp_path, TWO)
    storage.save(stored.proto, tmp_path / "out.onnx", stored.weights)
    assert (tmp_path / "out.onnx").read_bytes() == TWO.SerializeToString()


# Modes and links


@pytest.mark.parametrize("layout", ["single", "external"])
def test_files_get_ordinary_modes(tmp_path: Path, layout: saving.Layout) -> None:
    stored = storage.from_proto(TWO)
    before = os.umask(0o027)
    try:
        written = storage.save(stored.proto, tmp_path / "m.onnx", stored.weights, layout=layout)
        assert {stat.S_IMODE(path.stat().st_mode) for path in written} == {0o640}
        for path in written:
            path.chmod(0o604)
        storage.save(stored.proto, tmp_path / "m.onnx", stored.weights, layout=layout, force=True)
        assert {stat.S_IMODE(path.stat().st_mode) for path in written} == {0o604}
    finally:
        os.umask(before)


@pytest.mark.parametrize("exists", [False, True])
def test_a_symlink_is_followed_when_writing(tmp_path: Path, exists: bool) -> None:
    real, link = tmp_path / "real" / "m.onnx", tmp_path / "link.onnx"
    real.parent.mkdir()
    if exists:
        real.write_bytes(b"old")
    link.symlink_to(real)
    stored = storage.from_proto(TWO)
    written = storage.save(stored.proto, link, stored.weights, force=True, layout="external")
    assert written == [real, real.parent / "m.onnx.data"]
    assert link.is_symlink() and bits(onnx.load(real)) == bits(TWO)
    assert storage.load(link).external
