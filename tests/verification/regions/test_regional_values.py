"""What is known of values at the boundary of a region."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.inputs.search import Found
from surgery.verification.regions.region_values import Values

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
