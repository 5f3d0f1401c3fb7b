"""Models that ONNX Runtime's quantizers made, back to float."""

import logging
from collections.abc import Callable
from pathlib import Path

import onnx
import onnxruntime
import pytest
from support import installed, quantized
from support.breadth import sampled

INTEGER_OPERATORS = {
    *("ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QGemm", "QLinearAdd"),
    *("QLinearConv", "QLinearGlobalAveragePool", "QLinearMatMul", "QLinearMul", "QLinearSigmoid", "QuantizeLinear"),
}


def dynamic(source: Path, target: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(source, target, weight_type=QuantType.QInt8, per_channel=True)


def static(form: str) -> Callable[[Path, Path], None]:
    """Return what applies the static quantizer, in one of its two forms, with the ranges of two inputs."""

    def make(source: Path, target: Path) -> None:
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

        class Inputs(CalibrationDataReader):
            def __init__(self) -> None:
                model = onnx.load(source)
                self.feeds = iter([quantized.feed_of(model, seed) for seed in (0, 1)])

            def get_next(self) -> quantized.Feed | None:
                return next(self.feeds, None)

        quantize_static(source, target, Inputs(), quant_format=QuantFormat[form], per_channel=form == "QDQ")

    return make


@pytest.mark.parametrize(
    ("name", "quantize"),
    sampled(
        [
            ("resnet-tiny", static("QDQ")),
            ("resnet-tiny", static("QOperator")),
            ("bert-tiny.ts", dynamic),
            pytest.param("vit-tiny", dynamic, marks=pytest.mark.slow),
            pytest.param("vit-tiny", static("QDQ"), marks=pytest.mark.slow),
        ],
        2,
    ),
)
def test_a_model_of_the_quantizers_of_onnx_runtime(
    name: str, quantize: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    logging.getLogger().setLevel(logging.ERROR)
    source, original = tmp_path / "model.onnx", quantized.bundled(name)
    onnx.save(original, source)
    quantize(source, tmp_path / "quantized.onnx")
    model = onnx.load(tmp_path / "quantized.onnx")
    assert quantized.operators(model) & INTEGER_OPERATORS
    if "ConvInteger" in quantized.operators(model) and not installed.has_kernel("ConvInteger", "int8"):
        pytest.skip(f"ONNX Runtime {onnxruntime.__version__} does not run what its quantizer made: ConvInteger of int8")
    after = quantized.apply("dequantize", model)
    assert not quantized.operators(after) & INTEGER_OPERATORS
    onnx.checker.check_model(after, full_check=True)
    feed = quantized.feed_of(original, 1)
    exact, rounded = (quantized.run(one, feed, optimized=False) for one in (original, model))
    floats = quantized.run(after, feed, optimized=False)
    # What is left is the noise of the weights, which is part of that of the quantized model.
    noise = quantized.snr(exact, rounded)
    assert noise > 8
    assert quantized.snr(exact, floats) > noise - 3
    assert quantized.snr(rounded, floats) > noise - 3
    assert quantized.snr(floats, quantized.run(after, feed)) > 60
