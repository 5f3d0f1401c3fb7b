"""Verdicts: wrong models are different, right ones are not, and what is not known is said to be unknown."""

from __future__ import annotations

import json
import re
from contextlib import closing

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from support import installed
from support.breadth import sampled

from surgery.base.promises import Parity
from surgery.model.proto.randomness import Origins, origins
from surgery.model.runtime import sessions, versions
from surgery.model.runtime.setup import SessionSetup
from surgery.verification.comparing import reference_run as original_module
from surgery.verification.comparing.details import Verdict
from surgery.verification.inputs.spec import VerifySpec
from surgery.verification.verdict.change_verifier import ChangeVerifier
from surgery.verification.verdict.verifier import Verifier

IR = '<ir_version: 10, opset_import: ["": 21]>'


def _model(body: str, header: str = IR) -> bytes:
    return onnx.parser.parse_model(f"{header}\n{body}").SerializeToString()


def _verdict(
    before: str | bytes, after: str | bytes, promise: Parity = Parity.EXACT, spec: VerifySpec | None = None
) -> Verdict:
    one, other = (item if isinstance(item, bytes) else _model(item) for item in (before, after))
    return Verifier(one, None, spec).verify(other, promise)


def _between(
    io: str, before: str, after: str, promise: Parity = Parity.EXACT, spec: VerifySpec | None = None
) -> Verdict:
    return _verdict(f"g {io} {{ {before} }}", f"g {io} {{ {after} }}", promise, spec)


X = "(float[N,S] x) => (float[N,S] y)"
WIDE = "(float[N,S] x, float[N,S] z) => (float[N,S] y)"


ONE = "(float[N] x) => (float[N] y)"
COUNT = "(int32[N] x) => (int32[N] y)"
TEXT = "(string[N] x) => (string[N] y)"
BRANCH = "(bool b, float[N] x) => (float[N] y)"


def _if(condition: str, then: str, otherwise: str) -> str:
    return (
        f"y = If({condition}) <then_branch = p () => (float[N] u) {{ u = {then}(x) }}, "
        f"else_branch = q () => (float[N] v) {{ v = {otherwise}(x) }}>"
    )


def _scalar(name: str, value: float) -> str:
    return f"{name} = Constant<value=float {{{value}}}>()"


RIGHT = {
    "identity dropped": (X, "t = Identity(x) y = Relu(t)", "y = Relu(x)"),
    "transposes merged": (X, "a = Transpose(x) b = Transpose(a) y = Neg(b)", "y = Neg(x)"),
    "sum in another order": (WIDE, "y = Add(x, z)", "y = Add(z, x)"),
    "double negation": (X, "a = Neg(x) b = Neg(a) y = Relu(b)", "y = Relu(x)"),
    "shape of the input": ("(float[N,S] x) => (int64[2] y)", "y = Shape(x)", "t = Neg(x) y = Shape(t)"),
    "unused input": ("(float[N] x, float[N] u) => (float[N] y)", "y = Abs(x)", "t = Abs(x) y = Identity(t)"),
    "integers": (COUNT, "y = Abs(x)", "t = Identity(x) y = Abs(t)"),
    "strings": (TEXT, "y = Identity(x)", "t = Identity(x) y = Identity(t)"),
    "sequences": (
        "(float[N] x) => (seq(float[N]) y)",
        "y = SequenceConstruct(x)",
        "t = Abs(x) y = SequenceConstruct(x)",
    ),
    "branches": (BRANCH, _if("b", "Relu", "Neg"), "n = Not(b) " + _if("n", "Neg", "Relu")),
    "float16": (
        ONE,
        "h = Cast<to=10>(x) a = Tanh(h) b = Identity(a) c = Sin(b) y = Cast<to=1>(c)",
        "h = Cast<to=10>(x) a = Tanh(h) c = Sin(a) y = Cast<to=1>(c)",
    ),
}

WRONG = {
    "dropped activation": (X, "y = Relu(x)", "y = Identity(x)"),
    "dropped upper bound": (X, f"{_scalar('a', 0)} {_scalar('b', 6)} y = Clip(x, a, b)", "y = Relu(x)"),
    "swapped operands": (WIDE, "y = Sub(x, z)", "y = Sub(z, x)"),
    "wrong axis": (X, "y = Softmax<axis=1>(x)", "y = Softmax<axis=0>(x)"),
    "lost bias": (X, f"{_scalar('b', 0.001)} y = Add(x, b)", "y = Identity(x)"),
    "lost transposition": (X, "t = Transpose(x) s = Shape(x) y = Reshape(t, s)", "y = Identity(x)"),
    "minus zero": (X, f"{_scalar('c', -0.0)} y = Add(x, c)", f"{_scalar('c', 0.0)} y = Add(x, c)"),
    "sign of zero": (X, "a = Neg(x) y = Neg(a)", f"{_scalar('z', 0.0)} y = Add(x, z)"),
    "NaN lost": (X, "y = Sqrt(x)", "a = Abs(x) y = Sqrt(a)"),
    "NaN to zero": (X, "y = Sqrt(x)", f"{_scalar('z', 0.0)} a = Max(x, z) y = Sqrt(a)"),
    "other table": (
        "(int64[N] x) => (float[N] y)",
        "w = Constant<value_floats=[0.0,1.0,2.0,3.0]>() y = Gather(w, x)",
        "w = Constant<value_floats=[0.0,1.0,3.0,2.0]>() y = Gather(w, x)",
    ),
    "rounding of integers": (
        COUNT,
        "c = Constant<value=int32 {2}>() y = Div(x, c)",
        f"f = Cast<to=1>(x) {_scalar('c', 2)} d = Div(f, c) r = Floor(d) y = Cast<to=6>(r)",
    ),
    "exchanged branches": (BRANCH, _if("b", "Relu", "Neg"), _if("b", "Neg", "Relu")),
    "swapped outputs": ("(float[N] x) => (float[N] y, float[N] z)", "y = Neg(x) z = Abs(x)", "z = Neg(x) y = Abs(x)"),
    "case of strings": (TEXT, "y = Identity(x)", 'y = StringNormalizer<case_change_action="UPPER">(x)'),
    "float16 on the way": (ONE, "y = Tanh(x)", "h = Cast<to=10>(x) t = Tanh(h) y = Cast<to=1>(t)"),
}


@pytest.mark.parametrize("name", sampled(RIGHT, 2))
def test_a_correct_change_is_equal(name):
    verdict = _between(*RIGHT[name])
    assert verdict.status == "equal", verdict
    assert verdict.passed
    assert verdict.needed == {"rtol": 0.0, "atol": 0.0, "factor": 0.0}


SIGNS_OF_ZERO = {"minus zero", "sign of zero"}


@pytest.mark.parametrize("name", sampled(WRONG, 2))
def test_a_wrong_change_is_different(name):
    verdict = _between(*WRONG[name])
    assert verdict.status == "different", verdict
    assert not verdict.passed
    assert verdict.message
    close = _between(*WRONG[name], Parity.CLOSE)
    assert close.status == ("close" if name in SIGNS_OF_ZERO else "different"), close


@pytest.mark.parametrize("sequence", sampled(range(1, 8), 3))
def test_a_pinned_dim_is_found_at_any_size(sequence):
    io = "(float[batch,sequence,4] x) => (float[batch,sequence,2,2] y)"
    before = "s = Constant<value_ints=[0,0,2,2]>() y = Reshape(x, s)"
    after = f"s = Constant<value_ints=[-1,{sequence},2,2]>() y = Reshape(x, s)"
    assert _between(io, before, after).status == "different"
    after = f"s = Constant<value_ints=[{sequence},-1,2,2]>() y = Reshape(x, s)"
    assert _between(io, before, after).status == "different"


def test_rounding_is_close_and_gives_the_needed_tolerance():
    before = "a = Mul(x, z) y = ReduceSum(a)"
    after = "r = Reciprocal(z) a = Div(x, r) y = ReduceSum(a)"
    io = "(float[64] x, float[64] z) => (float[1] y)"
    verdict = _between(io, before, after, Parity.CLOSE)
    assert verdict.status == "close"
    assert verdict.passed
    assert 0 < verdict.needed["rtol"] < 1.3e-4
    exact = _between(io, before, after, Parity.EXACT)
    assert exact.status == "different"
    assert exact.needed == verdict.needed
    assert "declared bit-identical" in exact.message


def test_the_tolerance_of_the_recipe_decides():
    before, after = "y = Identity(x)", "c = Constant<value_float=1.001>() y = Mul(x, c)"
    assert _between(X, before, after, Parity.CLOSE).status == "different"
    assert _between(X, before, after, Parity.CLOSE, VerifySpec(rtol=2e-3)).status == "close"
    needed = _between(X, before, after, Parity.CLOSE).needed
    assert needed["rtol"] < 1.1e-3


def test_a_verdict_is_serializable_as_json():
    verdict = _between(X, "y = Relu(x)", "y = Identity(x)")
    assert json.loads(json.dumps([verdict.status, verdict.reason, verdict.needed, verdict.message]))
    verifier = Verifier(_model(f"g {X} {{ y = Relu(x) }}"))
    verifier.original.prepare()
    assert json.loads(json.dumps(verifier.original.bindings))[0]["dims"] == {"N": 2, "S": 3}
    verifier.close()


def test_the_same_bytes_are_equal_without_a_run():
    model = _model(f"g {X} {{ y = acme.Secret(x) }}", '<ir_version: 10, opset_import: ["": 21, "acme": 1]>')
    assert Verifier(model).verify(model, Parity.EXACT).status == "equal"


def test_a_model_without_inputs_is_verified_by_one_run():
    io = "() => (float[3] y)"
    before = "a = Constant<value_floats=[1.0,2.0,3.0]>() y = Neg(a)"
    assert _between(io, before, "y = Constant<value_floats=[-1.0,-2.0,-3.0]>()").status == "equal"
    assert _between(io, before, "y = Constant<value_floats=[-1.0,-2.0,3.0]>()").status == "different"


def test_one_verifier_serves_many_candidates():
    verifier = Verifier(_model(f"g {X} {{ y = Relu(x) }}"))
    right, wrong = _model(f"g {X} {{ t = Identity(x) y = Relu(t) }}"), _model(f"g {X} {{ y = Abs(x) }}")
    found = [verifier.verify(model, Parity.EXACT).status for model in (right, wrong, right, wrong)]
    assert found == ["equal", "different", "equal", "different"]


# What cannot be run


def test_a_custom_operator_is_named():
    header = '<ir_version: 10, opset_import: ["": 21, "acme": 1]>'
    before = _model(f"g {X} {{ t = Neg(x) y = acme.Secret(t) }}", header)
    after = _model(f"g {X} {{ t = Identity(x) u = Neg(t) y = acme.Secret(u) }}", header)
    verdict = _verdict(before, after)
    assert (verdict.status, verdict.reason) == ("unverified", "not-run")
    assert "acme:Secret" in verdict.message


def test_a_custom_operator_of_the_changed_model_is_not_a_difference():
    header = '<ir_version: 10, opset_import: ["": 21, "acme": 1]>'
    verdict = _verdict(_model(f"g {X} {{ y = Neg(x) }}", header), _model(f"g {X} {{ y = acme.Neg(x) }}", header))
    assert (verdict.status, verdict.reason) == ("unverified", "not-run")
    assert "acme:Neg" in verdict.message


def test_operators_the_runtime_lacks_run_in_the_reference_evaluator():
    io = "(complex64[N] x) => (complex64[N] y)"
    verdict = _between(io, "y = Identity(x)", "t = Identity(x) y = Identity(t)")
    assert verdict.status == "equal"
    assert "reference evaluator" in verdict.message


@pytest.mark.parametrize(("opset", "status"), [(13, "unverified"), (15, "equal")])
def test_models_the_reference_evaluator_gets_wrong_are_not_run(opset: int, status: str):
    # ONNX Runtime has no Conv of doubles; up to opset 13 the evaluator normalizes with the statistics of the batch.
    header = f'<ir_version: 8, opset_import: ["": {opset}]>'
    io = "(double[2,3,4] x, double[3,3,1] w, double[3] s) => (double[2,3,4] y)"
    before = _model(f"g {io} {{ c = Conv(x, w) y = BatchNormalization(c, s, s, s, s) }}", header)
    after = _model(f"g {io} {{ c = Conv(x, w) t = Identity(c) y = BatchNormalization(t, s, s, s, s) }}", header)
    verdict = _verdict(before, after)
    assert verdict.status == status


def test_an_opset_beyond_the_runtime_is_run_when_its_operators_are_older():
    newest = onnx.defs.onnx_opset_version()
    header = f'<ir_version: {onnx.IR_VERSION}, opset_import: ["": {newest}]>'
    verifier = Verifier(_model(f"g {X} {{ y = Relu(x) }}", header))
    assert verifier.verify(_model(f"g {X} {{ t = Identity(x) y = Relu(t) }}", header), Parity.EXACT).status == "equal"
    assert verifier.original.engine == "onnxruntime"
    assert verifier.verify(_model(f"g {X} {{ y = Abs(x) }}", header), Parity.EXACT).status == "different"


def test_a_change_that_the_runtime_has_no_kernel_for_is_not_run():
    op = installed.without_kernel(("Softsign", "Erf", "Selu", "Sinh"), "double")
    verdict = _between("(double[N] x) => (double[N] y)", "y = Abs(x)", f"y = {op}(x)")
    assert (verdict.status, verdict.reason) == ("unverified", "not-run")
    assert re.fullmatch(rf"ONNX Runtime has no kernel for {op}\(\d+\)", verdict.message)


def test_regions_are_not_searched_for_what_the_runtime_rejects_with_other_opsets(monkeypatch):
    op = installed.without_kernel(("Softsign", "Erf", "Selu", "Sinh"), "double")
    headers = [f'<ir_version: 10, opset_import: ["": {opset}]>' for opset in (20, 21)]
    before, same, other = (
        _model(f"g (double[N] x) => (double[N] y) {{ {body} }}", header)
        for body, header in (("y = Abs(x)", headers[0]), (f"y = {op}(x)", headers[0]), (f"y = {op}(x)", headers[1]))
    )
    searched = []
    monkeypatch.setattr(ChangeVerifier, "_affords", lambda *_: 0.0)  # as for a model whose regions take long
    compare = ChangeVerifier.compare_regions
    monkeypatch.setattr(ChangeVerifier, "compare_regions", lambda *given: searched.append(given) or compare(*given))
    for candidate, times in ((same, 1), (other, 0)):
        searched.clear()
        with closing(Verifier(before)) as verifier:
            verdict = verifier.verify(candidate, Parity.CLOSE, before)
        assert (verdict.status, verdict.reason) == ("unverified", "not-run")
        assert f"has no kernel for {op}(" in verdict.message
        assert len(searched) == times


def test_a_change_to_an_operator_that_the_runtime_does_not_know_is_not_run():
    io = "(uint8[N] x, uint8[N] z) => (uint8[N] y)"
    before = _model(f'g {io} {{ y = BitShift<direction="LEFT">(x, z) }}')
    newest = onnx.defs.onnx_opset_version()
    header = f'<ir_version: {onnx.IR_VERSION}, opset_import: ["": {newest}]>'
    after = _model(f'g {io} {{ y = BitShift<direction="LEFT">(x, z) }}', header)
    verdict = _verdict(before, after)
    if installed.knows("BitShift", newest):
        assert verdict.status == "equal"
        return
    # The reference evaluator knows both. But who runs the original in ONNX Runtime could not run the other one there.
    assert (verdict.status, verdict.reason) == ("unverified", "not-run")
    assert verdict.message == f"ONNX Runtime does not know BitShift({newest})"


def test_an_opset_is_lowered_only_if_no_operator_was_revised(monkeypatch):
    """With a runtime that stops where 1.31 does, whatever the installed one knows."""
    monkeypatch.setattr(versions, "newest", lambda: (13, 26))
    header = '<ir_version: 14, opset_import: ["": 28]>'
    stamped = versions.stamped_down(_model(f"g {X} {{ y = Relu(x) }}", header), "max supported IR version: 13")
    assert stamped is not None
    model = onnx.load_model_from_string(stamped)
    assert (model.ir_version, model.opset_import[0].version) == (13, 26)
    io = "(uint8[N] x, uint8[N] z) => (uint8[N] y)"
    revised = _model(f'g {io} {{ y = BitShift<direction="LEFT">(x, z) }}', header)
    with pytest.raises(ValueError, match="BitShift") as refused:
        versions.stamped_down(revised, "ONNX Runtime only guarantees support till opset 26")
    assert sessions.unsupported(str(refused.value)) == "ONNX Runtime does not know BitShift(28)"
    assert versions.stamped_down(revised, "something else") is None


def test_an_original_without_legal_inputs_is_not_run():
    body = "(float[3] x) => (float[2] y)", "i = Constant<value_ints=[5,6]>() y = Gather(x, i)"
    verdict = _between(*body, "t = Identity(x) i = Constant<value_ints=[5,6]>() y = Gather(t, i)")
    assert (verdict.status, verdict.reason) == ("unverified", "not-run")
    assert "no legal input found" in verdict.message
    assert "give inputs with --inputs" in verdict.message
    assert "--inputs" in verdict.message


def test_an_input_of_a_type_that_cannot_be_fed_is_not_run():
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [helper.make_value_info("x", helper.make_sparse_tensor_type_proto(TensorProto.FLOAT, [2]))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
    verdict = Verifier(model.SerializeToString()).verify(b"", Parity.EXACT)
    assert (verdict.status, verdict.reason) == ("unverified", "not-run")


# What crashes, hangs or eats memory

DIVIDE = "m = Constant<value=int32 {-2147483648}>() d = Constant<value=int32 {-1}>()"
CRASH = f"{DIVIDE} q = Div(m, d) y = Add(x, q)"
INTS = "(int32[N] x) => (int32[N] y)"


def _killed_by(body: str) -> str:
    return installed.is_killed_by(onnx.load_model_from_string(_model(f"g {INTS} {{ {body} }}")))


def test_a_crash_of_the_original_is_not_run_and_names_the_signal():
    verdict = _between(INTS, CRASH, f"t = Identity(x) {CRASH.replace('(x,', '(t,')}")
    assert (verdict.status, verdict.reason) == ("unverified", "not-run")
    assert f"run crashed with {_killed_by(CRASH)}" in verdict.message


def test_a_crash_of_the_changed_model_is_a_difference_and_names_the_signal():
    verdict = _between(INTS, "y = Abs(x)", CRASH)
    assert verdict.status == "different"
    assert f"run crashed with {_killed_by(CRASH)}" in verdict.message


def test_drawn_divisors_do_not_crash_the_runtime():
    verdict = _between(
        "(int32[N,S] x, int32[N,S] z) => (int32[N,S] y)", "y = Div(x, z)", "t = Identity(x) y = Div(t, z)"
    )
    assert verdict.status == "equal"


@pytest.mark.slow
def test_a_changed_model_that_hangs_is_a_difference():
    endless = """t = Constant<value=bool {1}>() n = Constant<value=int64 {9223372036854775807}>()
        y = Loop(n, t, x)
            <body = b (int64 i, bool k, float[N,S] v) => (bool l, float[N,S] w) { l = Identity(k) w = Neg(v) }>"""
    verdict = _between(X, "y = Neg(x)", endless, spec=VerifySpec(timeout=4))
    assert verdict.status == "different"
    assert "took more than" in verdict.message


def test_a_changed_model_that_eats_all_memory_is_a_difference():
    bomb = """s = Constant<value_ints=[8000000000]>() b = ConstantOfShape(s) m = ReduceMax(b) c = Cast<to=1>(m)
        z = Constant<value_ints=[1]>() d = Reshape(c, z) y = Add(x, d)"""
    verdict = _between(X, "y = Neg(x)", bomb, spec=VerifySpec(memory=1 << 30))
    assert verdict.status == "different"
    assert "fails where the original runs" in verdict.message


def test_outputs_too_large_to_compare_are_not_run():
    big = "s = Constant<value_ints=[20000000]>() b = ConstantOfShape(s) y = {}(b)"
    spec = VerifySpec(memory=512 << 20)
    verdict = _between("() => (float[M] y)", big.format("Neg"), big.format("Abs"), spec=spec)
    assert (verdict.status, verdict.reason) == ("unverified", "not-run")
    assert "MiB" in verdict.message


def test_a_model_that_the_runtime_refuses_is_a_difference():
    verdict = _between(X, "y = Relu(x)", "y = Relu(x, x)")
    assert verdict.status == "different"
    assert "rejects the changed model" in verdict.message


def test_a_changed_model_that_fails_on_some_inputs_is_a_difference_and_names_them():
    after = "s = Constant<value_ints=[2,3]>() y = Reshape(x, s)"
    verdict = _between(X, "y = Identity(x)", after)
    assert verdict.status == "different"
    assert "N=1, S=4" in verdict.message


def test_a_lost_output_is_a_difference():
    verdict = _verdict(
        "g (float[N] x) => (float[N] y, float[N] z) { y = Neg(x) z = Abs(x) }",
        "g (float[N] x) => (float[N] y) { y = Neg(x) }",
    )
    assert verdict.status == "different"
    assert "'z' is missing" in verdict.message


# Random, nondeterministic, vacuous


def test_random_outputs_are_compared_with_the_same_random_numbers():
    io = "(float[N,S] x) => (float[N,S] y, float[N,S] z)"
    before = "r = RandomNormalLike(x) y = Add(x, r) z = Relu(x)"
    verdict = _between(io, before, "t = Identity(x) r = RandomNormalLike(t) y = Add(t, r) z = Relu(t)")
    assert verdict.status == "equal"
    assert "'y' with the same random numbers in both models (RandomNormalLike)" in verdict.message
    assert _between(io, before, "r = RandomNormalLike(x) y = Add(x, r) z = Identity(x)").status == "different"
    assert (
        _between(io, before, "r = RandomNormalLike(x) a = Add(x, r) y = Transpose(a) z = Relu(x)").status == "different"
    )


def test_random_numbers_with_a_seed_are_compared():
    before = "r = RandomNormalLike<seed=1.0>(x) y = Add(x, r)"
    assert _between(X, before, before.replace("(x, r)", "(r, x)")).status == "equal"
    assert _between(X, before, before.replace("1.0", "2.0")).status == "different"


def test_randomness_is_found_in_subgraphs_and_functions():
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21, "d": 1]>
        g (float[N] x, bool b) => (float[N] p, float[N] q, float[N] r, int64[1] s) {
            p = If(b) <then_branch = t () => (float[N] u) { u = RandomNormalLike(x) },
                       else_branch = e () => (float[N] v) { v = Identity(x) }>
            q = d.f(x)
            r = Relu(x)
            s = Shape(p)
        }
        <domain: "d", opset_import: ["": 21]> f (i) => (o) { h = RandomUniformLike(i) o = Add(i, h) }"""
    )
    found = origins(model)
    assert found.random == {"p", "q", "s"}
    assert found.operators == {"RandomNormalLike", "RandomUniformLike"}


@pytest.mark.parametrize(
    ("node", "is_random"),
    [
        ("y = Dropout(x)", False),
        ("r = Constant<value_float=0.5>() y = Dropout(x, r)", False),
        ("r = Constant<value_float=0.5>() t = Constant<value=bool {0}>() y = Dropout(x, r, t)", False),
        ("r = Constant<value_float=0.5>() t = Constant<value=bool {1}>() y = Dropout(x, r, t)", True),
        ("r = Constant<value=float {0}>() t = Constant<value=bool {1}>() y = Dropout(x, r, t)", False),
    ],
)
def test_dropout_is_random_in_training_only(node, is_random):
    model = onnx.load_model_from_string(_model(f"g {X} {{ {node} }}"))
    assert bool(origins(model).random) is is_random


def _draws_alike(model: bytes) -> bool:
    sessions = [onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]) for _ in range(2)]
    feed = {item.name: np.ones([2] * len(item.shape), np.float32) for item in sessions[0].get_inputs()}
    first, second = (session.run(None, feed)[0] for session in sessions)
    return np.array_equal(first, second)


def test_an_original_that_differs_from_itself_is_nondeterministic(monkeypatch):
    def blind(model: onnx.ModelProto) -> Origins:
        found = origins(model)
        return Origins(frozenset(), frozenset(), found.inputs)

    monkeypatch.setattr(original_module, "origins", blind)
    noise = ("r = RandomNormalLike(x) y = Add(x, r)", "r = RandomNormalLike(x) y = Add(r, x)")
    one, other = (_model(f"g {X} {{ {body} }}") for body in noise)
    if _draws_alike(one):
        pytest.skip("the installed ONNX Runtime draws the same numbers in each session")
    verdict = Verifier(one, seeded=False).verify(other)
    assert (verdict.status, verdict.reason) == ("unverified", "nondeterministic")
    assert "'y'" in verdict.message


def test_no_change_keeps_bits_on_a_provider_that_compiles_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an Identity, OpenVINO fuses and rounds otherwise."""
    given = "(float[N] x, float[N] z) => (float[N] y)"
    once, again = "a = Add(x, z) y = Add(a, x)", "a = Add(x, x) y = Add(a, z)"
    assert _between(given, once, again).status == "different"
    monkeypatch.setattr(SessionSetup, "is_coarse", True)
    assert _between(given, once, again).status == "close"
    assert _between(given, once, "a = Add(x, z) y = Add(a, z)").status == "different"
