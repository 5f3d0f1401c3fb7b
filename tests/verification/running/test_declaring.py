"""Shapes at many choices of dims: from formulas, once these have agreed with inference, else from inference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx
import pytest

from surgery.model.shapes.declarations import Declared, declare, declare_by_names
from surgery.verification.inputs.dim_constraints import dim_constraints
from surgery.verification.inputs.feed_plan import Binding, FeedPlan
from surgery.verification.inputs.spec import InputsSpec
from surgery.verification.running.declaring import Declaring, Formulas

_ATTENTION = """<ir_version: 10, opset_import: ["": 21]>
g (float[batch, length, 8] x, float[batch, past, 8] old) => (float y) <int64[3] to = {0, -1, 4}> {
    all = Concat<axis = 1>(old, x)  turned = Transpose<perm = [0, 2, 1]>(all)  scores = MatMul(x, turned)
    split = Reshape(all, to)  shape = Shape(split)  one = Shape<start = 1, end = 2>(split)
    y = ReduceSum<keepdims = 0>(scores) }"""


class _Worker:
    """Runs analyses here and counts them."""

    def __init__(self) -> None:
        self.inferred = 0

    def analyse(self, function: Callable[..., Any], *, skeleton: bytes, **arguments: object) -> Any:
        self.inferred += function is declare
        return function(skeleton, **arguments)


def _declaring(text: str) -> tuple[Declaring, _Worker, bytes, FeedPlan]:
    model = onnx.parser.parse_model(text)
    plan = FeedPlan(model, InputsSpec())
    skeleton = model.SerializeToString()
    return Declaring(plan, skeleton), _Worker(), skeleton, plan


def _learn(declaring: Declaring, skeleton: bytes, plan: FeedPlan) -> None:
    dims = {port.name: list(port.dims) for port in plan.ports}
    declaring.learn(dim_constraints(skeleton, dims, list(plan.dims.names))["shapes"])


def _point(*extents: int) -> dict[str, int]:
    return dict(zip(("batch", "length", "past"), extents))


@pytest.mark.parametrize("first", [True, False], ids=["learned first", "learned after two points"])
def test_formulas_replace_inference_after_two_points(first: bool) -> None:
    declaring, worker, skeleton, plan = _declaring(_ATTENTION)
    if first:
        _learn(declaring, skeleton, plan)
    for point in (_point(2, 3, 5), _point(1, 4, 6)):
        declaring.declare(Binding(point), worker)  # type: ignore[arg-type]
    if not first:
        _learn(declaring, skeleton, plan)
    assert worker.inferred == 2
    for point in (_point(1, 1, 1), _point(7, 1, 2), _point(3, 32, 64)):
        found = declaring.declare(Binding(point), worker)  # type: ignore[arg-type]
        assert found == declare(skeleton, plan.shapes(point))
        assert "split" in found
    assert worker.inferred == 2


def test_a_dim_that_never_differed_is_inferred_at_other_extents() -> None:
    declaring, worker, skeleton, plan = _declaring(_ATTENTION)
    _learn(declaring, skeleton, plan)
    for point in (_point(2, 3, 5), _point(2, 4, 6)):
        declaring.declare(Binding(point), worker)  # type: ignore[arg-type]
    declaring.declare(Binding(_point(2, 9, 8)), worker)  # type: ignore[arg-type]
    assert worker.inferred == 2
    declaring.declare(Binding(_point(1, 9, 8)), worker)  # type: ignore[arg-type]
    assert worker.inferred == 3


def _inferred(**shapes: Sequence[int]) -> Declared:
    return {name: (1, list(shape)) for name, shape in shapes.items()}


def _at(shapes: Mapping[str, Sequence[int | str]], *points: tuple[int, Declared]) -> Declared | None:
    formulas = Formulas(["n"], shapes)
    for extent, inferred in points:
        formulas.compare({"n": extent}, inferred)
    return formulas.at({"n": 8})


def test_two_points_confirm() -> None:
    shapes: dict[str, list[int | str]] = {"x": ["_d0"], "y": ["floor(_d0/2)", 3]}
    assert _at(shapes, (4, _inferred(x=[4], y=[2, 3])), (5, _inferred(x=[5], y=[2, 3]))) == _inferred(x=[8], y=[4, 3])


@pytest.mark.parametrize(
    ("shapes", "points"),
    [
        pytest.param({"x": ["_d0"]}, [(4, _inferred(x=[4]))], id="one point"),
        pytest.param({"x": ["_d0"]}, [(4, _inferred(x=[4])), (5, {})], id="one point, and inference failed"),
        pytest.param({"x": ["_d0 + 1"]}, [(4, _inferred(x=[5])), (5, _inferred(x=[5]))], id="another extent"),
        pytest.param({"x": ["_d0"]}, [(4, _inferred(x=[4, 1])), (5, _inferred(x=[5, 1]))], id="another rank"),
        pytest.param({"x": ["_d0"]}, [(4, _inferred(x=[4], y=[1])), (5, _inferred(x=[5], y=[1]))], id="a value lacks"),
        pytest.param({"x": ["u0"]}, [(4, _inferred(x=[4])), (5, _inferred(x=[5]))], id="an unknown name"),
        pytest.param(
            {"x": ["_d0"], "y": [7]},
            [(4, _inferred(x=[4])), (5, _inferred(x=[5], y=[7]))],
            id="inference ended early at one of them",
        ),
        pytest.param({"x": ["8 - _d0", "_d0"]}, [(4, _inferred(x=[4, 4])), (9, {})], id="one of them impossible"),
    ],
)
def test_not_confirmed(shapes: Mapping[str, Sequence[int | str]], points: Sequence[tuple[int, Declared]]) -> None:
    assert _at(shapes, *points) is None


def test_no_dim_is_negative() -> None:
    points = ((4, _inferred(x=[3])), (5, _inferred(x=[2])))
    assert _at({"x": ["7 - _d0"]}, *points) is None


def test_values_whose_dims_have_other_names_are_left_out() -> None:
    _, _, skeleton, _ = _declaring(_ATTENTION)
    found = declare_by_names(skeleton, {"x": ["n", 0, 8], "old": ["n", 5, 8]})
    assert found["turned"] == (1, ["n", 8, 5])
    assert found["x"] == (1, ["n", 0, 8])
    assert "all" not in declare_by_names(skeleton, {"x": ["n", "m", 8], "old": ["n", 5, 8]})
