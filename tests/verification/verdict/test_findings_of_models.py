"""What is wrong with a model, in words, and which findings are those of a change."""

from __future__ import annotations

from contextlib import closing
from types import SimpleNamespace
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from surgery.base.promises import Parity
from surgery.model import storage
from surgery.model.graph import text
from surgery.verification.comparing import reference_run
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.comparing.output_judge import NOT_RUN
from surgery.verification.inputs.spec import InputsSpec, VerifySpec
from surgery.verification.verdict import validity
from surgery.verification.verdict.checks import (
    Checker,
    _one_line,
    _with_dense,
    _with_own_domain,
    new_findings,
    run_checker,
    run_inference,
    without_declared,
)
from surgery.verification.verdict.equal_draws import EqualDraws
from surgery.verification.verdict.validity import Validity


@pytest.mark.parametrize(
    ("found", "ok", "words"),
    [
        (Validity(), True, "valid"),
        (Validity(repairable="names", stale="shapes", repaired="order"), True, "valid"),
        (Validity(("a", "b")), False, "invalid: a; b"),
        (Validity(refusal="no kernel"), False, "invalid: ONNX Runtime rejects it: no kernel"),
        (Validity(refusal="no kernel", gap=True), False, "cannot be run here: no kernel"),
        (Validity(("a",), "no kernel", gap=True), False, "invalid: a; ONNX Runtime cannot run it: no kernel"),
        (
            Validity(refusal="no kernel", gap=True, is_evaluated=True),
            False,
            "ONNX Runtime rejects it, so the slow reference evaluator of onnx runs it: no kernel",
        ),
        (
            Validity(("a",), "no", is_evaluated=True),
            False,
            "invalid: a; ONNX Runtime rejects it: no",
        ),
        (Validity(failure="bad"), False, "invalid: it fails on every input that was tried: bad"),
        (Validity(failure="bad", has_choice=True), False, "not known to run: bad"),
        (
            Validity(("a",), failure="bad", has_choice=True),
            False,
            "invalid: a; it fails on every input that was tried: bad",
        ),
        (
            Validity(("a",), repairable="two names", stale="one shape"),
            False,
            "invalid: two names: 'surgery apply tidy MODEL -o OUT' repairs that; "
            "one shape: 'surgery run redeclare-shapes MODEL -o OUT' repairs that; a",
        ),
        (
            Validity(failure="bad", stale="one shape"),
            False,
            "invalid: one shape: 'surgery run redeclare-shapes MODEL -o OUT --unverified accept' repairs that; "
            "it fails on every input that was tried: bad",
        ),
        (
            Validity(refusal="no", stale="one shape"),
            False,
            "invalid: one shape: 'surgery run redeclare-shapes MODEL -o OUT --unverified accept' repairs that; "
            "ONNX Runtime rejects it: no",
        ),
    ],
)
def test_problems_in_one_line(found: Validity, ok: bool, words: str) -> None:
    assert found.ok is ok and str(found) == words


def test_initializers_that_are_inputs_are_a_remark() -> None:
    one, two = Validity(overridable=1), Validity(overridable=2)
    assert one.remark.startswith("1 initializer is also listed as inputs, which callers may override")
    assert two.remark.startswith("2 initializers are also listed as inputs") and Validity().remark == ""
    assert str(one) == f"valid; {one.remark}"
    assert one.remark.partition("'")[0] in one._repr_html_()


def test_a_line_for_a_prompt_counts_problems() -> None:
    assert repr(Validity()) == "<Validity: ok>"
    assert repr(Validity(("a",))) == "<Validity: 1 problem>"
    assert repr(Validity(("a", "b"), "no", failure="bad")) == "<Validity: 4 problems>"
    shown = Validity(("first finding",), "no kernel", repairable="two names")._repr_html_()
    assert "first finding" in shown and "no kernel" in shown and "two names" in shown
    rejected = Validity().with_rejection(("bad", True))
    assert (rejected.failure, rejected.has_choice) == ("bad", True)
    assert rejected.with_rejection(None) == Validity()


def test_a_model_runs_only_if_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def reference(skeleton: bytes, inputs: Any, spec: VerifySpec, once: bool) -> Any:
        made.append((inputs.data, once))
        return SimpleNamespace(prepare=lambda: made.append("prepared"), rejection=("bad", False))

    monkeypatch.setattr(reference_run, "ReferenceRun", reference)
    stored = storage.opened(_parsed("y = Neg(x)"))
    for found, failure, runs in ((Validity(refusal="no kernel"), "", []), (Validity(("a",)), "bad", [((), True)])):
        monkeypatch.setattr(validity, "validity", lambda stored, spec, found=found: found)
        judged = validity.validity_of_run(stored, InputsSpec(), VerifySpec())
        assert (judged.findings, judged.failure) == (found.findings, failure)
        assert made == [*runs, *(["prepared"] if runs else [])]


@pytest.mark.parametrize(
    ("known", "found", "new"),
    [
        ([], ["a"], ["a"]),
        (["a"], ["a", "b"], ["b"]),
        # Names, indices and numbers do not matter.
        (["Node 'n1' has 3 inputs (index 7)"], ["Node 'n2' has 4 inputs (index 8)"], []),
        (['Graph "g"'], ['Graph "h"'], []),
        (["Name: n1 OpType: Add"], ["Name: n2 OpType: Add", "Name: n2 OpType: Sub"], ["Name: n2 OpType: Sub"]),
        (["w in initializer but not in inputs"], ["v in initializer but not in inputs"], []),
        # Neither does the operator that does not take an element type.
        (
            ["Add:x typestr: T, has unsupported type: tensor(bool)"],
            [
                "Sub:y typestr: T1, has unsupported type: tensor(bool)",
                "Sub:y typestr: T1, has unsupported type: tensor(int8)",
            ],
            ["Sub:y typestr: T1, has unsupported type: tensor(int8)"],
        ),
    ],
)
def test_new_findings(known: list[str], found: list[str], new: list[str]) -> None:
    assert new_findings(known, found) == new


def _parsed(body: str) -> onnx.ModelProto:
    return text.parse(f"g (float[2] x) => (float[2] y) {{ {body} }}", opset=18)


def _declaring(**extents: int) -> onnx.ModelProto:
    model = _parsed("a = Neg(x) b = Abs(a) y = Exp(b)")
    model.graph.value_info.extend(helper.make_tensor_value_info(name, 1, [n]) for name, n in extents.items())
    return model


def test_declarations_of_the_original_are_left_out() -> None:
    original = _declaring(a=2, b=2)
    changed = _declaring(a=2, b=3)
    found = onnx.load_model_from_string(without_declared(changed, original))
    assert [value.name for value in found.graph.value_info] == ["b"]
    assert not found.graph.output[0].type.tensor_type.HasField("shape")
    found = onnx.load_model_from_string(without_declared(changed, original, frozenset("y")))
    assert [value.name for value in found.graph.value_info] == ["a", "b"]
    assert not found.graph.output[0].type.tensor_type.HasField("shape")
    found = onnx.load_model_from_string(without_declared(changed, original, frozenset("a")))
    assert [value.name for value in found.graph.value_info] == ["b"]
    assert found.graph.output[0].type.tensor_type.HasField("shape") and len(changed.graph.value_info) == 2


def test_findings_due_to_declarations_are_not_those_of_a_change() -> None:
    models = [_declaring(a=2).SerializeToString(), _declaring(a=2, b=3).SerializeToString()]
    asked: list[list[str]] = []
    answers = {0: ["shape inference: old"], 1: ["shape inference: old", "shape inference: new"]}

    class Stub(Checker):
        def __init__(self) -> None:
            pass

        def check(self, skeleton: bytes) -> list[str]:
            declared = onnx.load_model_from_string(skeleton)
            asked.append([value.name for value in declared.graph.value_info])
            return answers[len(asked) - 1]

    def new(known: list[str], found: list[str], wrong: frozenset[str]) -> list[str]:
        asked.clear()
        return Stub().new(models[0], known, models[1], found, lambda: wrong)

    # Other findings, and those where the original declares what it computes, are new.
    assert new([], ["checker: b"], frozenset("y")) == ["checker: b"] and not asked
    assert new([], ["shape inference: b"], frozenset()) == ["shape inference: b"] and not asked
    assert new(["shape inference: b"], ["shape inference: b"], frozenset("y")) == [] and not asked
    # Without the declarations that are wrong, or all of an original that contradicts itself.
    assert new([], ["shape inference: b"], frozenset("y")) == ["shape inference: new"] and asked == [["a"], ["a", "b"]]
    assert new(["shape inference: a"], ["shape inference: b"], frozenset()) == ["shape inference: new"]
    assert asked == [[], ["b"]]


OWN = ["SimplifiedLayerNormalization"]


def test_an_operator_of_the_runtime_in_the_standard_domain_is_moved() -> None:
    model = _parsed("y = SimplifiedLayerNormalization(x, x)")
    function = model.functions.add(name="f", domain="d")
    function.node.extend(text.parse_nodes("y = SimplifiedLayerNormalization(x, x)"))
    function.opset_import.add(domain="com.microsoft", version=1)
    found = onnx.load_model_from_string(_with_own_domain(model.SerializeToString(), OWN))
    assert found.graph.node[0].domain == "com.microsoft" == found.functions[0].node[0].domain
    assert [item.domain for item in found.opset_import] == ["", "com.microsoft"]
    assert len(found.functions[0].opset_import) == 1
    ours = _parsed("y = d.SimplifiedLayerNormalization(x, x)")
    kept = onnx.load_model_from_string(_with_own_domain(ours.SerializeToString(), OWN))
    assert kept.graph.node[0].domain == "d" and len(kept.opset_import) == len(ours.opset_import)
    other = _parsed("y = Neg(x)").SerializeToString()
    assert _with_own_domain(other, OWN) is other


def test_operators_that_onnx_does_not_define_are_known_from_the_original() -> None:
    plugin = _parsed("y = Plugin(x)").SerializeToString()
    both = _parsed("t = Plugin(x) y = Relux(t)").SerializeToString()
    wrong = _parsed("t = Plugin(x) y = Neg<axis = 3>(t)").SerializeToString()
    with closing(Checker()) as checker:
        (finding,) = checker.check(plugin)
        assert finding.startswith("checker: No Op registered for Plugin")
    with closing(Checker(original=plugin)) as checker:
        for _ in range(2):
            assert checker.check(plugin) == []
            (finding,) = checker.check(both)
            assert finding.startswith("checker: No Op registered for Relux")
            (finding,) = checker.check(wrong)
            assert "Unrecognized attribute: axis" in finding


def test_sparse_initializers_are_declared_as_dense() -> None:
    model = _parsed("y = Add(x, w)")
    sparse = model.graph.sparse_initializer.add(dims=[2])
    sparse.values.name, sparse.values.data_type = "w", TensorProto.FLOAT
    found = onnx.load_model_from_string(_with_dense(model.SerializeToString()))
    (tensor,) = found.graph.initializer
    assert (tensor.name, [*tensor.dims], tensor.data_type) == ("w", [2], 1) and tensor.external_data
    assert not found.graph.sparse_initializer
    other = _parsed("y = Neg(x)").SerializeToString()
    assert _with_dense(other) is other


def test_the_checks_themselves() -> None:
    good = _parsed("y = Neg(x)").SerializeToString()
    assert run_checker(good) == [] == run_inference(good)
    assert run_checker(_parsed("y = Neg(z)").SerializeToString())[0].startswith("checker: ")
    wrong = text.parse("g (float[2] x) => (float[3] y) { y = Neg(x) }").SerializeToString()
    assert run_checker(wrong) == [] and run_inference(wrong)[0].startswith("shape inference: ")
    assert _one_line("a\n b" + "c" * 600) == "a b" + "c" * 497


# Equal draws

DRAWN = "r = RandomNormalLike(x) y = Add(x, r)"


def _judged(verdict: Verdict, *, changed: str = DRAWN, promise: Parity = Parity.CLOSE) -> Verdict | None:
    draws = EqualDraws.of(_parsed(DRAWN).SerializeToString())
    assert draws is not None and draws.outputs == {"y"}
    seen: list[bytes] = []
    found = draws.judge(_parsed(changed).SerializeToString(), promise, lambda model: seen.append(model) or verdict)  # type: ignore[func-returns-value]
    assert not seen or b"seed" in seen[0]
    return found


def test_draws_with_the_same_seeds_decide() -> None:
    equal, different = Verdict(Status.EQUAL), Verdict(Status.DIFFERENT, message="far")
    unverified, not_run = Verdict(Status.UNVERIFIED), Verdict(Status.UNVERIFIED, NOT_RUN)
    assert _judged(equal) is equal and _judged(not_run) is not_run and _judged(unverified) is None
    assert _judged(different, promise=Parity.LOSSY) is different
    found = _judged(different)
    assert found is not None and found.message == "far; both models drew the same random numbers"
    # Another draw of the same operator: a difference says nothing.
    assert _judged(different, changed="s = RandomNormalLike(x) y = Sub(x, s)") is None
    # It draws elsewhere.
    assert _judged(different, changed="r = RandomUniformLike(x) y = Add(x, r)") is None


def test_models_without_draws_have_none() -> None:
    assert EqualDraws.of(_parsed("y = Neg(x)").SerializeToString()) is None
    assert EqualDraws.of(_parsed("r = RandomNormalLike(x) y = Neg(x)").SerializeToString()) is None
    draws = EqualDraws.of(_parsed(DRAWN).SerializeToString())
    assert draws is not None
    assert draws.note == "; 'y' with the same random numbers in both models (RandomNormalLike)"
    other = _parsed("r = RandomUniformLike(x) y = Add(x, r)").SerializeToString()
    assert draws.seeded(other) == other


def test_few_models_with_seeds_are_kept() -> None:
    asked: list[str] = []
    seeds: Any = SimpleNamespace(seed=lambda model: asked.append(model.graph.name))
    draws = EqualDraws(_parsed(DRAWN), seeds, b"")
    models = [onnx.ModelProto(graph=onnx.GraphProto(name=str(number))).SerializeToString() for number in range(9)]
    for number in (*range(8), 0, 8, 1, 0):
        assert draws.seeded(models[number]) == models[number]
    # The ninth takes the place of the first.
    assert asked == [*"01234567", "8", "0"]
