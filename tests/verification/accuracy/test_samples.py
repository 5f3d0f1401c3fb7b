"""The inputs that passes calibrate with, and those that accuracy is measured on."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import onnx
import pytest

from surgery.verification.accuracy.loss_evaluation import Loss
from surgery.verification.accuracy.metrics import SAME
from surgery.verification.accuracy.samples import Samples
from surgery.verification.inputs.spec import DataSpec, InputsSpec, MetricLimit, SampleSpec, VerifySpec
from surgery.verification.verdict.verifier import Verifier


def _drawn(shape: str, sets: int | None = None) -> tuple[Samples, Samples]:
    """Return the inputs to calibrate with and those to measure on."""
    head = f'<ir_version: 10, opset_import: ["": 21]> g (float[{shape}] x) => (float[{shape}] y) '
    model = onnx.parser.parse_model(head + "{ y = Tanh(x) }").SerializeToString()
    with closing(Verifier(model, InputsSpec(calibration=SampleSpec(sets=sets)), VerifySpec())) as verifier:
        return verifier.calibration, verifier.accuracy.samples


def _extents(samples: Samples, dim: str) -> set[int]:
    return {binding.dims[dim] for binding in samples.bindings}


@pytest.mark.parametrize("name", ["sequence", "N"])
def test_samples_include_realistic_dims(name: str) -> None:
    for samples in _drawn(f"{name}, 8"):
        assert max(_extents(samples, name)) == 24
        assert min(_extents(samples, name)) < 24


@pytest.mark.parametrize("batch", ["batch", "batch_size", "BatchSize"])
def test_a_batch_stays_small(batch: str) -> None:
    """More rows of it say the same again, at so many times the cost."""
    for samples in _drawn(f"{batch}, sequence, 8"):
        assert max(_extents(samples, batch)) <= 5
        assert max(_extents(samples, "sequence")) == 24


@pytest.mark.parametrize(
    ("shape", "largest"),
    [
        *((shape, 5) for shape in ("N, 4, 16, 16", "N, 8, past, 16", "N, 4, 8, 8, 4", "N, 1024", "N, 1600, 1")),
        # A few rows of so few elements are too few for statistics.
        *((shape, 24) for shape in ("N, 3, 12, 12", "N, 2, past, 4", "N, 1023")),
    ],
)
def test_the_first_dim_is_a_batch_whatever_its_name_if_rows_are_long(shape: str, largest: int) -> None:
    for samples in _drawn(shape):
        assert (max(_extents(samples, "N")) <= 5) is (largest == 5)
        assert max(_extents(samples, "N")) <= largest


def _convolved(*spatial: str) -> Samples:
    """Return the inputs to calibrate a convolution with, whose images have these dims."""
    kernel = np.ones((4, 3, *(3 for _ in spatial)), np.float32)
    head = f'<ir_version: 10, opset_import: ["": 21]> g (float[n, 3, {", ".join(spatial)}] x) => (float y) '
    model = onnx.parser.parse_model(head + "{ c = Conv(x, k) y = ReduceMean<keepdims = 0>(c) }")
    model.graph.initializer.append(onnx.numpy_helper.from_array(kernel, "k"))
    with closing(Verifier(model.SerializeToString(), None, VerifySpec())) as verifier:
        return verifier.calibration


def test_images_have_realistic_sizes() -> None:
    samples = _convolved("height", "width")
    assert max(_extents(samples, "height")) == max(_extents(samples, "width")) == 96
    assert max(_extents(samples, "n")) <= 5


def test_volumes_are_smaller_than_images() -> None:
    """96 in three directions are a million positions of each channel."""
    samples = _convolved("depth", "height", "width")
    assert {max(_extents(samples, name)) for name in ("depth", "height", "width")} == {48, 50, 68}
    assert max(_extents(samples, "n")) <= 5


def test_calibration_and_evaluation_share_no_inputs() -> None:
    calibration, evaluation = _drawn("N, 8")
    assert not {one.seed for one in calibration.bindings} & {one.seed for one in evaluation.bindings}
    assert calibration.synthetic
    assert evaluation.synthetic


def test_as_many_sets_as_asked_for() -> None:
    calibration, evaluation = _drawn("N, 8", sets=3)
    assert (len(calibration.feeds), len(evaluation.feeds)) == (3, 64)


@pytest.mark.parametrize("shape", ["N, 3, 12, 12", "batch, 20, sequence", "batch, sequence, 16", "2, 30, 4"])
def test_each_kind_of_data_is_drawn_at_each_size(shape: str) -> None:
    """Calibration and evaluation both have what resembles images, of which noise has nothing."""
    for samples in _drawn(shape):
        found = {(tuple(one.dims.items()), one.character) for one in samples.bindings}
        sizes = {dims for dims, _ in found}
        kinds = {kind for _, kind in found}
        assert kinds == {"normal", "image", "flat", "smooth", "saturated", "sparse"}
        assert len(found) == len(sizes) * len(kinds)


@pytest.mark.parametrize("shape", ["N, 24", "N, 3, 4, 8", "40"])
def test_vectors_and_few_places_have_no_regions(shape: str) -> None:
    for samples in _drawn(shape):
        assert {one.character for one in samples.bindings} == {"normal", "image"}


@pytest.mark.parametrize("shape", ["2, 30, 4", "N, 3, 12, 12", "batch, 20, sequence"])
def test_few_sets_are_of_different_kinds(shape: str) -> None:
    calibration, _ = _drawn(shape, sets=12)
    assert len({one.character for one in calibration.bindings}) == 6


def test_the_margin_of_a_loss_is_that_of_sets_of_the_same_kind() -> None:
    """Two kinds with hardly any spread each, far from each other, need hardly any margin."""
    limit = MetricLimit("snr", 20.0)
    outputs = {"y": [dict(SAME, snr=snr) for snr in (23.0, 23.01, 40.0, 40.01)]}
    (one,) = Loss(outputs, kinds=("flat", "flat", "normal", "normal")).uses([limit])
    (mixed,) = Loss(outputs).uses([limit])
    assert one.share == mixed.share == pytest.approx(10**-0.3)
    assert one.share < one.guarded < 0.52 and mixed.guarded > 1.0


def test_few_sets_of_a_kind_get_the_margin_of_the_others() -> None:
    outputs = {"y": [dict(SAME, snr=snr) for snr in (24.0, 27.0, 25.0, 22.5)]}
    (one,) = Loss(outputs, kinds=("normal", "normal", "normal", "flat")).uses([MetricLimit("snr", 20.0)])
    assert one.sample == 3 and one.guarded > 10**-0.25 + 0.3


def test_given_sets_are_one_kind(tmp_path: Path) -> None:
    for name in "ab":
        np.savez(tmp_path / f"{name}.npz", x=np.ones((2, 8), np.float32))
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[N, 8] x) => (float[N, 8] y) { y = Tanh(x) }'
    )
    spec = InputsSpec(calibration=SampleSpec(data=(DataSpec(tmp_path),)))
    with closing(Verifier(model.SerializeToString(), spec, VerifySpec())) as verifier:
        assert {verifier.calibration.kind(number) for number in range(2)} == {"given"}
