"""Sparse files of weights are copied as sparse files."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from surgery.model import storage


@pytest.mark.parametrize("refused", [False, True], ids=["with holes", "where the file system has none"])
def test_holes_of_external_data_stay_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: bool) -> None:
    size = 8 << 20
    with (tmp_path / "data").open("wb") as data:
        for at in (0, 3 << 20):
            data.seek(at)
            data.write(np.full(1000, 1.5, np.float32).tobytes())
        data.truncate(size)  # a hole at the end
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[2097152] x) => (float[2097152] y) { y = Add(x, w) }'
    )
    tensor = model.graph.initializer.add(name="w", dims=[size // 4], data_type=TensorProto.FLOAT)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "data", "offset": "0", "length": str(size)}.items():
        tensor.external_data.add(key=key, value=value)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    if refused:

        def no_holes(fd: int, position: int, how: int, lseek: Callable[..., int] = os.lseek) -> int:
            if how in (os.SEEK_DATA, os.SEEK_HOLE):
                raise OSError(errno.EINVAL, "no holes here")
            return lseek(fd, position, how)

        monkeypatch.setattr(os, "lseek", no_holes)
    stored = storage.load(tmp_path / "m.onnx")
    written = storage.save(stored.proto, tmp_path / "out.onnx", stored.weights)
    copy = next(path for path in written if path.suffix == ".data")
    assert copy.read_bytes()[:size] == (tmp_path / "data").read_bytes()
    if not refused:
        assert copy.stat().st_blocks * 512 < size // 4
