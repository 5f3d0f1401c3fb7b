"""Regions at smaller sizes than the model's, where size makes no difference to what they compute.

A chain of elementwise operators, a Softmax, a product of matrices compute the same function whatever the extents are,
so that two of them are compared as well for 17 positions as for 1,500. An extent that a constant has stays as it is,
and extents that are equal stay equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from surgery import ops
from surgery.verify.regional.regions import Region
from surgery.verify.regional.values import Form, Point

if TYPE_CHECKING:
    import onnx

_UNIFORM = (
    ops.UNARY_ELEMENTWISE
    | ops.BROADCASTING
    | {"BiasGelu", "CastLike", "Concat", "Constant", "FastGelu", "FusedMatMul", "Gemm", "LayerNormalization"}
    | {"LogSoftmax", "MatMul", "QuickGelu", "RMSNormalization", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin"}
    | {"ReduceSum", "ReduceSumSquare", "SimplifiedLayerNormalization", "SkipLayerNormalization", "Softmax", "Squeeze"}
    | {"Transpose", "Unsqueeze"}
)
"""Operators that know no number of positions, neither by a constant nor by an attribute."""

_MOST = 64
"""An extent up to which nothing is to be gained."""

_SMALLER = (17, 19, 23, 29, 31, 37, 41, 43, 47, 53)
"""Extents that stand for larger ones, each for another: none is a multiple of another, or of what networks have."""


def reduced(region: Region, points: Sequence[Point]) -> Sequence[Point]:
    """Give the points with smaller extents for what is given to a region; the same points where size may matter."""
    pieces = (region.before, region.after)
    if any(node.op_type not in _UNIFORM for piece in pieces for node in piece.graph.node):
        return points
    if not all(point.forms[name].is_drawn for point in points for name in region.given):
        return points
    fixed = {extent for piece in pieces for tensor in _constants(piece) for extent in tensor.dims}
    found = [_smaller(region, point, fixed) for point in points]
    return found if any(one is not point for one, point in zip(found, points)) else points


def _smaller(region: Region, point: Point, fixed: set[int]) -> Point:
    forms = {name: point.forms[name] for name in region.given}
    extents = {extent for form in forms.values() for extent in form.shape}
    large = sorted(extent for extent in extents - fixed if extent > _MOST)
    free = [extent for extent in _SMALLER if extent not in extents | fixed]
    if not large or len(large) > len(free):
        return point
    stand_in = dict(zip(large, free))
    smaller = {
        name: Form(form.dtype, tuple(stand_in.get(extent, extent) for extent in form.shape))
        for name, form in forms.items()
    }
    return replace(point, forms=smaller)


def _constants(piece: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    yield from piece.graph.initializer
    for node in piece.graph.node:
        yield from (attribute.t for attribute in node.attribute if attribute.HasField("t"))
