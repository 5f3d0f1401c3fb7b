"""What is known of values at the boundary of a region."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from surgery.base.operators.domain import MASK
from surgery.base.promises import Parity
from surgery.model.graph import text
from surgery.verification.comparing.vacuity import Run
from surgery.verification.inputs.dims import calculate
from surgery.verification.inputs.feed_plan import Binding
from surgery.verification.inputs.search import Found
from surgery.verification.regions.region_feeding import _domain_of
from surgery.verification.regions.region_values import Form, Point, Values
from surgery.verification.regions.regions import Region, nudged
from surgery.verification.regions.tried_bindings import bindings
from surgery.verification.regions.upstream import _redraw

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


@pytest.mark.parametrize("n", [1, 4, 7])
@pytest.mark.parametrize("dim", ["n", "3*n - 8", "floor(n/2 - 1/2) + 1", "Min(5, n + 1)", "n*floor(n/3)", "4*n",
                                 "Max(2, n - 9)", "n - floor(n/2)"])  # fmt: skip
def test_inferred_dims_have_the_values_that_sympy_gives_them(dim: str, n: int) -> None:
    assert calculate(dim, {"n": n}) == ir.SymbolicDim(dim).evaluate({"n": n})


@pytest.mark.parametrize("dim", ["n/2", "m + 1", "sqrt(n)"])
def test_inferred_dims_without_a_known_whole_value_are_refused(dim: str) -> None:
    with pytest.raises(ValueError):
        calculate(dim, {"n": 3})


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


@pytest.mark.parametrize(("values", "signs"), [([-1, 2], {-1, 1}), ([-1, -2], {-1}), ([3, 2], {1}), ([0.5, 1], {1})])
def test_redrawn_numbers_have_the_signs_of_those_that_they_replace(values, signs):
    given = np.tile(np.array(values, np.float32), 100)
    drawn = _redraw(given, 1.0, np.random.default_rng(0))
    assert {*np.sign(drawn[drawn != 0]).tolist()} == signs and drawn.dtype == given.dtype
    assert values != [0.5, 1] or drawn.max() <= 1


def test_a_nudged_value_keeps_its_type():
    piece = text.parse("g (double[4] x) => (double[4] y) { a = Neg(x) y = Exp(a) }")
    for element_type in (onnx.TensorProto.DOUBLE, 0):
        model = nudged(piece, "a", element_type)
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        assert model.graph.node[-1] == piece.graph.node[-1] and len(model.graph.node) > 10


@pytest.mark.parametrize(
    ("recorded", "is_mask"),
    [
        (np.int64([0, 1, 1]), True),
        (np.int64([0, 0]), True),
        (np.int64([1]), True),
        (np.array([True, False]), True),
        (np.uint8([0, 2]), False),
        (np.int32([-1, 1]), False),
        (np.int64([]), False),
        (np.float32([0, 1]), False),
        (None, False),
    ],
)
def test_integers_that_are_zeros_and_ones_are_drawn_as_such(recorded: Any, is_mask: bool) -> None:
    assert _domain_of(recorded) == (MASK if is_mask else None)
