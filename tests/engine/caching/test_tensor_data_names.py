"""Skeletons by content: where weights are does not matter, and new tensors come from the cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from surgery.engine.caching.cache_folder import CacheFolder
from surgery.engine.caching.tensor_data_names import MissingTensorError, TensorDataNames, digest
from surgery.model import storage
from surgery.model.graph import text

DATA = np.arange(300, dtype=np.float32)


def saved(folder: Path, *arrays: np.ndarray) -> storage.StoredModel:
    """Write a model with each array in a file of its own, and open it."""
    folder.mkdir()
    lines = "".join(f"v{number + 1} = Add(v{number}, w{number}) " for number in range(len(arrays)))
    model = text.parse(f"g (float[300] v0) => (float[300] v{len(arrays)}) {{ {lines} }}")
    for number, array in enumerate(arrays):
        tensor = numpy_helper.from_array(array, f"w{number}")
        (folder / f"{number}.bin").write_bytes(tensor.raw_data)
        onnx.external_data_helper.set_external_data(tensor, f"{number}.bin", offset=0, length=len(tensor.raw_data))
        tensor.ClearField("raw_data")
        model.graph.initializer.append(tensor)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return storage.opened(folder / "m.onnx")


def locations(model: onnx.ModelProto) -> list[str]:
    return [storage.external_reference(tensor).location for tensor in model.graph.initializer]


@pytest.fixture
def cache(tmp_path: Path) -> CacheFolder:
    return CacheFolder(tmp_path / "cache", pytest.fail)


def test_the_same_model_at_another_place_has_the_same_form(tmp_path: Path, cache: CacheFolder) -> None:
    first, second = (saved(tmp_path / name, DATA, DATA + 1) for name in ("a", "b"))
    names = TensorDataNames(first.weights, cache)
    portable = names.portable(first.proto)
    assert portable == TensorDataNames(second.weights, cache).portable(second.proto)
    assert portable == names.portable(first.proto) and str(tmp_path).encode() not in portable
    # It is restored at the place of whoever reads it.
    for model in (first, second):
        assert TensorDataNames(model.weights, cache).restored(portable) == model.proto
    kinds = [one.partition(":")[0] for one in locations(onnx.ModelProto.FromString(portable))]
    assert kinds == ["file", "file"]


def test_two_files_with_one_content_are_two(tmp_path: Path, cache: CacheFolder) -> None:
    stored = saved(tmp_path / "a", DATA, DATA)
    names = TensorDataNames(stored.weights, cache)
    one, other = locations(onnx.ModelProto.FromString(names.portable(stored.proto)))
    assert one.partition(".")[0] == other.partition(".")[0] and {one[-2:], other[-2:]} == {".1", ".2"}
    assert names.restored(names.portable(stored.proto)) == stored.proto


def with_new(stored: storage.StoredModel, *data: bytes) -> onnx.ModelProto:
    """Return a model in which tensors of the scratch file take the place of the first ones."""
    made = onnx.ModelProto()
    made.CopyFrom(stored.proto)
    for tensor, new in zip(made.graph.initializer, data):
        storage.refer(tensor, stored.weights.spill(iter([new])))
    return made


def test_new_tensors_are_stored_and_come_back(tmp_path: Path, cache: CacheFolder) -> None:
    first, second = (saved(tmp_path / name, DATA, DATA + 1, DATA + 2) for name in ("a", "b"))
    new = (DATA * 2).tobytes()
    names = TensorDataNames(first.weights, cache)
    portable = names.portable(with_new(first, new, new))
    one, other, kept = locations(onnx.ModelProto.FromString(portable))
    assert one == f"new:{digest(new)}.1" and other == f"new:{digest(new)}.2" and kept.startswith("file:")
    later = TensorDataNames(second.weights, cache)
    restored = later.restored(portable)
    references = [storage.external_reference(tensor) for tensor in restored.graph.initializer]
    assert [bytes(second.weights.view(reference)) for reference in references[:2]] == [new, new]
    assert references[0].location == references[1].location and references[0].offset != references[1].offset
    # The same names are found for them again, and numbers go on from there.
    assert later.portable(restored) == portable and later.restored(portable) == restored
    third = onnx.ModelProto.FromString(later.portable(with_new(second, new)))
    assert locations(third)[0] == f"new:{digest(new)}.3"


def test_what_is_missing_is_said(tmp_path: Path, cache: CacheFolder) -> None:
    first, other = saved(tmp_path / "a", DATA), saved(tmp_path / "b", DATA + 1)
    portable = TensorDataNames(first.weights, cache).portable(first.proto)
    names = TensorDataNames(other.weights, cache)
    with pytest.raises(MissingTensorError, match=r"^file:"):
        names.restored(portable)
    gone = onnx.ModelProto()
    gone.CopyFrom(first.proto)
    storage.refer(gone.graph.initializer[0], storage.Reference("no/such/file", 0, 1200))
    with pytest.raises(MissingTensorError, match="the weights cannot be read"):
        names.portable(gone)
    new = TensorDataNames(first.weights, cache).portable(with_new(first, b"\0" * 1200))
    (path,) = cache.tensors.glob("*/*")
    path.unlink()
    with pytest.raises(MissingTensorError, match=r"^new:"):
        names.restored(new)
    with pytest.raises(ValueError, match=r"."):
        names.restored(b"\xff\xff")
