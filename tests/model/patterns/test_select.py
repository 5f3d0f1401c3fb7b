"""Selectors of nodes and names of tensors: what they find, and what they say when there is nothing to find."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest

from surgery import Graph, NodeSelector, TensorNames
from surgery.base.errors import UsageError
from surgery.engine.registry.catalog import catalog
from surgery.engine.registry.options import Option
from surgery.model.graph import text
from surgery.model.wire.globs import Globs, nearest

MODEL = """<ir_version: 8, opset_import: ["" : 17, "acme" : 1]>
g (float[n, 4] x, bool c) => (float[n, 4] y, float[n, 4] z) <float[4] w = {1, 2, 3, 4}> {
    ["enc/0/mul"] a = Mul(x, w)
    ["enc/0/act"] b = Relu(a)
    ["enc/1/soft"] s = Softmax<axis = 1>(b)
    t = Softmax(a)
    ["if"] d = If (c) <
        then_branch = p () => (float[n, 4] u) { ["inner"] u = Neg(b) },
        else_branch = q () => (float[n, 4] v) { ["other"] v = Elu<alpha = 0.3>(x) }
    >
    ["call[0]"] y = acme.twice(d)
    ["last"] z = Add(s, t)
}
<domain: "acme", opset_import: ["" : 17]>
twice (v) => (r) { ["body"] r = Add(v, v) }"""


def graph() -> Graph:
    model = ir.from_proto(text.parse(MODEL))
    for node in model.graph:
        if node.name == "enc/0/act":
            node.metadata_props.update({"surgery.pass": "fuse-a, fuse-b", "surgery.from": '["old/relu", "Max -> k"]'})
    return Graph(model)


def selected(value: Any) -> list[str]:
    return [node.label for node in graph().select(NodeSelector.read(value))]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("last", ["last"]),
        ("enc/*", ["enc/0/mul", "enc/0/act", "enc/1/soft"]),
        ("enc/?/mul", ["enc/0/mul"]),
        ("call[0]", ["call[0]"]),
        ("call[*", ["call[0]"]),
        ("Softmax -> t", ["Softmax -> t"]),
        ({"op": "Softmax"}, ["enc/1/soft", "Softmax -> t"]),
        ({"op": "*max", "name": "enc/*"}, ["enc/1/soft"]),
        ({"op": ["Neg", "Elu"]}, ["inner", "other"]),
        ({"op": "ai.onnx::Add"}, ["last", "body"]),
        ({"op": "acme::*"}, ["call[0]"]),
        ({"domain": "acme"}, ["call[0]"]),
        ({"domain": "", "op": "Add"}, ["last", "body"]),
        ({"attribute": {"axis": 1}}, ["enc/1/soft"]),
        ({"attribute": {"axis": -1}}, ["Softmax -> t"]),
        ({"attribute": {"alpha": 0.3}}, ["other"]),
        ({"pattern": "m = Mul(a, b)\ny = Relu(m)"}, ["enc/0/mul", "enc/0/act"]),
        ({"made_by": "fuse-a"}, ["enc/0/act"]),
        ({"made_by": "fuse-*"}, ["enc/0/act"]),
        ({"from": "old/*"}, ["enc/0/act"]),
        ({"from": ["last", "Max -> k"]}, ["enc/0/act", "last"]),
        ({"between": {"from": "a", "to": ["s"]}}, ["enc/0/act", "enc/1/soft"]),
        ({"between": {"from": ["b"]}}, ["enc/1/soft", "if", "call[0]", "last", "inner", "other"]),
        ({"between": {"to": ["t"]}}, ["enc/0/mul", "Softmax -> t"]),
        ({"between": {"from": "b"}, "op": "Neg"}, ["inner"]),
        (["last", {"op": "Mul"}], ["enc/0/mul", "last"]),
    ],
)
def test_selects(value: Any, expected: list[str]) -> None:
    assert sorted(selected(value)) == sorted(expected)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("lst", "no node has the name 'lst'; did you mean 'last'?"),
        ("mul", "no node has the name 'mul'; did you mean 'enc/0/mul'?"),
        ("dec/*", "no node has the name 'dec/*'"),
        ({"op": "relu"}, "no node has the operator 'relu'; did you mean 'Relu'?"),
        ({"op": "Sofmax"}, "no node has the operator 'Sofmax'; did you mean 'Softmax'?"),
        ({"domain": "com.acme"}, "no node has an operator of the domain 'com.acme'; did you mean 'acme'?"),
        ({"attribute": {"axsi": 1}}, "no node has an attribute 'axsi'; did you mean 'axis'?"),
        ({"attribute": {"axis": 7}}, "no node has an attribute axis of 7"),
        ({"attribute": {"axis": "1"}}, "no node has an attribute axis of 1"),
        ({"pattern": "y = Exp(x)"}, "the pattern 'y = Exp(x)' does not match anywhere"),
        ({"made_by": "fuse-c"}, "no node was made by 'fuse-c'; did you mean 'fuse-b' or 'fuse-a'?"),
        ({"from": "old/rleu"}, "no node comes from 'old/rleu'; did you mean 'old/relu'?"),
        ({"between": {"from": "z", "to": "a"}}, "no node lies after 'z' before 'a'"),
        ({"between": {"from": "aa"}}, "there is no tensor 'aa'; did you mean 'a'?"),
        ({"op": "Mul", "name": "last"}, "no node meets all conditions of the selector"),
    ],
)
def test_explains_an_empty_selection(value: Any, told: str) -> None:
    with pytest.raises(UsageError) as raised:
        selected(value)
    assert str(raised.value).startswith(told) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ([], "an empty list selects nothing"),
        ("", "'' is neither the name of a node nor a mapping"),
        ({}, "{} is neither the name of a node"),
        ("{op: Relu}", "'{op: Relu}' is a quoted text, not the name of a node; write it without quotes"),
        (7, "7 is neither the name of a node"),
        ([["a"]], "['a'] is neither the name of a node"),
        ({"opp": "Relu"}, "a selector has no key 'opp'; did you mean 'op'?"),
        ({"op": 7}, "op takes a text or a list of texts"),
        ({"op": []}, "op takes a text or a list of texts"),
        ({"attribute": "axis"}, "attribute takes a mapping of names and values"),
        ({"pattern": ["y"]}, "pattern takes ONNX text"),
        ({"pattern": "y = Relu(x"}, "line 1 of the pattern:"),
        ({"between": {}}, "between takes {from: [tensors], to: [tensors]}"),
        ({"between": {"form": "x"}}, "between takes {from: [tensors], to: [tensors]}"),
        ({"between": {"from": 3}}, "from takes a text"),
    ],
)
def test_refuses_invalid_selectors(value: Any, told: str) -> None:
    with pytest.raises(ValueError) as raised:
        option(NodeSelector).validate(value)
    assert str(raised.value).startswith(told)


def option(annotation: Any) -> Option:
    return Option("nodes", annotation, None, "")


def test_is_an_option_of_a_pass() -> None:
    assert option(NodeSelector).validate({"op": "Relu"}) == NodeSelector.read({"op": "Relu"})
    assert option(NodeSelector | None).validate(None) is None
    assert option(NodeSelector | None).type_name == "node selector | none"
    assert option(TensorNames).validate(["a", "b"]) == ("a", "b")
    assert option(TensorNames).validate("a") == ("a",)
    assert option(TensorNames).validate([]) == ()
    assert option(TensorNames).type_name == "tensor names"


@pytest.mark.parametrize("value", [7, [1], {"a": 1}])
def test_refuses_invalid_tensor_names(value: Any) -> None:
    with pytest.raises(ValueError, match="takes a text or a list of texts"):
        option(TensorNames).validate(value)


def test_the_schema_of_recipes_knows_the_forms() -> None:
    from jsonschema import Draft202012Validator

    from surgery.engine.recipe.jsonschema import option_schema

    validator = Draft202012Validator(option_schema(option(NodeSelector), "x:"))
    good = ["enc/*", {"op": "Relu"}, [{"op": ["A"]}, "b"], {"between": {"to": "y"}}, {"attribute": {"axis": 1}}]
    bad = [7, [], {}, {"opp": "x"}, [["a"]], {"op": 1}, {"between": {}}, {"between": {"form": "x"}}]
    assert [value for value in good if not validator.is_valid(value)] == []
    assert [value for value in bad if validator.is_valid(value)] == []


def test_tensors_are_found_in_the_order_of_their_names() -> None:
    assert [value.name for value in graph().tensors(["z", "?", "x"])][:2] == ["z", "x"]
    assert [value.name for value in graph().tensors(["x", "w", "d"])] == ["x", "w", "d"]


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["xx"], "there is no tensor 'xx'; did you mean 'x'?"),
        (["x", "k*"], "there is no tensor 'k*'"),
        (["u"], "'u' is not a tensor of the main graph"),
        (["r"], "'r' is not a tensor of the main graph"),
    ],
)
def test_a_missing_tensor_is_reported(names: list[str], told: str) -> None:
    with pytest.raises(UsageError) as raised:
        graph().tensors(names)
    assert str(raised.value).startswith(told)


def test_tensors_are_selected_among_given_names() -> None:
    own = graph()
    assert [value.name for value in own.tensors(["*"], among=own.outputs())] == ["y", "z"]
    with pytest.raises(UsageError, match="'a' is not an output of the model"):
        own.tensors(["a"], among=own.outputs(), kind="output of the model")


def test_globs_match_brackets_and_dots_literally() -> None:
    globs = Globs(("a[0].b", "c.*"))
    assert [name for name in ("a[0].b", "a0.b", "c.d/e", "cxd") if globs.fit(name)] == ["a[0].b", "c.d/e"]


def test_nearest_names_contain_the_text_or_are_spelt_alike() -> None:
    known = ["encoder/0/query/MatMul", "encoder/0/value/MatMul", "logits"]
    assert nearest("query", known) == ["encoder/0/query/MatMul"]
    assert nearest("logit", known) == ["logits"]
    assert nearest("logitz", known) == ["logits"]
    assert nearest("zzz", known) == []


def test_selection_takes_linear_time() -> None:
    asked: list[int] = []
    for count in (100, 1000):
        lines = "\n".join(f'["n{i}"] v{i + 1} = Relu(v{i})' for i in range(count))
        own = Graph(ir.from_proto(text.parse(f"g (float[2] v0) => (float[2] v{count}) {{ {lines} }}")))
        selector = NodeSelector.read(["n*", {"op": "R*", "between": {"from": "v1", "to": f"v{count}"}}])
        asked.append(steps(lambda own=own, selector=selector: own.select(selector)))
    assert asked[1] < 12 * asked[0]


def steps(work: Any) -> int:
    """Count the calls of Python functions, which no other process can slow down."""
    import sys

    count = 0

    def tick(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(tick)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def test_every_option_has_a_name_for_its_type() -> None:
    names = {option.type_name for declared in catalog.passes().values() for option in declared.options}
    assert not [name for name in names if "<" in name]
