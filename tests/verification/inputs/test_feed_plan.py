"""The inputs of a model as a plan sees them: their ports, what they may hold, and what is fed for a binding."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from surgery.base.operators.domain import ANY, MASK, Domain
from surgery.model.graph import text
from surgery.verification.inputs.feed_plan import (
    PROFILES,
    Binding,
    FeedPlan,
    _simplified,
    read_defaults,
    read_ports,
    with_all_values,
)
from surgery.verification.inputs.input_port import InputPort
from surgery.verification.inputs.spec import InputsSpec, TensorSpec

FLOAT, INT64, BOOL, TEXT = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING


def _tensor(name: str, dtype: int = FLOAT, dims: Sequence[Any] | None = ("n",)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, dims)


def _model(*inputs: onnx.ValueInfoProto, body: str = "", version: int = 10, opset: int = 18) -> onnx.ModelProto:
    nodes = text.parse_nodes(body) if body else []
    graph = helper.make_graph(nodes, "g", inputs, [])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=version)


def _plan(*inputs: onnx.ValueInfoProto, body: str = "", spec: InputsSpec | None = None) -> FeedPlan:
    return FeedPlan(_model(*inputs, body=body), spec or InputsSpec())


def test_ports_have_kinds_types_and_dims() -> None:
    element = helper.make_tensor_type_proto(INT64, ["k", 3])
    sequence = helper.make_sequence_type_proto(element)
    odd = _tensor("odd", dims=(2, None, "a b"))
    odd.type.tensor_type.shape.dim[0].dim_value = -1
    model = _model(
        odd,
        _tensor("shapeless", dims=None),
        _tensor("none", dims=(0,)),
        helper.make_value_info("s", sequence),
        helper.make_value_info("o", helper.make_optional_type_proto(element)),
        helper.make_value_info("os", helper.make_optional_type_proto(sequence)),
        helper.make_value_info("m", helper.make_map_type_proto(INT64, element)),
    )
    integer = np.dtype(np.int64)
    assert read_ports(model) == [
        InputPort("odd", "tensor", np.dtype(np.float32), ("odd[0]", "odd[1]", "a b")),
        InputPort("shapeless", "tensor", np.dtype(np.float32), (2, 3), ranked=False),
        InputPort("none", "tensor", np.dtype(np.float32), (0,)),
        InputPort("s", "sequence", integer, ("k", 3)),
        InputPort("o", "optional", integer, ("k", 3)),
        InputPort("os", "optional", integer, ("k", 3), "sequence"),
        InputPort("m", "map_type", None, (2, 3), "map_type", ranked=False),
    ]
    plan = FeedPlan(model, InputsSpec())
    assert plan.problem == "input 'm' has an unsupported type"
    assert plan.dims.names == ("odd[0]", "odd[1]", "a b", "k")
    del model.graph.input[-1]
    assert FeedPlan(model, InputsSpec()).problem is None
    # Elements of a type that there is not.
    assert _plan(_tensor("x", 0)).problem == "input 'x' has an unsupported type"


def test_initializers_that_are_inputs_have_a_default_since_ir_version_4() -> None:
    for version, defaults in ((3, []), (4, ["w"])):
        model = _model(_tensor("x"), _tensor("w"), version=version)
        model.graph.initializer.add(name="w")
        assert [port.name for port in read_ports(model)] == ["x"]
        assert [port.name for port in read_defaults(model)] == defaults


@pytest.mark.parametrize(
    ("inputs", "spatial"),
    [
        ([_tensor("x", dims=("n", 3, "h", "w"))], ("h", "w")),
        ([_tensor("x", dims=("n", "c", "d", "h", "w"))], ("d", "h", "w")),
        ([_tensor("x", dims=("n", 3, 32, "w")), _tensor("z", dims=("n", 3, "w", "k"))], ("w", "k")),
        ([_tensor("x", dims=("n", 3, "h"))], ()),
        ([_tensor("x", dims=("n", 3, "a", "b", "c", "d"))], ()),
        ([_tensor("x", INT64, ("n", 3, "h", "w"))], ()),
    ],
)
def test_images_are_floats_with_four_or_five_dims_where_windows_slide(
    inputs: list[onnx.ValueInfoProto], spatial: tuple[str, ...]
) -> None:
    assert _plan(*inputs, body="y = Conv(x, w)").dims.spatial == spatial
    assert _plan(*inputs, body="y = Relu(x)").dims.spatial == ()


def test_a_function_may_slide_windows() -> None:
    image = _tensor("x", dims=("n", 3, "h", "w"))
    inlined = _model(image, body="y = Conv(x, w)")
    assert FeedPlan(_model(image, body="y = F(x)"), InputsSpec(), inlined).dims.spatial == ("h", "w")


def test_what_inputs_may_hold() -> None:
    table = _tensor("table", dims=(7, 4))
    names = ["ids", "attention_mask", "lengths"]
    inputs = [table, *(_tensor(name, INT64) for name in names), _tensor("bool_mask", BOOL), _tensor("float_mask")]
    body = "y = Gather(table, ids) z = Add(lengths, lengths) u = Gather(table, both) v = Gather(small, both)"
    plan = _plan(*inputs, _tensor("both", INT64), _tensor("small"), _tensor("words_mask", TEXT), body=body)
    shapes = {port.name: [7, 4] if port.name == "table" else [3] for port in plan.ports}
    found = plan.domains(shapes)
    assert (found["ids"].low, found["ids"].high) == (0, 6)
    # An index into two tables is legal for both.
    assert (found["both"].low, found["both"].high) == (0, 2)
    assert found["attention_mask"] == MASK == found["bool_mask"]
    assert found["lengths"] == ANY == found["float_mask"] == found["words_mask"]
    assert plan.lacks({}, found)
    assert not plan.lacks({name: [3] for name in "yzuv"}, found)
    # Nothing is unlimited.
    assert not plan.lacks({}, {**found, "lengths": MASK})


def test_an_output_that_is_left_out_needs_no_shape() -> None:
    plan = _plan(_tensor("i", INT64), _tensor("x"), body="y, , v = Dropout(x)")
    assert not plan.lacks({"y": [1], "v": [1]}, {"i": ANY, "x": ANY})


@pytest.mark.parametrize(
    ("inputs", "profiles"),
    [
        ([_tensor("x")], PROFILES[:1]),
        ([_tensor("x", TEXT)], PROFILES[:1]),
        ([_tensor("x"), _tensor("i", INT64)], PROFILES),
        ([_tensor("b", BOOL)], PROFILES),
        ([_tensor("u", 0)], PROFILES[:1]),
    ],
)
def test_profiles_are_for_integers(inputs: list[onnx.ValueInfoProto], profiles: tuple[str, ...]) -> None:
    assert _plan(*inputs).profiles == profiles
    assert PROFILES == ("legal", "binary", "ones", "twos", "zeros", "sixteens")


LIMITED = Domain(0, 9)


@pytest.mark.parametrize(
    ("domain", "dtype", "profile", "expected"),
    [
        (LIMITED, np.int64, "binary", MASK),
        (LIMITED, np.bool_, "binary", MASK),
        (LIMITED, np.int32, "ones", Domain(choices=(1,))),
        (LIMITED, np.int32, "twos", Domain(choices=(2,))),
        (LIMITED, np.int32, "zeros", Domain(choices=(0,))),
        (ANY, np.int32, "sixteens", Domain(choices=(16,))),
        (LIMITED, np.int32, "unknown", LIMITED),
        (ANY, np.int32, "unknown", Domain(choices=(0,))),
        (LIMITED, np.float32, "ones", LIMITED),
        (LIMITED, object, "ones", LIMITED),
        (LIMITED, None, "ones", LIMITED),
    ],
)
def test_simpler_integers(domain: Domain, dtype: Any, profile: str, expected: Domain) -> None:
    port = InputPort("x", "tensor", None if dtype is None else np.dtype(dtype), ())
    assert _simplified(domain, port, profile) == expected


def test_what_is_fed() -> None:
    sequence = helper.make_value_info("s", helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, ["k"])))
    inputs = [
        _tensor("x"),
        _tensor("i", INT64),
        _tensor("r"),
        sequence,
        _tensor("free", dims=None),
        _tensor("j", INT64),
    ]
    spec = InputsSpec(dims={"k": (5,)}, tensors={"i": TensorSpec(values=(4, 6)), "r": TensorSpec(range=(2, 3))})
    plan = _plan(*inputs, spec=spec)
    for profile in ("legal", "ones"):
        feed = plan.feeds(Binding({"n": 50, "k": 5}, "normal", 3, profile), {"i": LIMITED})
        assert {*feed["i"].tolist()} == {4, 6}
        assert ({*feed["j"].tolist()} == {1}) is (profile == "ones")
        assert feed["r"].min() >= 2 and feed["r"].max() <= 3 and feed["r"].std() > 0.1
        assert [item.shape for item in feed["s"]] == [(5,)] * len(feed["s"]) and len(feed["s"]) > 1
        assert feed["free"].shape == (2, 3)
    again = plan.feeds(Binding({"n": 50, "k": 5}, "normal", 3), {})
    other = plan.feeds(Binding({"n": 50, "k": 5}, "normal", 4), {})
    assert np.array_equal(feed["x"], again["x"]) and not np.array_equal(feed["x"], other["x"])
    # Settings without values or a range: from 0 to 1.
    plan = _plan(_tensor("x"), spec=InputsSpec(tensors={"x": TensorSpec()}))
    drawn = plan.feeds(Binding({"n": 50}), {})["x"]
    assert 0 <= drawn.min() < 0.2 and 0.8 < drawn.max() <= 1


def test_an_optional_is_empty_in_some_sets_if_the_graph_asks() -> None:
    optional = helper.make_value_info("o", helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, ["n"])))
    for body, may_be in (("h = OptionalHasElement(o)", True), ("y = OptionalGetElement(o)", False)):
        plan = _plan(optional, body=body)
        empty = {
            character: plan.feeds(Binding({"n": 3}, character), {})["o"] is None
            for character in ("edges", "coarse", "image", "normal")
        }
        assert empty == {"edges": may_be, "coarse": may_be, "image": may_be, "normal": False}


def test_data_for_guards_apply_to_the_named_inputs() -> None:
    plan = _plan(_tensor("x", dims=("n", 4)), _tensor("z", dims=("n", 4)))
    both = plan.feeds(Binding({"n": 3}, "zeros"), {})
    one = plan.feeds(Binding({"n": 3}, "zeros", ports=("x",)), {})
    assert not both["x"].any() and not both["z"].any()
    assert not one["x"].any() and one["z"].any()
    # The others are as in normal data.
    normal = plan.feeds(Binding({"n": 3}), {})
    assert np.array_equal(one["z"], normal["z"]) and normal["x"].any()
    # The user's settings come first.
    spec = InputsSpec(tensors={"x": TensorSpec(range=(2, 3))})
    assert _plan(_tensor("x"), spec=spec).feeds(Binding({"n": 3}, "zeros"), {})["x"].all()


def test_bindings() -> None:
    binding = Binding({"n": 3}, "zeros", 5, ports=("x",))
    assert binding.decides("x") and not binding.decides("z") and Binding(character="zeros").decides("z")
    assert not Binding(character="edges").decides("x")
    assert (binding.ordinary, Binding(character="edges").ordinary) == ("normal", "edges")
    assert binding.dim_key == (("n", 3),)
    assert binding.as_json() == {"dims": {"n": 3}, "character": "zeros", "seed": 5}
    assert binding.as_json("too large")["refused"] == "too large"


def test_a_file_decides_on_dims(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((7, 2), np.float32))
    spec = InputsSpec(dims={"n": (3,), "k": (4, 5)}, tensors={"x": TensorSpec(file=tmp_path / "x.npy")})
    plan = _plan(_tensor("x", dims=("n", "n + 1")), _tensor("z", dims=("n", "k")), spec=spec)
    assert plan.dims.wishes == {"n": (7,), "k": (4, 5)}
    assert plan.extents() == {"x": [7, 2], "z": ["n", "k"]}
    assert plan.shapes({"n": 7, "k": 4}) == {"x": [7, 2], "z": [7, 4]}
    assert plan.feeds(Binding({"n": 7, "k": 4}), {})["x"].tolist() == [[1, 1]] * 7


def test_every_value_becomes_an_output_once() -> None:
    model = text.parse("g (float[2] x) => (float[2] y) { a, m = Dropout(x) y = Neg(a) b = Abs(y) }")
    model.graph.node.append(helper.make_node("Dropout", ["b"], ["c", ""]))
    found = onnx.load_model_from_string(with_all_values(model.SerializeToString()))
    assert [value.name for value in found.graph.output] == ["y", "a", "m", "b", "c"]
