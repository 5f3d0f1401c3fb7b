"""The budget of a step that is calibrated without data of the user holds for images of kinds that were not drawn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper
from support.breadth import sampled

from surgery.base.operators.dtypes import Array
from surgery.engine import recipe
from surgery.engine.pipeline import runner
from surgery.model import storage
from surgery.model.graph import text

SETS = 12
BUDGET = 20.0


def _averaging() -> onnx.ModelProto:
    """Build convolutions with positive weights: over noise their sums are small, over one color they are large."""
    model = text.parse("""g (float[N,3,32,32] x) => (float[N,8,8,8] y) {
        c = Conv<kernel_shape=[5,5], pads=[2,2,2,2]>(x, v) r = Relu(c)
        d = Conv<kernel_shape=[5,5], pads=[2,2,2,2], strides=[4,4]>(r, w) y = Neg(d) }""")
    rng = np.random.default_rng(0)
    for name, shape, size in (("v", (8, 3, 5, 5), 20), ("w", (8, 8, 5, 5), 60)):
        array = np.abs(rng.standard_normal(shape)).astype(np.float32) / size
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def _blocks(rng: np.random.Generator) -> Array:
    return np.kron(rng.standard_normal((1, 3, 4, 4)), np.ones((1, 1, 8, 8)))


def _gradients(rng: np.random.Generator) -> Array:
    ends = rng.uniform(-2, 2, (2, 1, 3, 1, 1))
    return np.broadcast_to(ends[0] + (ends[1] - ends[0]) * np.linspace(0, 1, 32), (1, 3, 32, 32))


def _white_and_black(rng: np.random.Generator) -> Array:
    return np.kron(rng.choice([-2.1, 2.4], (1, 1, 2, 2)), np.ones((1, 3, 16, 16)))


def _points(rng: np.random.Generator) -> Array:
    return np.where(rng.random((1, 3, 32, 32)) < 0.03, 2.5, 0.0)


@pytest.fixture(scope="module")
def quantized() -> tuple[runner.Result, list[ort.InferenceSession]]:
    model = _averaging()
    steps = "steps: [{quantize-static: {method: mse}}]\non_failure: rollback\naccuracy: {budget: snr >= 20 dB}"
    result = runner.apply(model, recipe.parse(steps))
    assert [step.status for step in result.steps] == ["committed"], result.steps[0].message
    return result, [ort.InferenceSession(one.SerializeToString()) for one in (model, storage.resolve(result.proto))]


@pytest.mark.parametrize("drawn", sampled([_blocks, _gradients, _white_and_black, _points], 2))
def test_the_budget_holds_for_images(
    drawn: Callable[[np.random.Generator], Array],
    quantized: tuple[runner.Result, list[ort.InferenceSession]],
) -> None:
    rng, signal, noise = np.random.default_rng(5), 0.0, 0.0
    # Together, because the Relus leave nearly nothing of some of them: that has no signal to lose.
    for _ in range(SETS):
        image = drawn(rng).astype(np.float32)
        exact, rounded = (session.run(None, {"x": image})[0] for session in quantized[1])
        signal, noise = signal + np.square(exact).sum(), noise + np.square(exact - rounded).sum()
    assert 10 * np.log10(signal / noise) >= BUDGET


def test_the_verdict_says_for_which_inputs_it_holds(
    quantized: tuple[runner.Result, list[ort.InferenceSession]],
) -> None:
    verdict = quantized[0].steps[0].verdict
    assert verdict is not None and verdict.details is not None and verdict.details.accuracy is not None
    assert verdict.details.accuracy["summary"].endswith(", on synthetic inputs only")
    assert "other inputs are not covered: give yours with --evaluation" in verdict.message


def test_the_verdict_on_given_inputs_has_no_such_restriction(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(1)
    for number, kind in enumerate((_blocks, _gradients, _white_and_black) * 3):
        np.savez(folder / f"{number}.npz", x=kind(rng).astype(np.float32))
    data = f"accuracy: {{budget: snr >= 20 dB, data: [{folder}]}}\ncalibration: {{data: [{folder}]}}\n"
    result = runner.apply(_averaging(), recipe.parse(f"{data}steps: [{{quantize-static: {{method: mse}}}}]"))
    verdict = result.steps[0].verdict
    assert result.ok and verdict is not None and verdict.details is not None and verdict.details.accuracy is not None
    assert "synthetic" not in verdict.details.accuracy["summary"] and "not covered" not in verdict.message
