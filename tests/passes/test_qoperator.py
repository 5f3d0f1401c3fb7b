"""Models of the quantizer of ONNX Runtime, from QDQ to QOperator and back, in ONNX Runtime without optimizations."""

import logging
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from support import quantized

from surgery import saturates
from surgery.engine.registry.catalog import catalog
from surgery.features.testing import harness
from surgery.model import storage

IMAGES = 6
RESNET = Counter({"QLinearConv": 53, "QLinearAdd": 16, "QLinearGlobalAveragePool": 1, "QGemm": 1})
BACK = ["QLinearConv", "QGemm", "QLinearAdd", "QLinearGlobalAveragePool"]


def turned(model: onnx.ModelProto, target: str) -> onnx.ModelProto:
    outcome = harness.run(model, catalog.find("qdq-to-qoperator"), {}, target=target)
    return storage.resolve(outcome.after)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> onnx.ModelProto:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    logging.getLogger().setLevel(logging.ERROR)
    original = quantized.bundled("resnet-tiny")

    class Inputs(CalibrationDataReader):
        def __init__(self) -> None:
            self.feeds = iter([quantized.feed_of(original, seed) for seed in (0, 1)])

        def get_next(self) -> quantized.Feed | None:
            return next(self.feeds, None)

    folder: Path = tmp_path_factory.mktemp("models")
    onnx.save(original, folder / "model.onnx")
    quantize_static(
        folder / "model.onnx", folder / "qdq.onnx", Inputs(), quant_format=QuantFormat.QDQ, per_channel=True
    )
    return onnx.load(folder / "qdq.onnx")


def counts(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def require_equal(model: onnx.ModelProto, *others: onnx.ModelProto) -> None:
    """Raise AssertionError unless models give the same elements.

    A sum of floats may round to another integer at a tie, which of them depends on the kernels: then on most images.
    """
    equal = [0] * len(others)
    for seed in range(IMAGES):
        feed = quantized.feed_of(model, seed)
        (wanted,) = quantized.run(model, feed, optimized=False)
        for index, one in enumerate(others):
            equal[index] += np.array_equal(quantized.run(one, feed, optimized=False)[0], wanted)
    assert min(equal) > IMAGES / 2, equal


def test_a_network_becomes_operators_on_integers_and_returns(model: onnx.ModelProto) -> None:
    made = turned(model, "ort-cpu")
    onnx.checker.check_model(made, full_check=True)
    assert {op: count for op, count in counts(made).items() if op.startswith("Q") and op in RESNET} == RESNET
    returned = quantized.apply("decompose", made, {"ops": BACK})
    assert not {op for op in counts(returned) if op in RESNET}
    again = turned(returned, "ort-cpu")
    assert counts(again) == counts(made)
    require_equal(model, made, returned, again)


def test_without_operators_of_onnx_runtime_the_products_are_integers(model: onnx.ModelProto) -> None:
    made = turned(model, "standard")
    assert not {node.domain for node in made.graph.node} - {"", "ai.onnx"}
    found = counts(made)
    assert (found["QLinearConv"], found["Conv"], found["MatMulInteger"], found["Gemm"]) == (53, 0, 1, 0)
    require_equal(model, made)


@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_a_conv_differs_from_floats_by_one_step_of_few_elements(kind: str) -> None:
    from surgery.model.graph import text

    generator = np.random.default_rng(0)
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    largest = 63 if saturates(kind, "int8") else 127
    weight = ", ".join(map(str, generator.integers(-largest, largest + 1, 32 * 16 * 9)))
    scales = ", ".join(map(str, generator.uniform(0.001, 0.003, 32).astype(np.float32)))
    model = text.parse(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g ({kind}[8,16,32,32] x) => ({kind}[8,32,30,30] y)
        <float s = {{0.0237}}, {kind} z = {{5}}, int8[32,16,3,3] w = {{{weight}}}, float[32] v = {{{scales}}},
         float t = {{0.0691}}, {kind} u = {{9}}> {{
            d = DequantizeLinear(x, s, z)  e = DequantizeLinear<axis = 0>(w, v)  c = Conv(d, e)
            y = QuantizeLinear(c, t, u) }}"""
    )
    made = turned(model, "standard")
    assert counts(made) == Counter({"QLinearConv": 1})
    feed = {"x": generator.integers(low, high + 1, (8, 16, 32, 32)).astype(kind)}
    wanted, found = (quantized.run(one, feed, optimized=False)[0].astype(int) for one in (model, made))
    assert len(np.unique(wanted)) > 100
    assert np.abs(wanted - found).max() <= 1
    assert (wanted != found).mean() < 1e-4
