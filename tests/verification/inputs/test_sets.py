"""Sets of inputs: how many, of which kinds, and that they show what a careless rewrite changes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from support.breadth import sampled

from surgery.base.operators.cost import estimate
from surgery.base.operators.deciding import DECIDING
from surgery.base.operators.distributions import ORDINARY
from surgery.base.operators.thresholds import marks, sizes, spared
from surgery.base.operators.use import Index, TypedIndex
from surgery.verification.inputs.comparisons import elements
from surgery.verification.inputs.dim_constraints import linear, solve
from surgery.verification.inputs.feed_plan import Binding, FeedPlan
from surgery.verification.inputs.input_sets import CHEAP, TRIVIAL, choose
from surgery.verification.inputs.spec import InputsSpec
from surgery.verification.verdict.verifier import Verifier


def _proto(body: str, opset: int = 21, extra: str = "") -> onnx.ModelProto:
    imports = f'"": {opset}' + (f", {extra}" if extra else "")
    return onnx.parser.parse_model(f"<ir_version: 10, opset_import: [{imports}]>\n{body}")


def _model(body: str, **options) -> bytes:
    return _proto(body, **options).SerializeToString()


def _prepared(body: str, **options) -> Verifier:
    verifier = Verifier(_model(body, **options))
    verifier.original.prepare()
    assert verifier.original.problem is None, verifier.original.problem
    return verifier


def _points(verifier: Verifier) -> list[dict[str, int]]:
    return [entry["dims"] for entry in verifier.original.bindings if "refused" not in entry]


# How many


FIRST, SECOND, THIRD = (Binding({"N": extent}) for extent in (2, 1, 5))


def test_an_expensive_model_runs_twice_at_two_points():
    assert [(item.dims["N"], item.character) for item in choose([FIRST, SECOND], 1.0)] == [(2, "normal"), (1, "edges")]


def test_a_cheap_model_runs_with_every_kind_of_data():
    chosen = choose([FIRST, SECOND, THIRD], CHEAP)
    assert {item.character for item in chosen} == set(ORDINARY)
    assert {item.dims["N"] for item in chosen} == {1, 2, 5}
    assert len(choose([FIRST], CHEAP)) == len(ORDINARY)


def test_large_outputs_need_no_further_seeds():
    few, many = choose([FIRST, SECOND, THIRD], TRIVIAL, size=2 << 20), choose([FIRST, SECOND, THIRD], TRIVIAL)
    assert few == many[: len(few)]
    assert {item.character for item in few} == set(ORDINARY)
    assert {item.dims["N"] for item in few} == {1, 2, 5}
    assert len(few) == 8 < len(choose([FIRST, SECOND, THIRD], TRIVIAL, size=1 << 20)) == 16 < len(many)


def test_the_size_of_outputs_is_what_runs_of_the_original_returned():
    """Inference ends at the Pad, so that only a run shows the size of the output."""
    body = """g (float[N,S] x) => (float[R,S] y) { s = Shape(x) z = Sub(s, s) p = Concat<axis = 0>(z, z) b = Pad(x, p)
        t = Constant<value = int64[2] {32768, 4}>() y = Tile(b, t) }"""
    found = _prepared(body).original
    sizes = [run.outputs["y"].nbytes for run in found.runs]
    assert found.found.size == max(sizes[:2]) >= 1 << 20
    assert len(ORDINARY) <= len(sizes) <= 16


def test_a_trivial_model_runs_with_every_kind_at_every_point():
    chosen = choose([FIRST, SECOND], TRIVIAL)
    assert len(chosen) >= 16
    assert {(item.dims["N"], item.character) for item in chosen} >= {(n, kind) for n in (1, 2) for kind in ORDINARY}
    assert len({(item.dims["N"], item.character, item.seed) for item in chosen}) == len(chosen)


def _cost(body: str, weights: int = 0) -> float:
    model = onnx.shape_inference.infer_shapes(_proto(body), data_prop=True)
    values = [*model.graph.input, *model.graph.value_info, *model.graph.output]
    shapes = {item.name: tuple(dim.dim_value for dim in item.type.tensor_type.shape.dim) for item in values}
    view = TypedIndex(Index(model), shapes)
    return estimate(view, weights, (value.name for value in model.graph.input), elements(view))


def test_an_unused_input_costs_its_generation():
    few, many = (_cost(f"g (float[{n},{n},{n}] u, float[4] x) => (float[4] y) {{ y = Neg(x) }}") for n in (2, 1600))
    assert many > CHEAP > few


def test_the_estimate_follows_the_work():
    small = _cost("g (float[8,8] x, float[8,8] w) => (float[8,8] y) { y = MatMul(x, w) }")
    large = _cost("g (float[4096,4096] x, float[4096,4096] w) => (float[4096,4096] y) { y = MatMul(x, w) }")
    loop = (
        "y = Loop(n, c, x) "
        "<body = b (int64 i, bool k, float[8,8] v) => (bool l, float[8,8] w) { l = Identity(k) w = Neg(v) }>"
    )
    assert small < TRIVIAL < CHEAP < large
    assert _cost("g (float[8,8] x) => (float[8,8] y) { y = Relu(x) }") < small
    assert _cost(f"g (float[8,8] x, int64 n, bool c) => (float[8,8] y) {{ {loop} }}") > small
    assert _cost("g (float[8] x) => (float[8] y) { y = Relu(x) }", 400 << 20) > CHEAP, "the weights of a BERT-base"


def test_unknown_sizes_are_guessed_from_operands_along_a_chain():
    model = _proto("g (float[1000,1000] x) => (float[1000,1000] y) { s = Exp(x) t = Abs(s) u = Neg(t) y = Exp(u) }")
    shape = (1000, 1000)
    known, unknown = (
        estimate(view, 0, ["x"], elements(view))
        for view in (TypedIndex(Index(model), dict.fromkeys(names, shape)) for names in ("xstuy", "x"))
    )
    assert unknown == pytest.approx(known)


TURNS = """g (float[{n},4] x, bool c) => (float[4] v, float[M,4] y) <int64 first = {{0}}> {{
    s = Shape(x)
    n = Gather(s, first)
    z = ReduceMean<keepdims = 0>(x)
    v, y = Loop(n, {condition}, z) <body = b (int64 i, bool k, float a) => (bool l, float w, float p) {{
        l = Identity(k) w = Neg(a) p = Abs(a) }}> }}"""


def test_the_estimate_counts_the_turns_of_a_loop_over_an_extent():
    few, many = (_cost(TURNS.format(n=n, condition='""')) for n in (30, 30_000))
    assert many > CHEAP > TRIVIAL > few
    few, many = (_cost(TURNS.format(n=n, condition="c")) for n in (30, 30_000))
    assert many < TRIVIAL, "the condition may end the loop at any time"


def test_the_estimate_counts_the_turns_of_a_scan():
    scan = """g (float[{n},4] x, float[4] s) => (float[4] t, float[{n},4] y) {{ t, y = Scan<num_scan_inputs = 1,
        body = b (float[4] c, float[4] e) => (float[4] d, float[4] f) {{ d = Add(c, e) f = Neg(d) }}>(s, x) }}"""
    few, many = (_cost(scan.format(n=n)) for n in (30, 30_000))
    assert many > CHEAP > TRIVIAL > few


def test_the_sets_do_not_depend_on_machine_load(monkeypatch):
    import time

    body = "g (float[N,3] x) => (float[N,3] y) { y = Relu(x) }"
    first = _prepared(body).original.bindings
    slow = iter(range(0, 10**9, 7))
    monkeypatch.setattr(time, "process_time", lambda: next(slow))
    assert _prepared(body).original.bindings == first


# What the graph compares with


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("<float low = {-2}, float high = {7}> { y = Clip(x, low, high) }", {-2, 7}),
        ("<float c = {4}> { b = Less(x, c) y = Where(b, x, c) }", {4}),
        ("<float c = {4}, float[2] d = {1, 3}> { a = Mul(x, c) b = Min(a, d) y = Neg(b) }", {0.25, 0.75}),
        ("<float c = {4}, float d = {1}> { a = Sub(c, x) b = Max(a, d) y = Neg(b) }", {3}),
        ("<float c = {4}> { m = Neg(c) b = Less(x, m) y = Where(b, x, c) }", {-4}),
        ("{ y = HardSigmoid<alpha = 0.5, beta = 1.0>(x) }", {-2}),
        ("{ a = HardSwish(x) y = ThresholdedRelu<alpha = 1.5>(a) }", {-3, 3}),
        ("{ y = Shrink<lambd = 0.75>(x) }", {-0.75, 0.75}),
        ("<float s = {0.5}, uint8 z = {2}> { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }", {-1, 126.5}),
        ("{ y = Selu(x) }", {-1, 1}),
    ],
    ids=["clip", "less", "scaled", "moved", "computed", "hard-sigmoid", "hard-swish", "shrink", "quantize", "selu"],
)  # fmt: skip
def test_marks_are_read_from_the_graph(body, expected):
    model = _proto(f"g (float[2] x) => (float[2] y) {body}")
    assert set(marks(TypedIndex(Index(model), {}), "x")) >= expected


def test_epsilons_set_the_scale_of_small_data():
    model = _proto("g (float[2,4] x, float[4] s) => (float[2,4] y) { y = LayerNormalization<epsilon = 1e-4>(x, s) }")
    view = TypedIndex(Index(model), {})
    assert sizes([node for node, _ in view.index.nodes], view)[0] == pytest.approx(1e-2)


def test_values_replaced_before_use_are_legal():
    body = """g (int64[3] t, float[3,5] x) => (float[3,1] y) <int64 gone = {-7}, int64 zero = {0}, int64[1] one = {1}> {
        out = Equal(t, gone)
        kept = Where(out, zero, t)
        place = Unsqueeze(kept, one)
        y = GatherElements<axis = 1>(x, place)
    }"""
    assert spared(TypedIndex(Index(_proto(body)), {}), "t") == (-7,)
    fed = np.concatenate([run.feed["t"] for run in _prepared(body).original.runs])
    assert {-7, 0, 4} <= set(fed.tolist()) <= {-7, 0, 1, 2, 3, 4}


X = "g (float[2,3] x) => (float[2,3] y)"
N = "g (float[2,4,6] x, float[4] s, float[4] b, float[4] m, float[4] v) => (float[2,4,6] y)"
NORMALIZATIONS = {
    "batch": (N, "y = BatchNormalization<epsilon = @>(x, s, b, m, v)", 21),
    "group": (N, "y = GroupNormalization<num_groups = 2, epsilon = @>(x, s, b)", 21),
    "instance": (N, "y = InstanceNormalization<epsilon = @>(x, s, b)", 21),
    "layer": ("g (float[2,4] x, float[4] s) => (float[2,4] y)", "y = LayerNormalization<epsilon = @>(x, s)", 21),
    "rms": ("g (float[2,4] x, float[4] s) => (float[2,4] y)", "y = RMSNormalization<epsilon = @>(x, s)", 23),
}


@pytest.mark.parametrize("name", sampled(NORMALIZATIONS, 3))
@pytest.mark.parametrize("epsilon", ["1e-5", "1e-12"])
def test_a_changed_epsilon_is_found(name, epsilon):
    signature, body, opset = NORMALIZATIONS[name]
    before, after = (f"{signature} {{ {body.replace('@', e)} }}" for e in (epsilon, epsilon.replace("1e", "1.5e")))
    assert Verifier(_model(before, opset=opset)).verify(_model(after, opset=opset)).status == "different"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("<float a = {0}, float b = {6}> {y = Clip(x, a, b)}", "<float a = {0}, float b = {5.9}> {y = Clip(x, a, b)}"),
        ("<float c = {37}> { y = Min(x, c) }", "<float c = {37.2}> { y = Min(x, c) }"),
        ("<float c = {37}, float d = {1}> { b = Less(x, c) y = Where(b, d, x) }",
         "<float c = {37}, float d = {1}> { b = LessOrEqual(x, c) y = Where(b, d, x) }"),
        ("{ y = ThresholdedRelu<alpha = 40.0>(x) }", "{ y = ThresholdedRelu<alpha = 41.0>(x) }"),
        ("{ y = Round(x) }", "<float h = {0.5}> { a = Add(x, h) y = Floor(a) }"),
    ],
    ids=["clip", "min", "less", "threshold", "round"],
)  # fmt: skip
def test_a_moved_bound_is_found(before, after):
    assert Verifier(_model(f"{X} {before}")).verify(_model(f"{X} {after}")).status == "different"


def test_tied_inputs_distinguish_the_first_from_the_last_maximum():
    body = "g (float[3,4] x) => (int64[3,1] y) {{ y = ArgMax<axis = 1, select_last_index = {}>(x) }}"
    assert Verifier(_model(body.format(0))).verify(_model(body.format(1))).status == "different"


def test_inputs_take_equal_values():
    body = "g (float[4] x, float[4] z) => (bool[4] y) {{ y = {}(x, z) }}"
    assert Verifier(_model(body.format("Less"))).verify(_model(body.format("LessOrEqual"))).status == "different"


def test_shapes_that_are_computed_are_observed():
    """Shape inference does not see through the Reshape, so that the labels could be anything."""
    verifier = _prepared(
        """g (float[3,7] x, int64[3] t) => (float z) {
            s = Shape(x) l = LogSoftmax(x) r = Reshape(l, s) e = Exp(r)
            z = NegativeLogLikelihoodLoss(e, t)
        }"""
    )
    assert {0, 6} <= set(np.concatenate([run.feed["t"] for run in verifier.original.runs]).tolist())


# Dims that follow from others


def test_sums_of_dims_are_solved():
    names = ["a", "b", "c", "d"]
    assert solve(iter([("c", "a + b"), ("d", "2*c")]), names) == {"c": {"a": 1, "b": 1}, "d": {"a": 2, "b": 2}}
    assert solve(iter([("d", "c"), ("c", "b")]), names) == {"d": {"b": 1}, "c": {"b": 1}}
    assert solve(iter([("a", 7), ("b", 1), ("c", "c"), ("d", "a*b")]), names) == {"a": {"": 7}}
    assert solve(iter([("a - b", "c")]), names) == {"a": {"b": 1, "c": 1}}
    assert linear("2 * (a + 3) - a", {"a": "a"}) == {"a": 1, "": 6}
    assert linear("a // 2", {"a": "a"}) is None


CACHE = """
    g (float[batch,4,past,8] k, float[batch,4,sequence,8] n, float[batch,4,sequence,8] q, float[batch,1,1,length] mask)
    => (float[A,B,C,D] y) {
        c = Concat<axis = 2>(k, n)
        t = Transpose<perm = [0, 1, 3, 2]>(c)
        s = MatMul(q, t)
        m = Add(s, mask)
        p = Softmax(m)
        y = MatMul(p, c)
    }
"""


def test_a_mask_is_as_long_as_past_and_present_together():
    verifier = _prepared(CACHE)
    points = _points(verifier)
    # A mask of one position is broadcast.
    assert all(point["length"] in (1, point["past"] + point["sequence"]) for point in points)
    assert all(point["length"] > 1 for point in points[: len(ORDINARY)])
    for name in ("batch", "past", "sequence", "length"):
        assert len({point[name] for point in points}) > 1, name
    assert len([entry for entry in verifier.original.bindings if "refused" in entry]) <= 12


def test_channels_match_the_kernel():
    w = "float[2,3,1,1] w = {1, 2, 3, 4, 5, 6}"
    points = _points(_prepared(f"g (float[N,C,H,W] x) => (float[N,2,H,W] y) <{w}> {{ y = Conv(x, w) }}"))
    assert {point["C"] for point in points} == {3}
    assert all(len({point[name] for point in points}) > 1 for name in "NHW")


def test_dims_of_the_user_are_not_overruled():
    plan = FeedPlan(_proto(CACHE), InputsSpec(dims={"length": (12,)}))
    tied = plan.dims.tied({"length": {"past": 1, "sequence": 1}})
    assert "length" in tied.names
    assert tied.ties == {}


@pytest.mark.parametrize("character", ["normal", "wide", *sorted(DECIDING)])
def test_inputs_that_no_guard_reads_get_normal_data_with_those_made_for_guards(character: str) -> None:
    binding = Binding({}, character, ports=("mask",))
    assert binding.decides("mask") == (character in DECIDING)
    assert not binding.decides("x")
    assert binding.ordinary == ("normal" if character in DECIDING else character)
