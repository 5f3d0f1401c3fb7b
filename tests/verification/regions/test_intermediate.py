"""Values inside models compared where outputs prove nothing."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from support.breadth import sampled

from surgery.base.promises import Parity
from surgery.verification.comparing.details import Status, Verdict
from surgery.verification.regions import inner_values, intermediate
from surgery.verification.verdict.verifier import Verifier

IR = '<ir_version: 10, opset_import: ["": 21]>'
X = "(float[N,4] x) => (float[N,4] y)"


def _proto(body: str, header: str = IR) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"{header}\n{body}")


def _scalar(name: str, value: float) -> str:
    return f"{name} = Constant<value=float {{{value}}}>()"


def _between(io: str, before: str, after: str, promise: Parity = Parity.EXACT) -> Verdict:
    one, other = (_proto(f"g {io} {{ {body} }}").SerializeToString() for body in (before, after))
    return Verifier(one).verify(other, promise)


ROW = "(float[N,4] x) => (float[N,1] y)"
TAILS = {
    "saturated": (ROW, "i = Constant<value_ints=[1]>() s = ReduceMean(q, i) y = Softmax(s)"),
    "vanishing": (X, f"{_scalar('k', 1e-30)} a9 = Abs(q) m = Mul(a9, k) y = Mul(m, k)"),
    "always zero": (X, f"{_scalar('k', 0)} a9 = Abs(q) y = Mul(a9, k)"),
    "never finite": (X, f"{_scalar('k', -1)} a9 = Abs(q) m = Sub(k, a9) y = Log(m)"),
    "a constant": (X, f"{_scalar('k', 0)} a9 = Abs(q) m = Mul(a9, k) y = Exp(m)"),
    "index of a constant": (
        "(float[N,4] x) => (int64[N,1] y)",
        f"{_scalar('k', 0)} m = Mul(q, k) y = ArgMax<axis=1>(m)",
    ),
}
RIGHT = {
    "a removed pair": ("n = Neg(x) p = Neg(n) q = Abs(p)", "q = Abs(x)"),
    "new names": ("n = Neg(x) p = Neg(n) r = Abs(p) q = Sin(r)", "b = Abs(x) q = Sin(b)"),
    "a name that means something else": ("a = Sin(x) r = Neg(a) q = Exp(r)", "a = Neg(x) r = Sin(a) q = Exp(r)"),
    "an Identity": ("q = Sin(x)", "t = Identity(x) q = Sin(t)"),
}
WRONG = {
    "another operator": ("r = Relu(x) q = Sin(r)", "r = Abs(x) q = Sin(r)"),
    "another operator and a new name": ("r = Relu(x) q = Sin(r)", "t = Abs(x) q = Sin(t)"),
    "a lost node": ("a = Sin(x) r = Relu(a) q = Exp(r)", "a = Sin(x) q = Exp(a)"),
    "another constant": (
        f"{_scalar('c', 1)} a = Add(x, c) q = Sin(a)",
        f"{_scalar('c', 1.01)} a = Add(x, c) q = Sin(a)",
    ),
}


def _pairs(cases) -> list[tuple[str, str]]:
    """Every second combination of a tail and a case."""
    return [(tail, case) for i, tail in enumerate(TAILS) for j, case in enumerate(cases) if (i + j) % 2 == 0]


@pytest.mark.parametrize(("tail", "case"), sampled(_pairs(RIGHT), 4))
def test_a_correct_change_before_a_vacuous_output_is_equal(tail, case):
    (io, end), (before, after) = TAILS[tail], RIGHT[case]
    verdict = _between(io, f"{before} {end}", f"{after} {end}")
    assert verdict.status == "equal", verdict
    assert "the outputs prove nothing ('y' " in verdict.message
    assert ("they do not depend on changed nodes" in verdict.message) is (case == "an Identity")
    assert ("1 intermediate value at the changed nodes agrees" in verdict.message) is (case != "an Identity")


@pytest.mark.parametrize(("tail", "case"), sampled(_pairs(WRONG), 4))
@pytest.mark.parametrize("promise", sampled([Parity.EXACT, Parity.CLOSE], 2))
def test_a_wrong_change_before_a_vacuous_output_is_different(tail, case, promise):
    (io, end), (before, after) = TAILS[tail], WRONG[case]
    verdict = _between(io, f"{before} {end}", f"{after} {end}", promise)
    assert verdict.status == "different", verdict
    assert "the intermediate value '" in verdict.message


UNSHOWN = {
    "a dead Relu": (
        X,
        f"{_scalar('c', -9e9)} a = Sin(x) b = Add(a, c) y = Relu(b)",
        f"{_scalar('c', -9e9)} a = Sin(x) b = Add(a, c) {_scalar('z', 0)} y = Max(b, z)",
        "on Max 'y', the removed Relu 'y': 'y' is always zero",
    ),
    "a wrong tail": (
        X,
        f"{_scalar('k', 1e-30)} a = Sin(x) b = Mul(a, k) c = Mul(b, k) y = Tanh(c)",
        f"{_scalar('k', 1e-30)} a = Sin(x) b = Mul(a, k) c = Mul(b, k) y = Sin(c)",
        "on Sin 'y', the removed Tanh 'y'",
    ),
    "the last operator": (
        "(float[N,4] x) => (int64[N,1] y)",
        f"{_scalar('z', 0)} a = Sin(x) c = Mul(a, z) y = ArgMax<axis=1>(c)",
        f"{_scalar('z', 0)} a = Sin(x) c = Mul(a, z) y = ArgMin<axis=1>(c)",
        "on ArgMin 'y', the removed ArgMax 'y'",
    ),
    "lost in a large sum": (
        X,
        f"{_scalar('c', 1e30)} a = Sin(x) y = Add(a, c)",
        f"{_scalar('c', 1e30)} {_scalar('d', 1)} e = Add(c, d) a = Sin(x) y = Add(a, e)",
        "on Add 'e', Add 'y', the removed Add 'y'",
    ),
}


@pytest.mark.parametrize("name", UNSHOWN)
def test_a_change_no_output_depends_on_is_unverified(name):
    io, before, after, what = UNSHOWN[name]
    verdict = _between(io, before, after, Parity.CLOSE)
    assert (verdict.status, verdict.reason) == ("unverified", "vacuous"), verdict
    assert f"the outputs do not depend {what}" in verdict.message


RENAMED = {
    "the name of the first of two": ("c = Sin(x) b = Neg(c) y = Softmax(b)", "d = Neg(x) c = Sin(d) y = Softmax(c)"),
    "all names shifted": (
        "a = Neg(x) b = Neg(a) c = Sin(b) d = Exp(c) e = Cos(d) y = Softmax(e)",
        "a = Sin(x) b = Exp(a) c = Cos(b) y = Softmax(c)",
    ),
}
POINT = "(float[N,1] x) => (float[N,1] y)"


@pytest.mark.parametrize("case", RENAMED)
def test_a_name_may_move_to_a_later_value(case):
    before, after = RENAMED[case]
    verdict = _between(POINT, before, after)
    assert verdict.status == "equal", verdict
    assert not _between(POINT, before, after.replace("Sin", "Abs")).passed


@pytest.mark.slow
def test_an_intermediate_value_that_always_agrees_proves_nothing():
    end = f"{_scalar('k', 1e6)} m = Mul(q, k) s = Softmax(m) {_scalar('z', 0)} p = Mul(s, z) y = Exp(p)"
    before, after = (f"{_scalar('c', c)} a = Add(x, c) q = Mul(a, a) {end}" for c in (1, 1.001))
    verdict = _between("(float[N,3] x) => (float[N,3] y)", before, after, Parity.CLOSE)
    assert verdict.status == "different", verdict
    assert "the intermediate value 'a'" in verdict.message


def test_reused_value_names_do_not_make_models_different():
    before = "a = Sin(x) b = Exp(a) c = Tanh(b) d = Relu(c) y = Softmax(d)"
    after = "d = Sin(x) c = Exp(d) b = Tanh(c) a = Neg(b) y = Softmax(a)"
    verdict = _between(POINT, before, after)
    assert (verdict.status, verdict.reason) == ("unverified", "vacuous"), verdict


def test_only_dependencies_of_vacuous_outputs_are_compared():
    io = "(float[N,4] x) => (float[N,4] y, float[N,4] z)"
    end = f"{_scalar('k', 0)} m = Abs(c) n = Mul(m, k) y = Exp(n)"
    verdict = _between(io, f"c = Sin(x) z = Relu(c) {end}", f"c = Sin(x) t = Neg(c) u = Neg(t) z = Relu(u) {end}")
    assert verdict.status == "equal"
    assert "do not depend on changed nodes" in verdict.message
    verdict = _between(io, f"c = Sin(x) z = Relu(c) {end}", f"c = Sin(x) z = Relu(c) {end}".replace("Abs", "Relu"))
    assert verdict.status == "different"
    assert "the intermediate value 'm'" in verdict.message


def test_other_values_before_the_change_verify_the_last_nodes():
    before = f"{_scalar('k', 1e-30)} a = Sin(x) b = Mul(a, k) c = Mul(b, k) y = Tanh(c)"
    after = f"{_scalar('k', 1e-30)} a = Sin(x) b = Mul(a, k) c = Mul(b, k) n = Neg(c) t = Tanh(n) y = Neg(t)"
    verdict = _between(X, before, after)
    assert verdict.status == "equal", verdict
    assert "'y' agrees for other values before the change" in verdict.message
    io = "(float[N,4] x) => (int64[N,1] y)"
    before = f"{_scalar('z', 0)} a = Sin(x) c = Mul(a, z) y = ArgMax<axis=1>(c)"
    after = f"{_scalar('z', 0)} a = Sin(x) c = Mul(a, z) n = Neg(c) y = ArgMin<axis=1>(n)"
    assert _between(io, before, after).status == "equal"


@pytest.mark.parametrize(
    ("branch", "status"),
    [("n = Neg(x) m = Neg(n) u = Relu(m)", "equal"), ("u = Abs(x)", "different"), ("u = Sin(x)", "different")],
)
def test_a_node_with_subgraphs_is_compared_by_its_outputs(branch, status):
    text = (
        "q = If(b) <then_branch = t () => (float[N] u) {{ {} }}, else_branch = e () => (float[N] v) {{ v = Sin(x) }}> "
        f"{_scalar('z', 0)} a = Abs(q) m = Mul(a, z) y = Exp(m)".replace("{0}", "{{0}}")
    )
    io = "(float[N] x, bool b) => (float[N] y)"
    verdict = _between(io, text.format("u = Relu(x)"), text.format(branch))
    assert verdict.status == status, verdict


@pytest.mark.slow
def test_intermediate_values_of_an_exact_step_must_match_the_previous_step():
    end = f"{_scalar('z', 0)} m = Abs(q) n = Mul(m, z) y = Exp(n)"

    def model(body: str) -> bytes:
        return _proto(f"g (float[N,4] x, float[N,4] w) => (float[N,4] y) {{ {body} {end} }}").SerializeToString()

    close = model("r = Reciprocal(w) a = Div(x, r) q = Sin(a)")
    verifier = Verifier(model("a = Mul(x, w) q = Sin(a)"))
    verdict = verifier.verify(close, Parity.CLOSE)
    assert verdict.status == "close", verdict
    assert verdict.needed["rtol"] > 0
    verifier.accept(close)
    right = verifier.verify(model("r = Reciprocal(w) a = Div(x, r) t = Neg(a) u = Neg(t) q = Sin(u)"), Parity.EXACT)
    assert right.status == "close", right
    assert right.message.count("the outputs prove nothing") == 1
    wrong = verifier.verify(model("a = Mul(w, x) q = Sin(a)"), Parity.EXACT)
    assert wrong.status == "different", wrong
    assert "declared bit-identical" in wrong.message


def _vanishing_net(wrong: int = -1, fused: bool = True, layers: int = 9) -> bytes:
    """A chain of Conv, BatchNormalization and Relu with weights so small that zeros come out."""
    rng = np.random.default_rng(0)
    nodes, tensors, value = [], [], "x"
    for layer in range(layers):
        weight = (rng.standard_normal((2, 2, 3, 3)) * 1e-6).astype(np.float32)
        scale, variance = (rng.random((2, 2)) + 0.5).astype(np.float32)
        zero = np.zeros(2, np.float32)
        names = [f"{kind}{layer}" for kind in ("w", "s", "h", "m", "v")]
        arrays = [weight, scale, zero, zero, variance]
        if fused:
            factor = scale / np.sqrt(variance + np.float32(1e-5)) * np.float32(1.01 if layer == wrong else 1)
            arrays = [weight * factor[:, None, None, None], zero]
        nodes.append(helper.make_node("Conv", [value, *names[: fused + 1]], [f"{'cb'[fused]}{layer}"], pads=[1] * 4))
        if not fused:
            nodes.append(helper.make_node("BatchNormalization", [f"c{layer}", *names[1:]], [f"b{layer}"]))
        tensors += [numpy_helper.from_array(array, name) for array, name in zip(arrays, names)]
        nodes.append(helper.make_node("Relu", [f"b{layer}"], [f"r{layer}"]))
        value = f"r{layer}"
    nodes.append(helper.make_node("GlobalAveragePool", [value], ["y"]))
    ends = [helper.make_tensor_value_info(name, 1, ["N", 2, *size]) for name, size in (("x", [6, 6]), ("y", [1, 1]))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString()


@pytest.mark.slow
def test_a_deep_net_whose_output_vanishes():
    verifier = Verifier(_vanishing_net(fused=False))
    verdict = verifier.verify(_vanishing_net(), Parity.CLOSE)
    assert verdict.status == "close", verdict
    assert "intermediate values at the changed nodes agree" in verdict.message
    assert "'y' is always zero" in verdict.message
    assert "'y' agrees for other values before the change" in verdict.message
    assert verifier.verify(_vanishing_net(2), Parity.CLOSE).status == "different"
    # Nothing but zeros comes to the last layer.
    assert verifier.verify(_vanishing_net(8), Parity.CLOSE).status == "unverified"


def test_an_unused_differing_value_does_not_fail_a_model():
    end = f"{_scalar('z', 0)} n = Abs(q) m = Mul(n, z) y = Exp(m)"
    before = f"{_scalar('c', 2)} a = Sin(x) r = Relu(a) p = Mul(r, c) q = Relu(p) {end}"
    after = f"{_scalar('c', 2)} a = Sin(x) p = Mul(a, c) q = Relu(p) {end}"
    verdict = _between(X, before, after, Parity.CLOSE)
    assert (verdict.status, verdict.reason) == ("unverified", "vacuous"), verdict
    assert "'p', which differs" in verdict.message


def _long(count: int, wrong: int = -1) -> tuple[str, str]:
    """A chain with a pair of Neg in front of each Sin, and the same without; at one place there is Abs instead."""
    end = f"{_scalar('z', 0)} p = Abs(a{count}) q = Mul(p, z) y = Exp(q)"
    before = " ".join(f"n{i} = Neg(a{i}) m{i} = Neg(n{i}) a{i + 1} = Sin(m{i})" for i in range(count))
    after = " ".join(
        f"s{i} = Abs(a{i}) a{i + 1} = Sin(s{i})" if i == wrong else f"a{i + 1} = Sin(a{i})" for i in range(count)
    )
    return f"a0 = Neg(x) {before} {end}", f"a0 = Neg(x) {after} {end}"


@pytest.mark.slow
def test_many_sites_share_the_values_that_are_compared(monkeypatch):
    count = 2 * intermediate.MOST
    verdict = _between(X, *_long(count))
    assert verdict.status == "equal", verdict
    assert f"{intermediate.MOST} intermediate values" in verdict.message
    assert _between(X, *_long(count, wrong=3)).status == "different"
    monkeypatch.setattr(inner_values, "TOGETHER", 2000)
    assert "5 intermediate values" in _between(X, *_long(5)).message
    monkeypatch.setattr(inner_values, "LARGEST", 1)
    verdict = _between(X, *_long(2))
    assert "intermediate value" not in verdict.message
    assert "'y' agrees for other values before the change" in verdict.message


@pytest.mark.parametrize(
    ("count", "kept"),
    [(5, [0, 1, 2, 3, 4]), (intermediate.MOST, [*range(32)]), (2 * intermediate.MOST - 1, [*range(0, 63, 2)])],
)
def test_many_values_are_thinned_out_evenly(count, kept):
    assert intermediate._spread([*range(count)]) == kept
    assert intermediate._spread([*range(100)])[::31] == [0, 99]


def test_evidence_says_what_agrees_and_what_is_open():
    verdict = Verdict(Status.EQUAL, message="the outputs agree")
    needed = {"rtol": 1e-3, "atol": 0.0}

    def amended(**found):
        evidence = intermediate.InnerEvidence("'y' is constant", **found)
        return evidence, evidence.amend(replace(verdict, needed={"rtol": 0.0, "atol": 1e-6}))

    evidence, same = amended(agreeing=("a",))
    assert evidence.agrees and same.status is Status.EQUAL
    assert same.message == (
        "the outputs agree; the outputs prove nothing ('y' is constant); "
        "1 intermediate value at the changed nodes agrees"
    )
    evidence, close = amended(agreeing=("a", "b"), drawn=("y", "z"), needed=needed)
    assert evidence.agrees and (close.status, close.needed) == (Status.CLOSE, {"rtol": 1e-3, "atol": 1e-6})
    assert close.message.endswith(
        "2 intermediate values at the changed nodes agree and 'y', 'z' agree for other values before the change"
    )
    assert amended(drawn=("y",))[1].message.endswith("'y' agrees for other values before the change")
    assert amended(changed=False)[1].message.endswith("; they do not depend on changed nodes")
    evidence, unproven = amended(open=tuple("abcde"))
    assert not evidence.agrees and (unproven.status, unproven.reason) == (Status.UNVERIFIED, "vacuous")
    assert unproven.needed is None
    assert unproven.message == "the outputs do not depend on a, b, c and 2 more: 'y' is constant"
    assert "on a, b, c: " in amended(open=tuple("abc"))[1].message
    evidence, wrong = amended(differing=Verdict(Status.DIFFERENT, message="'a' differs"), open=("b",))
    assert not evidence.agrees and wrong.status is Status.DIFFERENT
    assert wrong.message == "the outputs prove nothing ('y' is constant), but 'a' differs"


@pytest.mark.parametrize(
    ("again", "kept"),
    [([{"a": 1.0, "b": 2.0}], "ab"), ([{"a": 1.5, "b": 2.0}], "b"), (None, "")],
    ids=["same", "varying", "no run"],
)
def test_a_value_that_varies_from_run_to_run_shows_nothing(again, kept):
    def arrays(found):
        return found and [{name: np.float32(value) for name, value in one.items()} for one in found]

    observed = [[{"a": 1.0, "b": 2.0}], [{"a": 9.0, "b": 9.0}], again]
    different = Verdict(Status.DIFFERENT)
    inside = SimpleNamespace(
        models=("before", "after"),
        _observe=lambda model, names, runs: arrays(observed.pop(0)),
        _judge=lambda names, runs: None,
        _verdict=lambda *_: different,
    )
    assert inner_values.Inside._compare(inside, ["a", "b"], []) == dict.fromkeys(kept, different)
    assert not observed


@pytest.mark.parametrize(
    ("together", "cost", "compared"),
    [
        (1000, 0.0, [("abc", 3)]),
        (180, 0.0, [("abc", 3)]),
        (179, 0.0, [("abc", 2)]),
        (100, 0.0, [("ab", 2), ("c", 2)]),
        (60, 0.0, [("ab", 2), ("c", 2)]),
        (59, 0.0, [("a", 2), ("b", 2), ("c", 2)]),
        (1000, 9.0, [("abc", 2)]),
    ],
)
def test_values_are_compared_in_batches_on_as_many_runs_as_are_cheap(monkeypatch, together, cost, compared):
    monkeypatch.setattr(inner_values, "TOGETHER", together)
    every = [SimpleNamespace(binding=number) for number in range(3)]
    inputs = SimpleNamespace(cost=lambda binding: cost if binding == 0 else 9.0)
    found = []
    inside = SimpleNamespace(
        sizes={"a": 10, "b": 20, "c": 30},
        setting=SimpleNamespace(runs=every, original=SimpleNamespace(inputs=inputs)),
        runs=every[:2],
        _compare=lambda names, runs: found.append(("".join(names), len(runs))) or dict.fromkeys(names, True),
    )
    assert [*inner_values.Inside.compare(inside, "abc")] == [*"abc"]
    assert found == compared
