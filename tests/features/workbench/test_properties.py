"""What can be changed at a selection by typing a value, and the step that each change becomes."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support.breadth import sampled

import surgery
from surgery.base.errors import UsageError
from surgery.features.workbench.properties import Property
from surgery.model.graph import text

MODEL = """g (float[2, 3] x) => (float[2, 3] y)
<float[3, 3] w = {1, -2, 3, 4, 5, -6, 7, 8, 9}, float[3] b = {0.1, 2, 3}, int64[2] axes = {0, 1}> {
    [product] p = MatMul(x, w)
    [leaky] l = LeakyRelu<alpha = 0.2>(p)
    [drop] d = Dropout(l)
    [bias] s = Add(d, b)
    [fixed] k = Constant<value_float = 2.5>()
    [tensor] t = Constant<value = float[1] {0.5}>()
    [scaled] m = Mul(s, k)
    y = Mul(m, t)
}"""


@pytest.fixture
def session() -> Iterator[surgery.Session]:
    with surgery.Session.open(text.parse(MODEL), fresh=True) as opened:
        yield opened


def found(session: surgery.Session, *names: str) -> dict[str, Property]:
    return {one.key: one for one in session.properties(names)}


def test_a_node_has_its_name_operator_attributes_weights_and_outputs(session: surgery.Session) -> None:
    leaky = found(session, "leaky")
    assert {key: one.value for key, one in leaky.items() if one.value is not None} == {
        "name": "leaky",
        "operator": "LeakyRelu",
        "attribute:alpha": "0.2",
        "input:0": "p",
        "tensor:l": "l",
    }
    assert [key for key, one in leaky.items() if one.value is None] == ["remove", "output", "cut-after", "cut-before"]
    assert found(session, "bias")["weight:b"].value == "[0.1, 2.0, 3.0]"
    assert found(session, "product")["weight:w"].value == "[[1.0, -2.0, 3.0], [4.0, 5.0, -6.0], [7.0, 8.0, 9.0]]"
    assert found(session, "tensor")["weight:t"].value == "[0.5]"


def test_an_attribute_with_its_default_is_empty_and_says_what_to_type() -> None:
    model = text.parse("g (float[2, 3] x) => (float[2, 3] y) { [s] y = Softmax(x) }")
    with surgery.Session.open(model, fresh=True) as session:
        assert found(session, "s")["attribute:axis"] == Property("attribute:axis", "axis", "", "default; an integer")
        assert session.set_property(["s"], "attribute:axis", "0").ok
        assert found(session, "s")["attribute:axis"].value == "0"
        # An emptied field is the default again.
        assert session.set_property(["s"], "attribute:axis", "").ok
        assert found(session, "s")["attribute:axis"].value == ""


def test_a_large_weight_is_not_shown_but_can_be_set_from_a_file(tmp_path: Path) -> None:
    weight = np.arange(100, dtype=np.float32).reshape(10, 10)
    model = text.parse("g (float[2, 10] x) => (float[2, 10] y) <float[10, 10] w> { [p] y = MatMul(x, w) }")
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    onnx.save(model, tmp_path / "m.onnx")
    np.save(tmp_path / "w.npy", -weight)
    with surgery.Session.open(tmp_path / "m.onnx", within=tmp_path) as session:
        hint = found(session, "p")["weight:w"].hint
        assert found(session, "p")["weight:w"].value == "" and hint.startswith("float32 10×10: a .npy")
        assert session.set_property(["p"], "weight:w", "w.npy").ok
        made = session.save(tmp_path / "edited").model
    assert np.array_equal(numpy_helper.to_array(onnx.load(made).graph.initializer[0]), -weight)


@pytest.mark.parametrize(
    ("names", "key", "value", "step"),
    sampled(
        [
            (["leaky"], "name", "act", {"rename": {"nodes": {"leaky": "act"}}}),
            (["leaky"], "operator", "Elu", {"replace-op": {"nodes": "leaky", "op": "Elu"}}),
            (
                ["leaky"],
                "operator",
                "Relu",
                {"replace-op": {"nodes": "leaky", "op": "Relu", "attributes": {"alpha": None}}},
            ),
            (["leaky"], "attribute:alpha", "0.3", {"set-attribute": {"nodes": "leaky", "name": "alpha", "value": 0.3}}),
            (["drop"], "input:0", "p", {"replace-op": {"nodes": "drop", "op": "Dropout", "inputs": ["p"]}}),
            (["bias"], "input:0", "l", {"replace-op": {"nodes": "bias", "op": "Add", "inputs": ["l", 1]}}),
            (["leaky"], "tensor:l", "act", {"rename": {"tensors": {"l": "act"}}}),
            (["bias"], "weight:b", "1, 2, 3", {"set-initializer": {"name": "b", "value": [1, 2, 3]}}),
            (["bias"], "weight:b", "7", {"set-initializer": {"name": "b", "value": 7}}),
            (["x"], "tensor:x", "pixels", {"rename": {"tensors": {"x": "pixels"}}}),
            (["x"], "dims:x", "N, 3", {"set-dims": {"ports": {"x": ["N", 3]}}}),
            (["x"], "type:x", "float16", {"set-dtype": {"inputs": {"x": "float16"}}}),
            (["y"], "type:y", "float16", {"set-dtype": {"outputs": {"y": "float16"}}}),
            (["drop"], "remove", "", {"remove-nodes": {"nodes": "drop"}}),
            (["drop", "leaky"], "remove", "", {"remove-nodes": {"nodes": ["drop", "leaky"]}}),
            (["leaky"], "output", "", {"add-outputs": {"outputs": ["l"]}}),
            (["leaky"], "cut-after", "", {"cut": {"outputs": ["l"]}}),
            (["bias"], "cut-before", "", {"cut": {"inputs": ["d"]}}),
            (["l"], "cut-before", "", {"cut": {"inputs": ["l"]}}),
        ],
        2,
    ),
)
def test_a_change_is_a_step_that_runs(
    session: surgery.Session, names: list[str], key: str, value: str, step: dict[str, object]
) -> None:
    change = session.set_property(names, key, value)
    assert change.ok, change.refused
    with surgery.Session.open(text.parse(MODEL), fresh=True) as other:
        assert other.add(step).ok
        assert other.recipe_yaml() == session.recipe_yaml()


def test_what_is_typed_wrong_says_so_and_changes_nothing(session: surgery.Session) -> None:
    before = session.recipe_yaml()
    for names, key, value, message in (
        (["leaky"], "attribute:beta", "1", "the selection has no property 'attribute:beta'"),
        (["leaky"], "operator", "Relo", "did you mean 'Relu'"),
        (["bias"], "input:0", "nothing", "nothing"),
        (["bias"], "weight:b", "[1, 2", r"'\[1, 2'"),
        (["x"], "dims:x", "[2]", "x"),
        (["x"], "type:x", "floaty", "floaty"),
        (["nobody"], "name", "a", "no node and no tensor 'nobody'"),
    ):
        try:
            change = session.set_property(names, key, value)
        except UsageError as error:
            shown = str(error)
        else:
            assert not change.ok and change.refused is not None
            shown = change.refused.message
        assert re.search(message, shown), shown
        assert session.recipe_yaml() == before


def test_actions_are_offered_only_where_they_mean_something(session: surgery.Session) -> None:
    assert "output" not in found(session, "y") and "remove" in found(session, "y")
    assert not {"output", "cut-after", "cut-before"} & set(found(session, "x"))
    assert not {"dims:w", "remove", "output", "cut-before"} & set(found(session, "w"))
    assert set(found(session, "leaky", "bias")) == {"remove", "output", "cut-after", "cut-before"}
    assert "remove" not in found(session, "leaky", "x")
