"""Skeletons to the IR and back: nothing is lost, edits win over what was kept, large tensors leave memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_ir import serde
from support import corpus
from support.corpus import floats, model_of, same

from surgery.base.errors import ModelFileError
from surgery.model import storage
from surgery.model.storage.ir_tensors import PiecewiseTensor, SparseTensor, StoredTensor, converted, joined
from surgery.model.storage.spill import spill_tensor


def imported(model: onnx.ModelProto) -> tuple[ir.Model, storage.StoredModel]:
    stored = storage.from_proto(model)
    return storage.ir_from_proto(stored.proto), stored


def node_of(model: ir.Model, op_type: str) -> ir.Node:
    return next(node for node in model.graph if node.op_type == op_type)


def proto_node(model: onnx.ModelProto, op_type: str) -> onnx.NodeProto:
    return next(node for node in model.graph.node if node.op_type == op_type)


# Nothing is lost


@pytest.mark.parametrize("limit", [0, 64, storage.INLINE_LIMIT])
@pytest.mark.parametrize("unknown", [False, True], ids=["plain", "unknown fields"])
def test_a_model_with_every_feature_round_trips(limit: int, unknown: bool) -> None:
    model = corpus.everything()
    if unknown:
        assert corpus.add_unknown_fields(model) > 400
    stored = storage.from_proto(model, limit=limit)
    imported = storage.ir_from_proto(stored.proto)
    back = storage.proto_from_ir(imported, stored.weights, limit=limit)
    assert same(back, stored.proto)
    assert same(storage.resolve(back, stored.weights), model)
    # A clone has the same to give, and so has a second export.
    assert same(storage.proto_from_ir(imported.clone(), stored.weights, limit=limit), stored.proto)
    assert same(storage.proto_from_ir(imported, stored.weights, limit=limit), stored.proto)


def test_each_part_round_trips_on_its_own() -> None:
    """What is kept of one part must not depend on another part being unusual too."""
    whole = corpus.everything()
    for index in range(len(whole.graph.node)):
        model = corpus.everything()
        del model.graph.node[index]
        stored = storage.from_proto(model)
        assert same(storage.proto_from_ir(storage.ir_from_proto(stored.proto), stored.weights), stored.proto)


def test_a_second_import_keeps_what_the_first_kept() -> None:
    model, stored = imported(corpus.everything())
    node_of(model, "Relu").name = "renamed"
    once = storage.proto_from_ir(model, stored.weights)
    twice = storage.proto_from_ir(storage.ir_from_proto(once), stored.weights)
    assert same(once, twice)


def test_function_types_of_old_models_are_kept_in_the_graph() -> None:
    """Exporters wrote them as value infos named `domain::function/value` before IR version 10."""
    model = corpus.everything()
    model.ir_version = 9
    del model.functions[0].value_info[:]
    model.graph.value_info.append(helper.make_tensor_value_info("local::Half/b", 1, [3]))
    stored = storage.from_proto(model)
    assert same(storage.proto_from_ir(storage.ir_from_proto(stored.proto), stored.weights), stored.proto)


# Edits win


def test_residue_follows_renamed_parts() -> None:
    original = corpus.everything()
    corpus.add_unknown_fields(original)
    model, stored = imported(original)
    model.graph.inputs[0].name = "new_x"
    model.graph.initializers["w"].name = "new_w"
    model.graph.initializers["sparse"].name = "new_sparse"
    node_of(model, "MatMul").outputs[0].name = "new_t"
    back = storage.proto_from_ir(model, stored.weights)
    gone = {"x", "w", "sparse", "t"}
    assert not gone & {name for node in back.graph.node for name in (*node.input, *node.output)}
    assert not gone & {info.name for info in (*back.graph.input, *back.graph.output, *back.graph.value_info)}
    assert back.graph.input[0].SerializeToString().endswith(corpus.UNKNOWN)
    assert back.graph.input[0].doc_string == "the input"
    assert back.graph.output[1].name == "new_x"
    assert "new_w" in {tensor.name for tensor in back.graph.initializer}
    assert back.graph.sparse_initializer[0].values.name == "new_sparse"
    assert back.graph.node[0].input == ["new_x", "new_w"]
    assert back.graph.node[0].SerializeToString().endswith(corpus.UNKNOWN)
    assert {"new_w", "new_t", "ghost"} <= {info.name for info in back.graph.value_info}
    assert {a.tensor_name for a in back.graph.quantization_annotation} == {"ghost", "y", "new_x", "new_w"}


def test_attributes_that_change() -> None:
    model, stored = imported(corpus.everything())
    node = node_of(model, "Strange")
    node.attributes["zero"] = ir.AttrInt64("zero", 7)
    del node.attributes["nan"]
    node.attributes.add(ir.AttrString("fresh", "text"))
    back = storage.proto_from_ir(model, stored.weights)
    before, after = proto_node(stored.proto, "Strange"), proto_node(back, "Strange")
    names = [attribute.name for attribute in before.attribute]
    names.remove("nan")
    assert [attribute.name for attribute in after.attribute] == [*names, "fresh"]
    values = {attribute.name: attribute for attribute in after.attribute}
    assert values["zero"].i == 7 and values["fresh"].s == b"text"
    for attribute in before.attribute:
        if attribute.name not in ("zero", "nan"):
            assert values[attribute.name] == attribute
    assert [entry.key for entry in after.metadata_props] == ["n", "m"]


def test_types_and_shapes_that_change() -> None:
    model, stored = imported(corpus.everything())
    x = model.graph.inputs[0]
    x.shape = ir.Shape(["N", 3, 4])
    odd = node_of(model, "Strange")
    opaque = odd.outputs[2]
    opaque.type, opaque.shape = ir.TensorType(ir.DataType.INT8), ir.Shape([2])
    back = storage.proto_from_ir(model, stored.weights)
    dims = back.graph.input[0].type.tensor_type.shape.dim
    assert dims[0].dim_param == "N"
    # The IR has one shape for the value, and took the 3 from the output that has the same name.
    assert not dims[1].HasField("dim_value") and dims[1].denotation == "DATA_CHANNEL"
    assert back.graph.input[0].type.denotation == "TENSOR"
    assert back.graph.output[1].type.tensor_type.shape.dim[1].dim_value == 3
    info = next(info for info in back.graph.value_info if info.name == "opaque")
    assert info.type.tensor_type.elem_type == 3 and not info.type.HasField("opaque_type")
    maps = back.graph.output[2]
    assert maps.type.sequence_type.elem_type.map_type.key_type == 7


def test_metadata_that_changes() -> None:
    model, stored = imported(corpus.everything())
    model.metadata_props["bee"] = "3"
    model.doc_string = "words"
    model.graph.metadata_props["q"] = "changed"
    back = storage.proto_from_ir(model, stored.weights)
    assert [(entry.key, entry.value) for entry in back.metadata_props] == [
        ("zebra", "1"),
        ("ant", "2"),
        ("mole", ""),
        ("bee", "3"),
    ]
    assert back.doc_string == "words" and back.HasField("producer_version")
    assert {entry.key: entry.value for entry in back.graph.metadata_props} == {"q": "changed", "p": "2"}
    assert back.training_info == stored.proto.training_info


def test_residue_of_removed_parts_is_removed() -> None:
    original = corpus.everything()
    corpus.add_unknown_fields(original)
    model, stored = imported(original)
    graph = model.graph
    for name in ("ZipMap", "SequenceConstruct"):
        node = node_of(model, name)
        graph.outputs.remove(node.outputs[0])
        graph.remove(node, safe=True)
    identity = next(node for node in graph if node.op_type == "Identity")
    graph.remove(identity, safe=True)
    del graph.initializers["sparse"]
    del graph.initializers["unused"]
    back = storage.proto_from_ir(model, stored.weights)
    assert len(back.graph.node) == len(original.graph.node) - 3
    assert not back.graph.sparse_initializer
    assert [info.name for info in back.graph.output] == ["y", "x"]
    assert "unused" not in {tensor.name for tensor in back.graph.initializer}


def test_a_stale_value_info_does_not_describe_a_new_value() -> None:
    model, stored = imported(corpus.everything())
    node = ir.Node("", "Relu", [model.graph.inputs[0]], outputs=[ir.Value(name="ghost")])
    model.graph.append(node)
    back = storage.proto_from_ir(model, stored.weights)
    assert "ghost" not in {info.name for info in back.graph.value_info}
    assert "ghost" not in {entry.tensor_name for entry in back.graph.quantization_annotation}


def test_new_parts_are_written_plainly() -> None:
    model, stored = imported(model_of())
    graph = model.graph
    doubled = ir.Value(name="doubled", type=ir.SequenceType(ir.TensorType(ir.DataType.FLOAT)), shape=ir.Shape(["n", 2]))
    doubled.metadata_props["k"] = "v"
    attributes = {
        "f": 0.5,
        "i": -3,
        "s": "text",
        "t": ir.tensor([1.0, 2.0]),
        "fs": [1.0, 2.0],
        "is": [1, 2],
        "ss": ["a", "b"],
    }
    node = ir.node("Custom", [graph.inputs[0], None], attributes, domain="com.acme", outputs=[doubled])
    node.attributes.add(ir.RefAttr("ref", "outer", ir.AttributeType.INT))
    node.attributes.add(ir.AttrTensors("ts", [ir.tensor([1], name="a")]))
    optional = ir.TypeAndShape(ir.OptionalType(ir.TensorType(ir.DataType.INT8)), ir.Shape([1]))
    node.attributes.add(ir.AttrTypeProto("tp", optional))
    inner = ir.Graph([], [ir.Value(name="inner")], nodes=[], name="body")
    node.attributes.add(ir.AttrGraph("g", inner))
    node.attributes.add(ir.AttrGraphs("gs", [ir.Graph([], [], nodes=[], name="other")]))
    graph.append(node)
    kind, shape = ir.TensorType(ir.DataType.INT64), ir.Shape([3])
    graph.register_initializer(ir.Value(name="c", type=kind, shape=shape, const_value=ir.tensor([1, 2, 3])))
    back = storage.proto_from_ir(model, stored.weights)
    expected = serde.to_proto(model)
    # onnx_ir describes initializers a second time, as values.
    assert expected.graph.value_info.pop(0).name == "c"
    assert same(back, expected)
    assert numpy_helper.to_array(back.graph.initializer[0]).tolist() == [1, 2, 3]


# Large tensors


def test_tensors_are_mapped_without_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(corpus.everything().SerializeToString())
    stored = storage.load(path)
    model = storage.ir_from_proto(stored.proto)
    tensor = model.graph.initializers["w"].const_value
    assert isinstance(tensor, StoredTensor)
    array = tensor.numpy()
    assert not array.flags.owndata and not array.flags.writeable
    np.testing.assert_array_equal(array, numpy_helper.to_array(floats("w", 4, 300)))
    np.testing.assert_array_equal(np.asarray(tensor), array)
    assert tensor.tobytes() == array.tobytes()
    with (tmp_path / "out").open("wb") as file:
        tensor.tofile(file)
    assert (tmp_path / "out").read_bytes() == array.tobytes()


def test_weights_survive_the_replacement_of_their_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model_of(floats("w", 400)).SerializeToString())
    stored = storage.load(path)
    model = storage.ir_from_proto(stored.proto, stored.weights)
    storage.save(model_of(floats("w", 400, seed=1)), path, storage.Weights(), force=True)
    other = storage.load(path)
    np.testing.assert_array_equal(
        model.graph.initializers["w"].const_value.numpy(), numpy_helper.to_array(floats("w", 400))
    )
    np.testing.assert_array_equal(
        other.weights.read(other.proto.graph.initializer[0]), numpy_helper.to_array(floats("w", 400, seed=1))
    )


def test_sparse_initializers_read_dense() -> None:
    model, _ = imported(corpus.everything())
    tensor = model.graph.initializers["sparse"].const_value
    assert isinstance(tensor, SparseTensor)
    assert tensor.dtype == ir.DataType.FLOAT and tensor.shape == [800]
    dense = np.zeros(800, np.float32)
    dense[::2] = numpy_helper.to_array(floats("", 400))
    np.testing.assert_array_equal(tensor.numpy(), dense)
    assert tensor.tobytes() == dense.tobytes()
    values = numpy_helper.from_array(np.array([5, 6], np.int64), "s")
    indices = numpy_helper.from_array(np.array([[0, 1], [2, 0]], np.int64))
    proto = helper.make_sparse_tensor(values, indices, [3, 2])
    assert SparseTensor(proto, None).numpy().tolist() == [[0, 5], [0, 0], [6, 0]]


LARGE = {
    "array": lambda: ir.tensor(np.arange(300, dtype=np.int64), name="big"),
    "proto": lambda: serde.TensorProtoTensor(numpy_helper.from_array(np.arange(300), "big")),
    "lazy": lambda: ir.LazyTensor(
        lambda: ir.tensor(np.arange(300)), dtype=ir.DataType.INT64, shape=ir.Shape([300]), name="big"
    ),
}


@pytest.mark.parametrize("kind", LARGE)
def test_large_tensors_are_spilled_once(kind: str) -> None:
    model, stored = imported(model_of())
    tensor = LARGE[kind]()
    value = ir.Value(name="big", const_value=tensor)
    model.graph.register_initializer(value)
    for name in ("a", "b"):
        node = ir.node("Constant", [], {"value": tensor}, outputs=[ir.Value(name=name)])
        model.graph.append(node)
    back = storage.proto_from_ir(model, stored.weights)
    assert isinstance(value.const_value, StoredTensor)
    assert back.ByteSize() < 1024
    places = {tuple(e.value for e in t.external_data) for t in storage.all_tensors(back)}
    assert len(places) == 1 and next(iter(places))[1:] == ("0", "2400")
    for tensor_proto in storage.all_tensors(storage.resolve(back, stored.weights)):
        assert numpy_helper.to_array(tensor_proto).tolist() == list(range(300))
    assert same(storage.proto_from_ir(model, stored.weights), back)


def test_packed_and_text_tensors_are_written() -> None:
    model, stored = imported(model_of())
    packed = ir.PackedTensor(np.arange(200, dtype=np.uint8).repeat(10), ir.DataType.UINT4, shape=[4000], name="p")
    words = ir.StringTensor([b"\xff", b"word"] * 400, shape=ir.Shape([800]), name="s")
    lazy = ir.LazyTensor(lambda: words, dtype=ir.DataType.STRING, shape=ir.Shape([800]), name="l")
    for tensor in (packed, words, lazy):
        model.graph.register_initializer(ir.Value(name=tensor.name, const_value=tensor))
    back = storage.proto_from_ir(model, stored.weights)
    first, second, third = back.graph.initializer
    assert first.data_location == TensorProto.EXTERNAL
    assert stored.weights.read(first).tobytes() == packed.numpy().tobytes()
    assert list(second.string_data) == list(third.string_data) == [b"\xff", b"word"] * 400


def test_external_tensors_of_others_are_taken_over(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(np.arange(500, dtype=np.float32).tobytes())
    model, stored = imported(model_of())
    tensor = ir.ExternalTensor("w.bin", 4, None, ir.DataType.FLOAT, shape=ir.Shape([400]), name="w", base_dir=tmp_path)
    model.graph.register_initializer(ir.Value(name="w", const_value=tensor))
    back = storage.proto_from_ir(model, stored.weights)
    np.testing.assert_array_equal(stored.weights.read(back.graph.initializer[0]), np.arange(1, 401))


# Refusals


def test_graphs_the_ir_cannot_represent(capfd: pytest.CaptureFixture[str]) -> None:
    twice = model_of()
    twice.graph.node.append(twice.graph.node[0])
    missing = model_of()
    missing.functions.append(onnx.FunctionProto(name="f", domain="d", output=["nowhere"]))
    unknown = model_of(TensorProto(name="w", data_type=99, dims=[1], raw_data=b"abcd"))
    named = model_of()
    body = b"\x0a\x01x\x12\x01z\x1a\x02\xff\xfe\x22\x08Identity"
    named.graph.node.add().MergeFromString(body)
    for model, reason in [(twice, "'y' is redeclared"), (missing, "nowhere"), (unknown, "99"), (named, "not UTF-8")]:
        stored = storage.from_proto(model)
        with pytest.raises(ModelFileError, match="cannot be edited") as caught:
            storage.ir_from_proto(stored.proto)
        assert reason in str(caught.value) and "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_invalid_graphs_load_in_silence(capfd: pytest.CaptureFixture[str]) -> None:
    model = model_of()
    model.graph.node[0].input[0] = "undefined"
    model.graph.output.add(name="also undefined")
    stored = storage.from_proto(model)
    back = storage.proto_from_ir(storage.ir_from_proto(stored.proto), stored.weights)
    assert same(back, model)
    assert capfd.readouterr() == ("", "")


def test_graphs_that_cannot_be_written() -> None:
    model, stored = imported(model_of())
    model.graph.register_initializer(ir.Value(name="w", const_value=ir.tensor([1.0], name="w")))
    model.graph.initializers["w"].const_value = None
    with pytest.raises(ModelFileError, match="initializer 'w' has no value"):
        storage.proto_from_ir(model, stored.weights)
    model, stored = imported(model_of())
    model.graph.inputs[0].name = None
    with pytest.raises(ModelFileError, match="uses a value without a name"):
        storage.proto_from_ir(model, stored.weights)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("kind", [np.float32, np.int8, ml_dtypes.bfloat16, ml_dtypes.int4])
def test_joined_tensors_are_written_as_their_concatenation(axis: int, kind: type, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    arrays = [random.integers(-7, 7, (3, 5, 3)).astype(kind) for _ in range(3)]
    arrays.append(arrays[0].transpose(2, 1, 0))
    _is_written(joined(arrays, axis), np.concatenate(arrays, axis), tmp_path)


@pytest.mark.parametrize("dims", [(), (0,), (0, 3), (7,), (300, 5000)])
def test_converted_tensors_are_written_as_their_conversion(dims: tuple[int, ...], tmp_path: Path) -> None:
    array = np.random.default_rng(0).normal(size=dims).astype(np.float32)
    for one in (array, array.T):
        _is_written(converted(one, lambda part: part.astype(np.float16)), one.astype(np.float16), tmp_path)


def _is_written(tensor: PiecewiseTensor, wanted: np.ndarray[Any, Any], folder: Path) -> None:
    with (folder / "tensor").open("wb") as file:
        tensor.tofile(file)
    assert tuple(tensor.shape.numpy()) == wanted.shape and tensor.nbytes == ir.Tensor(wanted).nbytes
    assert (folder / "tensor").read_bytes() == ir.Tensor(wanted).tobytes()
    assert tensor.numpy().tobytes() == wanted.tobytes() and tensor.numpy().shape == wanted.shape


@pytest.mark.parametrize("kind", ["rows", "columns", "converted"])
def test_large_new_tensors_are_not_held_in_memory(kind: str) -> None:
    arrays = [np.zeros((1024, 4096), np.float32) for _ in range(3)]  # 48 MiB in all
    whole = np.zeros((1024, 24576), np.float32)
    weights = storage.Weights()
    tracemalloc.start()
    try:
        made = converted(whole, lambda part: part.astype(np.float16))
        tensor = made if kind == "converted" else joined(arrays, 0 if kind == "rows" else 1)
        written = spill_tensor(tensor, weights, 1024)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(written, StoredTensor) and written.nbytes == 48 << 20
    assert peak < 16 << 20
