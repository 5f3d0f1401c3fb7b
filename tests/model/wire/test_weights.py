"""External data and scratch data: what may be read, what is mapped, and what goes away."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from support.corpus import floats, model_of, same

from surgery.base.errors import MachineError, ModelFileError
from surgery.model import storage
from surgery.model.wire.weights import Scratch, Weights, _scratch_errors


def fails(path: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        storage.load(path)
    return str(caught.value)


# External data


def external_model(location: str, count: int = 400, **entries: str) -> onnx.ModelProto:
    tensor = TensorProto(name="w", data_type=1, dims=[count], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    return model_of(tensor)


def write(folder: Path, model: onnx.ModelProto, name: str = "m.onnx") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(model.SerializeToString())
    return path


VALUES = np.arange(500, dtype=np.float32)


def test_external_data_is_found_and_mapped(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w.bin").write_bytes(VALUES.tobytes())
    path = write(tmp_path, external_model("sub/w.bin", offset="16", length="1600", checksum="abc"))
    stored = storage.load(path)
    assert stored.external and stored.weights.external
    tensor = stored.proto.graph.initializer[0]
    entries = {entry.key: entry.value for entry in tensor.external_data}
    assert entries == {"location": str(tmp_path / "sub" / "w.bin")[1:], "offset": "16", "length": "1600"}
    np.testing.assert_array_equal(stored.weights.read(tensor), VALUES[4:404])
    assert not storage.from_proto(model_of()).external


def test_missing_offset_and_length_are_derived_from_the_tensor(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(VALUES.tobytes())
    stored = storage.load(write(tmp_path, external_model("w.bin")))
    np.testing.assert_array_equal(stored.weights.read(stored.proto.graph.initializer[0]), VALUES[:400])


def test_small_external_tensors_are_read_in(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(VALUES.tobytes())
    stored = storage.load(write(tmp_path, external_model("w.bin", 5, offset="4")))
    assert same(stored.proto, model_of(numpy_helper.from_array(VALUES[1:6], "w")))
    assert stored.external
    empty = storage.load(write(tmp_path, external_model("w.bin", 0)))
    assert empty.proto.graph.initializer[0].raw_data == b""


def test_external_data_of_a_model_in_memory(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(VALUES.tobytes())
    model = external_model("w.bin")
    stored = storage.from_proto(model, tmp_path)
    np.testing.assert_array_equal(stored.weights.read(stored.proto.graph.initializer[0]), VALUES[:400])
    with pytest.raises(ModelFileError, match="name the folder"):
        storage.from_proto(model)
    # A skeleton refers to files from the root folder.
    again = storage.from_proto(stored.proto, "/")
    assert same(again.proto, stored.proto)


@pytest.mark.parametrize(
    ("location", "entries", "complaint"),
    [
        ("absent.bin", {}, "is missing"),
        ("../w.bin", {}, "not a plain path"),
        ("sub/../w.bin", {}, "not a plain path"),
        ("/etc/passwd", {}, "not a plain path"),
        ("link.bin", {}, "points outside of the folder"),
        ("linked/w.bin", {}, "points outside of the folder"),
        ("sub", {}, "not a regular file"),
        ("", {}, "without a location"),
        ("w.bin", {"offset": "-4"}, "offset '-4'"),
        ("w.bin", {"length": "x"}, "length 'x'"),
        ("w.bin", {"length": "1596"}, "need 1,600"),
        ("w.bin", {"offset": "404"}, "needs 2,004 bytes"),
        ("w.bin", {"offset": "9" * 30}, "offset '999"),
    ],
)
def test_external_data_that_is_refused(tmp_path: Path, location: str, entries: dict[str, str], complaint: str) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "inside"
    (folder / "sub").mkdir(parents=True)
    outside.mkdir()
    for place in (outside, folder, tmp_path):
        (place / "w.bin").write_bytes(VALUES[:500].tobytes())
    (folder / "link.bin").symlink_to(outside / "w.bin")
    (folder / "linked").symlink_to(outside)
    text = fails(write(folder, external_model(location, **entries)))
    assert complaint in text
    assert text.startswith(str(folder / "m.onnx"))


def test_external_data_of_strings_and_unknown_types_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(2000))
    for data_type in (TensorProto.STRING, 0, 99):
        model = external_model("w.bin")
        model.graph.initializer[0].data_type = data_type
        assert "do not allow" in fails(write(tmp_path, model))


def test_links_within_the_folder_are_followed(tmp_path: Path) -> None:
    """A model may be reached by a link, as in the cache of Hugging Face: its own folder counts too."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    write(blobs, external_model("w.bin"), "model-blob")
    (blobs / "data-blob").write_bytes(VALUES.tobytes())
    snapshot.mkdir()
    (snapshot / "model.onnx").symlink_to(blobs / "model-blob")
    (snapshot / "w.bin").symlink_to(blobs / "data-blob")
    stored = storage.load(snapshot / "model.onnx")
    np.testing.assert_array_equal(stored.weights.read(stored.proto.graph.initializer[0]), VALUES[:400])
    (snapshot / "w.bin").unlink()
    (blobs / "data-blob").rename(blobs / "w.bin")
    assert storage.load(snapshot / "model.onnx").external


def test_hard_links_are_copied_once(tmp_path: Path) -> None:
    """onnx's checker refuses data in a file with several links, and the skeleton must pass it."""
    model = model_of(floats("w", 400), floats("v", 400, seed=1))
    path = write(tmp_path, model)
    os.link(path, tmp_path / "other.onnx")
    stored = storage.load(path)
    names = {
        entry.value for t in stored.proto.graph.initializer for entry in t.external_data if entry.key == "location"
    }
    assert len(names) == 1
    copied = Path("/", names.pop())
    assert copied.stat().st_nlink == 1 and not copied.is_relative_to(tmp_path)
    assert same(storage.resolve(stored.proto, stored.weights), model)
    stored.weights.close()
    assert not copied.exists()


def test_a_path_that_is_not_utf8(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    model = model_of(floats("w", 400))
    stored = storage.load(write(folder, model))
    assert same(storage.resolve(stored.proto, stored.weights), model)


def test_an_external_reference_to_the_model_file_is_refused(tmp_path: Path) -> None:
    """A file that claims to be split already is not believed: its locations are plain external data."""
    path = tmp_path / "m.onnx"
    path.write_bytes(model_of(floats("w", 400)).SerializeToString())
    skeleton = storage.load(path).proto
    path.write_bytes(skeleton.SerializeToString())
    assert "is missing" in fails(path)


# Weights


def test_scratch_data_is_aligned_and_removed_on_close(tmp_path: Path) -> None:
    weights = Weights()
    first = weights.spill(b"abc")
    array = np.arange(12, dtype=">i4").reshape(3, 4).T
    second = weights.spill(array)
    third = weights.spill(iter([b"12", np.zeros(2, np.uint8)]))
    assert (first.offset, first.length) == (0, 3)
    assert second.offset % 64 == 0 and third.offset % 64 == 0
    assert bytes(weights.view(first)) == b"abc"
    np.testing.assert_array_equal(np.frombuffer(weights.view(second), "<i4").reshape(4, 3), array)
    assert bytes(weights.view(third)) == b"12\0\0"
    packed = weights.spill(np.array([1, 2, 3], ml_dtypes.int4))
    assert bytes(weights.view(packed)) == b"\x21\x03"
    path = Path("/", first.location)
    assert path.is_file()
    weights.close()
    assert not path.parent.exists()


def test_scratch_data_is_removed_with_its_owner() -> None:
    weights = Weights()
    folder = Path("/", weights.spill(b"x").location).parent
    assert folder.is_dir()
    del weights
    assert not folder.exists()


def test_scratch_data_is_removed_at_exit_but_not_by_a_forked_worker() -> None:
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from surgery.model.storage import Weights\n"
        "weights = Weights()\n"
        "path = Path('/', weights.spill(b'x').location)\n"
        "if os.fork() == 0:\n"
        "    weights.close()\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "assert path.exists()\n"
        "print(path)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not Path(done.stdout.strip()).exists()


def test_a_source_that_changes_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path, model_of(floats("w", 400)))
    stored = storage.load(path)
    stored.weights.spill(b"x")
    stored.weights.check()
    fresh = tmp_path / "fresh"
    fresh.write_bytes(path.read_bytes())
    fresh.replace(path)
    with pytest.raises(ModelFileError, match="changed"):
        stored.weights.check()
    # The bytes that were opened are still there.
    assert same(storage.resolve(stored.proto, stored.weights), model_of(floats("w", 400)))


def test_a_source_that_is_gone(tmp_path: Path) -> None:
    tensor = TensorProto(name="w", data_type=1, dims=[400], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=str(tmp_path / "gone")[1:])
    with pytest.raises(ModelFileError, match="cannot be read"):
        Weights().read(tensor)


def test_importing_storage_is_cheap() -> None:
    code = "import sys, surgery.model.storage; assert 'onnx' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("size", [1 << 10, 1 << 16])
def test_a_limit_of_the_size_of_files_is_named(size: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    named = r"File too large; raise the limit .* \(ulimit -f\)"
    with closing(Scratch()) as scratch:
        resource.setrlimit(resource.RLIMIT_FSIZE, (512, hard))
        try:
            with (
                pytest.raises(MachineError, match=named),
                _scratch_errors(),
            ):
                scratch.append(np.zeros(size, np.uint8))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert scratch.append(np.zeros(size, np.uint8)).length == size
