"""GGUF files of either byte order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surgery.base.errors import ModelFileError
from surgery.model import storage
from surgery.model.checkpoints.checkpoints import read_checkpoint

gguf = pytest.importorskip("gguf")

ARRAYS = {
    "float": np.arange(6, dtype=np.float32).reshape(2, 3) + 1,
    "half": np.array([1, -2, 3], np.float16),
    "double": np.array([1e100, -2]),
    "byte": np.array([1, -2, 3], np.int8),
    "long": np.array([[1, -2]], np.int64),
    "large": np.linspace(-1, 1, 5000, dtype=np.float32),
}


def saved(path: Path, big: bool, kind: Any = None) -> Path:
    writer = gguf.GGUFWriter(path, "llama", endianess=gguf.GGUFEndian.BIG if big else gguf.GGUFEndian.LITTLE)
    writer.add_head_count(12)
    for name, array in ARRAYS.items():
        writer.add_tensor(name, array.copy())
    if kind is not None:
        blocks = gguf.quants.quantize(np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32), kind)
        writer.add_tensor("other", blocks, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("big", [False, True])
def test_elements_do_not_depend_on_the_byte_order(tmp_path: Path, big: bool) -> None:
    found = read_checkpoint(saved(tmp_path / "w.gguf", big), storage.Weights())
    held: dict[str, Any] = {name: found.tensor(name).numpy() for name in found.entries}
    assert held.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert held[name].dtype == array.dtype
        np.testing.assert_array_equal(held[name], array)
    assert found.metadata["llama.attention.head_count"] == 12


@pytest.mark.parametrize("name", ["Q8_0", "BF16"])
def test_types_without_a_certain_byte_order_are_refused(tmp_path: Path, name: str) -> None:
    kind = gguf.GGMLQuantizationType[name]
    assert "other" in read_checkpoint(saved(tmp_path / "w.gguf", False, kind), storage.Weights()).entries
    with pytest.raises(ModelFileError, match=f"'other' is {name} in a big-endian file"):
        read_checkpoint(saved(tmp_path / "w.gguf", True, kind), storage.Weights())
