"""Models in float64: the same computation, and the judgement of rounding by it."""

from __future__ import annotations

import tracemalloc

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto

from surgery.model.runtime import expand, float64
from surgery.model.runtime.float64 import run
from surgery.model.runtime.float64_model import UnavailableError, widen
from surgery.model.runtime.type_strings import FLOATS
from surgery.model.targets.kernels import NO_FLOAT64, Kernels, choose, installed

IR = '<ir_version: 10, opset_import: ["": 21]>'
LIMIT = 1 << 28
RNG = np.random.default_rng(0)


def _model(body: str, header: str = IR) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"{header}\n{body}")


def _wide(model: onnx.ModelProto, **feed):
    answer = run(model.SerializeToString(), [feed], LIMIT)
    assert "runs" in answer, answer
    assert not isinstance(answer["runs"][0], str), answer
    return answer["runs"][0], answer["narrow"]


X = "(float[N,S] x) => (float[N,S] y)"
TYPES = {"float": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}


def _f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def test_arithmetic_is_done_in_float64():
    x = _f32(2, 3)
    found, narrow = _wide(_model(f"g {X} {{ c = Constant<value_float=3.0>() d = Div(x, c) y = Mul(d, c) }}"), x=x)
    assert found["y"].dtype == np.float64
    assert narrow == []
    np.testing.assert_allclose(found["y"], x.astype(np.float64), rtol=1e-15)


CONSTANTS = {
    "float": "c = Constant<value_float=0.1>() y = Mul(x, c)",
    "floats": "c = Constant<value_floats=[0.1]>() y = Mul(x, c)",
    "tensor": "c = Constant<value=float {0.1}>() y = Mul(x, c)",
    "of shape": "s = Shape(x) c = ConstantOfShape<value=float[1] {0.1}>(s) y = Mul(x, c)",
    "of shape, by default": "s = Shape(x) c = ConstantOfShape(s) d = Constant<value_float=0.1>() "
    "e = Add(c, d) y = Mul(x, e)",
    "cast": "h = Cast<to=10>(x) c = Constant<value_float=0.1>() d = Cast<to=1>(h) y = Mul(d, c)",
    "cast like": "i = Cast<to=7>(x) d = CastLike(i, x) s = Sub(x, d) a = Add(s, d) c = Constant<value_float=0.1>() "
    "y = Mul(a, c)",
    "branches": "b = Constant<value=bool {1}>() y = If(b) <then_branch = t () => (float[N,S] u) "
    "{ c = Constant<value_float=0.1>() u = Mul(x, c) }, else_branch = e () => (float[N,S] v) { v = Neg(x) }>",
    "loop": "n = Constant<value=int64 {1}>() t = Constant<value=bool {1}>() c = Constant<value_float=0.1>() "
    "y = Loop(n, t, x) <body = b (int64 i, bool k, float[N,S] v) => (bool l, float[N,S] w) "
    "{ l = Identity(k) w = Mul(v, c) }>",
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_every_way_to_write_a_number_is_widened(name):
    x = _f32(2, 3)
    found, narrow = _wide(_model(f"g {X} {{ {CONSTANTS[name]} }}"), x=x)
    np.testing.assert_allclose(found["y"], x.astype(np.float64) * float(np.float32(0.1)), rtol=1e-15)
    assert narrow == []


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_initializers_of_all_narrow_types_are_widened(dtype):
    kind = {np.float16: "float16", ml_dtypes.bfloat16: "bfloat16"}[dtype]
    model = _model(f"g ({kind}[N] x) => ({kind}[N] y) {{ y = Mul(x, c) }}")
    model.graph.initializer.append(onnx.helper.make_tensor("c", TYPES[kind], [], [0.1]))
    x = RNG.standard_normal(3).astype(dtype)
    np.testing.assert_allclose(_wide(model, x=x)[0]["y"], x.astype(np.float64) * float(dtype(0.1)), rtol=1e-15)


def test_functions_are_widened():
    model = _model(
        'g (float[N] x) => (float[N] y) { y = d.f(x) } <domain: "d", opset_import: ["": 21]> '
        "f (i) => (o) { c = Constant<value_float=0.1>() o = Mul(i, c) }",
        '<ir_version: 10, opset_import: ["": 21, "d": 1]>',
    )
    x = _f32(5)
    np.testing.assert_allclose(_wide(model, x=x)[0]["y"], x.astype(np.float64) * float(np.float32(0.1)), rtol=1e-15)


def test_sequences_and_optionals_are_widened():
    model = _model("g (float[N] x) => (seq(float[N]) y) { n = Neg(x) y = SequenceConstruct(x, n) }")
    found, _ = _wide(model, x=_f32(3))
    assert [item.dtype for item in found["y"]] == [np.float64, np.float64]


@pytest.mark.parametrize("kind", TYPES)
def test_inputs_of_all_narrow_types_are_widened(kind):
    dtype = {"float": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[kind]
    assert TYPES[kind] in FLOATS
    x = RNG.standard_normal((2, 3)).astype(dtype)
    model = _model(f"g ({kind}[N,S] x) => ({kind}[N,S] y) {{ a = Mul(x, x) y = Mul(a, x) }}")
    np.testing.assert_allclose(_wide(model, x=x)[0]["y"], x.astype(np.float64) ** 3, rtol=1e-14)


def test_one_set_of_inputs_at_a_time_is_widened():
    model = _model("g (float[N] x) => (float y) { y = ReduceMax<keepdims = 0>(x) }").SerializeToString()
    feeds = [{"x": np.full(1 << 20, number, np.float32)} for number in range(8)]
    run(model, feeds[:1], LIMIT)
    tracemalloc.start()
    try:
        answer = run(model, feeds, LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [float(one["y"]) for one in answer["runs"]] == list(range(8))
    assert 8 << 20 <= peak <= 18 << 20


def _stored(weights, path):
    """A tensor named w whose elements are in a file."""
    path.write_bytes(weights.tobytes())
    tensor = TensorProto(name="w", data_type=1, dims=weights.shape, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": str(path)[1:], "offset": "0", "length": str(weights.nbytes)}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


READS = "y = MatMul(x, w) z = Gather(w, i)"
PORTS = "(float[N,64] x, int64[M] i) => (float[N,32] y, float[M,32] z)"
BODY = """{ c = Constant<value=bool {1}>() y, z = If(c)<
    then_branch=then () => (y1, z1) { y1 = MatMul(x, w) z1 = Gather(w, i) },
    else_branch=else () => (y2, z2) { y2 = MatMul(x, w) z2 = Gather(w, i) }> }"""


@pytest.mark.parametrize("place", ["initializer", "Constant", "initializer above bodies", "Constant in a body"])
def test_large_weights_are_read_from_their_files(place, tmp_path):
    weights = RNG.standard_normal((64, 32)).astype(np.float32)
    tensor = _stored(weights, tmp_path / "weights.bin")
    model = _model(f"g {PORTS} " + (BODY if "bod" in place else f"{{ {READS} }}"))
    graph = model.graph
    if place == "Constant in a body":
        for attribute in graph.node[1].attribute:
            tensor.name = attribute.name
            attribute.g.node.insert(0, onnx.helper.make_node("Constant", [], [attribute.name], value=tensor))
            for node in attribute.g.node[1:]:
                node.input[list(node.input).index("w")] = attribute.name
    elif place == "Constant":
        graph.node.insert(0, onnx.helper.make_node("Constant", [], ["w"], value=tensor))
    else:
        graph.initializer.append(tensor)
    copy = onnx.load_model_from_string(model.SerializeToString())
    wide = widen(copy, None).model
    kept = [(item.data_type, item.data_location) for item in wide.graph.initializer]
    assert kept == [(1, TensorProto.EXTERNAL)] * (2 if place == "Constant in a body" else 1)
    x, i = _f32(3, 64), np.array([1, 5])
    found, narrow = _wide(model, x=x, i=i)
    np.testing.assert_allclose(found["y"], x.astype(np.float64) @ weights.astype(np.float64), rtol=1e-12)
    np.testing.assert_array_equal(found["z"], weights[[1, 5]].astype(np.float64))
    assert narrow == []


def test_large_tensors_of_the_same_name_are_refused(tmp_path):
    model = _model(f"g {PORTS} {BODY}")
    for number, attribute in enumerate(model.graph.node[1].attribute):
        tensor = _stored(np.full((64, 32), number, np.float32), tmp_path / f"{number}.bin")
        attribute.g.node.insert(0, onnx.helper.make_node("Constant", [], ["w"], value=tensor))
    with pytest.raises(UnavailableError, match="two large tensors with the name 'w'"):
        widen(model, None)


def test_an_operator_without_a_float64_kernel_runs_in_float32():
    x = _f32(2, 3)
    found, narrow = _wide(_model(f"g {X} {{ e = Erf(x) y = Add(e, x) }}"), x=x)
    assert narrow == ["Erf"]
    assert np.any(found["y"] != found["y"].astype(np.float32))


def test_an_input_of_unknown_type_is_narrowed_with_the_others():
    body = """s = Constant<value_ints=[1,2,4,4]>() r = Constant<value_floats=[0.0,0.0,0.1,0.1,1.0,1.0,0.9,0.9]>()
        y = Resize<coordinate_transformation_mode="tf_crop_and_resize">(x, r, , s)"""
    found, narrow = _wide(_model(f"g (float[1,2,6,6] x) => (float[A,B,C,D] y) {{ {body} }}"), x=_f32(1, 2, 6, 6))
    assert narrow == ["Resize"]
    assert found["y"].dtype == np.float64


def test_an_operator_outside_the_standard_keeps_its_types():
    model = _model(
        "g (float[N,8] x) => (float[N,8] y) { a = com.microsoft.QuickGelu(x) y = Mul(a, x) }",
        '<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>',
    )
    x = _f32(2, 8)
    found, narrow = _wide(model, x=x)
    assert narrow == ["QuickGelu"]
    wide = x.astype(np.float64)
    np.testing.assert_allclose(found["y"], wide * wide / (1 + np.exp(-1.702 * wide)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("r = RandomNormalLike(x) y = Add(x, r)", "random numbers"),
        ("y = acme.Secret(x)", "acme"),
    ],
)
def test_a_model_without_a_float64_form_is_reported(body, why):
    model = _model(f"g {X} {{ {body} }}", '<ir_version: 10, opset_import: ["": 21, "acme": 1]>')
    answer = run(model.SerializeToString(), [{"x": _f32(2, 3)}], LIMIT)
    assert why in answer["unsupported"]


@pytest.mark.parametrize("draw", ["RandomNormalLike<seed=1.0>(x)", "RandomUniform<shape=[2,3], seed=1.0>()"])
def test_a_draw_with_a_seed_has_the_numbers_of_float32(draw):
    model = _model(f"g {X} {{ r = {draw} y = Add(x, r) }}")
    x = np.zeros((2, 3), np.float32)
    found, narrow = _wide(model, x=x)
    plain = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert narrow == []
    np.testing.assert_array_equal(found["y"], plain.run(None, {"x": x})[0])


def test_a_model_the_runtime_refuses_runs_in_the_reference_evaluator(monkeypatch):
    monkeypatch.setattr(float64, "_in_runtime", lambda *_: {"unsupported": "ONNX Runtime has no kernel for Neg(13)"})
    x = _f32(2, 3)
    found, narrow = _wide(_model(f"g {X} {{ e = Erf(x) y = Add(e, x) }}"), x=x)
    assert found["y"].dtype == np.float64
    assert narrow == []
    assert np.any(found["y"] != found["y"].astype(np.float32))


def test_an_unexpectedly_missing_kernel_is_avoided(monkeypatch):
    monkeypatch.setattr(Kernels, "of", lambda *_: [{"T": ["tensor(double)"]}])
    found, narrow = _wide(_model(f"g {X} {{ e = Erf(x) y = Add(e, x) }}"), x=_f32(2, 3))
    assert narrow == ["Erf"]
    assert found["y"].dtype == np.float64


def test_kernels_with_the_most_float64_are_chosen():
    actual = {name: ("tensor(float)", frozenset({name})) for name in ("T", "U")}
    kernels = [{"T": ["tensor(float)"], "U": ["tensor(float)"]}, {"T": ["tensor(double)"], "U": ["tensor(float)"]}]
    assert choose(kernels, actual, ["T", "U"]) == {"T": True, "U": False}
    assert choose(kernels[:1], actual, ["T", "U"]) == {"T": False, "U": False}
    assert choose([{"T": ["tensor(int8)"]}], actual, ["T"]) is None


# Operators written with others

EXPANDED = {
    "plain": ("[2,3,9,8]", "[4,3,3,3]", "Conv"),
    "strides and pads": ("[1,3,9,8]", "[4,3,3,2]", "Conv<strides=[2,3], pads=[1,0,2,1]>"),
    "dilations": ("[1,2,11,9]", "[3,2,3,3]", "Conv<dilations=[2,3]>"),
    "groups": ("[2,4,5,5]", "[6,2,2,2]", "Conv<group=2>"),
    "depthwise": ("[1,4,6,6]", "[4,1,3,3]", "Conv<group=4, pads=[1,1,1,1]>"),
    "one dim": ("[2,3,10]", "[5,3,4]", "Conv<strides=[2]>"),
    "three dims": ("[1,2,4,5,6]", "[3,2,2,2,3]", "Conv"),
    "same, upper": ("[1,2,5,6]", "[3,2,2,3]", 'Conv<auto_pad="SAME_UPPER">'),
    "same, lower": ("[1,2,5,6]", "[3,2,2,3]", 'Conv<auto_pad="SAME_LOWER">'),
    "one by one": ("[2,3,4,4]", "[5,3,1,1]", "Conv<strides=[2,2]>"),
    "many channels": ("[2,16,9,8]", "[4,16,3,2]", "Conv<strides=[2,3], pads=[1,0,2,1]>"),
    "many channels, dilations": ("[1,17,11,9]", "[3,17,3,3]", "Conv<dilations=[2,3]>"),
    "many channels, groups": ("[2,32,5,5]", "[6,16,2,2]", "Conv<group=2>"),
    "many channels, one dim": ("[2,16,10]", "[5,16,4]", "Conv<strides=[2]>"),
    "many channels, three dims": ("[1,16,4,5,6]", "[3,16,2,2,3]", "Conv"),
    "many channels, one by one": ("[2,16,4,4]", "[5,16,1,1]", "Conv<strides=[2,2]>"),
}


@pytest.mark.parametrize("name", EXPANDED)
def test_convolutions_are_rewritten_as_matrix_products(name):
    shape, weight, node = EXPANDED[name]
    dims, bias = ",".join("ABCDE"[: len(shape.split(","))]), f"[{weight[1]}]"
    io = f"(float{shape} x, float{weight} w, float{bias} b) => (float[{dims}] y)"
    _agrees(_model(f"g {io} {{ y = {node}(x, w, b) }}"), shape, weight, bias)


TILED = EXPANDED | {
    "rows that no window reaches": ("[1,3,10,4]", "[4,3,2,2]", "Conv<strides=[3,1]>"),
    "windows of pads alone": ("[1,2,3,4]", "[3,2,1,1]", "Conv<pads=[3,0,3,0]>"),
    "pads on both sides of one tile": ("[1,2,2,9]", "[3,2,3,3]", "Conv<pads=[2,1,2,1]>"),
    "many channels, long pads": ("[1,16,7,5]", "[3,16,3,3]", "Conv<pads=[2,2,2,2], dilations=[2,2]>"),
}


@pytest.mark.parametrize("elements", [1, 200])
@pytest.mark.parametrize("name", TILED)
def test_large_inputs_of_convolutions_are_multiplied_in_tiles(name, elements, monkeypatch):
    monkeypatch.setattr(expand, "_TILE", elements)
    monkeypatch.setattr(expand, "_MOST_TILES", 100)
    shape, weight, node = TILED[name]
    dims, bias = ",".join("ABCDE"[: len(shape.split(","))]), f"[{weight[1]}]"
    for io in (
        f"(float{shape} x, float{weight} w, float{bias} b)",
        f"(float[{dims}] x, float{weight} w, float{bias} b)",
    ):
        _agrees(_model(f"g {io} => (float[{dims}] y) {{ y = {node}(x, w, b) }}"), shape, weight, bias)


def test_tiles_take_the_place_of_one_product(monkeypatch):
    monkeypatch.setattr(expand, "_TILE", 64)
    model = _model("g (float[N,2,H,8] x, float[3,2,3,3] w) => (float[N,3,A,B] y) { y = Conv<pads=[1,1,1,1]>(x, w) }")
    wide = widen(model, installed(), frozenset(NO_FLOAT64), {"x": (1, 2, 9, 8)}).model
    assert wide.graph.node[-1].op_type == "Concat"
    tiles = len(wide.graph.node[-1].input)
    assert tiles == 5  # of two rows each, as nine rows are more than the most tiles
    # What the tiles share is computed once.
    assert sum(node.op_type == "MatMul" for node in wide.graph.node) == tiles
    assert sum(node.op_type == "Slice" for node in wide.graph.node) == tiles * (1 + 9) + 1


def test_rows_that_a_declared_shape_lacks_are_computed(monkeypatch):
    monkeypatch.setattr(expand, "_TILE", 1)
    text = "g (float[N,2,H,4] x, float[3,2,2,2] w) => (float[A,B,C,D] y) { z = Neg(x) y = Conv(z, w) }"
    model = _model(text)
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("z", 1, [1, 2, 5, 4]))
    x, w = _f32(1, 2, 9, 4), _f32(3, 2, 2, 2)
    wide = widen(model, installed(), frozenset(NO_FLOAT64)).model
    assert wide.graph.node[-1].op_type == "Concat"
    found, _ = _wide(model, x=x, w=w)
    expected, _ = _wide(_model(text), x=x, w=w)
    np.testing.assert_allclose(found["y"], expected["y"], rtol=1e-12)


POOLS = {
    "average": "AveragePool<kernel_shape=[3,2], strides=[2,1]>",
    "average with pads": "AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>",
    "average, pads counted": "AveragePool<kernel_shape=[3,3], pads=[1,0,1,2], count_include_pad=1>",
    "global average": "GlobalAveragePool",
}


@pytest.mark.parametrize("name", POOLS)
def test_average_pools_are_rewritten_as_sums(name):
    _agrees(_model(f"g (float[2,3,7,6] x) => (float[A,B,C,D] y) {{ y = {POOLS[name]}(x) }}"), "[2,3,7,6]")


def test_instance_normalization_is_decomposed():
    model = _model(
        "g (float[2,3,7,6] x, float[3] w, float[3] b) => (float[A,B,C,D] y) "
        "{ y = InstanceNormalization<epsilon=0.01>(x, w, b) }"
    )
    _agrees(model, "[2,3,7,6]", "[3]", "[3]")


def test_group_normalization_has_its_statistics_in_float64():
    """By default it computes them in float32, whatever the type of its input."""
    data = np.array([1000.0, 1000.001, 1000.002, 1000.003]).reshape(1, 2, 2)
    model = _model(
        "g (float[1,2,2] x) => (float[1,2,2] y) { w = Constant<value_floats=[1.0, 1.0]>() "
        "b = Constant<value_floats=[0.0, 0.0]>() y = GroupNormalization<num_groups=1>(x, w, b) }"
    )
    x = data.astype(np.float32).astype(np.float64)
    found, narrow = _wide(model, x=x.astype(np.float32))
    assert narrow == []
    np.testing.assert_allclose(found["y"], (x - x.mean()) / np.sqrt(x.var() + np.float32(1e-5)), rtol=1e-6)


def _agrees(model: onnx.ModelProto, *shapes: str) -> None:
    """Nothing runs in float32, and the result is that of the reference evaluator in float64."""
    from onnx.reference import ReferenceEvaluator

    arrays = [_f32(*map(int, shape[1:-1].split(","))) for shape in shapes]
    feed = dict(zip(("x", "w", "b"), arrays))
    found, narrow = _wide(model, **feed)
    assert narrow == []
    expected = ReferenceEvaluator(model).run(None, {name: value.astype(np.float64) for name, value in feed.items()})[0]
    assert found["y"].shape == expected.shape
    np.testing.assert_allclose(found["y"], expected, rtol=1e-10, atol=1e-12)


def test_the_largest_value_is_known_from_the_shapes_of_inputs():
    model = _model("g (float[N,M] x, float[3] w) => (float[M,N] y) { y = Transpose(x) }")
    assert widen(model, installed(), frozenset(NO_FLOAT64), {"x": (4, 5)}).largest == 20
    assert widen(model, installed(), frozenset(NO_FLOAT64)).largest == 3
    model = _model("g (float[N,5,4] x) => (float[A,B,C] y) { y = Transpose<perm=[0,2,1]>(x) }")
    assert widen(model, installed(), frozenset(NO_FLOAT64)).largest == 20  # for each item of the batch
