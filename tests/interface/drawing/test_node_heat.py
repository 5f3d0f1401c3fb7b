"""Figures of nodes to color a graph by."""

import pytest

from surgery.base.errors import UsageError
from surgery.interface.drawing.node_heat import heat_of
from surgery.model import storage
from surgery.model.graph import text

ONES = ", ".join("1" * 54)
MODEL = f"""g (float[n, 3, 8, 8] x) => (float[n, 2, 6, 6] y) <float[2, 3, 3, 3] w = {{{ONES}}}> {{
    [drop] d = Dropout(x)
    [conv] c = Conv(d, w)
    [relu] r = Relu(c)
    [odd] o = Abs(r)
    [neg] y = Neg(o)
}}"""


def test_times_are_those_of_all_nodes() -> None:
    found = heat_of(storage.opened(text.parse(MODEL)), "seconds", {})
    assert set(found.values) == {"drop", "conv", "relu", "odd", "neg"} and all(one > 0 for one in found.values.values())


def test_executed_are_the_nodes_that_optimizations_leave() -> None:
    found = heat_of(storage.opened(text.parse(MODEL)), "executed", {})
    assert set(found.providers) >= {"odd", "neg"} and set(found.providers.values()) == {"CPUExecutionProvider"}
    assert "drop" not in found.providers and not set(found.made) & {"drop", "conv", "relu", "odd", "neg"}
    assert f"{len(found.providers) + len(found.made)} nodes executed" in found.note


def test_settings_reach_the_run() -> None:
    with pytest.raises(UsageError, match="no NoSuchExecutionProvider"):
        heat_of(storage.opened(text.parse(MODEL)), "seconds", {"providers": ("NoSuchExecutionProvider",)})


def test_other_figures_are_refused() -> None:
    with pytest.raises(UsageError, match="there are flops, bytes, seconds, executed"):
        heat_of(storage.opened(text.parse(MODEL)), "beauty", {})
