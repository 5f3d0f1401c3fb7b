"""Constant tensors before and after a change: which are the same, and how their values are spread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from surgery.features.inspection import weight_samples
from surgery.features.inspection.weight_samples import compare_weights
from surgery.model import storage


def stored(folder: Path, name: str, **tensors: Any) -> storage.StoredModel:
    made = [numpy_helper.from_array(one, key) if isinstance(one, np.ndarray) else one for key, one in tensors.items()]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y], made)
    onnx.save(helper.make_model(graph), folder / f"{name}.onnx")
    return storage.load(folder / f"{name}.onnx")


def test_states_of_compared_weights(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    large, other = rng.normal(size=5000).astype(np.float32), rng.normal(size=5000).astype(np.float32)
    small = np.array([1.0, 2.0], np.float32)
    before = stored(tmp_path, "a", large=large, small=small, gone=small, changed=large, retyped=small)
    after = stored(tmp_path, "b", large=large, small=small, new=other, changed=other, retyped=small.astype(np.float16))
    found = compare_weights(before, after)
    assert [found[key] for key in ("kept", "altered", "new", "gone")] == [2, 2, 1, 1]
    states = {one["name"]: one["state"] for one in found["largest"]}
    assert states == {"large": "same", "small": "same", "changed": "changed", "retyped": "changed", "new": "new"}
    assert found["before"]["bytes"] == 2 * 20_000 + 3 * 8 and found["after"]["by_type"]["float16"] == 4


def test_values_are_counted_in_equal_parts(tmp_path: Path) -> None:
    array = np.linspace(-1, 1, 4801).astype(np.float32)
    (one,) = compare_weights(*[stored(tmp_path, name, w=array) for name in "ab"])["largest"]
    values = one["values"]
    assert (values["low"], values["high"]) == (-1.0, 1.0) and sum(values["counts"]) == 4801
    assert max(values["counts"]) - min(values["counts"]) <= 2


def test_large_tensors_are_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_samples, "SAMPLED", 4096)
    array = np.zeros(1_000_000, np.float32)
    array[-1], array[0] = 5.0, -3.0
    (one,) = compare_weights(*[stored(tmp_path, name, w=array) for name in "ab"])["largest"]
    assert sum(one["values"]["counts"]) == 4096 and (one["values"]["low"], one["values"]["high"]) == (-3.0, 5.0)
    assert one["values"]["zeros"] == pytest.approx(4094 / 4096)


@pytest.mark.parametrize(
    "tensor",
    [
        np.array(["a", "b"], object),
        np.full(3, np.nan, np.float32),
        np.zeros((0, 4), np.float32),
        np.array([1 + 2j], np.complex64),
    ],
)
def test_tensors_without_finite_numbers_have_no_histogram(tmp_path: Path, tensor: Any) -> None:
    (one,) = compare_weights(*[stored(tmp_path, name, w=tensor) for name in "ab"])["largest"]
    assert one["values"] is None and one["state"] == "same"


def test_packed_tensors(tmp_path: Path) -> None:
    tensor = helper.make_tensor("w", TensorProto.INT4, [5000], np.tile(np.arange(-8, 8), 313)[:5000])
    (one,) = compare_weights(*[stored(tmp_path, name, w=tensor) for name in "ab"])["largest"]
    assert (one["values"]["low"], one["values"]["high"]) == (-8.0, 7.0) and one["type"] == "int4"


def test_a_constant_tensor_has_one_bar(tmp_path: Path) -> None:
    (one,) = compare_weights(*[stored(tmp_path, name, w=np.full(9, 2.5, np.float32)) for name in "ab"])["largest"]
    assert one["values"]["counts"] == [9]


def test_one_changed_element_marks_a_tensor_as_changed(tmp_path: Path) -> None:
    array = np.zeros(3_000_000, np.float32)
    before = stored(tmp_path, "a", w=array)
    array[1_234_567] = 1
    after = stored(tmp_path, "b", w=array)
    assert [compare_weights(before, other)["largest"][0]["state"] for other in (before, after)] == ["same", "changed"]
