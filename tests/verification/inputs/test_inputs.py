"""Legal inputs: found from the graph, varied in every dim, the same for the same seed."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from surgery.base.errors import UsageError
from surgery.base.operators.deciding import DECIDING
from surgery.verification.comparing.compare import same_bits
from surgery.verification.comparing.reference_run import ReferenceRun
from surgery.verification.inputs.dims import Dims
from surgery.verification.inputs.feed_plan import FeedPlan
from surgery.verification.inputs.spec import InputsSpec, TensorSpec, VerifySpec
from surgery.verification.verdict.verifier import Verifier


def _model(body: str, ir: int = 10, opset: int = 21, extra: str = "") -> bytes:
    imports = f'"": {opset}' + (f", {extra}" if extra else "")
    return onnx.parser.parse_model(f"<ir_version: {ir}, opset_import: [{imports}]>\n{body}").SerializeToString()


def _prepared(body: str, inputs: InputsSpec | None = None, seed: int = 0, **options) -> Verifier:
    verifier = Verifier(_model(body, **options), inputs, VerifySpec(seed=seed))
    verifier.original.prepare()
    assert verifier.original.problem is None, verifier.original.problem
    return verifier


def _fed(verifier: Verifier, name: str) -> np.ndarray:
    """All elements that an input was given, over all runs."""
    return np.concatenate([np.asarray(run.feed[name]).reshape(-1) for run in verifier.original.runs])


def _refused(verifier: Verifier) -> list[str]:
    return [entry["refused"] for entry in verifier.original.bindings if "refused" in entry]


TABLE = "float[11,4] w = {" + ", ".join(str(i / 7) for i in range(44)) + "}"


IDS = f"g (int64[N,S] ids) => (float[A,B,C] y) <{TABLE}, int64[2] flat = {{1, -1}}, int64 c = {{@}}>"


@pytest.mark.parametrize(
    "body",
    [
        f"{IDS} {{ y = Gather(w, ids) }}",
        f"{IDS} {{ i = Cast<to=6>(ids) y = Gather(w, i) }}",
        f"{IDS} {{ i = Reshape(ids, flat) y = Gather(w, i) }}",
        f"{IDS.replace('@', '2')} {{ i = Add(ids, c) y = Gather(w, i) }}",
        f"{IDS.replace('@', '10')} {{ i = Sub(c, ids) y = Gather(w, i) }}",
        f"{IDS.replace('@', '3')} {{ i = Mul(ids, c) y = Gather(w, i) }}",
        f"""{IDS.replace(")", ", bool b)", 1)} {{
            y = If(b) <then_branch = g1 () => (float[A,B,C] p) {{ p = Gather(w, ids) }},
                       else_branch = g2 () => (float[A,B,C] q) {{ i = Identity(ids) q = Gather(w, i) }}>
        }}""",
    ],
    ids=["direct", "cast", "reshape", "add", "sub", "mul", "if"],
)
def test_token_ids_stay_within_the_vocabulary(body):
    verifier = _prepared(body.replace("@", "0"))
    assert _refused(verifier) == [], "legal at the first try"
    assert len(set(_fed(verifier, "ids").tolist())) > 2


def test_token_ids_are_followed_into_a_function():
    text = f"""<ir_version: 10, opset_import: ["": 21, "d": 1]>
        g (int64[N,S] ids) => (float[N,S,4] y) <{TABLE}> {{ y = d.lookup(ids, w) }}
        <domain: "d", opset_import: ["": 21]>
        lookup (i, t) => (o) {{ c = Identity(i) o = Gather(t, c) }}"""
    verifier = Verifier(onnx.parser.parse_model(text).SerializeToString())
    verifier.original.prepare()
    assert _refused(verifier) == []
    fed = _fed(verifier, "ids")
    assert fed.min() >= 0
    assert fed.max() <= 10
    assert len(set(fed.tolist())) > 5


def test_both_ends_of_the_vocabulary_are_used():
    fed = _fed(_prepared(f"g (int64[N,S] ids) => (float[N,S,4] y) <{TABLE}> {{ y = Gather(w, ids) }}"), "ids")
    assert {0, 10} <= set(fed.tolist())


def test_an_attention_mask_has_zeros_and_ones_but_no_fully_masked_row_in_ordinary_data():
    verifier = _prepared(
        """g (int64[N,S] attention_mask, float[N,S] x) => (float[N,S] y)
           <float one = {1}, float low = {-10000}> {
             f = Cast<to=1>(attention_mask) i = Sub(one, f) m = Mul(i, low) s = Add(x, m) y = Softmax(s) }"""
    )
    assert set(_fed(verifier, "attention_mask").tolist()) == {0, 1}
    ordinary = [run for run in verifier.original.runs if run.binding.character not in DECIDING]
    assert all(run.feed["attention_mask"].any(axis=-1).all() for run in ordinary)


@pytest.mark.parametrize(
    "body",
    [
        "g (float[4,5] x, int64[2] i) => (float[2,5] y) { y = Gather(x, i) }",
        "g (float[4,5] x, int64[3,5] i) => (float[3,5] y) { y = GatherElements(x, i) }",
        "g (float[4,5] x, int64[3,2] i) => (float[3] y) { y = GatherND(x, i) }",
        "g (float[4,5] x, int64[3,1] i, float[3,5] u) => (float[4,5] y) { y = ScatterND(x, i, u) }",
        "g (float[4,5] x, int64[2,5] i, float[2,5] u) => (float[4,5] y) { y = ScatterElements(x, i, u) }",
        "g (float[4,5] x, int64[1] k) => (float[4,2] y, int64[4,2] i) { y, i = TopK(x, k) }",
        "g (int64[3] i, int64 d, float[2] v) => (float[3,7] y) { y = OneHot(i, d, v) }",
        "g (float[6] x, int64[2] s) => (float[2,3] y) { y = Reshape(x, s) }",
        "g (float[6] x, int64[2] s) => (float[A,B] y) { y = Reshape(x, s) }",
        "g (float[3,1] x, int64[3] s) => (float[2,3,4] y) { y = Expand(x, s) }",
        "g (float[2,3] x, int64[2] r) => (float[4,9] y) { y = Tile(x, r) }",
        "g (float[9,9] x, int64[2] b, int64[2] e, int64[2] a, int64[2] s) => (float[3,5] y) { y = Slice(x,b,e,a,s) }",
        "g (float[9] x, int64[1] b, int64[1] e) => (float[K] y) { y = Slice(x, b, e) }",
        "g (float[2,3] x, int64[4] p) => (float[5,4] y) { y = Pad(x, p) }",
        "g (float[1,1,4,4] x, int64[4] s) => (float[1,1,8,6] y) { y = Resize(x, , , s) }",
        "g (float[1,1,4,4] x, float[4] s) => (float[1,1,8,6] y) { y = Resize(x, , s) }",
        "g (int64 a, int64 b, int64 c) => (int64[5] y) { y = Range(a, b, c) }",
        "g (float a, float b, float c) => (float[K] y) { y = Range(a, b, c) }",
        "g (int64[2] s) => (float[3,4] y) { y = ConstantOfShape(s) }",
        "g (float[2,3] x, int64[1] a) => (float[2] y) { y = ReduceSum<keepdims=0>(x, a) }",
        "g (float[2,3] x, int64[2] a) => (float[2,1,3,1] y) { y = Unsqueeze(x, a) }",
        "g (float[2,1,3] x, int64[1] a) => (float[2,3] y) { y = Squeeze(x, a) }",
        "g (float[7] x, int64[2] s) => (float[3] y, float[4] z) { y, z = Split(x, s) }",
        "g (float[4,5] x, int64 a) => (float[4,5] y) { y = CumSum(x, a) }",
        "g (float[5,2,3] x, int64[2] n) => (float[5,2,3] y) { y = ReverseSequence(x, n) }",
        "g (float[1,3,9,9] x, float[2,4] r, int64[2] b) => (float[2,3,2,2] y) "
        "{ y = RoiAlign<output_height=2, output_width=2>(x, r, b) }",
        "g (seq(float[2]) s, int64 i) => (float[2] y) { y = SequenceAt(s, i) }",
        "g (int32[4] x, int32[4] d) => (int32[4] y) { y = Div(x, d) }",
        "g (int64[4] x, int64[4] d) => (int64[4] y) { y = Mod(x, d) }",
        'g (uint8[4] x, uint8[4] d) => (uint8[4] y) { y = BitShift<direction="LEFT">(x, d) }',
        "g (float[N,3] x, int64 n, bool c) => (float[N,3] y) "
        "{ y = Loop(n, c, x) <body = b (int64 i, bool k, float[N,3] v) => (bool k2, float[N,3] w) "
        "{ k2 = Identity(k) w = Neg(v) }> }",
        'g (float[3,5,2] x, int64[3,2] t) => (float y) { y = NegativeLogLikelihoodLoss<reduction="sum">(x, t) }',
        "g (uint8[2,3] x, float s, uint8 z) => (float[2,3] y) { y = DequantizeLinear(x, s, z) }",
        "g (float[1,8,1] x, int64 n) => (float[1,4,2] y) { y = DFT<axis = 1>(x, n) }",
        "g (float[1,8,1] x, int64 n) => (float[1,N,2] y) { y = DFT<axis = 1, onesided = 1>(x, n) }",
    ],
    ids=lambda body: body.partition(") {")[2].split("(")[0].strip() or body[:20],
)
def test_operators_get_legal_inputs_at_the_first_attempt(body):
    verifier = _prepared(body)
    assert _refused(verifier) == []
    assert not verifier.original.vacuous[next(iter(verifier.original.vacuous))], verifier.original.vacuous


def test_the_condition_of_where_has_both_values_at_each_element():
    verifier = _prepared("g (bool[2,3] c, float[2,3] x, float[2,3] y) => (float[2,3] z) { z = Where(c, x, y) }")
    conditions = np.stack([run.feed["c"] for run in verifier.original.runs])
    assert conditions.any(axis=0).all()
    assert not conditions.all(axis=0).any()


def test_generated_boxes_overlap_around_the_thresholds():
    body = """g (float[1,9,4] b, float[1,1,9] s, int64 n, float i, float t) => (int64[K,3] y)
              {{ y = NonMaxSuppression<center_point_box = {}>(b, s, n, i, t) }}"""
    assert Verifier(_model(body.format(0))).verify(_model(body.format(1))).status == "different"
    kept = [run.outputs["y"].shape[0] for run in _prepared(body.format(0)).original.runs]
    assert len(set(kept)) > 1


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("seed", range(8))
def test_the_first_and_the_last_of_equal_elements_are_distinguished(op: str, seed: int) -> None:
    body = f"g (float[N,S] x) => (int64[N,T] y) {{{{ y = {op}<axis = 1{{}}>(x) }}}}"
    verifier = Verifier(_model(body.format("")), None, VerifySpec(seed=seed))
    assert verifier.verify(_model(body.format(", select_last_index = 1"))).status == "different"


def test_drawn_words_include_variants_of_stopwords():
    body = 'g (string[4] x) => (string[N] y) { y = StringNormalizer<stopwords = ["Monday"]>(x) }'
    words = set(_fed(_prepared(body), "x").tolist())
    assert {"Monday", "monday", "MONDAY"} < words


@pytest.mark.parametrize("attribute", ['classes_strings = ["a", "bc"]', 'keys_strings = ["a", "bc"]'])
def test_words_are_drawn_from_the_table_of_an_encoder(attribute: str) -> None:
    version = 1 if attribute.startswith("classes") else 4
    values = "" if version == 1 else ", values_int64s = [0, 1]"
    body = f"g (string[60] x) => (int64[N] y) {{ y = ai.onnx.ml.LabelEncoder<{attribute}{values}>(x) }}"
    verifier = _prepared(body, extra=f'"ai.onnx.ml": {version}')
    assert {str(word) for word in _fed(verifier, "x")} == {"a", "bc", "unknown"}


def test_positions_are_drawn_from_the_list_of_an_encoder() -> None:
    body = 'g (int64[60] x) => (string[N] y) { y = ai.onnx.ml.LabelEncoder<classes_strings = ["a", "bc"]>(x) }'
    assert set(_fed(_prepared(body, extra='"ai.onnx.ml": 1'), "x").tolist()) == {-1, 0, 1, 2}


def test_a_cast_of_what_a_branch_passes_on_leaves_the_input_as_it_is() -> None:
    # Nothing before the Cast is text, and the condition of the If is computed from nothing.
    body = """g (float[2,N] x) => (int64[A,B] y) {
        c = Constant<value = bool {1}>()
        i = If(c)<then_branch = t () => (a) { a = Identity(x) }, else_branch = e () => (b) { b = Neg(x) }>
        y = Cast<to = 7>(i)
    }"""
    assert _fed(_prepared(body), "x").dtype == np.float32


def test_the_target_of_a_reshape_is_spelled_in_several_ways():
    fed = _fed(_prepared("g (float[2,3] x, int64[2] s) => (float[A,B] y) { y = Reshape(x, s) }"), "s")
    assert {-1, 0, 2} <= set(fed.tolist())


def test_an_optional_input_is_sometimes_empty():
    verifier = _prepared("g (optional(float[2]) o) => (bool y) { y = OptionalHasElement(o) }", opset=18)
    assert {run.feed["o"] is None for run in verifier.original.runs} == {True, False}


def test_an_input_that_is_not_optional_is_never_empty():
    verifier = _prepared("g (float[2] x) => (bool y) { y = OptionalHasElement(x) }", opset=18)
    assert not any(run.feed["x"] is None for run in verifier.original.runs)


def test_all_scales_of_a_quantized_product_are_small_and_positive():
    quantized = [f"{kind}8[2,2] {name}, float s{name}, {kind}8 z{name}" for kind, name in (("uint", "a"), ("int", "b"))]
    body = "y = QLinearMatMul(a, sa, za, b, sb, zb, sy, zy)"
    verifier = _prepared(f"g ({', '.join(quantized)}, float sy, uint8 zy) => (uint8[2,2] y) {{ {body} }}")
    for name in ("sa", "sb", "sy"):
        scales = _fed(verifier, name)
        assert scales.min() >= 0.0199 and scales.max() <= 0.101, name


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        ("bool", "b"), ("string", "O"), ("float16", "f"), ("bfloat16", "V"), ("double", "f"), ("int4", "V"),
        ("uint4", "V"), ("float8e4m3fn", "V"), ("float8e5m2", "f"), ("uint8", "u"), ("int16", "i"), ("uint64", "u"),
    ],
)  # fmt: skip
def test_every_element_type_of_the_runtime_can_be_fed(dtype, kind):
    code = {"int4": 22, "uint4": 21}.get(dtype)
    from support.installed import has_kernel

    if code and not has_kernel("Cast", dtype):
        pytest.skip(f"ONNX Runtime {onnxruntime.__version__} casts no {dtype}")
    body = f"t = Cast<to=1>(x) y = Cast<to={code}>(t)" if code else "y = Identity(x)"
    verifier = _prepared(f"g ({dtype}[N,3] x) => ({dtype}[N,3] y) {{ {body} }}")
    assert verifier.original.engine == "onnxruntime"
    run = verifier.original.runs[0]
    assert run.feed["x"].dtype.kind == kind
    assert run.outputs["y"].dtype == run.feed["x"].dtype
    assert same_bits(run.outputs["y"], run.feed["x"])


def test_complex_numbers_run_in_the_reference_evaluator():
    verifier = _prepared("g (complex64[N,3] x) => (complex64[N,3] y) { y = Identity(x) }")
    assert verifier.original.engine == "reference"
    assert verifier.original.runs[0].feed["x"].dtype == np.complex64


def test_the_runtime_has_ended_when_the_reference_evaluator_starts(monkeypatch):
    made, running = ReferenceRun._engine, []

    def noted(self, anew=False):
        if self.engine == "reference":
            running.append(self.inputs.worker._worker.pid)
        return made(self, anew)

    monkeypatch.setattr(ReferenceRun, "_engine", noted)
    _prepared("g (complex64[N,3] x) => (complex64[N,3] y) { y = Identity(x) }")
    assert running[0] is None


def test_sequences_and_optionals_are_fed():
    verifier = _prepared(
        """g (seq(float[N]) s, optional(float[N]) o) => (float[M] y, float[N] z)
           { y = ConcatFromSequence<axis=0>(s) z = OptionalGetElement(o) }"""
    )
    run = verifier.original.runs[0]
    assert isinstance(run.feed["s"], list)
    assert run.outputs["y"].size == sum(item.size for item in run.feed["s"])


def test_an_overridable_initializer_is_not_fed():
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x, float[2] w = {1, 2}) => (float[2] y) { y = Add(x, w) }'
    )
    assert [value.name for value in model.graph.input] == ["x", "w"]
    verifier = Verifier(model.SerializeToString())
    verifier.original.prepare()
    assert set(verifier.original.runs[0].feed) == {"x"}


# Dims


def _points(verifier: Verifier) -> list[dict[str, int]]:
    points = [entry["dims"] for entry in verifier.original.bindings if "refused" not in entry]
    return [point for index, point in enumerate(points) if point not in points[:index]]


def test_every_dim_gets_two_extents_and_no_two_dims_the_same():
    verifier = _prepared("g (float[batch,sequence,4] x, float[batch,?] z) => (float[a,b,c] y, float[d,e] w) "
                         "{ y = Relu(x) w = Relu(z) }")  # fmt: skip
    points = _points(verifier)
    assert len(points) >= 2
    assert set(points[0]) == {"batch", "sequence", "z[1]"}
    for point in points[:2]:
        assert len(set(point.values())) == 3
    assert all(any(point[name] == 1 for point in points) for name in points[0])
    assert all(points[0][name] != points[1][name] for name in points[0])


def test_a_wrong_dim_is_detected_and_reported():
    verifier = _prepared(
        """g (float[N,S] x) => (float[N,S] y) <int64[2] s = {-1, 7}, float[1,7] w = {1, 2, 3, 4, 5, 6, 7}>
           { a = Reshape(x, s) y = Mul(a, w) }"""
    )
    assert {point["S"] * point["N"] % 7 for point in _points(verifier)} == {0}
    assert _refused(verifier)


def test_dims_that_must_be_equal_are_moved_together():
    verifier = _prepared("g (float[A] x, float[B] z) => (float[C] y) "
                         "{ s = Shape(x) r = Reshape(z, s) y = Add(x, r) }")  # fmt: skip
    points = _points(verifier)
    assert len(points) >= 2
    assert all(point["A"] == point["B"] for point in points)
    assert points[0] != points[1]


def test_a_sum_of_dims_is_respected():
    verifier = _prepared("g (float[past] p, float[now] n, float[total] m) => (float[K] y) "
                         "{ c = Concat<axis=0>(p, n) s = Shape(c) r = Reshape(m, s) y = Add(c, r) }")  # fmt: skip
    points = _points(verifier)
    assert points
    assert all(point["past"] + point["now"] == point["total"] for point in points)


def test_a_dim_may_be_an_expression_over_others():
    model = onnx.load_model_from_string(_model("g (float[past] p, float[x] m) => (float[K] y) "
                                               "{ c = Concat<axis=0>(p, p) y = Add(c, m) }"))  # fmt: skip
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "2*past"
    verifier = Verifier(model.SerializeToString())
    verifier.original.prepare()
    assert _refused(verifier) == []
    assert {name for point in _points(verifier) for name in point} == {"past"}


def test_an_image_model_gets_a_legal_size():
    verifier = _prepared(
        """g (float[batch,1,height,width] x) => (float[a,b,c,d] y)
           <float[1,1,16,16] w = {""" + ", ".join(["0.1"] * 256) + """}> { y = Conv<strides=[16,16]>(x, w) }"""
    )  # fmt: skip
    points = _points(verifier)
    assert min(point["height"] for point in points) >= 16
    assert len({point["height"] for point in points}) > 1
    assert len({point["batch"] for point in points}) > 1


def test_a_speech_model_gets_a_waveform_that_leaves_several_positions():
    taps = "float[2,1,400] w = {" + ", ".join(str((i % 7 - 3) / 50) for i in range(800)) + "}"
    body = f"""g (float[N,samples] x) => (float[N,2,T] y) <{taps}, int64[1] one = {{1}}>
        {{ u = Unsqueeze(x, one) y = Conv<strides=[320]>(u, w) }}"""
    points = _points(_prepared(body))
    assert all(point["samples"] >= 400 + 3 * 320 for point in points)
    assert len({point["samples"] for point in points}) > 1
    assert len({point["N"] for point in points}) > 1


def test_dims_of_a_recipe_are_used():
    verifier = _prepared("g (float[N,S] x) => (float[N,S] y) { y = Relu(x) }", InputsSpec(dims={"S": (8, 21)}))
    assert {point["S"] for point in _points(verifier)} == {8, 21}


def test_only_dims_of_a_recipe_are_tried():
    dims = Dims(("N", "S"), {"S": (8,)})
    assert {point["S"] for point in dims.ladder()} == {8}


def test_a_given_tensor_binds_the_dims_that_can_be_chosen(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((3, 4, 5, 6), np.float32))
    model = _model("g (float[N,M,5,P] x, float[N,Q] z) => (float[N,Q] y) { y = Neg(z) }")
    plan = FeedPlan(onnx.load_model_from_string(model), InputsSpec(tensors={"x": TensorSpec(file=tmp_path / "x.npy")}))
    assert plan.dims.wishes == {"N": (3,), "M": (4,), "P": (6,)}


def test_images_are_larger_than_the_reach_of_the_kernels():
    w = "float[1,1,3,3] w = {" + ", ".join(str(i + 1) for i in range(9)) + "}"
    layers = " ".join(f"a{i + 1} = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(a{i}, w)" for i in range(4))
    body = f"g (float[N,1,H,W] a0) => (float[A,B,C,D] a4) <{w}> {{ {layers} }}"
    points = _points(_prepared(body))
    assert len({point["H"] for point in points}) > 1
    assert all(min(point["H"], point["W"]) >= 32 and point["N"] < 5 for point in points[:2])
    # A tap at the edge of the kernel of the last layer, where a small image has nothing but padding
    wrong = _model(
        body.replace(
            "Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(a3, w)", "Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(a3, v)"
        ).replace(f"<{w}>", f"<{w}, {w.replace(' w =', ' v =').replace('9}', '9.5}')}>")
    )
    assert Verifier(_model(body)).verify(wrong).status == "different"


def test_a_small_image_size_is_found_if_required():
    body = """g (float[N,1,H,W] x) => (float[N,1,A,B] y) <int64[4] s = {0, 1, 1, 15}> {
        a = Reshape(x, s)
        y = MaxPool<kernel_shape = [1, 1]>(a)
    }"""
    points = _points(_prepared(body))
    assert points and all(point["H"] * point["W"] == 15 for point in points)


# What the recipe says


def test_ranges_and_values_of_a_recipe_are_used():
    tensors = {"a": TensorSpec(range=(3, 5)), "b": TensorSpec(values=(0.25, 7.0)), "c": TensorSpec(values=("x",))}
    verifier = _prepared(
        "g (int64[N,9] a, float[N,9] b, string[N] c) => (int64[N,9] x, float[N,9] y, string[N] z) "
        "{ x = Identity(a) y = Identity(b) z = Identity(c) }",
        InputsSpec(tensors=tensors),
    )
    assert set(_fed(verifier, "a").tolist()) == {3, 4, 5}
    assert set(_fed(verifier, "b").tolist()) == {0.25, 7.0}
    assert set(_fed(verifier, "c").tolist()) == {"x"}


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_a_file_of_a_recipe_is_used_and_fixes_the_dims(tmp_path, suffix):
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    path = Path(tmp_path, f"x{suffix}")
    if suffix == ".npy":
        np.save(path, array)
    else:
        np.savez(path, x=array, other=array)
    verifier = _prepared(
        "g (float[N,S] x, float[S] z) => (float[N,S] y) { y = Add(x, z) }",
        InputsSpec(tensors={"x": TensorSpec(file=path)}),
    )
    assert all(run.feed["x"].tolist() == array.tolist() for run in verifier.original.runs)
    assert _points(verifier) == [{"N": 3, "S": 4}]


def test_mistakes_in_a_recipe_are_named(tmp_path):
    body = "g (float[N] x) => (float[N] y) { y = Relu(x) }"
    with pytest.raises(UsageError, match=r"no input 'z'.*its inputs are x"):
        _prepared(body, InputsSpec(tensors={"z": TensorSpec(values=(1,))}))
    path = tmp_path / "x.npy"
    with pytest.raises(UsageError, match="cannot be read"):
        _prepared(body, InputsSpec(tensors={"x": TensorSpec(file=path)}))
    np.save(path, np.zeros((2, 2), np.float32))
    with pytest.raises(UsageError, match="rank 2, not 1"):
        _prepared(body, InputsSpec(tensors={"x": TensorSpec(file=path)}))


# Sameness


MIXED = """
    g (float[N,S] x, int64[N] i, bool[S] b, string[2] s, bfloat16[N] h)
    => (float[N,S] y, int64[N] j, bool[S] c, string[2] t, bfloat16[N] k)
    { y = Relu(x) j = Identity(i) c = Not(b) t = Identity(s) k = Identity(h) }
"""


def _digest(seed: int) -> str:
    verifier = _prepared(MIXED, seed=seed)
    total = hashlib.sha256()
    for run in verifier.original.runs:
        for name in sorted(run.feed):
            array = run.feed[name]
            total.update(repr(array.tolist()).encode() if array.dtype.kind == "O" else array.tobytes())
    return total.hexdigest()


def test_the_same_seed_gives_the_same_bytes_in_any_process():
    from support import lacking

    if lacking.computes_types.args[0]:
        pytest.skip(lacking.computes_types.kwargs["reason"])
    script = "from test_inputs import _digest; print(_digest(5))"
    home = Path(__file__).parent
    other = subprocess.run([sys.executable, "-c", script], cwd=home, stdout=subprocess.PIPE, text=True, check=True)
    assert other.stdout.strip() == _digest(5)
    assert _digest(6) != _digest(5)


def test_the_data_have_different_characters():
    fed = [run.feed["x"] for run in _prepared("g (float[64,64] x) => (float[64,64] y) { y = Relu(x) }").original.runs]
    assert len({array.tobytes() for array in fed}) == len(fed) >= 4
    everything = np.concatenate([array.reshape(-1) for array in fed])
    assert np.abs(everything).max() > 50
    assert (everything == 6).any()
    assert (np.signbit(everything) & (everything == 0)).any()
    assert any((array >= 0).all() and (array < 1).all() for array in fed)
