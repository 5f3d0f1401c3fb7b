"""Bundled models with weights of 8 bits, next to what ONNX Runtime's own quantizer makes of them."""

import copy
import logging
from pathlib import Path

import numpy as np
import onnx
import pytest
from support import installed, quantized
from support.breadth import sampled

from surgery import saturates
from surgery.engine.bridges import run_pass
from surgery.engine.registry.catalog import catalog
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.graph.graph import Graph

EVERY = {"min_size": 0}


@pytest.mark.skipif(not installed.multiplies_integers(), reason="MatMulInteger of the installed runtime is wrong")
@pytest.mark.parametrize("name", sampled(quantized.NAMES, 12))
def test_a_bundled_model_is_valid_and_runs_the_same_optimized_or_not(name: str) -> None:
    model = quantized.bundled(name)
    after = quantized.apply("quantize-dynamic", model, EVERY)
    assert "MatMulInteger" in quantized.operators(after)
    onnx.checker.check_model(after, full_check=True)
    feed = quantized.feed_of(model)
    plain, optimized = (quantized.run(after, feed, optimized=each) for each in (False, True))
    noise = quantized.snr(quantized.run(model, feed), plain)
    assert noise > 12
    # Kernels differ in rounding, which dynamic ranges pass on: far below what quantization loses.
    assert quantized.snr(plain, optimized) > noise + 6


@pytest.mark.parametrize("name", sampled(["llama-tiny", "vit-tiny", "gpt2-tiny", "t5-enc-tiny", "bert-tiny"], 5))
def test_less_noise_than_the_onnx_runtime_quantizer(name: str, tmp_path: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    logging.getLogger().setLevel(logging.ERROR)
    model, path = quantized.bundled(name), tmp_path / "model.onnx"
    onnx.save(model, path)
    # Where sums of products saturate, both take care of it.
    options = {"op_types_to_quantize": ["MatMul", "Gemm"], "reduce_range": saturates("uint8", "int8")}
    quantize_dynamic(path, tmp_path / "peer.onnx", weight_type=QuantType.QInt8, **options)
    peer = onnx.load(tmp_path / "peer.onnx")
    after = quantized.apply("quantize-dynamic", model, EVERY)
    ours = theirs = 0.0
    for seed in range(3):
        feed = quantized.feed_of(model, seed)
        exact = quantized.run(model, feed)
        ours += quantized.snr(exact, quantized.run(after, feed))
        theirs += quantized.snr(exact, quantized.run(peer, feed))
    assert count(after, "MatMulInteger") >= count(peer, "MatMulInteger") > 0
    assert ours > theirs


def count(model: onnx.ModelProto, op: str) -> int:
    return sum(node.op_type == op for node in model.graph.node)


LAYERS = """
    g (float[N,64] x) => (float[N,32] y, float[N,32] z) <float[64,32] w, float[64,32] v, float[32] b>
    {
        p = MatMul(x, w)
        y = Add(p, b)
        h = Relu(x)
        q = MatMul(h, v)
        r = MatMul(h, w)
        z = Add(q, r)
    }
"""


def layers() -> onnx.ModelProto:
    model = text.parse(LAYERS.replace(" <float[64,32] w, float[64,32] v, float[32] b>", ""))
    random = np.random.default_rng(0)
    for name, shape in (("w", (64, 32)), ("v", (64, 32)), ("b", (32,))):
        array = random.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


@pytest.mark.parametrize("options", [{}, {"weight_type": "uint8"}, {"reduce_range": True}, {"per_channel": False}])
def test_onnx_runtime_fuses_the_quantized_nodes(options: dict[str, object], tmp_path: Path) -> None:
    import onnxruntime as ort

    after = quantized.apply("quantize-dynamic", layers(), {**EVERY, **options})
    settings = ort.SessionOptions()
    settings.optimized_model_filepath = str(tmp_path / "fused.onnx")
    settings.log_severity_level = 4
    ort.InferenceSession(after.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    fused = onnx.load(tmp_path / "fused.onnx")
    assert count(fused, "DynamicQuantizeMatMul") == 1
    assert count(fused, "MatMulIntegerToFloat") == 2
    # The two that read the same value share its quantization, and the bias is in the first one.
    assert count(fused, "DynamicQuantizeLinear") == 1
    assert count(fused, "MatMulInteger") == 0


def test_each_product_can_be_left_out_by_its_number() -> None:
    model = layers()
    feed = {"x": np.random.default_rng(1).standard_normal((5, 64)).astype(np.float32)}
    exact = quantized.run(model, feed)
    declared = catalog.find("quantize-dynamic")
    for skip in ({1}, {2}, {3}, {1, 2}, {1, 3}):
        stored = storage.from_proto(copy.deepcopy(model))
        graph = Graph(storage.ir_from_proto(stored.proto, stored.weights), weights=stored.weights, skip=frozenset(skip))
        run_pass.apply(declared, graph, declared.bind(EVERY))
        assert [site.skipped for site in graph.sites] == [number in skip for number in (1, 2, 3)]
        after = storage.resolve(storage.proto_from_ir(graph.ir, stored.weights))
        onnx.checker.check_model(after, full_check=True)
        assert count(after, "MatMulInteger") == 3 - len(skip)
        assert quantized.snr(exact, quantized.run(after, feed)) > 35


def test_weights_are_quantized_once_for_all_runs_on_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    from surgery.passes.precision import _dynamic

    calls = []
    monkeypatch.setattr(
        _dynamic, "fit", lambda *args, _fit=_dynamic.fit, **named: calls.append(1) or _fit(*args, **named)
    )
    declared = catalog.find("quantize-dynamic")
    stored = storage.from_proto(layers())
    memory: dict[object, object] = {}
    for skip in (frozenset(), frozenset({2})):
        graph = Graph(storage.ir_from_proto(stored.proto, stored.weights), weights=stored.weights, skip=skip)
        graph.memory = memory
        run_pass.apply(declared, graph, declared.bind(EVERY))
    assert len(calls) == 2  # w, which two products read, and v
