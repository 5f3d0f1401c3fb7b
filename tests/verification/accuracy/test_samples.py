"""The inputs that passes calibrate with, and those that accuracy is measured on."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import onnx
import pytest

from surgery.verification.accuracy.samples import Samples
from surgery.verification.inputs.spec import InputsSpec, SampleSpec, VerifySpec
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


def test_images_have_realistic_sizes() -> None:
    head = '<ir_version: 10, opset_import: ["": 21]> g (float[batch,3,height,width] x) => (float[batch,4,h,w] y) '
    body = "<float[4,3,3,3] k> { y = Conv(x, k) }"
    model = onnx.parser.parse_model(head + body)
    model.graph.initializer.add().CopyFrom(onnx.numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "k"))
    del model.graph.input[1:]
    with closing(Verifier(model.SerializeToString(), None, VerifySpec())) as verifier:
        samples = verifier.calibration
    assert max(_extents(samples, "height")) == max(_extents(samples, "width")) == 96
    assert max(_extents(samples, "batch")) <= 5


def test_calibration_and_evaluation_share_no_inputs() -> None:
    calibration, evaluation = _drawn("N, 8")
    assert not {one.seed for one in calibration.bindings} & {one.seed for one in evaluation.bindings}
    assert calibration.synthetic
    assert evaluation.synthetic


def test_as_many_sets_as_asked_for() -> None:
    calibration, evaluation = _drawn("N, 8", sets=3)
    assert (len(calibration.feeds), len(evaluation.feeds)) == (3, 64)
