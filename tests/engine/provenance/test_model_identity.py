"""Digests of models: the same for every layout of a file, another for every change."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.breadth import sampled

from surgery.engine.provenance.model_digests import STATEMENT_KEY, ModelIdentity, identity_of
from surgery.model import storage

MODELS = Path(__file__).parents[3] / "models"


def sample() -> onnx.ModelProto:
    weight = numpy_helper.from_array(np.arange(600, dtype=np.float32).reshape(20, 30), "w")
    body = helper.make_graph(
        [helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.float32([2]), "two"))],
        "body",
        [],
        [helper.make_tensor_value_info("c", TensorProto.FLOAT, [1])],
    )
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["y"], name="product"),
            helper.make_node("Softmax", ["y"], ["z"], name="soft", axis=-1),
            helper.make_node("If", ["b"], ["r"], name="choice", then_branch=body, else_branch=body),
        ],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 20]),
            helper.make_tensor_value_info("b", TensorProto.BOOL, []),
        ],
        [
            helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 30]),
            helper.make_tensor_value_info("r", TensorProto.FLOAT, [1]),
        ],
        [weight],
    )
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)], producer_name="test")


def identity(proto: onnx.ModelProto) -> ModelIdentity:
    stored = storage.from_proto(proto)
    with stored.weights:
        return identity_of(stored)


def test_the_elements_of_a_tensor_are_its_raw_data() -> None:
    weight = np.arange(600, dtype="<f4").tobytes()
    assert identity(sample()).tensors["initializer 'w'"] == hashlib.sha256(weight).hexdigest()


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT4, TensorProto.UINT4])
@pytest.mark.parametrize("count", [7, 6001])
def test_typed_fields_and_raw_data_are_the_same(dtype: int, count: int) -> None:
    """Of those types `int32_data` holds the bits, of int4 two elements in each entry."""
    values = np.arange(count) % 7
    typed = helper.make_tensor("t", dtype, [count], values)
    try:
        raw = numpy_helper.from_array(numpy_helper.to_array(typed), "t")
    except ValueError as error:
        pytest.skip(f"onnx {onnx.__version__} packs no odd number of elements: {error}")
    assert typed.data_type == raw.data_type and raw.raw_data and not typed.raw_data
    found = []
    for tensor in (typed, raw):
        model = sample()
        model.graph.initializer.append(tensor)
        found.append(identity(model))
    assert found[0].whole == found[1].whole
    assert found[0].tensors["initializer 't'"] == hashlib.sha256(raw.raw_data).hexdigest()


@pytest.mark.parametrize("model", sampled(sorted(MODELS.glob("*-tiny.onnx")), 3), ids=lambda path: path.stem)
def test_layouts_are_the_same_model(model: Path, tmp_path: Path) -> None:
    expected = identity_of(storage.load(model))
    onnx.save(onnx.load(model), tmp_path / "external.onnx", save_as_external_data=True, size_threshold=0)
    onnx.save(onnx.load(model), tmp_path / "inline.onnx")
    for file in ("external.onnx", "inline.onnx"):
        assert identity_of(storage.load(tmp_path / file)).parts == expected.parts


def test_the_order_of_initializers_and_metadata_does_not_matter() -> None:
    model = sample()
    model.graph.initializer.append(numpy_helper.from_array(np.float32([1]), "a"))
    helper.set_model_props(model, {"one": "1", "two": "2"})
    other = sample()
    other.graph.initializer.insert(0, numpy_helper.from_array(np.float32([1]), "a"))
    helper.set_model_props(other, {"two": "2", "one": "1"})
    assert identity(model).whole == identity(other).whole


def test_a_statement_is_not_part_of_the_model() -> None:
    model = sample()
    helper.set_model_props(model, {STATEMENT_KEY: "{}"})
    assert identity(model).parts == identity(sample()).parts


def _weight(model: onnx.ModelProto) -> None:
    array = numpy_helper.to_array(model.graph.initializer[0]).copy()
    array[3, 4] = -0.0
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(array, "w"))


def _dims(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims[:] = [30, 20]


def _inner(model: onnx.ModelProto) -> None:
    model.graph.node[2].attribute[0].g.node[0].attribute[0].t.CopyFrom(numpy_helper.from_array(np.float32([3]), "two"))


def _attribute(model: onnx.ModelProto) -> None:
    model.graph.node[1].attribute[0].i = 0


def _wire(model: onnx.ModelProto) -> None:
    model.graph.node[1].input[0] = "x"


def _input(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "m"


def _opset(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 20


def _metadata(model: onnx.ModelProto) -> None:
    helper.set_model_props(model, {"license": "none"})


CHANGES: list[tuple[Callable[[onnx.ModelProto], None], list[str]]] = [
    (_weight, ["initializer 'w'"]),
    (_dims, ["initializer 'w'"]),
    (_inner, ["If 'choice', attribute 'then_branch', Constant 'c', attribute 'value', tensor"]),
    (_attribute, ["Softmax 'soft', attribute 'axis'"]),
    (_wire, ["Softmax 'soft'"]),
    (_input, ["input 'x'"]),
    (_opset, ["opset_import"]),
    (_metadata, ["metadata_props"]),
]


@pytest.mark.parametrize(("change", "places"), CHANGES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_change_affects_only_its_part(change: Callable[[onnx.ModelProto], None], places: list[str]) -> None:
    model = sample()
    if change is _inner:
        model.graph.node[2].attribute.sort(key=lambda attribute: attribute.name, reverse=True)
    change(model)
    before, after = identity(sample()), identity(model)
    assert [part.place for part in after.parts if part not in before.parts] == places
    assert before.whole != after.whole


def test_a_known_range_is_not_read_again(tmp_path: Path) -> None:
    onnx.save(sample(), tmp_path / "m.onnx")
    stored = storage.load(tmp_path / "m.onnx")
    expected = identity_of(stored)
    (reference,) = known = stored.weights.digests
    assert expected.tensors["initializer 'w'"] == known[reference]
    known[reference] = "00" * 32
    assert identity_of(stored).tensors["initializer 'w'"] == "00" * 32
