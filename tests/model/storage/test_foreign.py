"""Files of other formats are named, with what to do; each sample is laid out as the format's specification says."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from surgery.base.errors import ModelFileError, OutputError
from surgery.model import storage
from surgery.model.graph import text

MODEL = text.parse("g (float[n] x) => (float[n] y) { y = Relu(x) }")


def refused(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(ModelFileError) as caught:
        storage.load(path)
    message = str(caught.value).removeprefix(f"{path}: ")
    assert caught.value.exit_code == 2 and "\n" not in message
    return message


def message(*fields: tuple[int, int | bytes]) -> bytes:
    """Encode a protobuf message of small numbers and texts."""
    data = b""
    for number, value in fields:
        tag = number << 3 | (2 if isinstance(value, bytes) else 0)
        data += varint(tag) + (varint(len(value)) + value if isinstance(value, bytes) else varint(value))
    return data


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def zipped(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, b"content")
    return file.getvalue()


def tarred(name: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    return file.getvalue()


GRAPH_DEF = message((1, message((1, b"x"), (2, b"Placeholder"))), (1, message((1, b"y"), (2, b"Relu"), (3, b"x"))))
PADDLE = message(
    (1, message((1, 0), (2, 0), (3, message((1, b"x"))), (4, message((3, b"relu"))))), (4, message((1, 0)))
)
HEADER = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()

SAMPLES = {
    "TensorFlow Lite": (b"\x1c\0\0\0TFL3" + bytes(40), "a TensorFlow Lite model; convert it with 'python -m tf2onnx"),
    "SavedModel": (message((1, 1), (2, message((1, b"meta"), (2, GRAPH_DEF)))), "a TensorFlow SavedModel; convert its"),
    "GraphDef": (GRAPH_DEF, "a TensorFlow GraphDef; convert it with 'python -m tf2onnx.convert --graphdef"),
    "HDF5": (b"\x89HDF\r\n\x1a\n" + bytes(90), "an HDF5 file, perhaps a Keras model; load it in Keras 3"),
    "Keras": (zipped("metadata.json", "config.json", "model.weights.h5"), "a Keras model; load it in Keras 3"),
    "checkpoint": (zipped("sd/data.pkl", "sd/.format_version", "sd/data/0"), "a PyTorch checkpoint, which contains"),
    "TorchScript": (zipped("ts/data.pkl", "ts/code/__torch__.py", "ts/constants.pkl"), "a TorchScript program; load"),
    "program": (
        zipped("p/archive_format", "p/models/model.json"),
        "an exported program of PyTorch; convert it with 'surgery export PROGRAM.pt2",
    ),
    "pickle": (pickle.dumps({"w": [1.0]}, 2), "a Python pickle, perhaps a PyTorch checkpoint"),
    "safetensors": (struct.pack("<Q", len(HEADER)) + HEADER + bytes(4), "a safetensors file, which contains weights"),
    "GGUF": (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "a GGUF file, which contains weights, not a graph"),
    "Core ML": (message((1, 7), (2, message((1, b"in"))), (500, b"network")), "a Core ML model; no converter"),
    "OpenVINO": (b'<?xml version="1.0"?>\n<net name="m" version="11">\n</net>', "an OpenVINO model; export the model"),
    "zip": (
        zipped("bert/model.onnx"),
        "a zip archive with bert/model.onnx in it; unpack it first, with 'unzip m.onnx'",
    ),
    "gzip": (gzip.compress(MODEL.SerializeToString()), "a file compressed by gzip; unpack it first, with 'gunzip"),
    "tar": (tarred("bert/model.onnx"), "a tar archive with bert/model.onnx in it; unpack it first, with 'tar -xf"),
    "TensorRT": (b"ptrt" + bytes(60), "a TensorRT engine, which is compiled for one GPU; give the .onnx file"),
    "Paddle": (PADDLE, "a PaddlePaddle model; convert its folder with 'paddle2onnx"),
    "PMML": (b'<?xml version="1.0"?>\n<PMML version="4.4">\n</PMML>', "a PMML model; export the model it was made"),
    "page": (
        b"\n<!DOCTYPE html>\n<html><head></head></html>",
        "an HTML page, not a model; use the link that downloads",
    ),
    "git-lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n", "a git-lfs pointer, not the"),
    "JSON": (b'{"a": 1}', "a JSON file, not an ONNX model; name a .onnx file"),
    "model as JSON": (b'{"irVersion": "8", "graph": {}}', "an ONNX model as JSON, not a binary one; give the file the"),
    "YAML": (b"recipe: mine\nsteps: [tidy]\n", "a YAML file, not an ONNX model; the recipe comes first"),
    "NumPy": (b"\x93NUMPY\x01\x00" + bytes(80), "a file of NumPy arrays; name a .onnx file"),
    "tensor": (numpy_helper.from_array(np.ones(2)).SerializeToString(), "an ONNX tensor, not an ONNX model; name the"),
    "shards": (
        b'{"metadata": {}, "weight_map": {"w": "a"}}',
        "the index of a sharded checkpoint, which contains no graph",
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_format_is_named_by_content(name: str, tmp_path: Path) -> None:
    data, expected = SAMPLES[name]
    found = refused(tmp_path / "m.onnx", data)
    assert found.startswith(f"this is {expected}")


def test_an_unknown_format_is_named_by_its_suffix(tmp_path: Path) -> None:
    found = refused(tmp_path / "m.engine", bytes(range(1, 200)))
    assert found.startswith("this is not an ONNX model, but, judging by its name, a TensorRT engine")
    found = refused(tmp_path / "m.pb", bytes(range(1, 200)))
    assert found.startswith("this is not an ONNX model, but, judging by its name, a protobuf message, perhaps of Tens")
    found = refused(tmp_path / "saved_model.pb", bytes(range(1, 200)))
    assert found.startswith("this is not an ONNX model, but, judging by its name, a TensorFlow SavedModel; convert its")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_truncated_model_is_not_taken_for_another_format(share: float, tmp_path: Path) -> None:
    model = text.parse("g (float[n] x) => (float[n] y) { y = Relu(x) }")
    model.graph.initializer.append(numpy_helper.from_array(np.ones(1000, np.float32), "w"))
    data = model.SerializeToString()
    found = refused(tmp_path / "m.onnx", data[: int(len(data) * share)])
    assert "truncated" in found and found.endswith("; fetch or export it again")


def test_folders_of_other_formats_are_named(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with pytest.raises(ModelFileError, match="this is a TensorFlow SavedModel; convert its folder with"):
        storage.load(tmp_path)


@pytest.mark.parametrize("name", ["m.ort", "m.tflite", "m.pt", "m.gz"])
def test_no_other_format_is_written(name: str, tmp_path: Path) -> None:
    stored = storage.from_proto(MODEL)
    with pytest.raises(OutputError, match="format is not written; "):
        storage.save(stored.proto, tmp_path / name, stored.weights)
    assert list(tmp_path.iterdir()) == []


def test_samples_are_not_models_for_onnx_either(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    for data, _ in SAMPLES.values():
        path.write_bytes(data)
        with pytest.raises(Exception):  # noqa: B017 - whatever onnx says
            onnx.checker.check_model(onnx.load(path), full_check=True)
