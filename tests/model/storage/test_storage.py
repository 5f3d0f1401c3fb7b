"""Reading models: the split on the wire, damaged files, external data, every encoding of a tensor."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import corpus, lacking
from support.corpus import model_of, same

from surgery.base.errors import ModelFileError, SurgeryError, UsageError
from surgery.base.operators import message_tensors
from surgery.model import storage
from surgery.model.wire.weights import MappedFile
from surgery.model.wire.wire import Field, WireError, encode_tag, encode_varint, fields


def fails(path: Path | str) -> str:
    with pytest.raises(ModelFileError) as caught:
        storage.load(path)
    text = str(caught.value)
    assert "\n" not in text
    return text


def external_keys(proto: onnx.ModelProto) -> list[str]:
    return [tensor.name for tensor in storage.all_tensors(proto) if tensor.data_location == TensorProto.EXTERNAL]


@pytest.mark.parametrize("given", [None, 3, b"bytes", onnx.GraphProto()], ids=lambda given: type(given).__name__)
def test_an_object_that_is_no_model_is_named(given: object) -> None:
    with pytest.raises(UsageError, match=rf"an object of type {type(given).__name__} is no model; pass a path, "):
        storage.opened(given)  # type: ignore[arg-type]


# The skeleton


def test_large_tensors_everywhere_become_references(tmp_path: Path) -> None:
    model = corpus.everything()
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    stored = storage.load(path)
    assert stored.proto.ByteSize() < model.ByteSize() / 6
    large = [t for t in storage.all_tensors(model) if t.ByteSize() >= 1024]
    assert len(external_keys(stored.proto)) == len(large) > 25
    for tensor in storage.all_tensors(stored.proto):
        assert tensor.ByteSize() < 1024
        for entry in tensor.external_data:
            if entry.key == "location":
                assert Path("/", entry.value).is_file()
    assert same(storage.resolve(stored.proto, stored.weights), model)


def test_values_are_read_through_the_mapping(tmp_path: Path) -> None:
    model = corpus.everything()
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    stored = storage.load(path)
    pairs = zip(storage.all_tensors(stored.proto), storage.all_tensors(model), strict=True)
    for small, whole in pairs:
        whole.ClearField("segment")
        if whole.data_type not in (TensorProto.STRING, TensorProto.UNDEFINED):
            np.testing.assert_array_equal(stored.weights.read(small), numpy_helper.to_array(whole))
    first = stored.weights.read(stored.proto.graph.initializer[0])
    assert not first.flags.writeable and not first.flags.owndata


def test_loading_reads_no_weights(tmp_path: Path) -> None:
    """The weights are a hole of 3 GB; reading them would take seconds and gigabytes."""
    path = sparse_model(tmp_path, 3 * 2**30)
    code = (
        "import sys, resource\n"
        "from surgery.model import storage\n"
        "def anonymous():\n"
        "    lines = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
        "    return int(lines['RssAnon'].split()[0])\n"
        "storage.load, storage.ir_from_proto\n"
        "before = anonymous()\n"
        "stored = storage.load(sys.argv[1])\n"
        "model = storage.ir_from_proto(stored.proto)\n"
        "proto = storage.proto_from_ir(model, stored.weights)\n"
        "assert model.graph.initializers['w'].const_value.numpy()[-1] == 0\n"
        "assert proto == stored.proto\n"
        "assert anonymous() - before < 20_000, anonymous() - before\n"
    )
    subprocess.run([sys.executable, "-c", code, path], check=True, timeout=60)


def sparse_model(folder: Path, size: int) -> Path:
    """Write a model with external data that takes no room on the disk."""
    weight = TensorProto(name="w", data_type=1, dims=[size // 4], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="holes.bin")
    path = folder / "m.onnx"
    path.write_bytes(model_of(weight).SerializeToString())
    with (folder / "holes.bin").open("wb") as file:
        file.truncate(size)
    return path


def test_deep_nesting_loads(tmp_path: Path) -> None:
    """protobuf itself stops at 100 levels of messages, which is 31 levels of If."""
    graph = helper.make_graph([], "g", [], [], [corpus.floats("w", 300)])
    for depth in range(31):
        node = helper.make_node("If", ["c"], [f"y{depth}"], then_branch=graph)
        graph = helper.make_graph([node], f"g{depth}", [], [])
    model = helper.make_model(graph, ir_version=10)
    stored = storage.from_proto(model)
    assert len(external_keys(stored.proto)) == 1
    back = storage.proto_from_ir(storage.ir_from_proto(stored.proto), stored.weights)
    assert same(storage.resolve(back, stored.weights), model)


def test_a_model_in_memory_is_left_alone() -> None:
    model = corpus.everything()
    before = model.SerializeToString(deterministic=True)
    stored = storage.from_proto(model)
    storage.proto_from_ir(storage.ir_from_proto(stored.proto), stored.weights)
    assert model.SerializeToString(deterministic=True) == before
    assert stored.path is None


# Encodings

NUMPY_TYPES = {
    TensorProto.FLOAT: np.float32,
    TensorProto.DOUBLE: np.float64,
    TensorProto.INT8: np.int8,
    TensorProto.INT16: np.int16,
    TensorProto.INT32: np.int32,
    TensorProto.INT64: np.int64,
    TensorProto.UINT8: np.uint8,
    TensorProto.UINT16: np.uint16,
    TensorProto.UINT32: np.uint32,
    TensorProto.UINT64: np.uint64,
    TensorProto.BOOL: np.bool_,
    TensorProto.FLOAT16: np.float16,
    TensorProto.COMPLEX64: np.complex64,
    TensorProto.COMPLEX128: np.complex128,
    TensorProto.BFLOAT16: ml_dtypes.bfloat16,
    TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    TensorProto.FLOAT8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    TensorProto.FLOAT8E5M2: ml_dtypes.float8_e5m2,
    TensorProto.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
    TensorProto.INT4: ml_dtypes.int4,
    TensorProto.UINT4: ml_dtypes.uint4,
}
NEWER = {
    "FLOAT8E8M0": ml_dtypes.float8_e8m0fnu,
    "INT2": ml_dtypes.int2,
    "UINT2": ml_dtypes.uint2,
    "FLOAT4E2M1": ml_dtypes.float4_e2m1fn,
    "FLOAT6E2M3": ml_dtypes.float6_e2m3fn,
    "FLOAT6E3M2": ml_dtypes.float6_e3m2fn,
}
"""Types that onnx 1.17 lacks, or some of them."""

NUMPY_TYPES |= {getattr(TensorProto, name): dtype for name, dtype in NEWER.items() if hasattr(TensorProto, name)}
COUNT = 10_001


def values_of(data_type: int) -> np.ndarray:
    """Return an odd number of values, negative ones among them where the type has any."""
    numbers = np.random.default_rng(data_type).integers(-1000, 1000, COUNT)
    if data_type in (TensorProto.INT64, TensorProto.UINT64):
        numbers = numbers * 2**50
    dtype = np.dtype(NUMPY_TYPES[data_type])
    if dtype.kind in "iubc" or dtype.itemsize > 2:
        return numbers.astype(dtype)
    if "int" in dtype.name:
        low, high = ml_dtypes.iinfo(dtype).min, ml_dtypes.iinfo(dtype).max
        return (numbers % (high - low + 1) + low).astype(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return (numbers / 300).astype(np.float32).astype(dtype)


@pytest.mark.parametrize("raw", [True, False], ids=["raw", "typed"])
@pytest.mark.parametrize("data_type", NUMPY_TYPES, ids=TensorProto.DataType.Name)
def test_every_data_type(data_type: int, raw: bool) -> None:
    values = values_of(data_type)
    helpers = (
        message_tensors if lacking.are_old() else numpy_helper
    )  # an older onnx does not read and write all its types
    if raw:
        tensor = helpers.from_array(values, "w")
        assert tensor.HasField("raw_data")
    else:
        tensor = helper.make_tensor("w", data_type, [COUNT], values)
        assert not tensor.HasField("raw_data")
    if lacking.are_old() and values.dtype.kind == "c" and not raw:
        pytest.skip(f"onnx {onnx.__version__} reads complex numbers from raw data only")
    model = model_of(tensor)
    stored = storage.from_proto(model)
    skeleton = stored.proto.graph.initializer[0]
    # Six bits stand one to a number in int32_data, unlike anywhere else: such tensors stay inline.
    inline = not raw and TensorProto.DataType.Name(data_type).startswith("FLOAT6")
    assert (skeleton.data_location == TensorProto.EXTERNAL) != inline
    assert same(storage.resolve(stored.proto, stored.weights), model)
    read = stored.weights.read(skeleton)
    assert read.dtype == values.dtype
    assert read.tobytes() == values.tobytes()
    back = storage.proto_from_ir(storage.ir_from_proto(stored.proto), stored.weights)
    resolved = storage.resolve(back, stored.weights)
    assert helpers.to_array(resolved.graph.initializer[0]).tobytes() == values.tobytes()
    if not inline:
        assert same(resolved, model)


def unpacked(data_type: int, number: int, wire: int, values: list[bytes]) -> bytes:
    """Encode a tensor with one tag for each element, as old writers did."""
    body = b"".join(encode_tag(number, wire) + value for value in values)
    head = TensorProto(name="w", data_type=data_type, dims=[len(values)]).SerializeToString()
    return head + body


@pytest.mark.parametrize("split", [False, True], ids=["in one run", "in two runs"])
@pytest.mark.parametrize(
    ("data_type", "number", "wire"),
    [(1, 4, 5), (11, 10, 1), (6, 5, 0), (5, 5, 0), (7, 7, 0), (12, 11, 0), (13, 11, 0)],
)
def test_elements_that_are_not_packed(data_type: int, number: int, wire: int, split: bool) -> None:
    numbers = list(range(-20_000, 20_000, 7)) if data_type not in (12, 13) else list(range(0, 2**31, 2**19))
    if wire == 0:
        values = [encode_varint(value % 2**64) for value in numbers]
    else:
        values = [struct.pack("<f" if wire == 5 else "<d", value) for value in numbers]
    message = unpacked(data_type, number, wire, values)
    if split:
        # The name in between breaks the run; the last packed piece ends with some more elements.
        more = b"".join(values[:100])
        message += encode_tag(8, 2) + b"\x01w"
        message += encode_tag(number, 2) + encode_varint(len(more)) + more
        numbers = numbers + numbers[:100]
    tensor = TensorProto.FromString(message)
    del tensor.dims[:]
    tensor.dims.append(len(numbers))
    fixed = TensorProto(dims=[len(numbers)]).SerializeToString()
    wire_message = message.replace(TensorProto(dims=[len(values)]).SerializeToString(), fixed, 1)
    assert TensorProto.FromString(wire_message) == tensor
    data = with_initializer(model_of(), wire_message)
    stored = load_bytes(data)
    skeleton = stored.proto.graph.initializer[0]
    assert skeleton.data_location == TensorProto.EXTERNAL
    np.testing.assert_array_equal(stored.weights.read(skeleton), numpy_helper.to_array(tensor))
    assert same(storage.resolve(stored.proto, stored.weights), model_of(tensor))


def with_initializer(model: onnx.ModelProto, tensor: bytes) -> bytes:
    """Serialize a model with an initializer in wire form: what protobuf would write otherwise."""
    graph = model.graph.SerializeToString() + encode_tag(5, 2) + encode_varint(len(tensor)) + tensor
    rest = onnx.ModelProto()
    rest.CopyFrom(model)
    rest.ClearField("graph")
    return rest.SerializeToString() + encode_tag(7, 2) + encode_varint(len(graph)) + graph


def load_bytes(data: bytes) -> storage.StoredModel:
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        file.write(data)
        file.flush()
        # The mapping outlives the name.
        return storage.load(file.name)


def test_raw_data_that_occurs_twice_counts_once() -> None:
    tensor = corpus.floats("w", 400).SerializeToString()
    other = corpus.floats("w", 400, seed=1).SerializeToString()
    raw = other[other.index(b"\x4a") :]
    stored = load_bytes(with_initializer(model_of(), tensor + raw))
    expected = model_of(corpus.floats("w", 400, seed=1))
    assert external_keys(stored.proto) == ["w"]
    assert same(storage.resolve(stored.proto, stored.weights), expected)


def test_a_tensor_attribute_that_occurs_twice_is_merged_by_protobuf() -> None:
    first, second = corpus.floats("a", 300), TensorProto(doc_string="later")
    node = helper.make_node("Constant", [], ["c"], value=first)
    attribute = node.attribute[0].SerializeToString()
    extra = second.SerializeToString()
    attribute += encode_tag(5, 2) + encode_varint(len(extra)) + extra
    node.ClearField("attribute")
    body = node.SerializeToString() + encode_tag(5, 2) + encode_varint(len(attribute)) + attribute
    model = model_of()
    graph = model.graph.SerializeToString() + encode_tag(1, 2) + encode_varint(len(body)) + body
    model.ClearField("graph")
    data = model.SerializeToString() + encode_tag(7, 2) + encode_varint(len(graph)) + graph
    stored = load_bytes(data)
    whole = onnx.ModelProto.FromString(data)
    assert whole.graph.node[1].attribute[0].t.doc_string == "later"
    assert same(storage.resolve(stored.proto, stored.weights), whole)


@pytest.mark.parametrize(
    "tensor",
    [
        TensorProto(name="w", data_type=1, dims=[300], raw_data=bytes(1201)),
        TensorProto(name="w", data_type=1, dims=[300], int32_data=range(300)),
        TensorProto(name="w", data_type=1, dims=[-300], raw_data=bytes(1200)),
        TensorProto(name="w", data_type=99, dims=[300], raw_data=bytes(1200)),
        TensorProto(name="w", data_type=0, dims=[300], raw_data=bytes(1200)),
        TensorProto(name="w", data_type=8, dims=[300], string_data=[b"text"] * 300),
        TensorProto(name="w", data_type=1, dims=[300], raw_data=bytes(1200), float_data=[0.0] * 300),
        TensorProto(name="w", data_type=7, dims=[299], int64_data=range(300, 600)),
    ],
    ids=["too long", "wrong field", "negative", "unknown type", "no type", "strings", "two fields", "count"],
)
def test_an_invalid_tensor_is_kept_unchanged(tensor: TensorProto) -> None:
    model = model_of(tensor)
    stored = storage.from_proto(model)
    assert same(stored.proto, model)
    assert same(storage.resolve(stored.proto, stored.weights), model)


def test_unknown_fields_and_groups_are_kept() -> None:
    model = corpus.everything()
    assert corpus.add_unknown_fields(model) > 400
    group = encode_tag(999, 3) + encode_tag(1, 0) + b"\x05" + encode_tag(2, 2) + b"\x01z" + encode_tag(999, 4)
    data = model.SerializeToString() + group
    stored = load_bytes(data)
    assert same(storage.resolve(stored.proto, stored.weights), onnx.ModelProto.FromString(data))


def wire_field(tag: int, rng: np.random.Generator) -> bytes:
    """Make a field with a tag and a value that is short, long, or at the border between the two."""
    match tag & 7:
        case 0:
            value = encode_varint(int(rng.integers(0, 1 << int(rng.integers(1, 63)))))
        case 2:
            length = int(rng.choice([0, 1, 10, 31, 32, 127, 128, 300]))
            value = encode_varint(length) + rng.bytes(length)
        case wire:
            value = rng.bytes(4 if wire == 5 else 8)
    return encode_varint(tag) + value


def wanted_fields(data: bytes, wanted: set[int], at_once: bool) -> list[Field] | str:
    try:
        found = list(fields(data, 0, len(data), wanted if at_once else None))
    except WireError as error:
        return str(error)
    return [field for field in found if field[0] in wanted]


@pytest.mark.parametrize("seed", range(20))
def test_skipping_unwanted_fields_finds_all_wanted_fields(seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = b""
    for _ in range(12):
        # Of a number and wire type each, and tags of one byte and of two.
        tag = int(rng.choice([5, 7, 8, 9, 15, 20])) << 3 | int(rng.choice([0, 1, 2, 5]))
        data += b"".join(wire_field(tag, rng) for _ in range(int(rng.integers(1, 30))))
    for wanted in ({5, 20}, {9}, set[int]()):
        for end in (len(data), *rng.integers(0, len(data), 30)):
            cut = data[:end] + bytes(rng.integers(0, 2))
            assert wanted_fields(cut, wanted, True) == wanted_fields(cut, wanted, False)


def test_unwanted_numbers_of_an_attribute_are_skipped_at_once() -> None:
    forest = helper.make_attribute("nodes_featureids", list(range(5000)))
    forest.floats.extend([0.5] * 5000)
    forest.strings.extend([b"BRANCH_LEQ", b"LEAF"] * 2500)
    data = forest.SerializeToString()
    assert len(list(fields(data, 0, len(data)))) > 15_000
    assert len(list(fields(data, 0, len(data), {5, 6}))) < 10


# Damage


def test_a_truncated_file_never_passes_for_another_model(tmp_path: Path) -> None:
    model = corpus.everything()
    data = model.SerializeToString()
    # The fields after the graph may be missing without a trace: there is no end mark in protobuf.
    graph_end = data.index(model.graph.SerializeToString()) + model.graph.ByteSize()
    path = tmp_path / "m.onnx"
    for size in [*range(0, len(data), 307), *range(len(data) - 200, len(data), 3)]:
        path.write_bytes(data[:size])
        try:
            stored = storage.load(path)
        except ModelFileError as error:
            assert "\n" not in str(error) and str(path) in str(error)
        else:
            assert size > graph_end
            assert same(storage.resolve(stored.proto, stored.weights), onnx.ModelProto.FromString(data[:size]))


def test_damaged_bytes_give_an_error_or_the_result_of_protobuf(tmp_path: Path) -> None:
    data = corpus.everything().SerializeToString()
    path = tmp_path / "m.onnx"
    rng = np.random.default_rng(0)
    loaded = 0
    for _ in range(60):
        damaged = bytearray(data)
        for position in rng.integers(0, len(data), 4):
            damaged[position] = rng.integers(0, 256)
        path.write_bytes(damaged)
        try:
            stored = storage.load(path)
            assert same(storage.resolve(stored.proto, stored.weights), onnx.ModelProto.FromString(bytes(damaged)))
            loaded += 1
            back = storage.proto_from_ir(storage.ir_from_proto(stored.proto), stored.weights)
            assert same(back, stored.proto)
        except SurgeryError:
            pass
    assert 10 < loaded < 60


def test_files_that_are_not_models(tmp_path: Path) -> None:
    def text_of(data: bytes) -> str:
        path = tmp_path / "m.onnx"
        path.write_bytes(data)
        return fails(path)

    assert "no such file" in fails(tmp_path / "absent.onnx")
    assert "no such file" in fails(tmp_path / "absent" / "m.onnx")
    assert "a directory" in fails(tmp_path)
    assert "empty" in text_of(b"")
    assert "name the file in it: m.onnx" in fails(tmp_path)
    assert "text file" in text_of(b"hello\nworld\n")
    assert "text file" in text_of("héllo wörld, this is not a model\n".encode() * 100)
    assert "git lfs pull" in text_of(b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n")
    assert "ONNX text" in text_of(b'<ir_version: 8, opset_import: ["" : 21]>\ng (float x) => (float y) {}\n')
    assert "zip archive" in text_of(b"PK\x03\x04" + bytes(100))
    assert "ORT format" in text_of(b"\x1c\0\0\0ORTM" + bytes(100))
    assert "truncated or damaged" in text_of(bytes(range(256)))
    assert "no graph" in text_of(onnx.ModelProto(ir_version=8).SerializeToString())
    assert "IR version 0" in text_of(onnx.ModelProto(graph=model_of().graph).SerializeToString())
    assert "no opset" in text_of(onnx.ModelProto(ir_version=8, graph=model_of().graph).SerializeToString())
    for tensor in [TensorProto(dims=[3, 4], data_type=7, int64_data=range(12), name="x"), corpus.floats("t", 9)]:
        assert "not an ONNX model" in text_of(tensor.SerializeToString()) or "damaged" in fails(tmp_path / "m.onnx")


def test_special_files_and_paths(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in fails(tmp_path / "pipe")
    assert "not a regular file" in fails("/dev/null")
    (tmp_path / "loop").symlink_to("loop")
    assert "cannot be read" in fails(tmp_path / "loop")
    assert "cannot be read" in fails("m\0.onnx")
    assert "cannot be read" in fails("m" * 300)


def test_a_file_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model_of().SerializeToString())

    def refuse(self: MappedFile, path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    # The tests may run as root, for whom permissions do not count.
    monkeypatch.setattr(MappedFile, "__init__", refuse)
    assert "no permission" in fails(path)


def test_old_models_need_no_opset(tmp_path: Path) -> None:
    model = model_of()
    model.ir_version = 2
    model.ClearField("opset_import")
    assert same(storage.from_proto(model).proto, model)
