"""Quantized weights against dense references, against the quantizers of ONNX Runtime, and on correlated data."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer
from support.breadth import sampled
from surgery.passes.precision import _nbits_blocks as blocks
from surgery.passes.precision._nbits_gptq import _factor

from surgery.engine.registry.catalog import catalog
from surgery.features.testing.calibration import GivenInputs
from surgery.features.testing.harness import run
from surgery.model import storage
from surgery.model.graph.graph import Graph

PASS = catalog.find("quantize-weights")
TYPES = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}


def product(weight: np.ndarray, opset: int = 17, gemm: bool = False) -> onnx.ModelProto:
    """Build y = x · weight; as a Gemm, the weight is stored as [N, K]."""
    rows, columns = weight.shape
    kind = TYPES[weight.dtype.name]
    stored = np.ascontiguousarray(weight.T) if gemm else weight
    node = helper.make_node("Gemm", ["x", "w"], ["y"], transB=1) if gemm else helper.make_node("MatMul", "xw", "y")
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", kind, ["N", rows])],
        [helper.make_tensor_value_info("y", kind, ["N", columns])],
        [numpy_helper.from_array(stored, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=13)


def quantized(model: onnx.ModelProto, calibration: dict[str, Any] | None = None, **options: Any) -> onnx.ModelProto:
    outcome = run(model, PASS, PASS.bind({"min_elements": 1, **options}), calibration=calibration)
    assert outcome.sites, outcome.reasons
    return storage.resolve(outcome.after)


def computed(model: onnx.ModelProto, data: np.ndarray, optimized: bool = False) -> np.ndarray:
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    if not optimized:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": data})[0]


def unpacked(array: np.ndarray, bits: int) -> np.ndarray:
    """Unpack codes along the last axis, the first in the lowest bits."""
    shifts = np.arange(0, 8, bits)
    return (array[..., None] >> shifts & ((1 << bits) - 1)).reshape(*array.shape[:-1], -1).astype(np.int64)


def dense(model: onnx.ModelProto) -> np.ndarray:
    """Return the weight [K, N] that a model has in quantized form, as the specifications of the operators say it."""
    tensors = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    node = next(node for node in model.graph.node if node.op_type in ("MatMulNBits", "DequantizeLinear"))
    held = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    codes, scales, *rest = (tensors[name] for name in node.input if name in tensors)
    place = 3 if node.op_type == "MatMulNBits" else 2
    zeros = rest[0] if len(node.input) > place and node.input[place] else None
    if node.op_type == "DequantizeLinear":
        steps = codes.astype(np.float64)
        size = held.get("block_size", len(steps))
        scale, zero = (
            0 if each is None else np.repeat(np.atleast_2d(each.astype(np.float64)), size, 0)[: len(steps)]
            for each in (scales, zeros)
        )
        return (steps - zero) * scale
    bits, count = held["bits"], scales.shape[-1] if scales.ndim > 1 else len(scales) // held["N"]
    values = unpacked(codes, bits).reshape(held["N"], count, held["block_size"])
    if zeros is None:
        zero = np.full((held["N"], count), 1 << bits - 1)
    else:
        zero = unpacked(zeros.reshape(held["N"], -1), bits)[:, :count]
    restored = (values - zero[..., None]) * scales.reshape(held["N"], count, 1).astype(np.float64)
    return restored.reshape(held["N"], -1)[:, : held["K"]].T


def noise(weight: np.ndarray, other: np.ndarray) -> float:
    return float(((weight.astype(np.float64) - other) ** 2).sum())


def drawn(rows: int, columns: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    """Draw weights with some far out, as trained ones have."""
    return (np.random.default_rng(seed).standard_t(5, (rows, columns)) / 16).astype(dtype)


SHAPES = [(64, 48), (70, 5), (300, 1), (257, 130), (16, 3)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("symmetric", sampled([False, True], 2))
@pytest.mark.parametrize("dtype", sampled(["float32", "float16"], 2))
def test_matmulnbits_computes_the_dense_product(shape: tuple[int, int], bits: int, symmetric: bool, dtype: str) -> None:
    weight = drawn(*shape, dtype)
    for block, gemm, method in ((16, False, "rtn"), (32, True, "hqq"), (128, False, "hqq")):
        options = {"bits": bits, "block": block, "symmetric": symmetric, "method": method, "accuracy_level": 0}
        try:
            model = quantized(product(weight, gemm=gemm), **options)
        except AssertionError as refused:
            assert "would not be smaller" in str(refused)
            continue
        onnx.checker.check_model(model)
        restored = dense(model)
        _bounded(weight, restored, bits)
        data = np.random.default_rng(1).standard_normal((7, shape[0])).astype(dtype)
        exact = data.astype(np.float64) @ restored
        room = (1e-5 if dtype == "float32" else 1e-2) * np.abs(exact).max()
        np.testing.assert_allclose(computed(model, data), exact, rtol=0, atol=room)


def _bounded(weight: np.ndarray, restored: np.ndarray, bits: int) -> None:
    """The noise of a block is far below the signal, at six decibels for each bit less what outliers take."""
    ratio = 10 * np.log10((weight.astype(np.float64) ** 2).sum() / noise(weight, restored))
    assert ratio > {8: 38, 4: 14, 2: 2.5}[bits]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("symmetric", sampled([False, True], 2))
@pytest.mark.parametrize("dtype", sampled(["float32", "float16"], 2))
def test_dequantizelinear_computes_the_dense_product(
    shape: tuple[int, int], bits: int, symmetric: bool, dtype: str
) -> None:
    weight = drawn(*shape, dtype)
    for block, gemm in ((16, True), (32, False), (0, False)):
        options = {"bits": bits, "block": block, "symmetric": symmetric, "form": "standard"}
        model = quantized(product(weight, 25, gemm), **options)
        onnx.checker.check_model(model, full_check=True)
        restored = dense(model)
        _bounded(weight, restored, bits) if block else None
        data = np.random.default_rng(1).standard_normal((7, shape[0])).astype(dtype)
        exact = data.astype(np.float64) @ restored
        room = (1e-5 if dtype == "float32" else 1e-2) * np.abs(exact).max()
        np.testing.assert_allclose(computed(model, data), exact, rtol=0, atol=room)


@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("block", [16, 32, 128])
def test_the_standard_form_becomes_matmulnbits_in_onnx_runtime(bits: int, block: int) -> None:
    model = quantized(product(drawn(256, 64), 25), bits=bits, block=block, form="standard")
    assert [node.op_type for node in model.graph.node] == ["DequantizeLinear", "MatMul"]
    with tempfile.TemporaryDirectory() as folder:
        options = ort.SessionOptions()
        options.optimized_model_filepath = str(Path(folder) / "optimized.onnx")
        options.log_severity_level = 3
        ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        optimized = onnx.load(options.optimized_model_filepath)
    assert [node.op_type for node in optimized.graph.node] == ["MatMulNBits"]
    assert {a.name: a.i for a in optimized.graph.node[0].attribute}["accuracy_level"] == 4


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("block", [16, 32, 128])
@pytest.mark.parametrize("symmetric", sampled([False, True], 2))
@pytest.mark.parametrize("method", ["rtn", "hqq"])
def test_weights_lose_no_more_than_by_the_default_quantizer_of_onnx_runtime(
    bits: int, block: int, symmetric: bool, method: str
) -> None:
    weight = drawn(384, 96)
    options = {"bits": bits, "block": block, "symmetric": symmetric}
    config = DefaultWeightOnlyQuantConfig(block_size=block, is_symmetric=symmetric, bits=bits)
    other = MatMulNBitsQuantizer(product(weight), algo_config=config)
    other.process()
    mine = noise(weight, dense(quantized(product(weight), method=method, **options)))
    assert mine < noise(weight, dense(other.model.model))


def half_quadratic(weight: np.ndarray, bits: int, block: int, whole: bool) -> np.ndarray:
    """Return a weight quantized as in Badri and Shaji, Half-Quadratic Quantization, 2023: p = 0.7, 20 rounds.

    Zero points are fractions there, and rounded at the end if they are to be `whole`.
    """
    parts = weight.reshape(-1, block, weight.shape[1]).astype(np.float64)
    low, high = parts.min(1, keepdims=True), parts.max(1, keepdims=True)
    top, beta, best = (1 << bits) - 1, 10.0, np.inf
    scale = (high - low) / top
    zero = np.rint(-low / scale)
    for _ in range(20):
        codes = np.clip(np.rint(parts / scale + zero), 0, top)
        rest = parts - (codes - zero) * scale
        shrunk = np.sign(rest) * np.maximum(np.abs(rest) - (np.abs(rest) + 1e-8) ** -0.3 / beta, 0)
        zero = (codes - (parts - shrunk) / scale).mean(1, keepdims=True)
        beta *= 1.01
        error = np.abs(rest).mean()
        if error >= best:
            break
        best = error
    if whole:
        zero = np.clip(np.rint(zero), 0, top)
    codes = np.clip(np.rint(parts / scale + zero), 0, top)
    return ((codes - zero) * scale).reshape(weight.shape)


@pytest.mark.parametrize(
    ("bits", "block", "whole"),
    [(4, 128, False), (2, 32, False), (2, 128, False), (4, 32, True), (4, 128, True), (2, 32, True), (8, 32, True)],
)
def test_hqq_loses_less_than_half_quadratic_quantization(bits: int, block: int, whole: bool) -> None:
    weight = drawn(512, 96)
    mine = dense(quantized(product(weight), bits=bits, block=block, method="hqq"))
    assert noise(weight, mine) < noise(weight, half_quadratic(weight, bits, block, whole))


@pytest.mark.parametrize("bits", [4, 2])
@pytest.mark.parametrize("symmetric", [False, True])
def test_hqq_loses_less_than_rounding(bits: int, symmetric: bool) -> None:
    weight = drawn(512, 96)
    options = {"bits": bits, "symmetric": symmetric}
    rtn, hqq = (noise(weight, dense(quantized(product(weight), method=m, **options))) for m in ("rtn", "hqq"))
    assert hqq < 0.97 * rtn


def correlated(rows: int, count: int, seed: int) -> np.ndarray:
    """Draw data in which few directions carry most of the signal, and some channels are far larger."""
    rng = np.random.default_rng(seed)
    mixing = np.random.default_rng(99).standard_normal((rows // 8, rows))
    large = np.exp(np.random.default_rng(98).standard_normal(rows))
    return ((rng.standard_normal((count, rows // 8)) @ mixing + rng.standard_normal((count, rows)) / 4) * large).astype(
        np.float32
    )


@pytest.mark.parametrize("bits", [4, 2])
@pytest.mark.parametrize("form", ["matmulnbits", "standard"])
@pytest.mark.parametrize("act_order", sampled([True, False], 2))
def test_gptq_loses_far_less_of_the_product_on_correlated_data(bits: int, form: str, act_order: bool) -> None:
    weight, data, held_out = drawn(128, 64), correlated(128, 512, 0), correlated(128, 256, 1)
    options = {"bits": bits, "block": 32, "form": form}
    lost = {}
    for method in ("rtn", "hqq", "gptq"):
        calibration = {"x": data.tolist()} if method == "gptq" else None
        extra = {"act_order": act_order} if method == "gptq" else {}
        restored = dense(quantized(product(weight, 25), calibration, method=method, **options, **extra))
        lost[method] = noise(held_out @ weight.astype(np.float64), held_out @ restored)
    assert lost["gptq"] < 0.5 * min(lost["rtn"], lost["hqq"])


def test_gptq_learns_nothing_from_few_rows_that_other_data_contradict() -> None:
    """With fewer rows than columns, independent columns look dependent: compensating would double the error."""
    weight, data, held_out = drawn(256, 32), drawn(96, 256), drawn(512, 256)
    lost = {}
    for method, calibration in (("hqq", None), ("gptq", {"x": data.tolist()})):
        restored = dense(quantized(product(weight, 25), calibration, method=method, block=32))
        lost[method] = noise(held_out @ weight.astype(np.float64), held_out @ restored)
    assert lost["gptq"] < 1.2 * lost["hqq"]


def test_gptq_rounds_to_nearest_for_uninformative_data() -> None:
    """Of channels that are always zero, or uncorrelated, nothing can make up for an error."""
    weight = drawn(64, 8)
    data = np.diag(np.r_[np.zeros(32), np.ones(32)]).astype(np.float32)
    mine = dense(quantized(product(weight), {"x": data.tolist()}, method="gptq", block=32))
    rounded = dense(quantized(product(weight), method="hqq", block=32))
    np.testing.assert_allclose(mine, rounded, atol=1e-6)


@pytest.mark.parametrize("order", ["as it stands", "shuffled"])
def test_the_factor_is_a_cholesky_factor_of_the_inverse(order: str) -> None:
    rng = np.random.default_rng(0)
    data = rng.standard_normal((200, 24)).astype(np.float32)
    hessian = data.T @ data
    places = np.arange(24) if order == "as it stands" else rng.permutation(24)
    factor = _factor(hessian.copy(), places).astype(np.float64)
    assert np.array_equal(factor, np.triu(factor))
    damped = hessian[np.ix_(places, places)] + 0.01 * np.diagonal(hessian).mean() * np.eye(24)
    np.testing.assert_allclose(factor.T @ factor @ damped, np.eye(24), atol=1e-4)


def test_a_weight_is_quantized_once_however_often_the_pass_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine runs a pass again and again, with other sites left out."""
    weight = drawn(64, 32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("MatMul", ["z", "w"], ["b"])]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 64]) for name in "xz"]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 32]) for name in "ab"]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", ports, results, [numpy_helper.from_array(weight, "w")]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    calls = []
    quantize = blocks.Coder.quantize
    monkeypatch.setattr(blocks.Coder, "quantize", lambda self, tile: calls.append(0) or quantize(self, tile))
    memory: dict[Any, Any] = {}
    for skip, products in ((frozenset(), 0), (frozenset({1}), 1), (frozenset({2}), 1)):
        stored = storage.from_proto(proto)
        graph = Graph(storage.ir_from_proto(stored.proto), weights=stored.weights)
        graph.memory = memory
        graph.begin(PASS.name, skip)
        PASS.function(graph, **PASS.bind({"min_elements": 1}))
        assert [site.number for site in graph.sites] == [1, 2]
        assert len(graph.nodes("MatMul")) == products
        assert len(graph.nodes("com.microsoft::MatMulNBits")) == 2 - products
        assert len(graph.main.initializers) == 3 + products
    assert len(calls) == len(list(blocks.tiles(weight, 64)))


def test_data_are_recorded_once_however_often_the_pass_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    proto = product(drawn(64, 32))
    recorded = []
    record = Graph.recordings
    monkeypatch.setattr(Graph, "recordings", lambda self, values: recorded.append(len(values)) or record(self, values))
    memory: dict[Any, Any] = {}
    for skip in (frozenset(), frozenset({1}), frozenset()):
        stored = storage.from_proto(proto)
        graph = Graph(storage.ir_from_proto(stored.proto), weights=stored.weights)
        graph.memory, graph.calibration = memory, GivenInputs(proto, {"x": correlated(64, 100, 0).tolist()})
        graph.begin(PASS.name, skip)
        PASS.function(graph, **PASS.bind({"min_elements": 1, "method": "gptq"}))
        assert len(graph.nodes("com.microsoft::MatMulNBits")) == 1 - len(skip)
    assert recorded == [1]


@pytest.mark.parametrize("shape", [(4096, 4096), (100, 33), (1, 1), (129, 257)])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("block", sampled([128, 16, 4096], 3))
def test_tiles_cover_each_weight_once_within_the_size_limit(shape: tuple[int, int], turned: bool, block: int) -> None:
    matrix = np.arange(np.prod(shape), dtype=np.float32).reshape(shape[::-1] if turned else shape)
    matrix = matrix.T if turned else matrix
    seen = np.full((-(-shape[0] // block) * block, shape[1]), -1, np.float32)
    for tile in blocks.tiles(matrix, block):
        count, _, columns = tile.weights.shape
        place = (
            slice(tile.block * block, (tile.block + count) * block),
            slice(tile.column, tile.column + columns),
        )
        assert (seen[place] == -1).all()
        seen[place] = tile.weights.reshape(-1, columns)
        assert tile.weights.nbytes <= 4 * max(blocks.TILE, 64 * block)
    np.testing.assert_array_equal(seen[: shape[0]], matrix)
    assert not seen[shape[0] :].any()


def test_gathered_rows_match_the_quantized_table() -> None:
    table = drawn(96, 40).T.copy()
    node = helper.make_node("Gather", ["t", "i"], ["y"])
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("i", TensorProto.INT64, ["A", "B"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["A", "B", 96])],
        [numpy_helper.from_array(table, "t")],
    )
    places = np.random.default_rng(3).integers(-40, 40, (2, 9))
    for form, bits, symmetric in [
        *((form, 8, symmetric) for form in ("matmulnbits", "standard") for symmetric in (False, True)),
        *(("matmulnbits", bits, symmetric) for bits in (4, 2) for symmetric in (False, True)),
    ]:
        opset = [helper.make_opsetid("", 21)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=10)
        made = quantized(model, form=form, embedding_bits=bits, symmetric=symmetric, block=32)
        session = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
        rows = session.run(None, {"i": places})[0]
        # The same rows as columns of a product.
        dense_table = dense(quantized(product(table.T.copy()), bits=bits, symmetric=symmetric, block=32)).T
        if form == "matmulnbits":
            np.testing.assert_allclose(rows, dense_table[places], rtol=1e-5, atol=1e-6)
        _bounded(table[places], rows, bits)
