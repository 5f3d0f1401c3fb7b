"""Changes that are verified in their region: what the outputs of the whole model do not show."""

from __future__ import annotations

from contextlib import closing
from itertools import product

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support.breadth import sampled

import surgery
from surgery.base.promises import Parity
from surgery.model.graph import text
from surgery.model.runtime.engine import EngineName, RunOutcome
from surgery.verification.comparing.details import Verdict
from surgery.verification.inputs.spec import VerifySpec
from surgery.verification.regions.regional_verdict import ComparedRegions, Regional, _GrowingChange
from surgery.verification.verdict import change_verifier
from surgery.verification.verdict.verifier import Verifier
from surgery.verification.verdict.whole_models import WholeModels

CONTEXTS = {
    "dead mask": "m = Mul(c, zero) y = Add(m, x)",
    "crossed Clip": "y = Clip(c, nine, one)",
    "overflow": "h = Mul(c, huge) e = Mul(h, huge) y = Sub(e, e)",
    "saturation": "q = Mul(c, zero) r = Add(q, nine) sat = Mul(r, nine) y = Sigmoid(sat)",
    "unread": "p = Shape(c) z = Cast<to = 1>(p) s = ReduceSum<keepdims = 0>(z) y = Add(x, s)",
    "custom operator": "k = com.acme.Thing(c) y = Add(k, x)",
}
"""What comes after the change, so that the output does not move with it or cannot be computed."""

PAIRS = {
    "activation dropped": ("c = Relu(a)", "c = Identity(a)"),
    "activation for another": ("c = Relu(a)", "c = Abs(a)"),
    "slope": ("c = LeakyRelu<alpha = 0.1>(a)", "c = LeakyRelu<alpha = 0.11>(a)"),
    "sum for difference": ("c = Add(a, b)", "c = Sub(a, b)"),
    "operands of a difference": ("c = Sub(a, b)", "c = Sub(b, a)"),
    "operands of a quotient": ("c = Div(a, b)", "c = Div(b, a)"),
    "product for sum": ("c = Mul(a, b)", "c = Add(a, b)"),
    "maximum for minimum": ("c = Max(a, b)", "c = Min(a, b)"),
    "constant": ("c = Add(a, one)", "c = Add(a, nine)"),
    "sign": ("c = Neg(a)", "c = Identity(a)"),
    "axis of a softmax": ("c = Softmax<axis = 1>(a)", "c = Softmax<axis = 0>(a)"),
    "transpose dropped": ("c = Transpose<perm = [1, 0]>(a)", "c = Identity(a)"),
    "tanh for sigmoid": ("c = Tanh(a)", "c = Sigmoid(a)"),
    "erf for tanh": ("c = Erf(a)", "c = Tanh(a)"),
    "exponent": ("c = Mul(a, a)", "d = Mul(a, a) c = Mul(d, a)"),
    "rounding": ("c = Floor(a)", "c = Ceil(a)"),
    "bound": ("c = Clip(a, zero, one)", "c = Clip(a, zero, nine)"),
    "negative zero": ("c = Identity(a)", "c = Add(a, zero)"),
}
"""What a wrong rewrite makes of what. The last one is wrong for a promise of identical bits."""

RIGHT = {
    "doubled": ("c = Add(a, a)", "two = Constant<value = float {2}>() c = Mul(a, two)"),
    "two negations": ("n = Neg(a) c = Neg(n)", "c = Identity(a)"),
    "difference of a negation": ("n = Neg(b) c = Sub(a, n)", "c = Add(a, b)"),
    "bounded already": ("s = Sigmoid(a) c = Relu(s)", "c = Sigmoid(a)"),
    "transposed twice": ("t = Transpose<perm = [1, 0]>(a) c = Transpose<perm = [1, 0]>(t)", "c = Identity(a)"),
    "a name that means another value": ("b2 = Neg(b) c = Relu(b2)", "b2 = Neg(b) c = Relu(b2)"),
}


def model(change: str, context: str) -> bytes:
    constants = "float half = {0.5}, float zero = {0}, float one = {1}, float nine = {9}, float huge = {3e38}"
    body = f"a = Mul(x, half) b = Add(x, half) {change} {CONTEXTS[context]}"
    proto = text.parse(f"g (float[4,4] x) => (float[4,4] y) <{constants}> {{ {body} }}")
    if "acme" in body:
        proto.opset_import.add(domain="com.acme", version=1)
        for name in ("c", "k"):
            proto.graph.value_info.append(onnx.helper.make_tensor_value_info(name, 1, [4, 4]))
    data: bytes = proto.SerializeToString()
    return data


def judged(before: bytes, after: bytes, promise: Parity) -> Verdict:
    verifier = Verifier(before, None, VerifySpec())
    try:
        return verifier.verify(after, promise, before)
    finally:
        verifier.close()


@pytest.mark.parametrize(("kind", "context"), sampled(product(PAIRS, CONTEXTS), 19))
def test_a_wrong_rewrite_hidden_from_outputs_is_never_verified(kind: str, context: str) -> None:
    right, wrong = (model(change, context) for change in PAIRS[kind])
    assert not judged(right, wrong, Parity.EXACT).passed


@pytest.mark.parametrize(("kind", "context"), sampled(product(RIGHT, CONTEXTS), 7))
def test_a_correct_rewrite_hidden_from_outputs_is_verified(kind: str, context: str) -> None:
    before, after = (model(change, context) for change in RIGHT[kind])
    verdict = judged(before, after, Parity.EXACT)
    assert verdict.status == "equal", verdict.message


def test_the_verdict_gives_the_number_of_compared_nodes() -> None:
    before, after = (model(change, "dead mask") for change in RIGHT["doubled"])
    verdict = judged(before, after, Parity.EXACT)
    assert verdict.region == 2 and verdict.to_json()["region"] == 2


# What is read for its shape alone is right.
@pytest.mark.parametrize("context", sampled(sorted({*CONTEXTS} - {"unread"}), 5))
def test_hidden_changes_are_not_verified_if_regions_are_costly(context: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_verifier, "REGION_NODE", 1e9)
    for kind in ("activation for another", "operands of a difference"):
        right, wrong = (model(change, context) for change in PAIRS[kind])
        assert not judged(right, wrong, Parity.EXACT).passed
    before, after = (model(change, context) for change in RIGHT["doubled"])
    assert judged(before, after, Parity.EXACT).passed


def test_if_regions_are_costly_the_whole_model_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_verifier, "REGION_NODE", 1e9)
    before, after = (
        text.parse(f"g (float[4,4] x) => (float[4,4] y) <float two = {{2}}> {{ n = Neg(x) {change} }}")
        for change in ("y = Add(n, n)", "y = Mul(n, two)")
    )
    verdict = judged(before.SerializeToString(), after.SerializeToString(), Parity.EXACT)
    assert verdict.status == "equal" and verdict.region is None


CHAIN = "g (float[n,4] x) => (float[n,4] y) { a = Neg(x) b = Neg(a) y = Relu(b) }"


def test_a_model_verified_as_a_whole_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_verifier, "REGION_NODE", 1e9)
    before, after = (text.parse(CHAIN.replace("b = Neg(a)", f"b = {op}(x)")) for op in ("Identity", "Abs"))
    ran: list[bytes] = []
    run = WholeModels.run

    def noted(self: WholeModels, candidate: bytes, engine: EngineName) -> RunOutcome:
        ran.append(candidate)
        return run(self, candidate, engine)

    monkeypatch.setattr(WholeModels, "run", noted)
    original, right, wrong = (proto.SerializeToString() for proto in (text.parse(CHAIN), before, after))
    verifier = Verifier(original, None, VerifySpec())
    try:
        assert not verifier.compare_ahead(original, wrong, Parity.EXACT)
        assert not verifier.compare_ahead(original, right, Parity.EXACT)
        assert ran == []
        assert verifier.verify(right, Parity.EXACT, original).status == "equal"
        assert verifier.verify(wrong, Parity.EXACT, original).status == "different"
        assert verifier.verify(right, Parity.EXACT).status == "equal"
        assert ran == [right, wrong]
    finally:
        verifier.close()


def test_a_change_decided_by_regions_is_compared_once_without_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = (model(change, "unread") for change in RIGHT["doubled"])
    compared: list[bytes] = []
    compare = Regional.compare

    def noted(self: Regional, before: bytes, after: bytes, promise: Parity, afford: float) -> ComparedRegions:
        compared.append(after)
        return compare(self, before, after, promise, afford)

    monkeypatch.setattr(Regional, "compare", noted)
    monkeypatch.setattr(WholeModels, "run", None)
    verifier = Verifier(before, None, VerifySpec())
    try:
        assert verifier.compare_ahead(before, after, Parity.EXACT)
        assert verifier.verify(after, Parity.EXACT, before).status == "equal"
        assert compared == [after]
        assert verifier.verify(after, Parity.CLOSE, before).status == "equal"
        assert compared == [after] * 2
    finally:
        verifier.close()


def test_hidden_changes_are_not_verified_if_regions_become_costly(monkeypatch: pytest.MonkeyPatch) -> None:
    grow = _GrowingChange._grow

    def costly(self: _GrowingChange, levels: int) -> None:
        self.budget.check(1e9)
        grow(self, levels)

    monkeypatch.setattr(_GrowingChange, "_grow", costly)
    body = "{{ a = Tanh(x) b = Add(a, w) y = ArgMax<axis = 1, keepdims = 0>(b) }}"
    head = "g (float[n,4] x) => (int64[n] y) <float[4] w = {{0, 0, 0, {}}}> "
    before, after = (text.parse((head + body).format(last)).SerializeToString() for last in ("-5", "-4.75"))
    verdict = judged(before, after, Parity.CLOSE)
    assert verdict.status == "unverified" and "no output shows it" in verdict.message


# Two models of the user's, whole


def with_weight(proto: onnx.ModelProto, name: str, value: np.ndarray) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    next(tensor for tensor in copy.graph.initializer if tensor.name == name).CopyFrom(
        numpy_helper.from_array(value, name)
    )
    return copy


def table_model() -> tuple[onnx.ModelProto, np.ndarray]:
    table = np.random.default_rng(0).standard_normal((5000, 4)).astype(np.float32)
    proto = text.parse("g (int64[n] ids) => (float[n,4] y) { e = Gather(table, ids) y = Relu(e) }")
    proto.graph.initializer.append(numpy_helper.from_array(table, "table"))
    return proto, table


def test_a_changed_row_of_a_table_that_no_index_reads_is_not_equal() -> None:
    proto, table = table_model()
    other = table.copy()
    other[4321] += 1
    verdict = surgery.verify(proto, with_weight(proto, "table", other)).verdict
    assert verdict.status in ("different", "unverified")


def test_a_change_hidden_by_argmax_is_not_equal() -> None:
    body = "{{ a = Tanh(x) b = Add(a, w) y = ArgMax<axis = 1, keepdims = 0>(b) }}"
    head = "g (float[n,4] x) => (int64[n] y) <float[4] w = {{50, 1, 1, {}}}> "
    before, after = (text.parse((head + body).format(last)) for last in ("1", "1.25"))
    verdict = surgery.verify(before, after).verdict
    assert verdict.status in ("different", "unverified")


def test_a_difference_cancelled_downstream_is_equal() -> None:
    body = "(float[n,4] x) => (float[n,4] y) {{ a = {}(x) y = Abs(a) }}"
    before, after = (text.parse("g " + body.format(op)) for op in ("Neg", "Identity"))
    assert surgery.verify(before, after).verdict.status == "equal"


def test_a_sequence_at_the_boundary_of_a_region_is_compared():
    template = """g (float[N,4] x) => (float[N,2] y) <int64 i = {0}, int64 two = {2}>
    { s = SplitToSequence <axis = 1> (x, two) a = SequenceAt(s, i) c = Neg(a) d = Neg(c) y = Relu(d) }"""
    before = text.parse(template).SerializeToString()
    after = text.parse(template.replace("c = Neg(a) d = Neg(c)", "d = SequenceAt(s, i)")).SerializeToString()
    verifier = Verifier(before, None, VerifySpec())
    try:
        verdicts = [verifier.changes.compare_regions(before, after, Parity.EXACT).verdict for _ in range(2)]
    finally:
        verifier.close()
    assert [verdict.status for verdict in verdicts] == ["equal", "equal"]


def region_of(before: str, after: str, promise: Parity) -> Verdict:
    sides = [text.parse(model).SerializeToString() for model in (before, after)]
    verifier = Verifier(sides[0], None, VerifySpec())
    try:
        return verifier.changes.compare_regions(*sides, promise).verdict
    finally:
        verifier.close()


def test_a_sequence_is_compared_below_the_opset_of_sequence_identity():
    model = """<opset_import: ["" : 13]> g (float[N,4] x) => (float[N,2] y) <int64 i = {{0}}, int64 two = {{2}}>
    {{ {} SplitToSequence <axis = 1> ({}, two) y = SequenceAt(s, i) }}"""
    before = model.format("m = Neg(x) n = Neg(m) s =", "n")
    same = region_of(before, model.format("s =", "x"), Parity.EXACT)
    assert same.status == "equal", same.message
    assert not region_of(before, model.format("m = Neg(x) s =", "m"), Parity.EXACT).passed


@pytest.mark.parametrize("promise", [Parity.CLOSE, Parity.EXACT])
def test_zeros_of_another_sign_are_close(promise: Parity) -> None:
    before = "g (float[N,4] x) => (float[N,4] y) <float[1] z = {-0.0}> { m = Mul(x, z) y = Add(m, m) }"
    verdict = region_of(before, before.replace("Mul(x, z)", "Sub(x, x)"), promise)
    assert verdict.passed is (promise is Parity.CLOSE), verdict.message


@pytest.mark.parametrize("turns", sampled([0, 2], 2))
@pytest.mark.parametrize("goes_on", sampled([0, 1], 2))
def test_the_body_of_a_loop_without_iterations_is_compared(turns: int, goes_on: int) -> None:
    model = f"""g (float[N,4] x) => (float[M,N,4] y) <int64 turns = {{{turns}}}, bool go = {{{goes_on}}}>
    {{ last, y = Loop(turns, go, x) <body = b (int64 i, bool g, float[N,4] c) => (bool on, float[N,4] d, float[N,4] s)
        {{ on = Identity(g) d = Identity(c) n = Neg(c) s = Abs(n) }}> }}"""
    assert region_of(model, model.replace("Abs(n)", "Abs(c)"), Parity.EXACT).status == "equal"
    assert not region_of(model, model.replace("Abs(n)", "Relu(n)"), Parity.EXACT).passed


@pytest.mark.parametrize(("folded", "holds"), [("0, 0, 0, 0", True), ("0, 0, 0.5, 0", False)])
def test_a_value_is_verified_in_a_wider_region_before_a_constant_output(folded: str, holds: bool) -> None:
    model = """g (float[N,4] x) => (float[4] d, int64[N,1] y) <float[4] w = {{1, 2, 3, 4}}, int64[1] one = {{1}}{}>
    {{ n = Neg(w) d = Dropout(n) {} m = Mul(x, r) top, y = TopK(m, one) }}"""
    before, after = model.format("", "r = Relu(d)"), model.format(f", float[4] r = {{{folded}}}", "")
    verdict = region_of(before, after, Parity.EXACT)
    assert verdict.passed is holds, verdict.message


@pytest.mark.parametrize(("how", "k"), sampled([("Div", "0"), ("Mul", "inf")], 2))
@pytest.mark.parametrize(("op", "holds"), [("Identity", True), ("Tanh", False)])
def test_values_made_infinite_by_a_constant_are_compared_with_another(how: str, k: str, op: str, holds: bool) -> None:
    model = "g (float[N,4] x) => (float[N,4] y) <float k = {K}, float two = {2}> { p = Exp(x) BODY }".replace("K", k)
    before = model.replace("BODY", f"m = {how}(p, k) y = Neg(m)")
    after = model.replace("BODY", f"n = Neg(p) q = {op}(n) y = {how}(q, k)")
    verdict = region_of(before, after, Parity.CLOSE)
    assert verdict.passed is holds, verdict.message


def test_the_first_differing_value_is_reported_even_if_hidden_later() -> None:
    model = "g (float[N,4] x) => (bool[N,4] y) <float zero = {0}> { e = Div(x, zero) t = OP k = IsInf(t) y = Not(k) }"
    sides = [text.parse(model.replace("OP", op)).SerializeToString() for op in ("Mul(e, e)", "Abs(e)")]
    verifier = Verifier(sides[0], None, VerifySpec())
    try:
        found = verifier.changes.compare_regions(sides[0], sides[1], Parity.CLOSE)
    finally:
        verifier.close()
    assert found.verdict.status == "unverified" and found.differing == ("t",), found


LARGE = {
    "a stride that few positions do not show": (
        "g (float[n,1,h,w] x) => (float[n,1,HO,WO] y) <float[1,1,2,2] k = {1, 2, 3, 4}, float one = {1}>",
        ("p = Mul(x, one) y = Conv<strides = [2, 2]>(p, k)", "p = Mul(x, one) y = Conv<strides = [3, 2]>(p, k)"),
    ),
    "a bound beyond the first positions": (
        "g (float[n,s] x) => (float[n,s] y) <int64 zero = {0}, int64 one = {1}, int64 nine = {9}, int64 ten = {10}>",
        tuple(
            "p = Shape(x) e = Gather(p, one) r = Range(zero, e, one) m = Less(r, BOUND)"
            " f = Cast<to = 1>(m) y = Mul(x, f)".replace("BOUND", bound)
            for bound in ("nine", "ten")
        ),
    ),
}
"""Models with a change that no small size shows."""


@pytest.mark.parametrize("name", sampled(LARGE, 2))
def test_regions_are_tried_at_the_largest_size_of_the_model(name: str) -> None:
    head, bodies = LARGE[name]
    before, after = (text.parse(f"{head} {{ {body} }}").SerializeToString() for body in bodies)
    verifier = Verifier(before, None, VerifySpec())
    try:
        assert not verifier.changes.compare_regions(before, after, Parity.EXACT).verdict.passed
        assert verifier.verify(after, Parity.EXACT, before).status == "different"
        assert verifier.changes.compare_regions(before, before, Parity.EXACT).verdict.passed
    finally:
        verifier.close()


def test_another_way_to_the_same_target_of_a_reshape_is_equal() -> None:
    """The target itself differs; all that reads it makes the same."""
    head = "g (float[N,4] x) => (float[N,M] y) <int64[1] rest = {-1}>"
    before, after = (
        text.parse(f"{head} {{ {target} r = Reshape(x, t) y = Relu(r) }}").SerializeToString()
        for target in (
            "rows = Shape<start = 0, end = 1>(x) t = Concat<axis = 0>(rows, rest)",
            "columns = Shape<start = 1>(x) t = Concat<axis = 0>(rest, columns)",
        )
    )
    with closing(Verifier(before)) as verifier:
        found = verifier.changes.compare_regions(before, after)
    assert found.verdict.passed and found.differing == ("t",), found.verdict.message
