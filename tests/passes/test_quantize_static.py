"""Static quantization of whole models: valid, close to float32, no worse than ONNX Runtime's, whatever is left out."""

import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.calibrated import Feeds, drawn, outputs, run_passes, snr

pytestmark = pytest.mark.slow

PREPARED = (
    *("drop-identity", "drop-dropout", "fold-constants", "drop-no-op", "fold-constants", "fuse-clip", "fuse-conv-bn"),
    *("fuse-pad", "drop-no-op", "fold-constants", "fuse-matmul-add", "fold-constants", "drop-dead"),
)
"""What the recipe `default` does to make weights visible, without that which takes long."""

LEAST = 5
"""The least ratio of signal to noise in dB. Random weights of many layers magnify noise, as trained ones do not; what
is wrong has 0 dB or less."""

CONVOLUTIONAL = ("resnet-tiny", "mobilenet-tiny", "convnext-tiny")
OTHERS = ("vit-tiny", "bert-tiny.ts", "gpt2-tiny", "whisper-enc-tiny", "t5-enc-tiny", "llama-tiny.dy")


@cache
def model_of(folder: Path, name: str) -> tuple[onnx.ModelProto, Feeds, Feeds]:
    """Return a bundled model, and inputs to calibrate and to compare with."""
    loaded = onnx.load(folder / f"{name}.onnx")
    made, _ = run_passes(loaded, *((one, {}) for one in PREPARED))
    return made, drawn(made), drawn(made, 16, seed=1)


def nodes(model: onnx.ModelProto, *ops: str) -> int:
    return sum(node.op_type in ops for node in model.graph.node)


@pytest.mark.parametrize("name", [*CONVOLUTIONAL, *OTHERS])
def test_bundled_models_stay_valid_and_close(short_models: Path, name: str) -> None:
    model, calibration, others = model_of(short_models, name)
    made, graph = run_passes(model, ("quantize-static", {}), feeds=calibration)
    onnx.checker.check_model(made, full_check=True)
    assert nodes(made, "QuantizeLinear") > 0
    # Random weights may let an activation vanish, of which no range is known.
    vanished = sum("zero on all" in refused.reason or "too small" in refused.reason for refused in graph.refusals)
    assert len(graph.sites) + vanished >= nodes(model, "Conv", "Gemm")
    wanted = outputs(model, others, optimized=False)
    plain, optimized = (outputs(made, others, optimized=level) for level in (False, True))
    assert snr(wanted, plain) > LEAST
    assert snr(wanted, optimized) > LEAST
    assert snr(plain, optimized) > LEAST


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
@pytest.mark.parametrize("name", ["resnet-tiny", "mobilenet-tiny", "vit-tiny"])
def test_any_subset_of_sites_gives_a_valid_model(short_models: Path, name: str, seed: int) -> None:
    model, calibration, others = model_of(short_models, name)
    _, whole = run_passes(model, ("quantize-static", {}), feeds=calibration)
    labels = {site.number: site.anchor for site in whole.sites}
    skip = frozenset(random.Random(seed).sample(sorted(labels), k=len(labels) * (seed + 1) // 4))
    made, graph = run_passes(model, ("quantize-static", {}), feeds=calibration, skip=skip)
    assert {site.number: site.anchor for site in graph.sites} == labels
    assert {site.number for site in graph.sites if site.skipped} == skip
    onnx.checker.check_model(made, full_check=True)
    cleaned, _ = run_passes(made, ("drop-needless-qdq", {}))
    onnx.checker.check_model(cleaned, full_check=True)
    wanted = outputs(model, others, optimized=False)
    for each in (made, cleaned):
        assert snr(wanted, outputs(each, others)) > LEAST
    assert nodes(cleaned, "QuantizeLinear") <= nodes(made, "QuantizeLinear")


def test_skipping_all_sites_changes_nothing(short_models: Path) -> None:
    model, calibration, _ = model_of(short_models, "resnet-tiny")
    _, whole = run_passes(model, ("quantize-static", {}), feeds=calibration)
    everything = frozenset(site.number for site in whole.sites)
    made, _ = run_passes(model, ("quantize-static", {}), feeds=calibration, skip=everything)
    assert nodes(made, "QuantizeLinear", "DequantizeLinear") == 0
    np.testing.assert_array_equal(outputs(made, calibration)[0][0], outputs(model, calibration)[0][0])


@pytest.mark.parametrize("name", CONVOLUTIONAL)
def test_no_worse_than_the_quantizer_of_onnx_runtime(short_models: Path, tmp_path: Path, name: str) -> None:
    model, calibration, _ = model_of(short_models, name)
    others = drawn(model, 64, seed=1)  # on 16 sets, either is better by up to 1.3 dB
    theirs = of_onnx_runtime(model, calibration, tmp_path)
    ours, _ = run_passes(model, ("quantize-static", {}), feeds=calibration)
    wanted = outputs(model, others, optimized=False)
    # Networks of random weights magnify the noise of each rounding: two that are equally good differ by half a dB.
    assert snr(wanted, outputs(ours, others)) > snr(wanted, outputs(theirs, others)) - 0.5


def of_onnx_runtime(model: onnx.ModelProto, feeds: Feeds, folder: Path) -> onnx.ModelProto:
    quantization = pytest.importorskip("onnxruntime.quantization")

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.waiting = iter(feeds)

        def get_next(self) -> Any:
            return next(self.waiting, None)

    source, target = folder / "float.onnx", folder / "quantized.onnx"
    onnx.save(model, source)
    quantization.quantize_static(source, target, Reader(), per_channel=True, weight_type=quantization.QuantType.QInt8)
    return onnx.load(target)


@pytest.mark.parametrize(
    "options",
    [
        *({"activation_type": kind} for kind in ("int8", "uint16", "int16")),
        *({"method": method} for method in ("mse", "percentile", "moving", "entropy")),
        *({"symmetric": True}, {"per_channel": False}, {"weight_type": "uint8"}, {"reduce_range": True}),
    ],
    ids=str,
)
def test_every_form_is_valid_and_close(short_models: Path, options: dict[str, Any]) -> None:
    model, calibration, others = model_of(short_models, "resnet-tiny")
    made, _ = run_passes(model, ("quantize-static", options), feeds=calibration)
    onnx.checker.check_model(made, full_check=True)
    assert snr(outputs(model, others, optimized=False), outputs(made, others)) > LEAST


def test_integer_kernels_are_used(short_models: Path, tmp_path: Path) -> None:
    import onnxruntime as ort

    model, calibration, _ = model_of(short_models, "resnet-tiny")
    made, _ = run_passes(model, ("quantize-static", {}), feeds=calibration)
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3
    ort.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    optimized = onnx.load(tmp_path / "optimized.onnx")
    assert nodes(optimized, "QLinearConv") == nodes(model, "Conv")
    assert nodes(optimized, "QLinearAdd") == nodes(model, "Add")
    assert nodes(optimized, "Conv", "Relu", "Add", "Clip") == 0


def test_calibration_is_reused_when_other_sites_are_skipped(
    short_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from surgery.passes.precision import _static

    from surgery.engine.bridges.run_pass import run_pass
    from surgery.engine.registry.catalog import catalog
    from surgery.model import storage
    from surgery.model.graph.graph import Graph

    model, calibration, _ = model_of(short_models, "resnet-tiny")
    stored, declared = storage.from_proto(model), catalog.find("quantize-static")

    class Once:
        asked, is_drawn = 0, False

        def feeds(self) -> Feeds:
            self.asked += 1
            return calibration

    choose, searched = _static.choose_range, []

    def counted(found: Any, *given: Any, **options: Any) -> Any:
        searched.append(found)
        return choose(found, *given, **options)

    monkeypatch.setattr(_static, "choose_range", counted)
    source, memory, asked = Once(), {}, []
    for skip in (frozenset[int](), frozenset({2}), frozenset({1, 3})):
        graph = Graph(storage.ir_from_proto(stored.proto, stored.weights), weights=stored.weights)
        graph.calibration, graph.memory = source, memory
        run_pass(declared, graph, declared.bind({"method": "mse"}), skip=skip, timeout=300)
        asked.append((source.asked, len(searched)))
    assert min(asked[0]) > 0 and set(asked) == {asked[0]}  # the first run asks once for each group of values
