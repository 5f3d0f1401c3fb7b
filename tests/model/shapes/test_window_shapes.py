"""The extents that our own rules give windows, repetitions and scales are those that ONNX Runtime computes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import onnxruntime
import pytest

from surgery import Graph
from surgery.model import storage
from surgery.model.graph import text

NODES = {
    "MaxPool": "a = MaxPool<kernel_shape = [3, 2], strides = [2, 1], pads = [1, 0, 1, 1]>(x)",
    "dilated MaxPool": "a = MaxPool<kernel_shape = [2, 2], strides = [3, 2], dilations = [2, 1], "
    'auto_pad = "NOTSET">(x)',
    "MaxPool rounded up": "a = MaxPool<kernel_shape = [2, 2], strides = [3, 2], ceil_mode = 1>(x)",
    "padded MaxPool": 'a = MaxPool<kernel_shape = [2, 2], strides = [3, 2], auto_pad = "SAME_UPPER">(x)',
    "AveragePool": "a = AveragePool<kernel_shape = [2, 3], strides = [2, 3]>(x)",
    "LpPool": "a = LpPool<kernel_shape = [2, 3], strides = [4, 3], pads = [0, 1, 1, 1]>(x)",
    "two pools": "b = MaxPool<kernel_shape = [2, 3], strides = [2, 2], pads = [1, 1, 0, 1]>(x) "
    "a = AveragePool<kernel_shape = [3, 1], strides = [2, 3], pads = [1, 0, 1, 0]>(b)",
    "pool and Slice": "b = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x) a = Slice(b, one, end, two)",
    "Tile": "a = Tile(x, counts)",
    "Tile by the batch": "s = Shape<start = 0, end = 1>(x) c = Concat<axis = 0>(s, three) a = Tile(x, c)",
    "Resize": "a = Resize(x, , scales)",
    "Resize by a fraction": "a = Resize(x, , halves)",
    "Expand": "s = Shape(x) e = Expand(one, s) a = Add(x, x)",
}
HEAD = """<ir_version: 8, opset_import: ["" : 18]> g (float[n,3,h,w] x) => (float[p,q,r,s] y)
    <int64[4] counts = {1, 2, 3, 1}, int64[3] three = {1, 2, 1}, float[4] scales = {1, 1, 2, 3}, int64[1] one = {1},
     int64[1] two = {2}, int64[1] end = {9223372036854775807}, float[4] halves = {1, 1, 0.5, 1.5}>"""


@pytest.mark.parametrize("kind", NODES)
def test_extents_are_those_of_the_runtime(kind: str) -> None:
    proto = text.parse(f"{HEAD} {{ {NODES[kind]} y = Neg(a) }}")
    stored = storage.from_proto(proto)
    graph = Graph(storage.ir_from_proto(stored.proto, stored.weights))
    dims = next(node for node in graph.nodes("Neg")).inputs[0].shape  # type: ignore[union-attr]
    assert dims is not None and len(dims) == 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    runs = 0
    for batch, height, width in itertools.product((1, 2), (3, 6, 7, 11), (4, 5, 9)):
        try:
            (found,) = session.run(None, {"x": np.ones((batch, 3, height, width), np.float32)})
        except Exception:
            continue
        runs += 1
        known = {"n": batch, "h": height, "w": width, "floor": math.floor, "Min": min, "Max": max}
        names = {"n", "h", "w"}
        for dim, extent in zip(dims, found.shape):
            if isinstance(dim, int) or (isinstance(dim, str) and names & set(dim)):
                assert eval(str(dim), known) == extent, (kind, dims, found.shape)
    assert runs >= 6


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("MaxPool", ("n", 3, "floor(h/2 - 1/2) + 1", "w")),
        ("two pools", ("n", 3, "floor(floor(h/2 - 1/2)/2) + 1", "floor(floor(w/2 - 1/2)/3) + 1")),
        ("pool and Slice", ("n", 3, "floor(h/2) - Min(1, floor(h/2))", "floor(w/2)")),
        ("Tile", ("n", 6, "3*h", "w")),
        ("Resize", ("n", 3, "2*h", "3*w")),
    ],
)
def test_extents_are_expressions(kind: str, expected: tuple[object, ...]) -> None:
    stored = storage.from_proto(text.parse(f"{HEAD} {{ {NODES[kind]} y = Neg(a) }}"))
    graph = Graph(storage.ir_from_proto(stored.proto, stored.weights))
    assert next(node for node in graph.nodes("Neg")).inputs[0].shape == expected  # type: ignore[union-attr]
