"""Scales that move between layers: the results stay, and what is quantized afterwards loses less."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from support.breadth import sampled
from support.calibrated import Feeds, drawn, outputs, run_passes, snr

OPSET = '<ir_version: 9, opset_import: ["": 18]>'
Steps = tuple[tuple[str, dict[str, Any]], ...]
DYNAMIC = ("quantize-dynamic", {"min_size": 0})
PER_TENSOR = ("quantize-static", {"per_channel": False})


def model_of(text: str, **weights: np.ndarray) -> onnx.ModelProto:
    """Return a model in ONNX text with weights."""
    model = parser.parse_model(f"{OPSET} {text}")
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def gain(model: onnx.ModelProto, step: tuple[str, dict[str, Any]], quantizer: tuple[str, dict[str, Any]]) -> float:
    """Return by how many dB a quantized model is better after a step, on inputs that were not calibrated with."""
    calibration, others = drawn(model), drawn(model, 8, seed=1)
    wanted = outputs(model, others, optimized=False)
    plain, _ = run_passes(model, quantizer, feeds=calibration)
    made, graph = run_passes(model, step, quantizer, feeds=calibration)
    assert len(graph.sites) > 0
    return snr(wanted, outputs(made, others)) - snr(wanted, outputs(plain, others))


def transformer(outlier: float = 200.0, channels: int = 64) -> onnx.ModelProto:
    """Return two layers of a transformer without attention; the normalizations give one channel an outlier."""
    numbers = np.random.default_rng(0)
    scale = numbers.uniform(0.5, 1.5, channels)
    scale[[5, 40]] *= outlier
    weights = {
        name: numbers.standard_normal(shape) / np.sqrt(shape[0])
        for name, shape in {"w1": (channels, 128), "v1": (128, channels), "w2": (channels, 128)}.items()
    }
    # Trained weights are small where the data are large, though by less.
    weights["w1"][[5, 40]] /= np.sqrt(outlier)
    weights["w2"][[5, 40]] /= np.sqrt(outlier)
    return model_of(
        """g (float[N,64] x) => (float[N,128] y) {
            n1 = LayerNormalization(x, s1, b1)
            a1 = MatMul(n1, w1)
            r1 = Relu(a1)
            m1 = MatMul(r1, v1)
            t = Add(x, m1)
            n2 = LayerNormalization(t, s2, b2)
            y = Gemm(n2, w2, c2)
        }""",
        **weights,
        s1=scale,
        b1=numbers.standard_normal(channels),
        s2=scale,
        b2=np.zeros(channels),
        c2=numbers.standard_normal(128),
    )


def depthwise(spread: float = 3.0) -> onnx.ModelProto:
    """Return two blocks of a network of depthwise convolutions, whose channels differ by orders of magnitude."""
    numbers = np.random.default_rng(0)
    ranges = np.exp(numbers.uniform(-spread, spread, (2, 16, 1, 1, 1)))
    return model_of(
        """g (float[N,3,12,12] x) => (float[N,8,12,12] y) {
            a1 = Conv(x, w1, b1)
            r1 = Relu(a1)
            d1 = Conv<group = 16, pads = [1, 1, 1, 1]>(r1, k1, c1)
            q1 = Relu(d1)
            p1 = Conv(q1, v1)
            a2 = Conv(p1, w2, b1)
            r2 = Relu(a2)
            d2 = Conv<group = 16, pads = [1, 1, 1, 1]>(r2, k2, c1)
            q2 = Relu(d2)
            y = Conv(q2, v1)
        }""",
        w1=numbers.standard_normal((16, 3, 1, 1)),
        w2=numbers.standard_normal((16, 8, 1, 1)) / 3,
        k1=numbers.standard_normal((16, 1, 3, 3)) * ranges[0],
        k2=numbers.standard_normal((16, 1, 3, 3)) * ranges[1],
        v1=numbers.standard_normal((8, 16, 1, 1)) / 4 / ranges[0, :, 0, 0, 0][None, :, None, None],
        b1=numbers.standard_normal(16) / 4,
        c1=numbers.standard_normal(16) / 4,
    )


def test_smoothing_an_outlier_makes_dynamic_quantization_better() -> None:
    assert gain(transformer(), ("smooth-activations", {}), DYNAMIC) > 20


def test_smoothing_an_outlier_makes_static_quantization_better() -> None:
    assert gain(transformer(), ("smooth-activations", {}), ("quantize-static", {})) > 5


def test_factors_that_are_powers_of_two_are_nearly_as_accurate() -> None:
    assert gain(transformer(), ("smooth-activations", {"powers_of_two": True}), DYNAMIC) > 16


def test_a_mul_is_inserted_if_a_residual_reads_the_activation() -> None:
    model = transformer()
    model.graph.node.append(onnx.helper.make_node("Neg", ["n1"], ["z"]))
    model.graph.output.append(onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, ["N", 64]))
    _, graph = run_passes(model, ("smooth-activations", {}), feeds=drawn(model))
    assert "the activation has other consumers" in {refused.reason for refused in graph.refusals}
    assert gain(model, ("smooth-activations", {"insert": True}), DYNAMIC) > 20


def test_equalizing_layers_improves_per_tensor_quantization() -> None:
    assert gain(depthwise(), ("equalize-layers", {}), PER_TENSOR) > 18


def ranges(model: onnx.ModelProto, name: str) -> np.ndarray:
    """Return the largest weight of each output channel of the Conv that computes a value."""
    held = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    conv = next(node for node in model.graph.node if node.output[0].startswith(name))
    return np.abs(held[conv.input[1]]).reshape(held[conv.input[1]].shape[0], -1).max(axis=1)


def test_the_layers_of_a_chain_end_up_with_the_same_ranges() -> None:
    made, graph = run_passes(depthwise(), ("equalize-layers", {}))
    assert len(graph.sites) == 5
    first, second = ranges(made, "a1"), ranges(made, "d1")
    np.testing.assert_allclose(first, second, rtol=1e-3)
    _, graph = run_passes(made, ("equalize-layers", {}))
    assert len(graph.sites) == 0


MODELS = {"transformer": (transformer, "smooth-activations"), "depthwise": (depthwise, "equalize-layers")}


@pytest.mark.parametrize("name", MODELS)
def test_powers_of_two_keep_every_bit(name: str) -> None:
    make, step = MODELS[name]
    model = make()
    feeds = drawn(model)
    made, graph = run_passes(model, (step, {"powers_of_two": True}), feeds=feeds)
    assert len(graph.sites) > 1
    for one, other in zip(outputs(model, feeds, optimized=False), outputs(made, feeds, optimized=False), strict=True):
        np.testing.assert_array_equal(one[0], other[0])


@pytest.mark.parametrize("seed", sampled(range(3), 3))
@pytest.mark.parametrize("name", MODELS)
def test_any_subset_of_sites_keeps_the_results(name: str, seed: int) -> None:
    make, step = MODELS[name]
    model = make()
    feeds = drawn(model)
    _, whole = run_passes(model, (step, {}), feeds=feeds)
    labels = {site.number: site.anchor for site in whole.sites}
    skip = frozenset(random.Random(seed).sample(sorted(labels), k=len(labels) // 2))
    made, graph = run_passes(model, (step, {}), feeds=feeds, skip=skip)
    assert {site.number: site.anchor for site in graph.sites} == labels
    assert {site.number for site in graph.sites if site.skipped} == skip
    assert snr(outputs(model, feeds, optimized=False), outputs(made, feeds, optimized=False)) > 110


BUNDLED = {
    **dict.fromkeys(("vit-tiny", "bert-tiny.ts", "llama-tiny.dy", "gpt2-tiny"), ("smooth-activations", {})),
    **dict.fromkeys(("t5-enc-tiny", "whisper-enc-tiny"), ("smooth-activations", {"insert": True})),
    **dict.fromkeys(("mobilenet-tiny", "resnet-tiny", "convnext-tiny"), ("equalize-layers", {})),
}


PREPARED: Steps = tuple(
    (name, {}) for name in ("drop-identity", "drop-dropout", "fold-constants", "fuse-conv-bn", "fold-constants")
)


@pytest.mark.parametrize("name", sampled(list(BUNDLED), 8))
def test_bundled_models_keep_their_results(short_models: Path, name: str) -> None:
    model, _ = run_passes(onnx.load(short_models / f"{name}.onnx"), *PREPARED)
    feeds: Feeds = drawn(model)
    made, _ = run_passes(model, BUNDLED[name], feeds=feeds)
    onnx.checker.check_model(made, full_check=True)
    assert snr(outputs(model, feeds, optimized=False), outputs(made, feeds, optimized=False)) > 90
