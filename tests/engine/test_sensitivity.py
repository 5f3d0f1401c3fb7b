"""What weighs sites against each other: the multiply-accumulates of their nodes."""

from __future__ import annotations

from surgery import storage
from surgery.engine.sensitivity import macs_by_label
from surgery.graph import text
from surgery.graph.graph import Graph

MODEL = """<ir_version: 10, opset_import: ["" : 17]>
g (float[batch,17,"2*n",24] x) => (float[R,8] y, float[batch,17,"2*n",8] z)
<float[24,8] w, int64[2] rows = {-1, 24}> {
    r = Reshape(x, rows)
    [flat] y = Gemm(r, w)
    [whole] z = MatMul(x, w)
}"""


def test_rows_joined_by_a_reshape_count_as_before() -> None:
    model = text.parse(MODEL.replace("float[24,8] w", f"float[24,8] w = {{{', '.join('1' * 192)}}}"))
    stored = storage.from_proto(model)
    macs = macs_by_label(Graph(storage.ir_from_proto(stored.proto, stored.weights), weights=stored.weights))
    # Each free dim counts as 16, and "2*n" is the name of one.
    assert macs["flat"] == macs["whole"] == 16 * 17 * 16 * 24 * 8
