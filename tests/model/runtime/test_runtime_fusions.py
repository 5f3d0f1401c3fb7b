"""The fusions of ONNX Runtime: the recipe `default` leaves each of them possible, or does it itself."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper
from support.breadth import sampled

from surgery.engine import recipe as recipes
from surgery.engine.pipeline import runner
from surgery.model.graph import text

OPSETS = {"": [17], "ort-cpu": [13, 17]}
"""The opsets that each target is tried with: none, and one that has operators of ONNX Runtime."""


def numbers(count: int) -> str:
    return ", ".join(str(round(0.1 * (i * 7 % 11 - 5) + 0.05, 3)) for i in range(count))


MATRIX = f"float[4,4] w = {{{numbers(16)}}}, float[4] b = {{{numbers(4)}}}"
INTEGERS = "{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}"
KERNEL = f"float[4,4,1,1] w = {{{numbers(16)}}}, float[4] b = {{{numbers(4)}}}"
NORM = "float[4] s = {1, 2, -3, 0.5}, float[4] h = {1, 2, 3, 4}, float[4] mu = {1, 0, 1, 2}, float[4] v = {1, 2, 1, 3}"
SCALE = "float s = {0.1}, uint8 z = {3}"
ERF = "root = {1.4142135}, float one = {1}, float half = {0.5}"
TANH = "float k = {0.044715}, float r = {0.7978846}, float one = {1}, float half = {0.5}, float three = {3}"
IMAGES = "g (float[n,4,8,8] x) => (float[n,4,8,8] y)"
ROWS = "g (float[n,4] x) => (float[n,4] y)"
TOKENS = "g (float[n,m,4] x) => (float[n,m,4] y)"
SCORES = "(float[n,h,m,m] y)"
BYTES = "g (uint8[n,4] x) => (uint8[n,4] y)"
MAPS = "g (uint8[n,1,4,4] x) => (uint8[n,1,4,4] y)"

# The operator that ONNX Runtime 1.32 executes, its number, and a graph of which it makes it.
FUSIONS: dict[str, tuple[str, int, str]] = {
    "Gelu": (
        "Gelu",
        1,
        f"""{TOKENS} <{MATRIX}, float {ERF}> {{
        l = MatMul(x, w)  s = Div(l, root)  e = Erf(s)  p = Add(e, one)  q = Mul(l, p)  g1 = Mul(q, half)
        y = MatMul(g1, w) }}""",
    ),
    "Gelu, halved first": (
        "Gelu",
        1,
        f"""{TOKENS} <{MATRIX}, float {ERF}> {{
        l = MatMul(x, w)  s = Div(l, root)  e = Erf(s)  p = Add(e, one)  q = Mul(l, half)  g1 = Mul(q, p)
        y = MatMul(g1, w) }}""",
    ),
    "Gelu after a bias": (
        "BiasGelu",
        1,
        f"""{TOKENS} <{MATRIX}, float {ERF}> {{
        a = MatMul(x, w)  l = Add(a, b)  s = Div(l, root)  e = Erf(s)  p = Add(e, one)  q = Mul(l, p)
        g1 = Mul(q, half)  y = MatMul(g1, w) }}""",
    ),
    "Gelu by tanh": (
        "FastGelu",
        1,
        f"""{TOKENS} <{MATRIX}, {TANH}> {{
        a = MatMul(x, w)  l = Add(a, b)  c = Pow(l, three)  kc = Mul(c, k)  d = Add(l, kc)  s = Mul(d, r)
        t = Tanh(s)  p = Add(t, one)  q = Mul(l, half)  g1 = Mul(q, p)  y = MatMul(g1, w) }}""",
    ),
    "swish with a factor": (
        "QuickGelu",
        1,
        f"""{TOKENS} <{MATRIX}, float k = {{1.702}}> {{
        l = MatMul(x, w)  s = Mul(l, k)  q = Sigmoid(s)  g1 = Mul(l, q)  y = MatMul(g1, w) }}""",
    ),
    "layer norm": (
        "LayerNormalization",
        1,
        f"""{TOKENS} <{NORM}, float two = {{2}}, float eps = {{1e-5}}> {{
        m1 = ReduceMean<axes = [-1]>(x)  d = Sub(x, m1)  q = Pow(d, two)  m2 = ReduceMean<axes = [-1]>(q)
        e = Add(m2, eps)  r = Sqrt(e)  n1 = Div(d, r)  t = Mul(n1, s)  y = Add(t, h) }}""",
    ),
    "RMS norm": (
        "SimplifiedLayerNormalization",
        1,
        f"""{TOKENS}
        <float[4] s = {{1, 2, -3, 0.5}}, float one = {{1}}, float two = {{2}}, float eps = {{1e-5}}> {{
        q = Pow(x, two)  m1 = ReduceMean<axes = [-1]>(q)  e = Add(m1, eps)  r = Sqrt(e)  i = Div(one, r)
        n1 = Mul(x, i)  y = Mul(s, n1) }}""",
    ),
    "sum and layer norm": (
        "SkipLayerNormalization",
        1,
        f"""g (float[n,m,4] x, float[n,m,4] r) => (float[n,m,4] y)
        <{MATRIX}, {NORM}> {{
        a = MatMul(x, w)  c = Add(a, b)  d = Add(r, c)  y = LayerNormalization(d, s, h) }}""",
    ),
    "MatMul and Add": ("Gemm", 1, f"{ROWS} <{MATRIX}> {{ a = MatMul(x, w)  y = Add(a, b) }}"),
    "scaled product": (
        "FusedMatMul",
        1,
        f"""g (float[n,h,m,4] q, float[n,h,4,m] k) => {SCORES} <float s = {{0.3}}> {{
        a = MatMul(q, k)  y = Mul(a, s) }}""",
    ),
    "transposed product": (
        "FusedMatMul",
        1,
        f"""g (float[n,h,m,4] q, float[n,h,m,4] k) => {SCORES} {{
        t = Transpose<perm = [0, 1, 3, 2]>(k)  y = MatMul(q, t) }}""",
    ),
    "Gemm and activation": (
        "FusedGemm",
        1,
        f"{ROWS} <{MATRIX}> {{ a = Gemm(x, w, b)  y = LeakyRelu<alpha = 0.1>(a) }}",
    ),
    "Conv and Relu": ("Conv", 1, f"{IMAGES} <{KERNEL}> {{ a = Conv(x, w, b)  y = Relu(a) }}"),
    "Conv and Clip": (
        "Conv",
        1,
        f"""{IMAGES} <{KERNEL}, float lo = {{0}}, float hi = {{6}}> {{
        a = Conv(x, w, b)  y = Clip(a, lo, hi) }}""",
    ),
    "Conv, Add and Relu": (
        "Conv",
        2,
        f"""{IMAGES} <{KERNEL}> {{
        a = Conv(x, w, b)  c = Conv(a, w, b)  d = Add(c, a)  y = Relu(d) }}""",
    ),
    "Conv and batch norm": (
        "Conv",
        1,
        f"""{IMAGES} <{KERNEL}, {NORM}> {{
        a = Conv(x, w, b)  y = BatchNormalization(a, s, h, mu, v) }}""",
    ),
    "Conv and scale": (
        "Conv",
        1,
        f"""{IMAGES} <{KERNEL}, float[4,1,1] s = {{1, 2, -3, 4}}> {{
        a = Conv(x, w, b)  y = Mul(a, s) }}""",
    ),
    "Pad and Conv": (
        "Conv",
        1,
        f"""{IMAGES}
        <float[4,4,3,3] w = {{{numbers(144)}}}, int64[8] p = {{0, 0, 1, 1, 0, 0, 1, 1}}> {{
        a = Pad(x, p)  y = Conv(a, w) }}""",
    ),
    "MatMul and batch norm": (
        "Gemm",
        1,
        f"""{ROWS} <{MATRIX}, {NORM}> {{
        a = MatMul(x, w)  y = BatchNormalization(a, s, h, mu, v) }}""",
    ),
    "Relu and Clip": (
        "Clip",
        1,
        f"""{ROWS} <float lo = {{0}}, float hi = {{6}}> {{
        t = Tanh(x)  a = Relu(t)  y = Clip(a, lo, hi) }}""",
    ),
    "Gathers of one axis": (
        "Split",
        1,
        """g (float[n,3,4] x) => (float[n,4] y, float[n,4] y1, float[n,4] y2)
        <int64 i = {0}, int64 j = {1}, int64 k = {2}> {
        t = Tanh(x)  y = Gather<axis = 1>(t, i)  y1 = Gather<axis = 1>(t, j)  y2 = Gather<axis = 1>(t, k) }""",
    ),
    "Not and Where": (
        "Where",
        1,
        """g (float[n,4] x, bool[n,4] m) => (float[n,4] y) <float z = {0}> {
        a = Not(m)  y = Where(a, x, z) }""",
    ),
    "dynamically quantized product": (
        "DynamicQuantizeMatMul",
        1,
        f"""{ROWS}
        <int8[4,4] w = {INTEGERS}, float s = {{0.1}}, int8 z = {{0}}, float[4] b = {{1, 2, 3, 4}}> {{
        q, qs, qz = DynamicQuantizeLinear(x)  a = MatMulInteger(q, w, qz, z)  f = Cast<to = 1>(a)  m = Mul(qs, s)
        r = Mul(f, m)  y = Add(r, b) }}""",
    ),
    "integer product": (
        "MatMulIntegerToFloat",
        1,
        f"""g (uint8[n,4] x, float c) => (float[n,4] y)
        <int8[4,4] w = {INTEGERS}, float s = {{0.1}}> {{
        a = MatMulInteger(x, w)  f = Cast<to = 1>(a)  m = Mul(c, s)  y = Mul(f, m) }}""",
    ),
    "quantized Conv": (
        "QLinearConv",
        1,
        f"""{MAPS} <uint8[1,1,1,1] w = {{7}}, {SCALE}> {{
        d = DequantizeLinear(x, s, z)  e = DequantizeLinear(w, s, z)  c = Conv(d, e)  y = QuantizeLinear(c, s, z) }}""",
    ),
    "quantized Conv and Relu": (
        "QLinearConv",
        1,
        f"""{MAPS}
        <uint8[1,1,1,1] w = {{7}}, float s = {{0.1}}, uint8 z = {{0}}> {{
        d = DequantizeLinear(x, s, z)  e = DequantizeLinear(w, s, z)  c = Conv(d, e)  r = Relu(c)
        y = QuantizeLinear(r, s, z) }}""",
    ),
    "quantized MatMul": (
        "QLinearMatMul",
        1,
        f"""{BYTES} <uint8[4,4] w = {INTEGERS}, {SCALE}> {{
        d = DequantizeLinear(x, s, z)  e = DequantizeLinear(w, s, z)
        c = MatMul(d, e)  y = QuantizeLinear(c, s, z) }}""",
    ),
    "quantized Gemm": (
        "QGemm",
        1,
        f"""{BYTES}
        <uint8[4,4] w = {INTEGERS}, {SCALE}, int32[4] b = {{1, 2, 3, 4}}, float t = {{0.01}}, int32 o = {{0}}> {{
        d = DequantizeLinear(x, s, z)  e = DequantizeLinear(w, s, z)  f = DequantizeLinear(b, t, o)
        c = Gemm(d, e, f)  y = QuantizeLinear(c, s, z) }}""",
    ),
    "quantized Gemm and Relu": (
        "QGemm",
        1,
        f"""{BYTES}
        <uint8[4,4] w = {INTEGERS}, float s = {{0.1}}, uint8 z = {{0}}> {{
        d = DequantizeLinear(x, s, z)  e = DequantizeLinear(w, s, z)  c = Gemm(d, e)  r = Relu(c)
        y = QuantizeLinear(r, s, z) }}""",
    ),
    "scaled product of integers": (
        "MatMulIntegerToFloat",
        1,
        f"""g (uint8[n,4] x) => (float[n,4] y) <uint8[4,4] w = {INTEGERS}, {SCALE}, float k = {{0.3}}> {{
        d = DequantizeLinear(x, s, z)  e = DequantizeLinear(w, s, z)  c = MatMul(d, e)  y = Mul(c, k) }}""",
    ),
    "transposed product of integers": (
        "QLinearMatMul",
        1,
        f"""g (uint8[n,h,m,4] q, uint8[n,h,m,4] k) => (uint8[n,h,m,m] y) <{SCALE}> {{
        d = DequantizeLinear(q, s, z)  e = DequantizeLinear(k, s, z)  t = Transpose<perm = [0, 1, 3, 2]>(e)
        c = MatMul(d, t)  y = QuantizeLinear(c, s, z) }}""",
    ),
    "quantized Add": (
        "QLinearAdd",
        1,
        f"""g (uint8[n,4] x, uint8[n,4] x2) => (uint8[n,4] y) <{SCALE}> {{
        d = DequantizeLinear(x, s, z)  e = DequantizeLinear(x2, s, z)  c = Add(d, e)  y = QuantizeLinear(c, s, z) }}""",
    ),
    "quantized pool": (
        "QLinearGlobalAveragePool",
        1,
        f"""g (uint8[n,2,4,4] x) => (uint8[n,2,1,1] y) <{SCALE}> {{
        d = DequantizeLinear(x, s, z)  c = GlobalAveragePool(d)  y = QuantizeLinear(c, s, z) }}""",
    ),
    "quantized Sigmoid": (
        "QLinearSigmoid",
        1,
        f"""{BYTES} <{SCALE}> {{
        d = DequantizeLinear(x, s, z)  c = Sigmoid(d)  y = QuantizeLinear(c, s, z) }}""",
    ),
}

# Graphs that ONNX Runtime 1.32 leaves as they are, and fuses after `default`.
MADE = {
    "Gelu by a product with 1/√2": (
        "Gelu",
        f"""{TOKENS} <{MATRIX}, float inverse = {{0.70710677}}, float {ERF}> {{
        l = MatMul(x, w)  s = Mul(l, inverse)  e = Erf(s)  p = Add(e, one)  q = Mul(p, half)  g1 = Mul(l, q)
        y = MatMul(g1, w) }}""",
    ),
    "Gelu by the cube of products": (
        "FastGelu",
        f"""{TOKENS} <{MATRIX}, {TANH}> {{
        l = MatMul(x, w)  c2 = Mul(l, l)  c = Mul(c2, l)  kc = Mul(c, k)  d = Add(l, kc)  s = Mul(d, r)
        t = Tanh(s)  p = Add(t, one)  q = Mul(p, half)  g1 = Mul(l, q)  y = MatMul(g1, w) }}""",
    ),
}


def executed(model: Path) -> Counter[str]:
    """Count the operators of the graph that the default level of ONNX Runtime leaves."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(model.with_suffix(".optimized.onnx"))
    ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return Counter(node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node)


def before_and_after(
    source: onnx.ModelProto, folder: Path, target: str = "", recipe: str = "default"
) -> tuple[Counter[str], Counter[str]]:
    """Count the operators that ONNX Runtime executes for a model, and for what a recipe makes of it."""
    onnx.save(source, folder / "before.onnx")
    head = f"recipe: r\ntarget: {target}\n" if target else "recipe: r\n"
    steps = recipes.parse(f"{head}verify: {{mode: 'off'}}\nsteps: [{{use: {recipe}}}]\n", "test.yaml")
    runner.apply(folder / "before.onnx", steps, output=folder / "after.onnx")
    return executed(folder / "before.onnx"), executed(folder / "after.onnx")


def parsed(source: str, opset: int = 17) -> onnx.ModelProto:
    return text.parse(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{source}')


@pytest.mark.parametrize(
    ("target", "opset"), sampled([(target, opset) for target in OPSETS for opset in OPSETS[target]], 6)
)
@pytest.mark.parametrize("fusion", FUSIONS)
def test_default_leaves_the_fusion_possible(fusion: str, target: str, opset: int, tmp_path: Path) -> None:
    op, count, source = FUSIONS[fusion]
    if opset < 17 and "LayerNormalization(" in source:
        pytest.skip("LayerNormalization is an operator since opset 17")
    before, after = before_and_after(parsed(source, opset), tmp_path, target)
    if before[op] < count:
        pytest.skip(f"ONNX Runtime {ort.__version__} does not make {op}")
    assert after.total() <= before.total()
    # BranchwiseRMSNorm is computed by the kernel of SimplifiedLayerNormalization.
    assert after[op] + (after["BranchwiseRMSNorm"] if op == "SimplifiedLayerNormalization" else 0) >= before[op]


@pytest.mark.parametrize(
    "after_product", sampled([[], ["Add"], ["Relu"], ["Mul"], ["Add", "Relu"], ["Mul", "Add"]], 2), ids="-".join
)
@pytest.mark.parametrize("target", OPSETS)
def test_default_leaves_products_with_packed_weights_possible(
    after_product: list[str], target: str, tmp_path: Path
) -> None:
    operands = {"Add": ["bias"], "Mul": ["factor"], "Relu": []}
    nodes = [
        helper.make_node("DequantizeLinear", ["packed", "scales"], ["w"], axis=0, block_size=32),
        helper.make_node("MatMul", ["x", "w"], ["p"]),
    ]
    for op in after_product:
        nodes.append(helper.make_node(op, [nodes[-1].output[0], *operands[op]], [f"after_{op}"]))
    nodes[-1].output[0] = "y"
    packed = np.random.default_rng(0).bytes(32 * 32 // 2)
    constants = [
        helper.make_tensor("packed", onnx.TensorProto.INT4, [32, 32], packed, raw=True),
        numpy_helper.from_array(np.full((1, 32), 0.1, np.float32), "scales"),
        numpy_helper.from_array(np.linspace(-1, 1, 32, dtype=np.float32), "bias"),
        numpy_helper.from_array(np.float32(0.3), "factor"),
    ]
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 32]) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    before, after = before_and_after(model, tmp_path, target)
    if not before["MatMulNBits"]:
        pytest.skip(f"ONNX Runtime {ort.__version__} does not make MatMulNBits")
    assert after["MatMulNBits"] == 1 and after.total() <= before.total()


@pytest.mark.parametrize("fusion", MADE)
def test_default_makes_the_fusion_possible(fusion: str, tmp_path: Path) -> None:
    op, source = MADE[fusion]
    before, after = before_and_after(parsed(source), tmp_path)
    if before[op]:
        pytest.skip(f"ONNX Runtime {ort.__version__} makes {op} itself")
    assert after[op] == 1
    assert after.total() < before.total()


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["default", "ort"])
@pytest.mark.parametrize(
    "model", sorted((Path(__file__).parents[3] / "models").glob("*.onnx")), ids=lambda path: path.stem
)
def test_no_more_is_left_to_execute_than_of_the_original(
    model: Path, recipe: str, short_models: Path, tmp_path: Path
) -> None:
    model = short_models / model.name
    steps = recipes.parse(f"recipe: r\nverify: {{mode: 'off'}}\nsteps: [{{use: {recipe}}}]\n", "test.yaml")
    runner.apply(model, steps, output=tmp_path / "after.onnx")
    (tmp_path / "before.onnx").write_bytes(model.read_bytes())
    assert executed(tmp_path / "after.onnx").total() <= executed(tmp_path / "before.onnx").total()
