"""Edits by hand, up to the run that judges them: which parts there are, and what cannot be edited."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import onnx
import pytest

import surgery
from surgery import EditedGraph, UsageError
from surgery.base.errors import ExpectationError
from surgery.base.promises import Parity
from surgery.engine.pipeline import edit as edits
from surgery.model.graph import text

MODEL = """m (float[N, 4] x, float16[N, 4] h) => (float[N, 4] y, float16[N, 4] z) {
    [first] a = Exp(x) [copy] b = Identity(a) [last] y = Neg(b) [half] z = Abs(h)
}"""
BRANCHES = """g (float[n] x, bool go) => (float[n] y) {
    z = Exp(x)
    [if] y = If(go) <then_branch = yes () => (float[n] a) { [t] t = Neg(z) a = Relu(t) },
                     else_branch = no () => (float[n] b) { b = Abs(z) }>
}"""


class LeftEarlyError(Exception):
    """Leaves the block of an edit, so that nothing is judged."""


@contextmanager
def edited(source: str = MODEL) -> Iterator[EditedGraph]:
    with pytest.raises(LeftEarlyError), surgery.edit(text.parse(source, opset=17)) as g:
        yield g
        raise LeftEarlyError


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The steps of the recipe that an edit runs at the end, in place of that run."""
    found: list[Any] = []

    def apply(model: Any, recipe: Any, **more: Any) -> Any:
        found.extend(recipe.steps)
        return SimpleNamespace(ok=True, failure=None, steps=())

    monkeypatch.setattr(edits.runner, "apply", apply)
    return found


def parts(steps: list[Any]) -> list[tuple[Parity, set[str]]]:
    return [(step.declared.promise({}), set(step.declared.changes)) for step in steps]


def opened(intended: bool = False) -> EditedGraph:
    return surgery.edit(text.parse(MODEL, opset=17), intended=intended)


def test_an_edit_without_changes_has_no_step(steps: list[Any]) -> None:
    with opened() as g:
        assert g.select("first")[0].op == "Exp"
    assert steps == []


def test_each_part_has_its_promise_and_its_changes(steps: list[Any]) -> None:
    with opened() as g:
        g.rename({"x": "pixels"})
        g.remove("copy")
        with g.intended():
            g.replace_op("last", "Sqrt")
        with g.intended():
            pass
        g.add_output("a")
    assert parts(steps) == [
        (Parity.CLOSE, {"names", "dims"}),
        (Parity.INTENDED, {"types", "dims"}),
        (Parity.CLOSE, {"outputs"}),
    ]
    steps.clear()
    with opened(intended=True) as g:
        g.set_input("last", 0, "x")
    assert parts(steps) == [(Parity.INTENDED, {"types", "dims"})]


def test_an_input_is_a_change_of_the_signature(steps: list[Any]) -> None:
    with opened(intended=True) as g:
        g.replace("b", g.add_input("more", "float32", ["N", 4]))
    assert parts(steps) == [(Parity.INTENDED, {"inputs", "types", "dims"})]


CALLS: list[Callable[[EditedGraph], object]] = [
    lambda g: g.add("Relu", "x"),
    lambda g: g.add_many("Split", "x", outputs=2),
    lambda g: g.constant([1, 2]),
    lambda g: g.replace("a", "x"),
    lambda g: g.set_input("last", 0, "x"),
    lambda g: g.remove("copy"),
    lambda g: g.run("drop-identity"),
    lambda g: g.insert_after("a", "Relu"),
    lambda g: g.rename({"x": "pixels"}),
    lambda g: g.add_input("i", "float32", [1]),
    lambda g: g.add_output("a"),
    lambda g: g.site().__enter__(),
    lambda g: g.intended().__enter__(),
]


@pytest.mark.parametrize("call", CALLS)
def test_nothing_is_edited_outside_of_the_block(call: Callable[[EditedGraph], object], steps: list[Any]) -> None:
    g = opened()
    with pytest.raises(UsageError, match=r"the edit has not begun; edit within 'with surgery\.edit"):
        call(g)
    with g:
        pass
    with pytest.raises(UsageError, match=r"the edit has ended; edit within 'with surgery\.edit"):
        call(g)
    assert len(g.nodes()) == 4


def test_an_edit_begins_once(steps: list[Any]) -> None:
    with opened() as g, pytest.raises(UsageError, match=r"this edit has begun already; call surgery\.edit again"):
        g.__enter__()
    with pytest.raises(UsageError, match="this edit has begun already"):
        g.__enter__()


def test_what_is_added_has_to_be_connected(steps: list[Any]) -> None:
    with pytest.raises(UsageError, match="nothing reads what was added: Relu, Exp; connect them by"), opened() as g:
        g.add("Exp", g.add("Relu", "x"))
    with pytest.raises(UsageError, match="nothing reads what was added: constants"), opened() as g:
        g.constant(1)
    with pytest.raises(UsageError, match="'drop-identity' cannot see what was only added; connect"), opened() as g:
        g.add("Relu", "x")
        g.run("drop-identity")
    with edited() as g:
        with pytest.raises(KeyError), g.intended():
            g.add("Relu", "x")
            raise KeyError
        g.run("drop-identity")  # what the failed block added is gone
        assert [node.op for node in g.nodes()] == ["Exp", "Neg", "Abs"]
    assert steps == []


def test_new_nodes_are_in_front_of_what_reads_them_or_of_the_node_that_is_named() -> None:
    with edited() as g:
        g.replace("b", g.add("Relu", "a", name="new"))
        assert sorted(node.op for node in g.nodes()) == ["Abs", "Exp", "Neg", "Relu"]
        g.set_input("half", 0, g.add("Ceil", "h", before="first"))
        assert [node.op for node in g.nodes()][:2] == ["Ceil", "Exp"]
    with edited(BRANCHES) as g:
        inner = g.node("t")
        made = g.add("Ceil", inner.outputs[0])
        (reader,) = (node for node in g.nodes("Relu"))
        g.set_input(reader, 0, g.add("Floor", made))
        branch = reader.ir.graph
        assert branch is not None and [node.op_type for node in branch] == ["Neg", "Ceil", "Floor", "Relu"]


@pytest.mark.parametrize(
    ("source", "op", "attributes", "dtype"),
    [
        ("x", "Relu", {}, onnx.TensorProto.FLOAT),
        ("h", "Relu", {}, onnx.TensorProto.FLOAT16),
        ("x", "Shape", {}, onnx.TensorProto.INT64),
        ("x", "Cast", {"to": onnx.TensorProto.DOUBLE}, onnx.TensorProto.DOUBLE),
    ],
)
def test_a_number_next_to_a_new_node_has_the_type_of_its_output(
    source: str, op: str, attributes: dict[str, Any], dtype: int
) -> None:
    with edited() as g:
        made = g.add("Add", g.add(op, source, **attributes), 1)
        producer = g.add_output(made, "more").producer
        constant = producer.inputs[1] if producer is not None else None
        assert constant is not None and constant.dtype == dtype
        assert g.tensor("more").dtype == dtype


def test_a_refusal_of_an_edit_raises_and_one_within_a_pass_does_not() -> None:
    with edited() as g:
        with pytest.raises(UsageError, match=r"^first: no"), g.site(g.node("first")) as new:
            new.require(False, "no")
        count = len(g.refusals)
        g.run("fuse-layer-norm")
        g.run("drop-identity")
        assert count == 1 and len(g.nodes()) == 3


def test_inputs_are_counted_from_0() -> None:
    with edited() as g:
        for index in (-1, 2):
            with pytest.raises(UsageError, match=f"'first' has 1 inputs, counted from 0, and no input {index}"):
                g.set_input("first", index, "x")
        with pytest.raises(UsageError, match="'first' has 1 inputs, counted from 0, and no input 1"):
            g.insert_before("first", "Relu", index=1)
        g.replace("b", g.add("Clip", "a"))
        g.set_input({"op": "Clip"}, 1, g.constant(0.5))
        assert len(g.node({"op": "Clip"}).inputs) == 2
        g.insert_before("last", "Ceil")
        assert [g.node("last").inputs[0].producer.op for _ in "a"] == ["Ceil"]  # type: ignore[union-attr]


def test_names_find_one_node_or_tensor() -> None:
    with edited() as g, edited() as other:
        assert g.tensor(g.tensor("a")).name == "a" and g.node("first").op == "Exp"
        with pytest.raises(UsageError, match="the tensor 'a' belongs to another graph"):
            g.tensor(other.tensor("a"))
        added = g.add("Relu", "a")
        assert g.tensor(added) is added
        with pytest.raises(UsageError, match="nodes match"):
            g.node("*")


def failing(message: str, is_different: bool) -> Any:
    verdict = SimpleNamespace(is_different=is_different)
    failure = SimpleNamespace(message=message, verdict=verdict)
    return SimpleNamespace(ok=False, failure=failure, unverifiable="", steps=(1,))


@pytest.mark.parametrize(
    ("result", "intended", "message"),
    [
        (failing("wrong", True), False, "the edited model was not accepted: wrong; if that is intended, edit within"),
        (failing("wrong", True), True, "the edited model was not accepted: wrong"),
        (failing("crash", False), False, "the edited model was not accepted: crash"),
        (SimpleNamespace(ok=False, failure=None, unverifiable="no kernel", steps=()), False,
         "the edited model was not accepted: no kernel"),
    ],
)  # fmt: skip
def test_why_an_edit_is_not_accepted(
    monkeypatch: pytest.MonkeyPatch, result: Any, intended: bool, message: str
) -> None:
    monkeypatch.setattr(edits.runner, "apply", lambda *_, **__: result)
    with pytest.raises(ExpectationError) as error, opened(intended) as g:
        g.remove("copy")
    assert str(error.value).startswith(message)
    assert ("if that is intended" in str(error.value)) is ("if that" in message)
