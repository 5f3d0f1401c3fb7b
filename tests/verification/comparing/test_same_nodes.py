"""Which nodes of two models are the same, and which values they compute in the same way."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from surgery.model.graph import text
from surgery.verification.comparing.fingerprint import (
    _definition,
    _draws,
    _ValueNumbers,
    alike,
    content,
    hands_on,
    operation,
    same_but_for_names,
    short,
    trace,
)

BODY = "a = Neg(x) b = Add(a, w) c = Exp(b) y = Mul(c, a)"


def _model(
    body: str = BODY, ports: str = "float[2] x", outputs: str = "float[2] y", opset: int = 18
) -> onnx.ModelProto:
    model = text.parse(f"g ({ports}) => ({outputs}) {{ {body} }}", opset=opset)
    model.graph.initializer.append(numpy_helper.from_array(np.float32([1, 2]), "w"))
    return model


def _traced(before: onnx.ModelProto, after: onnx.ModelProto, **renamed: str) -> tuple[set[str], set[str], set[str]]:
    """Return the outputs of changed and of removed nodes, and the values that are the same."""
    found = trace(before, after, renamed)
    new = {name for number in found.changed for name in found.after.makes(number)}
    gone = {name for number in found.removed for name in found.before.makes(number)}
    return new, gone, found.same - {"x", "w"}


@pytest.mark.parametrize(
    ("after", "changed", "removed", "same"),
    [
        (BODY, set(), set(), {"a", "b", "c", "y"}),
        # Other names, and nodes that hand on their input, change nothing.
        (BODY.replace("b", "bb"), set(), set(), {"a", "c", "y"}),
        ("a = Neg(x) i = Identity(a) b = Add(i, w) c = Exp(b) y = Mul(c, i)", set(), set(), {"a", "b", "c", "y"}),
        (
            "a = Neg(x) t = Transpose<perm = [0]>(a) b = Add(t, w) c = Exp(b) y = Mul(c, a)",
            set(),
            set(),
            {"a", "b", "c", "y"},
        ),
        # A node that differs; those downstream of it are the same, for its value has the old name.
        ("a = Neg(x) b = Sub(a, w) c = Exp(b) y = Mul(c, a)", {"b"}, {"b"}, {"a"}),
        ("a = Neg(x) b = Add(w, a) c = Exp(b) y = Mul(c, a)", {"b"}, {"b"}, {"a"}),
        # With another name, its reader changes, too.
        ("a = Neg(x) q = Sub(a, w) c = Exp(q) y = Mul(c, a)", {"q", "c"}, {"b", "c"}, {"a"}),
        # Nodes that nothing reads do not count.
        (f"{BODY} z = Log(a)", set(), set(), {"a", "b", "c", "y"}),
        # An output that is connected to another value.
        ("a = Neg(x) b = Add(a, w) y = Exp(b)", {"y"}, {"y"}, {"a", "b"}),
    ],
)
def test_nodes_that_changed(after: str, changed: set[str], removed: set[str], same: set[str]) -> None:
    assert _traced(_model(), _model(after)) == (changed, removed, same)


def test_values_with_other_names_in_the_original() -> None:
    after = _model("a = Neg(x) c = Add(a, w) b = Exp(c) y = Mul(b, a)")
    assert _traced(_model(), after)[0] == set()
    swapped = _model("a = Neg(x) c = Sub(a, w) q = Exp(c) y = Mul(q, a)")
    assert _traced(_model(), swapped)[0] >= {"c", "q"}
    assert _traced(_model(), swapped, c="b")[0] == {"c"}


def test_models_that_are_hardly_related() -> None:
    for after, related in ((BODY, True), ("a = Abs(x) b = Sub(a, w) c = Exp(b) y = Mul(c, a)", False)):
        assert trace(_model(), _model(after)).related is related
    # Half of the nodes are enough.
    assert trace(_model("a = Neg(x) b = Exp(a) y = Log(b)"), _model("a = Neg(x) b = Abs(a) y = Log(b)")).related
    assert trace(_model("y = Neg(x)"), _model("y = Abs(x)")).related


def test_values_of_another_element_type_are_not_common() -> None:
    before, after = _model(), _model()
    before.graph.value_info.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, [2]))
    for dtype, common in ((TensorProto.FLOAT, True), (TensorProto.DOUBLE, False)):
        del after.graph.value_info[:]
        after.graph.value_info.append(helper.make_tensor_value_info("b", dtype, [3]))
        assert ("b" in trace(before, after).common) is common


@pytest.mark.parametrize(
    ("body", "same"),
    [
        ("y = Add(x, w)", True),
        ("y = Add(w, x)", False),
        ("y = Add<axis = 1>(x, w)", False),
        ("y = d.Add(x, w)", False),
        ("y, z = Add(x, w)", False),
        ("y = Add(x, w, )", True),
        ("y = ai.onnx.Add(x, w)", True),
    ],
)
def test_what_makes_an_operation_the_same(body: str, same: bool) -> None:
    assert (alike(_model("y = Add(x, w)"), _model(body), ["y", "none"]) == {"y"}) is same


def test_versions_of_operators() -> None:
    # Add was revised in opset 14, Neg in opset 13.
    for body, versions, same in (
        ("y = Add(x, w)", (14, 18), True),
        ("y = Add(x, w)", (13, 18), False),
        ("y = Neg(x)", (13, 18), True),
        ("y = Unknown(x)", (17, 18), False),
    ):
        first, second = (_model(body, opset=version) for version in versions)
        assert (alike(first, second, ["y"]) == {"y"}) is same


def test_draws_are_their_own() -> None:
    body = "a = RandomNormalLike(x) b = RandomNormalLike(x) y = Sub(a, b)"
    numbers = trace(_model(body), _model(body)).numbers
    assert numbers["a"] != numbers["b"]
    assert alike(_model("y = RandomNormalLike(x)"), _model("y = RandomNormalLike(x)"), ["y"]) == {"y"}
    nodes = text.parse_nodes(
        "a = Dropout(x) b = Dropout(x, r, t) c = RandomUniformLike(x) d = Neg(x) e = d.Bernoulli(x)"
    )
    assert [_draws(node, []) for node in nodes] == [False, True, True, False, False]
    function = onnx.FunctionProto(node=text.parse_nodes("y = Bernoulli(x)"))
    assert _draws(nodes[3], [function])


@pytest.mark.parametrize(
    ("node", "hands"),
    [
        ("y = Identity(x)", True),
        ("y = d.Identity(x)", False),
        ("y = Transpose<perm = [0, 1, 2]>(x)", True),
        ("y = Transpose<perm = [0, 2, 1]>(x)", False),
        ("y = Transpose(x)", False),
        ("y = Cast<to = 1>(x)", False),
        ("y, z = Identity(x)", False),
    ],
)
def test_nodes_that_hand_on_their_input(node: str, hands: bool) -> None:
    assert hands_on(text.parse_nodes(node)[0]) is hands


def test_branches_that_are_always_taken() -> None:
    def branching(condition: int, then: str = "Neg", other: str = "Abs") -> onnx.ModelProto:
        body = f"""c = Constant<value = bool {{{condition}}}>() y = If(c) <
            then_branch = t () => (float[2] p) {{ p = {then}(x) }},
            else_branch = e () => (float[2] q) {{ q = {other}(x) }}>"""
        return _model(body)

    assert alike(branching(1), _model("y = Neg(x)"), ["y"]) == {"y"}
    assert alike(branching(0), _model("y = Abs(x)"), ["y"]) == {"y"} == alike(branching(0), branching(0, "Exp"), ["y"])
    assert alike(branching(1), _model("y = Abs(x)"), ["y"]) == set() == alike(branching(1), branching(1, "Exp"), ["y"])
    # Such an If is still a node of its own: it changes as a whole, and is not the same model as its branch.
    assert _traced(branching(1), branching(1, "Exp"))[:2] == _traced(branching(1), branching(1, "Neg", "Exp"))[:2]
    assert _traced(branching(1), branching(1, "Exp"))[0] == {"y"}
    assert same_but_for_names(branching(1), branching(1))
    assert not same_but_for_names(branching(1), branching(1, "Neg", "Exp"))
    # An unknown condition: both branches count.
    branches = "then_branch = t () => (float[2] p) { p = Neg(x) }, else_branch = e () => (float[2] q) { q = Abs(x) }"
    free = f"y = If(c) <{branches}>"
    first, second = _model(free, "float[2] x, bool c"), _model(free.replace("Abs", "Exp"), "float[2] x, bool c")
    assert alike(first, first, ["y"]) == {"y"} and alike(first, second, ["y"]) == set()


def test_inputs_that_are_known_to_be_equal() -> None:
    before, after = (
        _model(body, "float[2] x, float[2] k") for body in ("a = Neg(x) y = Exp(k)", "a = Neg(x) y = Exp(a)")
    )
    assert alike(before, after, ["y"]) == set() and alike(before, after, ["y"], {"k": "a"}) == {"y"}


def test_functions_count_by_what_they_compute() -> None:
    def calling(op: str, name: str = "f", about: str = "") -> onnx.ModelProto:
        model = _model(f"y = d.{name}(x)")
        function = model.functions.add(name=name, domain="d", doc_string=about)
        function.input.append("x")
        function.output.append("y")
        function.node.extend(text.parse_nodes(f"y = {op}(x)"))
        return model

    assert alike(calling("Neg"), calling("Neg", about="more"), ["y"]) == {"y"}
    assert alike(calling("Neg"), calling("Abs"), ["y"]) == set()
    first, second = calling("Neg").functions[0], calling("Neg", about="more").functions[0]
    assert _definition(first) == _definition(second)


def test_operations_without_their_operands() -> None:
    nodes = text.parse_nodes("a = Add(x, w) b = Add(k, w) c = Sub(x, w) d = Clip(x, , w)")
    found = operation([_model()] * 4, nodes)
    assert found[0][0] == found[1][0] != found[2][0]
    assert [read for _, read in found] == [["x", "w"], ["k", "w"], ["x", "w"], ["x", "w"]]
    inner = "then_branch = t () => (float p) { p = Neg(x) }, else_branch = e () => (float q) { q = Abs(z) }"
    ((_, read),) = operation([_model()], text.parse_nodes(f"y = If(c) <{inner}>"))
    assert read == ["c", "x", "z"]


def test_models_that_differ_in_names_only() -> None:
    first = _model()
    assert same_but_for_names(
        first, _model(BODY.replace("b", "bb").replace("a ", "aa ").replace("(a", "(aa").replace(" a)", " aa)"))
    )
    for change in (
        lambda model: setattr(model, "ir_version", 9),
        lambda model: setattr(model.opset_import[0], "version", 19),
        lambda model: model.functions.add(name="f"),
        lambda model: setattr(model.graph.output[0], "name", "c"),
        lambda model: model.graph.node.extend(text.parse_nodes("z = Neg(x)")),
        lambda model: model.graph.initializer.append(numpy_helper.from_array(np.float32([3]), "v")),
        lambda model: model.graph.value_info.append(helper.make_tensor_value_info("b", 1, [2])),
        lambda model: model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.float32([1, 3]), "w")),
    ):
        other = _model()
        change(other)  # type: ignore[no-untyped-call]
        assert not same_but_for_names(first, other)


def test_contents_of_tensors() -> None:
    def outside(**entries: str) -> TensorProto:
        tensor = TensorProto(data_type=1, dims=[2], data_location=TensorProto.EXTERNAL)
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)
        return tensor

    assert content(outside(location="w", offset="8")) == content(outside(offset="8", location="w", checksum="abc"))
    assert content(outside(location="w", offset="8")) != content(outside(location="w", offset="4"))
    one = numpy_helper.from_array(np.float32([1, 2]), "a")
    same = TensorProto(data_type=1, dims=[2], float_data=[1, 2], name="b")
    assert content(one) == content(same) == (1, (2,), np.float32([1, 2]).tobytes())
    long = bytes(100_000)
    assert short(b"ab") == b"ab" and len(short(long)) < 100 and short(long) != short(long + b"0")


def test_numbers_that_are_united() -> None:
    numbers = _ValueNumbers()
    a, b, c, d = (numbers.of(key) for key in "abcd")
    assert [a, b, c, d] == [0, 1, 2, 3] and numbers.of("b") == b
    numbers.unite(b, c)
    assert numbers.of("c") == b == numbers.of("b") and numbers.of("d") == d
    numbers.unite(a, c)
    assert {numbers.of(key) for key in "abc"} == {a}


def test_weights_of_the_same_bytes_in_other_files(tmp_path: Any) -> None:
    def stored(name: str, *values: float) -> onnx.ModelProto:
        (tmp_path / name).write_bytes(np.float32(values).tobytes())
        model = _model()
        tensor = TensorProto(name="w", data_type=1, dims=[2], data_location=TensorProto.EXTERNAL)
        for key, value in (("location", str(tmp_path / name)), ("offset", "0"), ("length", "8")):
            tensor.external_data.add(key=key, value=value)
        model.graph.initializer[0].CopyFrom(tensor)
        return model

    assert alike(stored("a", 1, 2), stored("b", 1, 2), ["y"]) == {"y"}
    assert alike(stored("a", 1, 2), stored("c", 1, 3), ["y"]) == set()
    lost = stored("d", 1, 2)
    (tmp_path / "d").unlink()
    assert alike(stored("a", 1, 2), lost, ["y"]) == set()
