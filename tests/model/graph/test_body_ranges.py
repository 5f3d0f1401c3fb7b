"""How large values in bodies become, measured while the model runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from surgery import UsageError
from surgery.model import storage
from surgery.model.graph.graph import Graph

TEXT = """<ir_version: 8, opset_import: ["" : OPSET]>
g (float[2] x, float[N,2] r, bool c) => (float[2] y, float[N,2] z) <int64 n = {3}, float two = {2}>
{
    y = If (c) <
        then_branch = p () => (float[2] a) {
            h = Mul(x, two)
            a, all = Loop (n, , h) <
                body = q (int64 i, bool go, float[2] d) => (bool on, float[2] e, float[2] f) {
                    on = Identity(go) e = Mul(d, two) f = Identity(e)
                }
            >
        },
        else_branch = s () => (float[2] b) { k = Neg(x) b = Log(k) }
    >
    z = Scan (r) <num_scan_inputs = 1, body = t (float[2] u) => (float[2] v) { v = Reciprocal(u) }>
}"""


class Given:
    is_drawn = False

    def __init__(self, *feeds: dict[str, Any]) -> None:
        self._feeds = feeds

    def feeds(self) -> Sequence[dict[str, Any]]:
        return self._feeds


def graph_of(opset: int, trips: int = 3) -> Graph:
    text = TEXT.replace("OPSET", str(opset)).replace("n = {3}", f"n = {{{trips}}}")
    stored = storage.from_proto(onnx.parser.parse_model(text))
    return Graph(storage.ir_from_proto(stored.proto, stored.weights), weights=stored.weights)


def feed(condition: bool, rows: Sequence[Sequence[float]]) -> dict[str, Any]:
    array = np.array(rows, np.float32).reshape(-1, 2)
    return {"x": np.array([1, -4], np.float32), "r": array, "c": np.array(condition)}


def measured(opset: int, *feeds: dict[str, Any], trips: int = 3) -> dict[str, tuple[float, float, float]]:
    graph = graph_of(opset, trips)
    graph.calibration = Given(*feeds)
    bodies = [value for node in graph.nodes() if node.scope is not graph.main for value in node.outputs]
    floats = [value for value in bodies if value.dtype is not None and value.dtype.name == "FLOAT"]
    return {value.name: found for value, found in graph.body_ranges(floats).items()}


@pytest.mark.parametrize("opset", [11, 13, 18, 21])
def test_ranges_cover_every_iteration(opset: int) -> None:
    found = measured(opset, feed(True, [[1, 2], [0, 4]]))
    assert found["h"] == (8.0, 2.0, 8.0)
    assert found["e"] == (64.0, 4.0, 64.0)
    assert found["v"] == (1.0, 0.25, 1.0)  # the reciprocal of 0 is not finite


def test_a_branch_that_is_not_taken_has_no_range() -> None:
    found = measured(17, feed(True, [[1, 2]]))
    assert found["k"] == (0.0, np.inf, np.inf)


def test_the_largest_of_all_inputs_counts_and_nan_does_not() -> None:
    found = measured(17, feed(True, [[1, 2]]), feed(False, [[8, 0.5]]))
    assert found["k"] == (4.0, 1.0, 4.0)
    assert found["b"] == pytest.approx([np.log(4)] * 3)  # log(-1) is NaN, log(1) is 0
    assert found["v"] == (2.0, 0.125, 1.0)


def test_a_loop_without_iterations_has_no_range() -> None:
    found = measured(17, feed(True, [[1, 2]]), trips=0)
    assert found["e"] == (0.0, np.inf, np.inf)
    assert found["h"] == (8.0, 2.0, 8.0)


def test_drawn_inputs_are_measured_at_other_magnitudes_too() -> None:
    graph, given = graph_of(17), Given(feed(True, [[1, 2]]))
    graph.calibration = given
    (h,) = [node.outputs[0] for node in graph.nodes("Mul") if node.outputs[0].name == "h"]
    assert graph.body_ranges([h], (0.004, 400.0)) == {h: (8.0, 2.0, 8.0)}
    given.is_drawn = True
    assert graph.body_ranges([h], (0.004, 400.0)) == {h: pytest.approx((800.0, 0.002, 0.008))}
    (z,) = [value for value in graph.outputs() if value.name == "z"]
    arrays = [array for _, array in graph.recordings([z], (0.004, 400.0))]
    np.testing.assert_allclose(arrays, [[[1, 0.5]], [[500, 250]], [[0.005, 0.0025]]], rtol=1e-6)


def test_bodies_of_nodes_that_cannot_run_are_left_out() -> None:
    graph = graph_of(13)
    graph.calibration, graph.unmeasured = Given(feed(True, [[1, 2]])), ("y",)
    bodies = [value for node in graph.nodes() if node.scope is not graph.main for value in node.outputs]
    assert [value.name for value in graph.body_ranges(bodies)] == ["v"]
    graph.unmeasured = ("y", "z")
    assert graph.body_ranges(bodies) == {}


def test_missing_inputs_are_reported() -> None:
    graph = graph_of(17)
    with pytest.raises(UsageError, match="no inputs"):
        graph.body_ranges([graph.nodes("Neg")[0].outputs[0]])
