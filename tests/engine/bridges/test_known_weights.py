"""Weights that a pass returns as they were: they are not written again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from surgery.engine.bridges.weight_reuse import KnownWeights
from surgery.model import storage
from surgery.model.graph import text

DATA = np.arange(20_000, dtype=np.float32)


@pytest.fixture
def stored(tmp_path: Path) -> storage.StoredModel:
    model = text.parse("g (float[20000] x) => (float[20000] y) { a = Add(x, u) y = Add(a, v) }")
    model.graph.initializer.extend([numpy_helper.from_array(DATA, "u"), numpy_helper.from_array(DATA + 1, "v")])
    onnx.save(model, tmp_path / "m.onnx")
    return storage.opened(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("array", "known"),
    [
        (DATA, 0),
        (DATA + 1, 1),
        (DATA + 2, None),
        (DATA.reshape(200, 100), None),
        (DATA.view(np.int32), None),
        (DATA[:-1], None),
    ],
)
def test_a_weight_is_known_by_its_type_dims_and_bytes(
    stored: storage.StoredModel, array: np.ndarray, known: int | None
) -> None:
    found = KnownWeights(stored.proto, stored.weights)
    references = [storage.external_reference(tensor) for tensor in stored.proto.graph.initializer]
    tensor = numpy_helper.from_array(array, "w")
    expected = None if known is None else references[known]
    assert found.find(tensor.data_type, tensor.dims, tensor.raw_data) == expected


def test_a_model_refers_to_the_weights_that_it_has_unchanged(stored: storage.StoredModel) -> None:
    made = onnx.ModelProto()
    made.CopyFrom(stored.proto)
    new, same = made.graph.initializer
    new.CopyFrom(numpy_helper.from_array(DATA * 2, "u"))
    same.CopyFrom(numpy_helper.from_array(DATA + 1, "renamed"))
    made.graph.initializer.append(onnx.helper.make_tensor("typed", 1, [2], [1.0, 2.0]))
    before = onnx.TensorProto()
    before.CopyFrom(new)
    KnownWeights(stored.proto, stored.weights).restore(made)
    new, same, typed = made.graph.initializer
    assert new == before and typed.float_data == [1.0, 2.0] and same.name == "renamed"
    assert storage.external_reference(same) == storage.external_reference(stored.proto.graph.initializer[1])
    assert not same.HasField("raw_data")
