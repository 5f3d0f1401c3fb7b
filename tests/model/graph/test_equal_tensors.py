"""Initializers with the same tensor are found, and no more of their weights is read than needed."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from surgery.model.graph import equal_tensors as module
from surgery.model.graph.graph import Graph
from surgery.model.graph.values import Value


def _tensor(array: np.ndarray | list[str]) -> ir.TensorProtocol:
    """Return a tensor; onnx-ir itself encodes text with a function that numpy has from 2.0 on."""
    if isinstance(array, np.ndarray):
        return ir.tensor(array)
    return ir.StringTensor([item.encode() for item in array], shape=ir.Shape([len(array)]))


def values(*arrays: np.ndarray | list[str]) -> list[Value]:
    found = [ir.Value(name=f"v{number}") for number in range(len(arrays))]
    for value, array in zip(found, arrays):
        tensor = _tensor(array)
        value.const_value, value.dtype, value.shape = tensor, tensor.dtype, ir.Shape(tensor.shape.numpy())
    graph = ir.Graph([], [], nodes=[], initializers=found, opset_imports={"": 21})
    held = Graph(ir.Model(graph, ir_version=10))
    return [Value(held, value) for value in found]


def names(groups: list[list[Value]]) -> list[list[str]]:
    return [[value.name for value in group] for group in groups]


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PIECE", 64)
    monkeypatch.setattr(module, "_SAMPLES", 2)
    monkeypatch.setattr(module, "_SAMPLE_BYTES", 8)


def test_tensors_are_compared_past_their_samples(small_pieces: None) -> None:
    base = np.zeros(1000, np.float32)
    other, third = base.copy(), base.copy()
    other[500] = 1
    third[499] = 1
    assert names(module.equal_tensors(values(base, other, third, base.copy(), other.copy()))) == [
        ["v0", "v3"],
        ["v1", "v4"],
    ]


def test_tensors_differ_by_bits_type_or_dims() -> None:
    zero, nan = np.float32([0.0]), np.array([np.nan], np.float32)
    found = values(zero, -zero, zero.astype(np.float64), zero.reshape(1, 1), nan, nan.copy())
    assert names(module.equal_tensors(found)) == [["v4", "v5"]]


def test_texts_that_are_equal_when_joined_differ() -> None:
    found = values(["ab", "c"], ["a", "bc"], ["a", "bc"])
    assert names(module.equal_tensors(found)) == [["v1", "v2"]]


def test_empty_tensors_are_equal() -> None:
    assert names(module.equal_tensors(values(np.zeros((0, 3)), np.zeros((0, 3)), np.zeros((3, 0))))) == [["v0", "v1"]]


def test_no_more_is_read_than_up_to_the_first_difference(small_pieces: None, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    digest = module._digest
    monkeypatch.setattr(module, "_digest", lambda item, piece: read.append(piece.start) or digest(item, piece))
    base = np.zeros(1000, np.float32)
    other = base.copy()
    other[20] = 1
    assert module.equal_tensors(values(base, other)) == []
    assert read == [0, 0, 64, 64]
