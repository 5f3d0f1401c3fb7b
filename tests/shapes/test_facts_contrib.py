"""What inference says of the operators of com.microsoft is what ONNX Runtime gives."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from surgery import Graph, storage
from surgery.graph import text

RECURRENT = """<ir_version: 8, opset_import: ["": 13, "com.microsoft": 1]>
g (float[S,B,2] x, int8[D,2,12] w, int8[D,3,12] r, float[D] s, int8[D] z)
=> (float[?,?,?,?] y, float[?,?,?] h, float[?,?,?] c)
{ y, h, c = com.microsoft.DynamicQuantizeLSTM<ATTRIBUTES>(x, w, r, , , , , , s, z, s, z) }"""


@pytest.mark.parametrize(
    ("attributes", "directions"), [("hidden_size = 3", 1), ('hidden_size = 3, direction = "bidirectional"', 2)]
)
def test_a_quantized_lstm_has_the_shapes_that_the_runtime_gives(attributes: str, directions: int) -> None:
    model = text.parse(RECURRENT.replace("ATTRIBUTES", attributes))
    graph = Graph(storage.ir_from_proto(model))
    shapes = [value.shape for value in graph.outputs()]
    assert shapes == [("S", directions, "B", 3), *[(directions, "B", 3)] * 2]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    weights = {name: np.ones((directions, rows, 12), np.int8) for name, rows in (("w", 2), ("r", 3))}
    scales = {"s": np.ones(directions, np.float32), "z": np.zeros(directions, np.int8)}
    found = session.run(None, {"x": np.ones((5, 4, 2), np.float32), **weights, **scales})
    dims = {"S": 5, "B": 4}
    assert [value.shape for value in found] == [tuple(dims.get(dim, dim) for dim in shape) for shape in shapes]
