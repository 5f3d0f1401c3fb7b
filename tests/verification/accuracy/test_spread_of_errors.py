"""How the errors of lossy steps are counted."""

from contextlib import closing

import numpy as np
import pytest

from surgery.model.graph import text
from surgery.verification.accuracy.error_distribution import add_errors
from surgery.verification.accuracy.metrics import measure
from surgery.verification.accuracy.worst_layer import worst_layer
from surgery.verification.comparing.details import OutputErrors
from surgery.verification.comparing.spread import Spread
from surgery.verification.verdict.verifier import Verifier

NAN, INF = np.nan, np.inf


def errors(before: np.ndarray, after: np.ndarray) -> OutputErrors:
    spreads = {"y": Spread()}
    add_errors(spreads, {"y": before}, {"y": after}, {"seed": 1})
    return spreads["y"].errors("y", "rms")


def test_errors_are_relative_to_the_rms_of_the_output() -> None:
    generator = np.random.default_rng(0)
    before = generator.normal(size=(40, 50)).astype(np.float32) * 300
    noise = generator.normal(size=(40, 50)).astype(np.float32)
    found = errors(before, before + noise)
    # The share of the middle of each bin, squared and averaged, is about what the signal-to-noise ratio says.
    middles = 2.0 ** (found.first + np.arange(len(found.counts))) * 1.5
    power = float((middles**2 * found.counts).sum() / before.size)
    assert measure(before, before + noise)["snr"] == pytest.approx(-10 * np.log10(power), abs=1.0)
    place = np.unravel_index(int(np.argmax(np.abs(before + noise - before))), before.shape)
    assert found.worst is not None and found.worst.index == tuple(int(i) for i in place)
    assert found.largest == pytest.approx(np.abs(before + noise - before).max() / np.sqrt(np.mean(before**2)), rel=1e-3)


@pytest.mark.parametrize(
    ("before", "after", "equal", "endless"),
    [
        ([1.0, NAN, 2.0], [1.0, 7.0, 2.0], 3, 0),
        ([1.0, 2.0, 3.0], [1.0, NAN, INF], 1, 2),
        ([INF, -INF, 1.0], [INF, INF, 1.0], 2, 1),
        ([0.0, 0.0], [0.0, 1e-9], 1, 1),
        ([], [], 0, 0),
    ],
)
def test_elements_that_are_not_numbers(before: list[float], after: list[float], equal: int, endless: int) -> None:
    found = errors(np.array(before), np.array(after))
    assert (found.equal, found.endless, sum(found.counts)) == (equal, endless, 0)


def test_texts_are_right_or_wrong() -> None:
    found = errors(np.array(["a", "é"], object), np.array(["a", "b"], object))
    assert (found.equal, found.endless) == (1, 1)
    assert found.worst is not None and (found.worst.original, found.worst.changed) == ("é", "b")


def test_integers_are_right_or_wrong() -> None:
    found = errors(np.array([[1, 2], [3, 4]]), np.array([[1, 2], [3, 5]]))
    assert (found.equal, found.endless) == (3, 1)
    assert found.worst is not None and found.worst.index == (1, 1)
    assert (found.worst.original, found.worst.changed) == (4, 5)


def test_no_layer_is_worst_if_the_changed_model_does_not_run() -> None:
    before, after = (
        text.parse(f"g (float[2,2] x) => (float[2,2] y) {{ {body} y = Neg(a) }}").SerializeToString()
        for body in ("a = Relu(x)", "i = Cast<to = 7>(x) a = Gather<axis = 0>(x, i)")
    )
    with closing(Verifier(before)) as verifier:
        verifier.original.prepare()
        assert worst_layer(verifier.original, after, {"x": np.full((2, 2), 9, np.float32)}) == ""
