"""What says, without surgery, whether a mutant of a trained model is wrong; and the kinds that only those have."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import pytest

from mutation.draft import Draft, Unfit, infer
from mutation.local import Local, describe
from mutation.trained_kinds import TRAINED
from mutation.witness import Child
from surgery.model.graph import text

NORMALIZED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,8] x) => (float[N,8] y) <float k = {%s}> {
    t = Mul(x, k)
    high = ReduceMax<axes = [1]>(t)
    low = ReduceMin<axes = [1]>(t)
    a = Sub(t, low)
    b = Sub(high, low)
    y = Div(a, b)
}"""
CHOSEN = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,4] x) => (int64[N] y) <float[4] bias = {%s, 900, -5, 3}> {
    t = Add(x, bias)
    y = ArgMax<axis = 1, keepdims = 0>(t)
}"""
SATURATED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,4] x) => (float[N,4] y) { s = Sigmoid(x) r = %s(s) y = Neg(r) }"""
QUANTIZED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,4] x, int64[N] ids) => (float[N,3] y, float[N,2] rows)
<float scale = {0.1}, uint8 zero = {128}, float other = {0.02},
 uint8[4,3] w = {1, 200, 3, 40, 5, 66, 71, 80, 99, 100, 11, 255},
 float[9,2] table = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18}> {
    q = QuantizeLinear(x, scale, zero)
    d = DequantizeLinear(q, scale, zero)
    v = DequantizeLinear(w, other, zero)
    y = MatMul(d, v)
    rows = Gather(table, ids)
}"""


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    made = Child()
    yield made
    made.close()


def _seen(child: Child, original: str, changed: str) -> str:
    random = np.random.default_rng(0)
    width = 8 if "[N,8] x" in original else 4
    feeds = [{"x": random.standard_normal((n, width)).astype(np.float32)} for n in (1, 3)]
    mutant = text.parse(changed)
    return Local(text.parse(original), feeds, child).look(mutant).where


@pytest.mark.parametrize(
    ("original", "changed", "where"),
    [
        (NORMALIZED % "2", NORMALIZED.replace("Sub(t, low)", "Add(t, low)") % "2", "output"),
        (NORMALIZED % "2", NORMALIZED % "2.5", "cancels"),
        (NORMALIZED % "2", NORMALIZED % "2.0000005", "rounding"),
        (CHOSEN % "1", CHOSEN % "2", "inside"),
        (SATURATED % "Relu", SATURATED % "Identity", "drawn"),
        (CHOSEN % "1", CHOSEN.replace("axis = 1", "axis = -1") % "1", "nowhere"),
        (SATURATED % "Relu", SATURATED.replace("Sigmoid(x)", "Sigmoid(x, x)") % "Relu", "invalid"),
    ],
)
def test_a_mutant_is_classified_by_where_it_shows(child, original, changed, where):
    assert _seen(child, original, changed) == where


def test_a_change_is_described():
    one, other = text.parse(SATURATED % "Relu"), text.parse(SATURATED % "Identity")
    assert describe(one, other) == "Relu -> Identity at 'r'"


QUANTIZED_KINDS = (
    "scale of a quantization changed",
    "zero point of a quantization changed",
    "row of a table changed",
    "row of an integer weight changed",
)


@pytest.mark.parametrize("kind", QUANTIZED_KINDS)
def test_each_kind_makes_one_visible_change(child, kind):
    model = text.parse(QUANTIZED)
    onnx.checker.check_model(model, full_check=True)
    random = np.random.default_rng(0)
    feeds = [{"x": random.standard_normal((9, 4)).astype(np.float32), "ids": np.arange(9)}]
    draft = Draft(model, infer(model), 0, kind)
    TRAINED[kind](draft)
    assert Local(model, feeds, child).look(draft.model).where == "output"


@pytest.mark.parametrize("kind", QUANTIZED_KINDS)
def test_a_model_without_a_place_for_a_kind_is_left_alone(kind):
    model = text.parse(SATURATED % "Relu")
    with pytest.raises(Unfit):
        TRAINED[kind](Draft(model, infer(model), 0, kind))
