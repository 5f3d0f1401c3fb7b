"""Regions in which operators that take all elements away leave some.

A Slice that ends where it begins, a Compress of nothing, a Pad that cuts off all that there is leave nothing of what
was computed before them, and nothing to compare of what is computed after. Where they stand in both models, both are
compared with others in their place as well, which keep elements. What takes the place of a node depends on the node's
own numbers alone, and differs where they do: nodes that take other elements away are not made the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.operators.subgraphs import graphs, subgraphs
from surgery.verification.inside.regions import Region

if TYPE_CHECKING:
    import onnx

_KEPT = 3
"""How many positions a Slice keeps that kept none."""

_MAY_EMPTY = frozenset({"Compress", "Gather", "NonMaxSuppression", "NonZero", "Pad", "Slice", "Split", "TopK"})
"""Operators that may leave nothing of what they are given, by their numbers or by its elements."""

_Numbers = Mapping[int | str, Any]
"""Numbers of a node, by the position of an input or the name of an attribute."""


def with_elements(region: Region) -> Region | None:
    """Copy a region in which nodes keep elements that kept none; None unless both pieces have such nodes.

    None too where a subgraph may have other values without elements, which nobody would see.
    """
    pieces = []
    for piece in (region.before, region.after):
        found = _Opened(piece)
        if not found.has_changed or found.may_hide:
            return None
        pieces.append(found.piece)
    return replace(region, before=pieces[0], after=pieces[1])


class _Opened:
    """A copy of a piece in which nodes keep elements; `may_hide`: a subgraph may have values that are empty yet."""

    def __init__(self, piece: onnx.ModelProto) -> None:
        self.piece = type(piece)()
        self.piece.CopyFrom(piece)
        self.has_changed = self.may_hide = False
        self._walk(self.piece.graph, {})
        for graph in graphs(self.piece.graph):
            for value in () if graph is self.piece.graph else (*graph.output, *graph.value_info):
                # What is declared of values inside holds no more.
                for dim in value.type.tensor_type.shape.dim:
                    dim.Clear()

    def _walk(self, graph: onnx.GraphProto, outer: Mapping[str, onnx.TensorProto]) -> None:
        known = {**outer, **{tensor.name: tensor for tensor in graph.initializer}}
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
                known[node.output[0]] = node.attribute[0].t
            change = _CHANGES.get(node.op_type) if not node.domain else None
            found = {} if change is None else change(_numbers(node, known))
            for place, array in found.items():
                _give(graph, node, place, array)
            self.has_changed |= bool(found)
            self.may_hide |= graph is not self.piece.graph and not found and node.op_type in _MAY_EMPTY
            for body in subgraphs(node):
                self._walk(body, known)


def _numbers(node: onnx.NodeProto, known: Mapping[str, onnx.TensorProto]) -> _Numbers:
    """Read the inputs of a node that are constants and lie in the model, and its lists of integers."""
    from onnx import numpy_helper

    found: dict[int | str, Any] = {a.name: np.array(a.ints, np.int64) for a in node.attribute if a.ints}
    for place, name in enumerate(node.input):
        tensor = known.get(name)
        if tensor is not None and not tensor.external_data:
            found[place] = numpy_helper.to_array(tensor)
    return found


def _give(graph: onnx.GraphProto, node: onnx.NodeProto, place: int | str, array: Any) -> None:
    """Let a node have other numbers, in an input or an attribute."""
    from onnx import helper, numpy_helper

    if isinstance(place, str):
        kept = [attribute for attribute in node.attribute if attribute.name != place]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute(place, array.tolist())])
        return
    name = f"{node.output[0]}/kept{place}"
    graph.initializer.append(numpy_helper.from_array(array, name))
    node.input[place] = name


def _slice(numbers: _Numbers) -> _Numbers:
    """Let what ends where it begins, or before, end later. Both are counted from the same end of the axis."""
    places: tuple[int | str, int | str] = (1, 2) if 1 in numbers else ("starts", "ends")
    if any(place not in numbers for place in places):
        return {}
    starts, ends = (numbers[place] for place in places)
    steps = numbers.get(4, np.ones_like(starts))
    if not starts.shape == ends.shape == steps.shape:
        return {}
    limits = np.iinfo(ends.dtype)
    opened = ends.copy()
    for i, (start, end, step) in enumerate(zip(starts.tolist(), ends.tolist(), steps.tolist())):
        is_empty = (start < 0) == (end < 0) and (end - start) * step <= 0
        if is_empty and step > 0:
            opened[i] = start + _KEPT * step if 0 <= start < limits.max - _KEPT * step else limits.max
        elif is_empty:
            opened[i] = limits.min + 1
    return {places[1]: opened} if (opened != ends).any() else {}


def _compress(numbers: _Numbers) -> _Numbers:
    """Let what takes nothing take all."""
    wanted = numbers.get(1)
    return {} if wanted is None or wanted.any() or not wanted.size else {1: np.ones_like(wanted)}


def _pad(numbers: _Numbers) -> _Numbers:
    """Let what cuts off add as much."""
    place: int | str = 1 if 1 in numbers else "pads"
    pads = numbers.get(place)
    return {} if pads is None or (pads >= 0).all() else {place: np.abs(pads)}


_CHANGES: Mapping[str, Callable[[_Numbers], _Numbers]] = {"Slice": _slice, "Compress": _compress, "Pad": _pad}
"""Other numbers for the nodes of an operator, empty where they stay the same."""
