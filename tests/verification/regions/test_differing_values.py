"""Which values of two models are defined in another way, from texts of both."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from surgery.base.promises import Parity
from surgery.model.graph import text
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.inputs.spec import VerifySpec
from surgery.verification.regions import hidden_differences
from surgery.verification.regions.definitions import Definitions, differing, is_replaced
from surgery.verification.regions.regional_verdict import ComparedRegions

BODY = "a = Neg(x) b = Mul(a, w) y = Exp(b)"


def side(body: str = BODY, stored: str = "float[2] w = {1, 2}", opset: int = 18, **more: Any) -> Definitions:
    return Definitions(model(body, stored, opset, **more).SerializeToString())


def model(
    body: str = BODY, stored: str = "float[2] w = {1, 2}", opset: int = 18, functions: str = "", ir: int = 8
) -> Any:
    head = f'<ir_version: {ir}, opset_import: ["": {opset}, "own": 1]> g (float[2] x) => (float[2] y) <{stored}>'
    return text.parse(f"{head} {{ {body} }} {functions}")


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (BODY, BODY, ""),
        (BODY, "a = Abs(x) b = Mul(a, w) y = Exp(b)", "a"),
        (BODY, "a = Neg(x) b = Mul(w, a) y = Exp(b)", "b"),
        ("y = Softmax<axis = 0>(x)", "y = Softmax<axis = 1>(x)", "y"),
        ("[one] a = Neg(x) y = Exp(a)", "[two] a = Neg(x) y = Exp(a)", ""),
        # What only one of them computes is compared by what is computed from it.
        (BODY, "c = Abs(x) b = Mul(c, w) y = Exp(b)", "b"),
        (BODY, "a = Neg(x) y = Exp(a)", "y"),
        # Made by a node here, an initializer there.
        ("b = Mul(x, w) y = Exp(b)", "w = Neg(x) b = Mul(x, w) y = Exp(b)", "w"),
        ("w = Neg(x) b = Mul(x, w) y = Exp(b)", "b = Mul(x, w) y = Exp(b)", "w"),
    ],
)
def test_nodes_that_differ(before: str, after: str, found: str) -> None:
    sides = [side(body, "" if "w = " in body else "float[2] w = {1, 2}") for body in (before, after)]
    assert differing(*sides) == {*found}
    # What is known about the nodes of another model changes nothing.
    again = Definitions(sides[1].skeleton, sides[0])
    assert differing(sides[0], again) == {*found} and again.flow.reads == sides[1].flow.reads


@pytest.mark.parametrize(
    ("body", "opsets", "found"),
    [
        ("a = Neg(x) y = Softmax(a)", (11, 12), ""),
        ("a = Neg(x) y = Softmax(a)", (12, 13), "ay"),
        ("a = Relu(x) y = Softmax(a)", (13, 14), "a"),
        ("a = own.f(x) y = Identity(a)", (11, 12), ""),
    ],
)
def test_nodes_whose_operator_differs_by_its_version(body: str, opsets: tuple[int, int], found: str) -> None:
    assert differing(*(side(body, opset=opset) for opset in opsets)) == {*found}


def test_nodes_of_other_domains_differ_with_the_version_that_is_imported() -> None:
    before, after = model("a = own.f(x) y = Neg(a)"), model("a = own.f(x) y = Neg(a)")
    after.opset_import[1].version = 2
    assert differing(*(Definitions(one.SerializeToString()) for one in (before, after))) == {"a"}
    del after.opset_import[1]
    assert differing(*(Definitions(one.SerializeToString()) for one in (before, after))) == {"a"}


def test_calls_of_functions_that_differ() -> None:
    inner = '<domain: "own", opset_import: ["": 18]> f (v) => (u) {{ u = {}(v) }}'
    outer = '<domain: "own", opset_import: ["": 18, "own": 1]> h (v) => (u) { u = own.f(v) }'
    body = "a = own.f(x) b = own.h(a) c = Neg(b) y = Exp(c)"
    sides = [side(body, functions=f"{inner.format(op)} {outer}") for op in ("Relu", "Abs", "Relu")]
    assert differing(sides[0], sides[1]) == {"a", "b"} and differing(sides[0], sides[2]) == set()
    without = side(body, functions=outer)
    assert differing(sides[0], without) == {"a", "b"} == differing(without, sides[0])


@pytest.mark.parametrize(
    ("before", "after", "differs"),
    [
        ("float[2] w = {1, 2}", "float[2] w = {1, 2}", False),
        ("float[2] w = {1, 2}", "float[2] w = {1, 3}", True),
        ("float[2] w = {1, 2}", "float[1, 2] w = {1, 2}", True),
        ("float[2] w = {1, 2}", "float16[2] w = {1, 2}", True),
        ("float[2] w = {1, 2}", "float[2] other = {1, 2}", False),
    ],
)
def test_numbers_that_differ(before: str, after: str, differs: bool) -> None:
    assert differing(side(stored=before), side(stored=after)) == ({"w"} if differs else set())


@pytest.mark.parametrize(("ir", "differs"), [(3, False), (4, True)])
def test_numbers_that_a_caller_can_override_in_one_of_them(ir: int, differs: bool) -> None:
    before, after = model(ir=ir), model(ir=ir)
    after.graph.input.append(helper.make_tensor_value_info("w", 1, [2]))
    sides = [Definitions(one.SerializeToString()) for one in (before, after)]
    assert sides[1].inputs == ({"x", "w"} if differs else {"x"}) and sides[1].is_constant("w") is not differs
    assert differing(*sides) == ({"w"} if differs else set()) == differing(*reversed(sides))


def test_sparse_numbers_that_differ() -> None:
    def sparse(*values: float, name: str = "s") -> Definitions:
        made = model("a = Neg(x) b = Mul(a, s) y = Exp(b)", "")
        found = helper.make_sparse_tensor(
            helper.make_tensor(name, 1, [len(values)], values), helper.make_tensor("", 7, [len(values)], [0]), [2]
        )
        made.graph.sparse_initializer.append(found)
        return Definitions(made.SerializeToString())

    assert differing(sparse(1.0), sparse(1.0)) == set() and differing(sparse(1.0), sparse(2.0)) == {"s"}
    dense = side("a = Neg(x) b = Mul(a, s) y = Exp(b)", "float[2] s = {1, 0}")
    assert differing(dense, sparse(1.0)) == {"s"} == differing(sparse(1.0), dense)


@pytest.mark.parametrize(
    ("before", "after", "differs", "replaced"),
    [
        (BODY, "a = Neg(x) c = Mul(a, w) y = Exp(c)", "wy", True),
        # Both compute b from w, which is either assumed to be equal or differs.
        (BODY, BODY, "w", False),
        (BODY, BODY, "wb", True),
        (BODY, "a = Neg(x) b = Mul(a, w) d = Neg(w) y = Add(b, d)", "wby", True),
        ("a = Neg(x) b = Mul(a, w) c = Abs(w) y = Add(b, c)", "c = Abs(x) y = Add(c, w)", "wy", False),
        # Numbers are also those of a node.
        ("w = Constant<value_float = 1.0>() y = Add(x, w)", "y = Add(x, w)", "wy", True),
        ("w = Constant<value_float = 1.0>() y = Add(x, w)", "w = Neg(x) y = Add(x, w)", "wy", False),
        ("w = Neg(x) y = Add(x, w)", "y = Add(x, w)", "wy", False),
        # A few of them are read.
        ("y = Gather(w, x)", "y = Add(x, w)", "wy", False),
        ("y = Add(x, w)", "y = Gather(w, x)", "wy", False),
        ("y = Gather(x, w)", "y = Add(x, w)", "wy", True),
    ],
)
def test_numbers_of_each_models_own(before: str, after: str, differs: str, replaced: bool) -> None:
    sides = [side(body, "" if "w = " in body else "float[2] w = {1, 2}") for body in (before, after)]
    assert is_replaced("w", *sides, {*differs}) is replaced


def test_an_output_is_not_replaced() -> None:
    made = model("y = Add(x, w)")
    made.graph.output.append(helper.make_tensor_value_info("w", 1, [2]))
    with_output = Definitions(made.SerializeToString())
    assert is_replaced("w", side("y = Add(x, w)"), side("y = Add(x, w)"), {"w", "y"})
    assert not is_replaced("w", with_output, side("y = Add(x, w)"), {"w", "y"})
    assert not is_replaced("w", side("y = Add(x, w)"), with_output, {"w", "y"})


def test_what_a_node_reads_and_where() -> None:
    found = side("s = Shape(x) a = Reshape(x, s) b = Reshape(x, x) c = own.f(x, s) y = Expand(a, s)")
    assert [found.steers("s", number) for number in range(5)] == [False, True, False, False, True]
    assert not found.steers("x", 2) and not found.steers("x", 1)
    assert found.read_for("a") == ["x", "s"] and found.read_for("x") == []
    assert onnx.NodeProto.FromString(found.text(1)).op_type == "Reshape"


# Differences that no output shows

ONES = np.ones(2, np.float32)


class Hiding:
    """Values inside both models that are scripted, and what was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, mine: Any, theirs: Any, tables: Any = None) -> None:
        self.left = [mine, theirs]
        self.asked: list[tuple[list[str], int]] = []
        monkeypatch.setattr(hidden_differences, "observe", self.observe)
        monkeypatch.setattr(hidden_differences, "differing_tables", lambda *_: tables or {})

    def observe(self, cut: onnx.ModelProto, feeds: list[Any], engine: Any) -> Any:
        self.asked.append(([port.name for port in cut.graph.output], len(feeds)))
        return self.left.pop(0)

    def found(
        self,
        before: Definitions,
        after: Definitions,
        names: str,
        promise: Parity = Parity.CLOSE,
        agreeing: str = "",
    ) -> str:
        original: Any = SimpleNamespace(runs=[SimpleNamespace(feed={"x": ONES})] * 5, engine="onnxruntime")
        regions = ComparedRegions(Verdict(Status.UNVERIFIED), tuple(names), frozenset(agreeing))
        return hidden_differences.hidden_differences(
            original, before.skeleton, after.skeleton, regions, promise, VerifySpec()
        )


@pytest.mark.parametrize(
    ("values", "promise", "message"),
    [
        ([ONES * 2, ONES], Parity.CLOSE, "inside the models 'b'[0]: 1 instead of 2"),
        ([ONES * np.float32(1 + 1e-6), ONES], Parity.CLOSE, ""),
        ([ONES * np.float32(1 + 1e-6), ONES], Parity.EXACT, "inside the models 'b'[0]: "),
        ([ONES, ONES], Parity.EXACT, ""),
        # A value of another shape or type is another value with the same name.
        ([ONES * 2, ONES[:1]], Parity.CLOSE, ""),
        ([ONES * 2, ONES.astype(np.float16)], Parity.CLOSE, ""),
    ],
)
def test_a_value_inside_differs(monkeypatch: pytest.MonkeyPatch, values: Any, promise: Parity, message: str) -> None:
    mine, theirs = ([{"b": value}, {"b": value}] for value in values)
    hiding = Hiding(monkeypatch, mine, theirs)
    found = hiding.found(side(), side("a = Neg(x) b = Mul(w, a) y = Exp(b)"), "b", promise)
    assert found.startswith(message) and bool(found) is bool(message)
    assert not found or found.endswith(", but no output shows it")
    assert hiding.asked == [(["b"], 4), (["b"], 4)]


W, V = "float[2] w = {1, 2}, float[2] v = {1, 1}", "float[2] w = {1, 3}, float[2] v = {2, 1}"
BOTH = "a = Neg(x) b = Mul(a, w) c = Mul(b, v) y = Exp(c)"


@pytest.mark.parametrize(
    ("after", "stored", "agreeing", "runs", "message"),
    [
        (BOTH, W.replace("2}, ", "3}, "), "", True, "the stored numbers of 'w' differ, but no tried input reads them"),
        (BOTH, V, "", True, "the stored numbers of 'v' and 1 more differ, but no tried input reads them"),
        (BOTH, V, "v", True, "the stored numbers of 'w' differ, but no tried input reads them"),
        (BOTH, V, "vw", True, ""),
        (BOTH, V, "", False, ""),
        (BOTH, W, "", True, ""),
        # What is computed from w differs as well, and v is not there.
        ("a = Abs(x) b = Mul(w, a) y = Exp(b)", "float[2] w = {1, 3}", "", True, ""),
    ],
)
def test_stored_numbers_that_no_input_reads(
    monkeypatch: pytest.MonkeyPatch, after: str, stored: str, agreeing: str, runs: bool, message: str
) -> None:
    hiding = Hiding(monkeypatch, [{}], [{}] if runs else None)
    assert hiding.found(side(BOTH, W), side(after, stored), "", agreeing=agreeing) == message
    hiding = Hiding(monkeypatch, [{}] if runs else None, [{}])
    assert hiding.found(side(BOTH, W), side(after, stored), "", agreeing=agreeing) == message


def test_tables_that_no_input_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    hiding = Hiding(monkeypatch, None, None, {"b": "leaves", "y": "nodes"})
    assert hiding.found(side(), side(), "ayb") == "the stored nodes of 'y' differ, but no tried input reads them"
    assert Hiding(monkeypatch, None, None, {"b": "leaves"}).found(side(), side(), "ay") == ""


def test_a_few_values_are_compared_but_none_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    names = "abcdefghij"
    chain = " ".join(f"{one} = Neg({before})" for before, one in zip("x" + names, names))
    hiding = Hiding(monkeypatch, None, None)
    assert hiding.found(side(f"{chain} y = Exp(j)"), side(f"{chain} y = Exp(j)"), names) == ""
    assert hiding.asked == [([*names[:8]], 4)] * 2
    hiding = Hiding(monkeypatch, None, None)
    hiding.found(side(), side(stored="float[2] w = {1, 3}"), "wby")
    assert hiding.asked[0][0] == ["b", "y"]
