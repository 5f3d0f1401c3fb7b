"""Float64 as the judge: right rewrites beyond the tolerance pass, wrong ones within it do not."""

from __future__ import annotations

import tracemalloc

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support.breadth import sampled

from surgery.base.promises import Parity
from surgery.model.runtime.engine import Engine
from surgery.verification.comparing.arbiter import Float64Arbiter
from surgery.verification.comparing.compare import ComparisonRules, TensorPair
from surgery.verification.comparing.details import Verdict
from surgery.verification.comparing.distances import Float64Case, Float64Output, typical
from surgery.verification.comparing.vacuity import Run
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.inputs.spec import VerifySpec
from surgery.verification.running import ensembles
from surgery.verification.verdict.verifier import Verifier

IR = '<ir_version: 10, opset_import: ["": 21]>'
X = "(float[N,24] x) => (float[N,24] y)"
SMALL = "(float[2,3] x) => (float[2,3] y)"
RNG = np.random.default_rng(0)


def _scalar(name: str, value: float) -> str:
    return f"{name} = Constant<value=float {{{value}}}>()"


def _between(
    io: str, before: str, after: str, promise: Parity = Parity.CLOSE, spec: VerifySpec | None = None, header: str = IR
) -> Verdict:
    one, other = (
        onnx.parser.parse_model(f"{header}\ng {io} {{ {body} }}").SerializeToString() for body in (before, after)
    )
    return Verifier(one, None, spec).verify(other, promise)


def test_errors_that_are_repeated_count_once() -> None:
    """A row that stands there many times, as of equal tokens, has one error in each column, which says little."""
    row = np.abs(RNG.normal(size=(1, 300)))
    magnitudes = np.abs(RNG.normal(size=(1, 300)))
    once = typical(row, magnitudes)
    for copies in ((64, 1), (1, 64)):
        many = typical(np.tile(row, copies), np.tile(magnitudes, copies))
        np.testing.assert_allclose(many, np.tile(once, copies), rtol=1e-9)


# What the original rounds away, a rewrite that does not is no worse for it.
DETOUR = f"{_scalar('c', 20000)} a = Add(x, c) y = Sub(a, c)"


def test_a_rewrite_that_rounds_less_than_the_original_is_accepted():
    verdict = _between(X, DETOUR, "y = Identity(x)")
    assert verdict.status == "close"
    assert verdict.message.startswith("beyond the tolerance, but as close to float64 as the original: output 'y'")
    assert verdict.details is not None and verdict.details.float64 is not None
    assert verdict.details.float64.changed < 0.1 < verdict.details.float64.original
    assert verdict.details.beyond > 0


def test_different_rounding_of_the_same_size_is_accepted():
    other = f"{_scalar('c', -20000)} a = Sub(x, c) y = Add(a, c)"
    halves = f"{_scalar('c', 20000)} {_scalar('h', 0.5)} b = Mul(x, h) d = Sub(b, c) e = Add(d, c) y = Add(e, e)"
    for after in (other, halves):
        assert _between(X, DETOUR, after).status in ("close", "equal")


def test_a_wrong_rewrite_beyond_the_tolerance_stays_different():
    verdict = _between(X, DETOUR, f"{_scalar('c', 1.02)} y = Mul(x, c)")
    assert verdict.status == "different"
    assert "times as far from float64" in verdict.message


def test_a_promise_of_identical_bits_is_enforced():
    verdict = _between(X, DETOUR, "y = Identity(x)", Parity.EXACT)
    assert verdict.status == "different"
    assert verdict.details is not None and verdict.details.float64 is None


def test_an_error_not_explained_by_rounding_is_different():
    before, after = (f"{_scalar('c', factor)} t = Tanh(x) m = Mul(t, c) y = Sin(m)" for factor in (0.7071068, 0.707125))
    verdict = _between(X, before, after)
    assert verdict.status == "different"
    assert verdict.message.startswith("within the tolerance, but output 'y'")
    assert verdict.details is not None and verdict.details.beyond == 0
    assert verdict.details.worst is not None and verdict.details.worst.output == "y"


def test_a_slightly_changed_weight_in_a_deep_net_is_different():
    header, layers = IR, 12
    weights = [(RNG.standard_normal((24, 24)) / 5).astype(np.float32) for _ in range(layers)]

    def model(last: np.ndarray) -> bytes:
        body = " ".join(
            f"m{i} = MatMul(h{i}, w{i}) t{i} = Tanh(m{i}) h{i + 1} = Add(t{i}, h{i})" for i in range(layers)
        )
        io = "(float[N,24] x) => (float[N,24] y)"
        proto = onnx.parser.parse_model(f"{header}\ng {io} {{ h0 = Identity(x) {body} y = Identity(h{layers}) }}")
        for i, weight in enumerate([*weights[:5], last, *weights[6:]]):
            proto.graph.initializer.append(numpy_helper.from_array(weight, f"w{i}"))
        return proto.SerializeToString()

    verifier = Verifier(model(weights[5]))
    slightly = weights[5].copy()
    slightly[3] *= np.float32(1 + 2e-5)
    assert verifier.verify(model(slightly), Parity.CLOSE).status == "different"
    assert verifier.verify(model(weights[5]), Parity.CLOSE).status == "equal"


def test_the_tolerance_of_the_recipe_is_used_without_float64():
    after = f"{_scalar('c', 1.00003)} y = Mul(x, c)"
    assert _between(X, "y = Identity(x)", after).status == "different"
    verdict = _between(X, "y = Identity(x)", after, spec=VerifySpec(rtol=1e-4))
    assert verdict.status == "close"
    assert verdict.details is not None and verdict.details.float64 is None


# Small next to large

SPLIT = f"{_scalar('b', 1e6)} l = Mul(x, b)"
PACKED = "(float[N,24] x) => (float[N,2,24] y)"
JOIN = "k = Constant<value_ints=[1]>() u = Unsqueeze(l, k) v = Unsqueeze(s, k) y = Concat<axis=1>(u, v)"


def test_errors_in_small_values_are_not_hidden_by_large_ones():
    before = f"{SPLIT} s = Tanh(x) {JOIN}"
    after = f"{SPLIT} t = Tanh(x) {_scalar('c', 1.01)} s = Mul(t, c) {JOIN}"
    verdict = _between(PACKED, before, after)
    assert verdict.status == "different"
    assert verdict.details is not None and verdict.details.worst is not None
    assert verdict.details.worst.index[1] == 1


def test_small_values_may_round_as_badly_as_in_the_original():
    before = f"{SPLIT} {_scalar('c', 20000)} a = Add(x, c) s = Sub(a, c) {JOIN}"
    verdict = _between(PACKED, before, f"{SPLIT} s = Identity(x) {JOIN}")
    assert verdict.status == "close", verdict
    assert verdict.message.startswith("beyond the tolerance, but as close to float64 as the original")


def test_without_float64_small_values_share_the_tolerance_of_the_output():
    before = f"{SPLIT} {_scalar('c', 20000)} a = Add(x, c) s = Sub(a, c) {JOIN}"
    models = [
        onnx.parser.parse_model(f"{IR}\ng {PACKED} {{ {body} }}")
        for body in (before, f"{SPLIT} s = Identity(x) {JOIN}")
    ]
    for model in models:
        values = onnx.helper.make_tensor("unread", onnx.TensorProto.FLOAT, [1], [1.0])
        indices = onnx.helper.make_tensor("places", onnx.TensorProto.INT64, [1], [0])
        model.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, indices, [4]))
    original, changed = (model.SerializeToString() for model in models)
    verdict = Verifier(original).verify(changed, Parity.CLOSE)
    assert verdict.status == "close", verdict
    assert "not judged in float64: a sparse tensor" in verdict.message
    assert verdict.details is not None and verdict.details.float64 is not None
    assert verdict.details.float64.original is None


def test_a_float32_sum_in_the_float64_result_does_not_fail_a_rewrite():
    """A GRU has no float64 form, and shares its rounding with the original: only the tolerance can speak against it."""
    cell = "h = GRU<hidden_size=2>(u, w, r) k = Constant<value_ints=[0]>() q = ReduceSum<keepdims=0>(h, k)"
    io = "(float[3,2,4] x) => (float[A,B,C] y)"
    models = []
    for factor in (1.0, 1.00005, 1.05):
        model = onnx.parser.parse_model(f"{IR}\ng {io} {{ {_scalar('c', factor)} u = Mul(x, c) {cell} y = Tanh(q) }}")
        rng = np.random.default_rng(0)
        for name, shape in (("w", (1, 6, 4)), ("r", (1, 6, 2))):
            array = rng.standard_normal(shape).astype(np.float32)
            model.graph.initializer.append(numpy_helper.from_array(array, name))
        models.append(model.SerializeToString())
    verifier = Verifier(models[0])
    near, far = (verifier.verify(model, Parity.CLOSE) for model in models[1:])
    assert (near.status, far.status) == ("close", "different")
    assert "GRU ran in float32" in far.message


def test_a_result_of_rounding_noise_is_vacuous():
    before = f"{_scalar('c', 1.6e7)} t = Tanh(x) a = Add(t, c) y = Sub(a, c)"
    verdict = _between(X, before, f"{_scalar('c', 90)} t = Tanh(x) y = Mul(t, c)")
    assert (verdict.status, verdict.reason) == ("unverified", "vacuous")
    assert "the original is rounding noise" in verdict.message


def test_float16_is_judged_by_float64_too():
    io = "(float16[N,24] x) => (float16[N,24] y)"
    before = f"c = Cast<to=10>(f) {_scalar('f', 16)} a = Add(x, c) y = Sub(a, c)".replace(
        "c = Cast<to=10>(f) " + _scalar("f", 16), _scalar("f", 16) + " c = Cast<to=10>(f)"
    )
    assert _between(io, before, "y = Identity(x)").status == "close"
    wrong = f"{_scalar('f', 1.2)} c = Cast<to=10>(f) y = Mul(x, c)"
    assert _between(io, before, wrong).status == "different"


def test_float64_runs_only_if_in_doubt(monkeypatch):
    def judge(*_):
        raise AssertionError

    monkeypatch.setattr(Float64Arbiter, "judge", judge)
    assert _between(X, "y = Neg(x)", "a = Neg(x) b = Neg(a) y = Neg(b)").status == "equal"
    third, other = _scalar("c", 3), _scalar("c", 1 / 3)
    assert _between(X, f"{third} y = Div(x, c)", f"{other} y = Mul(x, c)").status == "close"


def test_float64_runs_once_per_original(monkeypatch):
    ran = []

    class Counting(Engine):
        def run(self, *arguments, **options):
            ran.append(self.name)
            return super().run(*arguments, **options)

    monkeypatch.setattr(ensembles, "Engine", Counting)
    models = [
        onnx.parser.parse_model(f"{IR}\ng {X} {{ {body} }}") for body in (DETOUR, "y = Identity(x)", "y = Abs(x)")
    ]
    before, right, wrong = (model.SerializeToString() for model in models)
    verifier = Verifier(before)
    assert [verifier.verify(model).status for model in (right, wrong, right)] == ["close", "different", "close"]
    assert ran.count("float64") == 1


# The rule, on numbers


def _finding(original, changed, truth, doubt=1 / 32, promise=Parity.CLOSE):
    """Judge arrays, or lists of them with one entry for each run."""
    cases = []
    for a, b, t in zip(*((x if isinstance(x, list) else [x]) for x in (original, changed, truth))):
        run = Run(Binding(), {}, {"y": a})
        cases.append(Float64Case(run, TensorPair("y", (), a, b, None), t, ComparisonRules(promise).tolerance(a.dtype)))
    return [finding.kind for finding in Float64Output(cases, doubt).findings()]


def _noisy(truth, size):
    return (truth + size * RNG.standard_normal(truth.shape)).astype(np.float32)


TRUTH = RNG.standard_normal((16, 64))


def test_the_arrays_of_one_run_are_held_at_a_time():
    truth = RNG.standard_normal((64, 1024))
    original, changed = _noisy(truth, 1e-7), _noisy(truth, 1e-7)
    peaks = []
    for runs in (1, 12):
        tracemalloc.start()
        assert _finding([original] * runs, [changed] * runs, [truth] * runs) == ["right"] * runs
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


@pytest.mark.parametrize("size", [1e-7, 1e-5, 1e-3, 1e-2])
def test_errors_as_large_as_in_the_original_are_accepted(size):
    for _ in range(20):
        assert _finding(_noisy(TRUTH, size), _noisy(TRUTH, size), TRUTH) == ["right"]


@pytest.mark.parametrize(("size", "kind"), [(1e-7, "suspicious"), (1e-4, "wrong")])
def test_a_row_with_larger_errors_is_found(size, kind):
    changed = _noisy(TRUTH, size)
    changed[5] = _noisy(TRUTH[5], 30 * size)
    assert _finding(_noisy(TRUTH, size), changed, TRUTH) == [kind]


def test_a_row_that_is_noisy_in_both_hides_no_error_elsewhere():
    original, changed = _noisy(TRUTH, 1e-6), _noisy(TRUTH, 1e-6)
    for side in (original, changed):
        side[5] = _noisy(TRUTH[5], 1e-2)
    assert _finding(original, changed, TRUTH) == ["right"]
    changed[6] = _noisy(TRUTH[6], 1e-3)
    assert _finding(original, changed, TRUTH) == ["wrong"]


def test_jumps_on_a_grid_are_accepted_if_as_rare_as_in_the_original():
    step = 2.0**-5
    truth = np.round(TRUTH / step) * step

    def jumping(share):
        jumps = (RNG.random(truth.shape) < share) * RNG.choice([-step, step], truth.shape)
        return (truth + jumps).astype(np.float32)

    assert _finding(jumping(0.02), jumping(0.02), truth) == ["right"]
    assert _finding(jumping(0.02), jumping(0.5), truth) == ["wrong"]


def test_single_numbers_are_judged_over_all_runs():
    truth = [np.array([value]) for value in RNG.standard_normal(16)]
    original, changed, wrong = ([_noisy(value, size) for value in truth] for size in (1e-3, 1e-3, 1e-1))
    assert set(_finding(original, changed, truth)) == {"right"}
    assert "wrong" in _finding(original, wrong, truth)


def test_fewer_than_eight_errors_raise_no_suspicion():
    truth = [np.array([1.0, 2.0])]
    original, changed = [truth[0].astype(np.float32)], [(truth[0] * (1 + 2e-5)).astype(np.float32)]
    assert _finding(original, changed, truth) == ["right"]
    assert "suspicious" in _finding(original * 16, changed * 16, truth * 16)


def test_without_float64_the_tolerance_of_the_whole_output_is_used():
    original = TRUTH.astype(np.float32)
    original[0] *= np.float32(1e-4)
    changed = original.copy()
    changed[0] += np.float32(1e-5)
    assert _finding(original, changed, [None]) == ["right"]
    changed[0] += np.float32(1e-3)
    assert _finding(original, changed, [None]) == ["wrong"]


def test_a_result_far_from_float64_is_noise():
    assert _finding(_noisy(TRUTH, 0.5), TRUTH.astype(np.float32), TRUTH + 3.0) == ["right"]
    assert _finding(_noisy(TRUTH, 0.5), _noisy(TRUTH, 50.0), TRUTH) == ["noise"]


def test_a_number_where_float64_has_none_hides_no_suspicion():
    changed = _noisy(TRUTH, 1e-7)
    changed[5] = _noisy(TRUTH[5], 30e-7)
    truth = TRUTH.copy()
    truth[0, 0] = np.nan
    assert _finding(_noisy(TRUTH, 1e-7), changed, truth) == ["suspicious"]


def test_infinities_in_both_are_left_out():
    original, changed = _noisy(TRUTH, 1e-6), _noisy(TRUTH, 1e-6)
    original[0, 0] = changed[0, 0] = np.inf
    assert _finding(original, changed, TRUTH) == ["right"]


# 16-bit weights: what is folded into them is rounded, everywhere in the same way, and a mean does not take that out.
FIXED = np.random.default_rng(5)
NARROW_WEIGHT = FIXED.standard_normal((32, 32)).astype(np.float16)
NARROW_WEIGHT[31] = -NARROW_WEIGHT[:31].astype(np.float64).sum(0)
NARROW_SCALE = FIXED.uniform(0.5, 1.5, 32).astype(np.float16)


def _narrow_model(weight: np.ndarray, scale: np.ndarray | None, in_node: bool = False) -> bytes:
    scaled = "b = Mul(a, s)" if scale is not None else "b = Identity(a)"
    model = onnx.parser.parse_model(
        f"{IR} g (float16[N,1024,32] x) => (float16[N,32] y) <int64[1] one = {{1}}> "
        f"{{ h = Sigmoid(x) a = MatMul(h, w) {scaled} y = ReduceMean<keepdims=0>(b, one) }}"
    )
    if in_node:
        constant = onnx.helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(weight))
        model.graph.node.insert(0, constant)
    else:
        model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    if scale is not None:
        model.graph.initializer.append(numpy_helper.from_array(scale, "s"))
    return model.SerializeToString()


@pytest.mark.parametrize("in_node", sampled([False, True], 2))
def test_a_scale_folded_into_a_16_bit_weight_may_round_it(in_node):
    before = _narrow_model(NARROW_WEIGHT, NARROW_SCALE, in_node)
    right = (NARROW_WEIGHT.astype(np.float64) * NARROW_SCALE).astype(np.float16)
    verdict = Verifier(before).verify(_narrow_model(right, None, in_node))
    assert verdict.status == "close" and verdict.needed is not None and verdict.needed["rtol"] > 2 * 2.0**-7
    for wrong in (NARROW_WEIGHT, right * np.float16(1.125), np.roll(right, 1, axis=1)):
        assert Verifier(before).verify(_narrow_model(wrong, None, in_node)).status == "different"
