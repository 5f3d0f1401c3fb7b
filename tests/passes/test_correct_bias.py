"""Correction of biases: exact means of layers, and what they are worth on a whole model."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from support import installed
from support.calibrated import drawn, outputs, run_passes, snr

from surgery.model.graph import text

CONVOLUTIONS = [
    "pads = [1, 2]>(x, w3, b)",
    "strides = [2], dilations = [2], pads = [0, 3]>(x, w3, b)",
    "group = 2, pads = [2, 2]>(x, w3g, b)",
]


@pytest.mark.parametrize("convolution", CONVOLUTIONS)
def test_the_means_of_a_convolution_are_exact_at_its_borders(tmp_path: Path, convolution: str) -> None:
    generator = np.random.default_rng(0)
    source = (
        '<ir_version: 10, opset_import: ["" : 17]>'
        "g (float[2,4,L] x) => (float[2,6,M] y)"
        f"<float[6,4,3] w3 = {{{_numbers(generator, 72)}}}, float[6,2,3] w3g = {{{_numbers(generator, 36)}}},"
        f"float[6] b = {{{_numbers(generator, 6)}}}> {{ y = Conv<{convolution} }}"
    )
    model = text.parse(source)
    onnx.save(model, tmp_path / "reference.onnx")
    feeds = [{"x": generator.normal(1.0, 1.0, (2, 4, size)).astype(np.float32)} for size in (5, 9)]
    _, graph = run_passes(model, ("correct-bias", {"reference": str(tmp_path / "reference.onnx")}), feeds=feeds)
    assert [refused.reason for refused in graph.refusals] == ["the means already match the reference"]
    shifted = onnx.ModelProto.FromString(model.SerializeToString())
    bias = next(tensor for tensor in shifted.graph.initializer if tensor.name == "b")
    before = onnx.numpy_helper.to_array(bias)
    bias.CopyFrom(onnx.numpy_helper.from_array(before + np.arange(6, dtype=np.float32), "b"))
    made, _ = run_passes(shifted, ("correct-bias", {"reference": str(tmp_path / "reference.onnx")}), feeds=feeds)
    (corrected,) = (tensor for tensor in made.graph.initializer if tensor.name not in ("w3", "w3g"))
    np.testing.assert_allclose(onnx.numpy_helper.to_array(corrected), before, atol=1e-5)


@pytest.mark.skipif(not installed.multiplies_integers(), reason="MatMulInteger of the installed runtime is wrong")
@pytest.mark.parametrize(
    "lossy", [("quantize-dynamic", {"min_size": 0}), ("quantize-weights", {"bits": 2, "min_elements": 16})]
)
def test_correcting_biases_reduces_the_error(
    short_models: Path, tmp_path: Path, lossy: tuple[str, dict[str, object]]
) -> None:
    if "bits" in lossy[1] and not installed.multiplies_bits(2):
        pytest.skip("MatMulNBits of the installed runtime has no weights of 2 bits")
    model, _ = run_passes(onnx.load(short_models / "bert-tiny.ts.onnx"), ("fold-constants", {}), ("drop-identity", {}))
    onnx.save(model, tmp_path / "reference.onnx")
    quantized, _ = run_passes(model, lossy)  # type: ignore[arg-type]
    feeds, others = drawn(model), drawn(model, 16, seed=1)
    corrected, graph = run_passes(
        quantized, ("correct-bias", {"reference": str(tmp_path / "reference.onnx")}), feeds=feeds
    )
    assert graph.sites
    wanted = outputs(model, others, optimized=False)
    assert snr(wanted, outputs(corrected, others)) > snr(wanted, outputs(quantized, others)) + 0.5


def _numbers(generator: np.random.Generator, count: int) -> str:
    return ", ".join(f"{number:.4f}" for number in generator.normal(size=count))
