"""What a page gets of the values of a tensor: figures, histograms in the same bins, and images."""

import base64
import json
from typing import Any

import numpy as np
import pytest

from surgery.features.workbench.tensor_values import TensorLook
from surgery.verification.inputs.spec import VerifySpec

pytest.importorskip("starlette")


def summary(before: Any, after: Any) -> dict[str, Any]:
    from surgery.interface.workbench.value_summary import summary_of

    sides = [None if one is None else (np.asarray(one),) for one in (before, after)]
    found = summary_of(TensorLook("t", *sides, ("inputs 1",), VerifySpec()))
    return dict(json.loads(json.dumps(found, allow_nan=False)))


def pixels(image: dict[str, Any]) -> np.ndarray[Any, Any]:
    found = np.frombuffer(base64.b64decode(image["data"]), np.uint8)
    return found.reshape(image["height"], image["width"], image["channels"])


def test_both_histograms_have_the_bins_of_all_values() -> None:
    found = summary(np.array([0.0, 0.0, 24.0]), np.array([0.0, 12.0, 48.0]))
    histogram = found["histogram"]
    assert (histogram["from"], histogram["to"]) == (0.0, 48.0)
    assert histogram["before"][0] == 2 and histogram["before"][12] == 1 and sum(histogram["before"]) == 3
    assert histogram["after"][0] == 1 and histogram["after"][6] == 1 and histogram["after"][-1] == 1


def test_what_is_not_finite_is_counted_and_in_no_histogram() -> None:
    found = summary(np.array([1.0, np.nan, np.inf]), np.array([1.0, 2.0, 3.0]))
    assert (found["before"]["nan"], found["before"]["infinite"], found["before"]["max"]) == (1, 1, 1.0)
    assert sum(found["histogram"]["before"]) == 1 and sum(found["histogram"]["after"]) == 3
    assert found["before"]["first"] == [1.0, "nan", "inf"]
    assert found["difference"]["needed"] == "inf"


def test_a_tensor_on_one_side_has_no_difference() -> None:
    found = summary(None, np.array([1, 2], np.int64))
    assert found["before"] is None and found["difference"] is None and found["histogram"]["after"]
    assert "before" not in found["histogram"]


def test_texts_have_elements_and_nothing_else() -> None:
    found = summary(np.array(["a", "b"], object), np.array(["a", "c"], object))
    assert found["before"]["first"] == ["a", "b"] and found["histogram"] is None and found["images"] is None
    assert "equal" in found["difference"]["unlike"]


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_an_image_is_shown_in_both_layouts_in_one_range(channels: int) -> None:
    image = np.arange(6 * 5 * channels, dtype=np.float32).reshape(1, 6, 5, channels)
    planes = summary(image.transpose(0, 3, 1, 2), image.transpose(0, 3, 1, 2) * 0)
    rows = summary(image, image * 0)
    for found in (planes, rows):
        images = found["images"]
        assert (images["from"], images["to"]) == (0.0, 6 * 5 * channels - 1)
        shown = pixels(images["before"])
        assert shown.shape == (6, 5, channels) and shown[0, 0, 0] == 0 and shown[-1, -1, -1] == 255
        assert (np.diff(shown.ravel().astype(int)) > 0).all() and not pixels(images["after"]).any()
        assert pixels(images["difference"])[-1, -1, 0] == 255 and images["difference"]["channels"] == 1


def test_a_large_image_is_made_smaller_and_other_shapes_are_no_images() -> None:
    found = summary(np.zeros((1, 3, 1000, 600), np.float32), None)["images"]["before"]
    assert (found["height"], found["width"]) == (250, 150)
    for shape in ((2, 8, 8), (1, 8, 8, 8), (1, 3, 2, 2), (0, 3, 8, 8), (3,)):
        assert summary(np.zeros(shape, np.float32), None)["images"] is None, shape
