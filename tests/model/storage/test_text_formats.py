"""Models as protobuf text, JSON and ONNX text, against what onnx itself reads and writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import lacking

from surgery import inspect
from surgery.base.errors import ModelFileError, OutputError
from surgery.model import storage
from surgery.model.graph import text

EXTENSIONS = [".textproto", ".pbtxt", ".txtpb", ".prototxt", ".json", ".onnxjson", ".onnxtxt", ".onnxtext"]


def model() -> onnx.ModelProto:
    made = text.parse("g (float[n, 32] x) => (float[n, 16] y) { m = MatMul(x, w) y = Add(m, b) }")
    values = np.random.default_rng(2)
    weights = [values.standard_normal((32, 16)).astype(np.float32), values.standard_normal(16).astype(np.float32)]
    weights[1][:2] = [np.inf, 1e-40]
    made.graph.initializer.extend(map(numpy_helper.from_array, weights, "wb"))
    for name, kind in [("half", np.float16), ("long", np.int64), ("bool", np.bool_), ("byte", np.uint8)]:
        made.graph.initializer.append(numpy_helper.from_array(np.array([1, 0, 3]).astype(kind), name))
    made.graph.initializer.append(helper.make_tensor("brain", TensorProto.BFLOAT16, [2], [0.5, 3.0]))
    return made


def bits(proto: onnx.ModelProto) -> dict[str, tuple[int, list[int], bytes]]:
    arrays = {tensor.name: tensor for tensor in proto.graph.initializer}
    return {
        name: (tensor.data_type, list(tensor.dims), numpy_helper.to_array(tensor).tobytes())
        for name, tensor in arrays.items()
    }


def _skip_unread(extension: str) -> None:
    """Skip the test if the installed onnx does not know an extension, or reads not all numbers of ONNX text."""
    from onnx.serialization import registry

    known = extension == ".onnxjson" or registry.get_format_from_file_extension(extension)
    if not known or (extension.startswith(".onnxt") and lacking.of_parser()):
        pytest.skip(f"onnx {onnx.__version__} does not read {extension}")


@pytest.mark.parametrize("extension", EXTENSIONS)
@pytest.mark.filterwarnings("ignore:The onnxtxt format is experimental")
def test_formats_are_written_and_read(extension: str, tmp_path: Path) -> None:
    original = storage.from_proto(model())
    path = tmp_path / f"m{extension}"
    _skip_unread(extension)
    assert storage.save(original.proto, path, original.weights) == [path]
    for found in (onnx.load(path), storage.resolve((read := storage.load(path)).proto, read.weights)):
        assert bits(found) == bits(model())
        assert [node.op_type for node in found.graph.node] == ["MatMul", "Add"]
    assert inspect(path).bytes == path.stat().st_size


@pytest.mark.parametrize("extension", [".textproto", ".json"])
def test_external_data_stays_external(extension: str, tmp_path: Path) -> None:
    original = storage.from_proto(model())
    path = tmp_path / f"m{extension}"
    written = storage.save(original.proto, path, original.weights, layout=storage.External(threshold=16))
    assert written == [path, tmp_path / f"m{extension}.data"]
    again = storage.load(path)
    assert again.external and bits(storage.resolve(again.proto, again.weights)) == bits(model())
    assert bits(onnx.load(path)) == bits(model())
    (tmp_path / f"m{extension}.data").unlink()
    with pytest.raises(ModelFileError, match=r"the external data 'm\.\w+\.data' of tensor 'w' is missing"):
        storage.load(path)


def test_fields_onnx_text_cannot_represent_are_refused(tmp_path: Path) -> None:
    _skip_unread(".onnxtxt")
    documented = model()
    documented.graph.doc_string = "what it is for"
    stored = storage.from_proto(documented)
    with pytest.raises(OutputError) as caught:
        storage.save(stored.proto, tmp_path / "m.onnxtxt", stored.weights)
    expected = "ONNX text cannot represent 'model.graph.doc_string'; write .textproto, .json or .onnx"
    assert str(caught.value).endswith(f"m.onnxtxt: {expected}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("m.json", b'{"graph": {"nodes": 1}}', "this is not a model as JSON: "),
        ("m.textproto", b"graph { nodes: 1 }", "this is not a model as protobuf text: "),
        ("m.onnxtxt", b"<ir_version: 8>\ng (float x) =>", "this is not a model as ONNX text: "),
        ("m.onnxtxt", b"g (float[2 x) =>", "this is not a model as ONNX text: [ParseError at position (line: 1"),
        ("m.onnxtxt", b"<" * 100_000, "this is not a model as ONNX text: "),
        ("m.json", b"{}", "the file contains no graph"),
    ],
)
def test_invalid_text_is_reported_in_one_line(name: str, data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ModelFileError) as caught:
        storage.load(tmp_path / name)
    assert str(caught.value).startswith(f"{tmp_path / name}: {message}") and "\n" not in str(caught.value)


def test_a_binary_model_is_read_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_bytes(model().SerializeToString())
    assert len(storage.load(tmp_path / "m.json").proto.graph.node) == 2
