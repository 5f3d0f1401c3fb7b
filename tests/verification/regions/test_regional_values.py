"""What is known of values at the boundary of a region."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from surgery.base.promises import Parity
from surgery.model.graph import text
from surgery.verification.comparing.vacuity import Run
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.inputs.search import Found
from surgery.verification.regions.region_values import Form, Point, Values
from surgery.verification.regions.regions import Region
from surgery.verification.regions.tried_bindings import bindings

FLOAT = 1


def _values(found: dict[str, tuple[int, list[int]]]) -> Values:
    run: Any = SimpleNamespace(binding=Binding(seed=0, dims={"n": 3}), feed={"x": np.zeros((1, 3), np.float32)})
    inputs = SimpleNamespace(inferred=lambda _: {})
    original: Any = SimpleNamespace(trials=lambda: [run], inputs=inputs, skeleton=b"", found=Found())
    engine: Any = SimpleNamespace(analyse=lambda *_, **__: found)
    return Values(original, engine)


def test_a_shape_that_inference_makes_negative_is_not_known():
    values = _values({"inner": (FLOAT, [1, -2]), "other": (FLOAT, [1, 0])})
    point = values.points[0]
    values._begin(point)
    assert point.lacks(["x", "inner", "other"])
    assert set(point.forms) == {"x", "other"}


@pytest.mark.parametrize(
    ("columns", "few", "seeds"),
    [(3, False, [(2, 0), (5, 0), (2, 1), (5, 1)]), (3, True, [(2, 0), (5, 0)]), (1 << 20, False, [(2, 0), (5, 0)])],
)
def test_nodes_that_move_elements_run_twice_at_each_size_unless_they_are_many(columns, few, seeds):
    pieces = [
        text.parse(f"g (float[N,M] x) => (float[A,B] y) {{ y = {body}(x) }}") for body in ("Transpose", "Flatten")
    ]
    region = Region(("y",), ("y",), ("x",), *pieces, 1)
    points = [Point({"N": n}, [Run(Binding({"N": n}), {}, {})]) for n in (2, 5)]
    for point in points:
        point.forms["x"] = Form(np.dtype(np.float32), (point.dims["N"], columns))
    found = bindings(region, points, Parity.EXACT, 0.0, few=few)
    assert [(one.dims["N"], one.seed) for one in found] == seeds
    assert [one.character == "normal" for one in found] == [True, not few, True, True][: len(found)]
