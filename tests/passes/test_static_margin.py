"""The margin of the ranges of quantize-static."""

from typing import Any

import numpy as np
import pytest
from support.calibrated import Given

from surgery.base.errors import UsageError, WorkerError
from surgery.engine.bridges.run_pass import run_pass
from surgery.engine.registry.catalog import catalog
from surgery.model import storage
from surgery.model.graph import text
from surgery.model.graph.graph import Graph


def test_ranges_of_drawn_inputs_get_a_margin() -> None:
    """Without data of the user, inputs of use may exceed what was drawn; given data is taken at its word."""
    model = text.parse(
        "g (float[N,4] x) => (float[N,2] y) <float[4,2] w = {1, 2, 3, 4, 5, 6, 7, 8}> { y = MatMul(x, w) }"
    )
    feeds = [{"x": np.array([[-1, 0, 0.5, 2]], np.float32)}]

    def scale(*, is_drawn: bool, **options: Any) -> float:
        stored = storage.from_proto(model)
        graph = Graph(storage.ir_from_proto(stored.proto, stored.weights), weights=stored.weights)
        graph.calibration = Given(feeds, is_drawn)
        declared = catalog.find("quantize-static")
        run_pass(declared, graph, declared.bind(options), timeout=300)
        (node,) = graph.nodes("QuantizeLinear")
        return float(node.required_input(1).constant)

    assert scale(is_drawn=False) == pytest.approx(3 / 255)
    assert scale(is_drawn=True) == pytest.approx(3 * 1.1 / 255)
    assert scale(is_drawn=True, margin=1.0) == pytest.approx(3 / 255)
    assert scale(is_drawn=False, margin=1.5) == pytest.approx(4.5 / 255)
    with pytest.raises(UsageError, match="the margin is below 1"):
        scale(is_drawn=False, margin=0.9)


def test_a_drawn_set_that_the_model_rejects_is_not_measured() -> None:
    """Whether a model accepts inputs may depend on their values; of given inputs, each has to run."""
    model = text.parse("g (float[N,2] x, int64[1] i) => (float[1,2] y) { y = Gather<axis=0>(x, i) }")
    data = np.array([[0, 1], [2, 3]], np.float32)
    feeds = [{"x": data, "i": np.array([place])} for place in (0, 2, 1)]
    stored = storage.from_proto(model)
    graph = Graph(storage.ir_from_proto(stored.proto, stored.weights), weights=stored.weights)
    results = [node.outputs[0] for node in graph.nodes()]
    graph.calibration = Given(feeds, is_drawn=True)
    assert [array.tolist() for _, array in graph.recordings(results)] == [[[0, 1]], [[2, 3]]]
    graph.calibration = Given(feeds, is_drawn=False)
    with pytest.raises(WorkerError, match="out of data bounds"):
        list(graph.recordings(results))
    graph.calibration = Given(feeds[1:2], is_drawn=True)
    with pytest.raises(WorkerError, match="out of data bounds"):
        list(graph.recordings(results))
