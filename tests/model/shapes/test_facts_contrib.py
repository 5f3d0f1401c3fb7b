"""What inference says of the operators of com.microsoft is what ONNX Runtime gives."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from surgery import Graph
from surgery.model import storage
from surgery.model.graph import text

RECURRENT = """<ir_version: 8, opset_import: ["": 13, "com.microsoft": 1]>
g (float[S,B,2] x, int8[D,2,12] w, int8[D,3,12] r, float[D] s, int8[D] z)
=> (float[?,?,?,?] y, float[?,?,?] h, float[?,?,?] c)
{ y, h, c = com.microsoft.DynamicQuantizeLSTM<ATTRIBUTES>(x, w, r, , , , , , s, z, s, z) }"""


@pytest.mark.parametrize(
    ("attributes", "directions"), [("hidden_size = 3", 1), ('hidden_size = 3, direction = "bidirectional"', 2)]
)
def test_shapes_of_a_quantized_lstm_match_the_runtime(attributes: str, directions: int) -> None:
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


CASES = {
    "gelu": "(float[B,S,8] x, float[8] b) => (y) { y = com.microsoft.BiasGelu(x, b) }",
    "quick-gelu": "(float[B,S,8] x) => (y) { y = com.microsoft.QuickGelu(x) }",
    "skip": "(float[B,S,8] x, float[B,S,8] z, float[8] g, float[8] b) => (y, s) "
    "{ y, , , s = com.microsoft.SkipLayerNormalization(x, z, g, b) }",
    "simplified": "(float[B,S,8] x, float[8] g) => (y, i) { y, i = SimplifiedLayerNormalization(x, g) }",
    "embedding": "(int32[B,S] i, int32[B,S] t, float[99,8] w, float[99,8] p, float[99,8] e, float[8] g, float[8] b, "
    "int32[B,S] m) => (y, n, s) { y, n, s = com.microsoft.EmbedLayerNormalization(i, t, w, p, e, g, b, m) }",
    "product": "(float[B,4,S] x, float[B,7,S] z) => (y) { y = com.microsoft.FusedMatMul<transB = 1>(x, z) }",
    "product-of-batches": "(float[4,B,S] x, float[B,S,7] z) => (y) "
    "{ y = com.microsoft.FusedMatMul<transBatchA = 1>(x, z) }",
    "product-of-turned-batches": "(float[S,B,4] x, float[B,S,7] z) => (y) "
    "{ y = com.microsoft.FusedMatMul<transBatchA = 1, transA = 1>(x, z) }",
    "product-with-a-vector": "(float[B,4,S] x, float[S] z) => (y) { y = com.microsoft.FusedMatMul(x, z) }",
    "gemm": '(float[S,B] x, float[S,7] z) => (y) '
    '{ y = com.microsoft.FusedGemm<transA = 1, activation = "Relu">(x, z) }',
    "conv": '(float[B,3,S,9] x, float[4,3,3,3] w) => (y) { y = com.microsoft.FusedConv<activation = "Relu">(x, w) }',
    "quantized-sum": "(uint8[B,S,1] a, float s, uint8 z, uint8[4] b) => (y) "
    "{ y = com.microsoft.QLinearAdd(a, s, z, b, s, z, s, z) }",
    "quantized-concat": "(uint8[B,3] a, float s, uint8 z, uint8[B,S] b) => (y) "
    "{ y = com.microsoft.QLinearConcat<axis = 1>(s, z, a, s, z, b, s, z) }",
    "quantized-pool": "(uint8[B,3,S,4] a, float s, uint8 z) => (y) "
    "{ y = com.microsoft.QLinearGlobalAveragePool(a, s, z, s, z) }",
    "attention": "(float[B,S,8] x, float[8,20] w, float[20] b) => (y) "
    "{ y = com.microsoft.Attention<num_heads = 2, qkv_hidden_sizes = [4, 4, 12]>(x, w, b) }",
    "attention-with-a-past": "(float[B,S,8] x, float[8,24] w, float[24] b, float[2,B,2,P,4] p) => (y, n) "
    "{ y, n = com.microsoft.Attention<num_heads = 2>(x, w, b, , p) }",
    "heads": "(float[B,S,8] q, float[B,T,8] k, float[B,T,12] v) => (y, nk, nv) "
    "{ y, nk, nv = com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, v) }",
    "heads-with-a-past": "(float[B,S,8] q, float[B,S,8] k, float[B,S,8] v, float[B,2,P,4] pk, float[B,2,P,4] pv) "
    "=> (y, nk, nv) { y, nk, nv = com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, v, , , , pk, pv) }",
    "heads-of-another-sequence": "(float[B,S,8] q, float[B,2,T,4] k, float[B,2,T,4] v) => (y) "
    "{ y = com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, v) }",
    "groups": "(float[B,1,64] q, float[B,1,32] k, float[B,1,32] v, float[B,2,P,16] pk, float[B,2,P,16] pv, int32[B] l, "
    "float[B,L] m) => (y, nk, nv) { n = Shape<start = 1, end = 2>(m) t = Cast<to = 6>(n) "
    "y, nk, nv = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2>(q, k, v, pk, pv, l, t) }",
    "rotary": "(float[B,S,8] x, int64[B,S] p, float[99,2] c, float[99,2] s) => (y) "
    "{ y = com.microsoft.RotaryEmbedding(x, p, c, s) }",
    "blocks": "(float[B,S,32] x, uint8[8,2,8] b, float[16] s) => (y) "
    "{ y = com.microsoft.MatMulNBits<K = 32, N = 8, bits = 4, block_size = 16>(x, b, s) }",
    "dynamic-product": "(float[B,S,8] x, int8[8,5] w, float s, int8 z) => (y) "
    "{ y = com.microsoft.DynamicQuantizeMatMul(x, w, s, z) }",
}  # fmt: skip

EXTENTS = {"B": 2, "S": 5, "T": 7, "P": 3, "L": 4}
LAST = EXTENTS["P"]
"""The last position, where a cache is read."""


@pytest.mark.parametrize("body", CASES.values(), ids=CASES)
def test_shapes_and_types_match_the_runtime(body: str) -> None:
    outputs = body.split(" => ", 1)[1]
    names = outputs[1 : outputs.index(")")]
    undeclared = body.replace(f"({names})", f"({', '.join(f'float[] {name}' for name in names.split(', '))})", 1)
    model = text.parse(f'<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> g {undeclared}')
    for output in model.graph.output:
        output.ClearField("type")
    graph = Graph(storage.ir_from_proto(model))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {value.name: _ones(value) for value in model.graph.input}
    for known, found in zip(graph.outputs(), session.run(None, feeds)):
        assert known.dtype is not None and known.dtype.numpy() == found.dtype
        assert known.shape is not None and tuple(map(_bound, known.shape)) == found.shape, known.shape


def _ones(value: onnx.ValueInfoProto) -> np.ndarray:
    tensor = value.type.tensor_type
    shape = [dim.dim_value or EXTENTS[dim.dim_param] for dim in tensor.shape.dim]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    return np.full(shape, LAST if value.name == "l" else 1, dtype)


def _bound(extent: int | str) -> int:
    """Evaluate a dim."""
    return extent if isinstance(extent, int) else int(eval(extent, {"Max": max}, EXTENTS))
