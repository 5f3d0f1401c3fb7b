"""Regions at smaller sizes than the model's, where size does not affect the computed function.

A chain of elementwise operators, a Softmax or a matrix product computes the same function for any extents, so two of
them can be compared for 17 positions as well as for 1,500. Extents of constants stay unchanged, and equal extents stay
equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from surgery.base.operators import traits
from surgery.base.operators.message_tensors import from_array, to_array
from surgery.verification.regions.region_values import Form, Point
from surgery.verification.regions.regions import Region

if TYPE_CHECKING:
    import onnx

_MOST = 64
"""Extents up to this one are not worth reducing."""

_NOWHERE = 1 << 30
"""From this number on, the end of a Slice means the end of the axis."""

_MOST_ELEMENTS = 1 << 20

_TURNS = "turns/given"
"""The name of the trip count given to a loop."""

_SMALLER = (17, 19, 23, 29, 31, 37, 41, 43, 47, 53)
"""Extents that replace larger ones, each a different one: none is a multiple of another, or of extents in networks."""


def reduced(region: Region, points: Sequence[Point]) -> Sequence[Point]:
    """Return the points with smaller extents for a region's inputs; the same points where size may matter."""
    pieces = (region.before, region.after)
    if any(node.op_type not in traits.UNIFORM for piece in pieces for node in piece.graph.node):
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


def enlarged(region: Region, points: Sequence[Point], *, ones: bool = False) -> list[Point]:
    """Return points with extents larger than any number in the region; an empty list where that is impossible.

    A value that is empty at the sizes of the model and at these is always empty. Extents of 1 stay, since they
    broadcast, unless `ones` is set.
    """
    if not region.given or not all(point.forms[name].is_drawn for point in points for name in region.given):
        return []
    tensors = [tensor for piece in (region.before, region.after) for tensor in _constants(piece)]
    numbers = {abs(int(number)) for tensor in tensors for number in _integers(tensor)}
    least = max((number for number in numbers if number <= _MOST), default=0)
    # Numbers from `_NOWHERE` on stand for the end of an axis.
    if any(_MOST < number < _NOWHERE for number in numbers):
        return []
    fixed = {extent for tensor in tensors for extent in tensor.dims}
    fixed = fixed - {1} if ones else fixed | {1}
    found = []
    for point in points[:2]:
        forms = {name: point.forms[name] for name in region.given}
        extents = sorted({extent for form in forms.values() for extent in form.shape} - fixed)
        stand_in = dict(zip(extents, range(least + 3, least + 3 + 2 * len(extents), 2)))
        larger = {
            name: Form(form.dtype, tuple(stand_in.get(extent, extent) for extent in form.shape))
            for name, form in forms.items()
        }
        if any(math.prod(form.shape) > _MOST_ELEMENTS for form in larger.values()):
            return []
        found.append(replace(point, forms=larger))
    return found


def with_turns(region: Region) -> Region | None:
    """Copy a region so that loops without iterations run some; None unless both pieces have such loops.

    The scan outputs of a loop without iterations are empty, whatever its body computes.
    """
    before, after = _with_turns(region.before), _with_turns(region.after)
    return None if before is None or after is None else replace(region, before=before, after=after)


def _with_turns(piece: onnx.ModelProto) -> onnx.ModelProto | None:
    stored = {tensor.name: tensor for tensor in piece.graph.initializer}
    stored |= {node.output[0]: a.t for node in piece.graph.node for a in node.attribute if a.name == "value"}
    none = {name for name, tensor in stored.items() if _is_false(tensor)}
    result = type(piece)()
    result.CopyFrom(piece)
    loops = [node for node in result.graph.node if node.op_type == "Loop" and not none.isdisjoint(node.input[:2])]
    for node in loops:
        node.input[0], goes_on = _TURNS, node.input[1]
        node.input[1] = "" if goes_on in none else goes_on
    if loops:
        result.graph.initializer.append(from_array(np.array(2), _TURNS))
    return result if loops else None


def _is_false(tensor: onnx.TensorProto) -> bool:
    is_small = not tensor.external_data and math.prod(tensor.dims) == 1
    return is_small and tensor.data_type in (7, 9) and not to_array(tensor).any()


def _integers(tensor: onnx.TensorProto) -> Sequence[int]:
    """Read the elements of a small integer tensor that is stored in place; return an empty list for others."""
    if tensor.data_type not in (6, 7) or tensor.external_data or math.prod(tensor.dims) > _MOST:
        return []
    numbers: list[int] = to_array(tensor).reshape(-1).tolist()
    return numbers


def _constants(piece: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    yield from piece.graph.initializer
    for node in piece.graph.node:
        yield from (attribute.t for attribute in node.attribute if attribute.HasField("t"))
