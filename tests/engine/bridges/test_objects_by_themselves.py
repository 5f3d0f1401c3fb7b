"""Pass objects, predicates and lent tensors, each by itself: what is made of them, without a fork or a run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import onnx_ir as ir
import pytest

from surgery.base.errors import PassError, UsageError
from surgery.engine.bridges import pass_objects, predicate_runs
from surgery.engine.bridges.pass_objects import _doc, _function, _is, _rules, add_pass
from surgery.engine.bridges.predicate_runs import holds
from surgery.engine.registry.predicates import Predicate
from surgery.model import storage
from surgery.model.graph import text


def foreign(name: str, doc: str | None = None, *bases: type, module: str = "onnxscript.rewriter", **more: Any) -> Any:
    return type(name, bases, {"__module__": module, "__doc__": doc, **more})


RewriteRule = foreign("RewriteRule", "A rule.", __str__=lambda self: "NegNeg")
RewriteRuleSet = foreign("RewriteRuleSet", "A set.")
RuleClass = foreign("RewriteRuleClassBase", "A base.")
Own = foreign("Own", "Drop it.\n\nMore.\n\nExample:\n    x\n", RuleClass, module="mine")


class Pass(ir.passes.InPlacePass):
    """Change nothing.

    Options:
        none
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        model.doc_string = "seen"
        return ir.passes.PassResult(model, True)


class Bare(Pass):
    __doc__ = None


@pytest.mark.parametrize(
    ("kind", "name", "found"),
    [
        (RewriteRule, "RewriteRule", True),
        (foreign("Sub", None, RewriteRule, module="mine"), "RewriteRule", True),
        (foreign("RewriteRule", module="mine"), "RewriteRule", False),
        (foreign("RewriteRule", module="onnxscript"), "RewriteRule", False),
        (RewriteRule, "RewriteRuleSet", False),
    ],
)
def test_classes_of_onnxscript_are_known_by_their_names(kind: type, name: str, found: bool) -> None:
    assert _is(kind, name) is found


def test_rules_of_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxscript.rewriter")
    monkeypatch.setattr("surgery.engine.bridges.onnxscript_rules.rule_of", lambda thing: ("rule of", thing))
    one, other = RewriteRule(), RewriteRule()
    some = RewriteRuleSet()
    some.rules = (one, other)
    own = Own()
    assert _rules(one) == [one] and _rules(some) == [one, other]
    assert _rules(own) == [("rule of", own)] and _rules(Own) == [("rule of", Own)]
    assert _rules([one, [some, own]]) == [one, one, other, ("rule of", own)] and _rules((one,)) == [one]


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        (5, "an object of the type int is not a pass"),
        ([], "an empty list is not a pass"),
        ((), "an empty tuple is not a pass"),
        (int, "the class int is not a pass"),
        ([5], "an object of the type int is not a pass"),
        (RewriteRule, "the class RewriteRule is not a pass"),
    ],
)
def test_what_is_no_pass(thing: Any, words: str) -> None:
    with pytest.raises(UsageError, match=f"^{words}; give an onnx_ir.passes.PassBase, or a RewriteRule"):
        _function(thing)


def test_descriptions_of_objects() -> None:
    rule, set_ = RewriteRule(), RewriteRuleSet()
    set_.rules = [rule, rule]
    assert _doc(rule) == "Apply NegNeg of onnxscript."
    assert _doc(set_) == "Apply rewrite rules of onnxscript: NegNeg." == _doc([rule])
    assert _doc(Own) == "Drop it.\n\nMore." == _doc(Own()) and _doc(Pass()) == "Change nothing."
    module = __name__.partition(".")[0]
    assert _doc(Bare()) == f"Apply Bare of {module}."
    # A rule that a class has made is described by the class.
    made = RewriteRule()
    made._condition_function = SimpleNamespace(__self__=Own())
    assert _doc(made) == "Drop it.\n\nMore."


def test_an_object_is_registered_where_it_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []
    monkeypatch.setattr(pass_objects.catalog, "register", found.append)
    add_pass("own-pass", Pass(), changes=["inputs"])
    (declared,) = found
    assert declared.name == "own-pass" and declared.function.__name__ == "own_pass"
    assert declared.function.__doc__ == "Change nothing." and declared.function.__module__ == __name__
    path, _, line = declared.declared_at.rpartition(":")
    assert Path(path).name == Path(__file__).name and int(line) > 100 and declared.changes == frozenset({"inputs"})
    model = ir.from_proto(text.parse("g (float x) => (float y) { y = Neg(x) }"))
    assert declared.function(model) is model and model.doc_string == "seen"


# Predicates


MODEL = text.parse("g (float[2] x) => (float[2] y) { y = Neg(x) }")


def asked(
    monkeypatch: pytest.MonkeyPatch, function: Any, printed: str = "", **limits: Any
) -> tuple[Any, list[Any], Any]:
    given: list[Any] = []

    def fork(work: Any, **how: Any) -> Any:
        given.append(how)
        try:
            return work(), printed
        except PassError as error:
            error.printed = printed
            raise

    monkeypatch.setattr(predicate_runs, "call_in_fork", fork)
    said: list[Any] = []
    stored = storage.from_proto(MODEL)
    try:
        found = holds(Predicate("own", function), stored, stored.proto, said=lambda *what: said.append(what), **limits)
    except PassError as error:
        return error, said, given[0]
    return found, said, given[0]


@pytest.mark.parametrize("answer", [True, False])
def test_a_predicate_answers(monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    def has(graph: Any) -> bool:
        return answer is (len(graph.nodes("Neg")) == 1)

    found, said, how = asked(monkeypatch, has, timeout=3.0, memory=4)
    assert found is answer and said == []
    assert (how["stage"], how["timeout"], how["memory"], how["home"]) == ("predicate 'own'", 3.0, 4, __file__)
    found, said, how = asked(monkeypatch, has, "a line")
    assert found is answer and said == [("own", "a line")] and how["memory"] > 4 and how["timeout"] is None


@pytest.mark.parametrize("answer", [1, None, "yes", np.bool_(True)])
def test_a_predicate_returns_true_or_false(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    error, said, _ = asked(monkeypatch, lambda graph: answer, "a line")
    assert isinstance(error, PassError) and said == [("own", "a line")]
    assert error.what == f"predicate 'own' returned {type(answer).__name__}, not True or False"
    assert str(error.where).startswith(__file__)


# Tensors that onnx-graphsurgeon reads from files


@pytest.fixture
def stored(tmp_path: Path) -> storage.StoredModel:
    model = text.parse("g (float[n] x) => (float[n] y) { a = Add(x, w) y = Mul(a, v) }")
    for name, value in (("w", 1.0), ("v", 2.0)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.full(4096, value, np.float32), name))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w", size_threshold=0)
    return storage.load(tmp_path / "m.onnx")


def test_constants_are_lent_and_settled(stored: storage.StoredModel) -> None:
    from surgery.engine.bridges.lazy_tensors import Lender

    lender = Lender(stored.proto, stored.weights)
    w, v = (gs.Constant(t.name, gs.ir.tensor.LazyValues(t)) for t in stored.proto.graph.initializer)
    lender.lend([w, v])
    assert w._values.tensor.data_location == onnx.TensorProto.EXTERNAL and not w._values.tensor.raw_data
    lender.inside = True
    assert len(w._values.tensor.raw_data) == 4 * 4096
    lender.inside = False
    # Data that a pass reads or changes is writable, and the file stays as it is.
    assert w.values[0] == 1.0
    w.values[0] = 5.0
    assert (
        v.values[0] == 2.0
        and np.frombuffer(stored.weights.view(storage.external_reference(stored.proto.graph.initializer[0])), "<f4")[0]
        == 1.0
    )
    small = gs.Constant("s", np.ones(3, np.float32))
    text_ = gs.Constant("t", np.array(["a"], object))
    lender.settle([w, v, small, text_])
    unchanged, changed = storage.external_reference(v._values.tensor), storage.external_reference(w._values.tensor)
    assert unchanged == storage.external_reference(stored.proto.graph.initializer[1])
    assert stored.weights.is_scratch(changed.location) and changed.length == 4 * 4096
    assert np.frombuffer(stored.weights.view(changed), "<f4")[:2].tolist() == [5.0, 1.0]
    assert isinstance(small._values, np.ndarray) and isinstance(text_._values, np.ndarray)
