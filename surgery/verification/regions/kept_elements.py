"""Regions in which operators that remove all elements keep some.

A Slice that ends where it begins, a Compress of nothing or a Pad that crops everything leaves nothing of the values
computed before it, and nothing to compare after it. If both models have such nodes, they are also compared with
replacements that keep elements. The replacement of a node depends on the node's own numbers alone, and differs where
these differ: nodes that remove different elements do not become the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.base.operators.message_tensors import from_array, to_array
from surgery.base.operators.subgraphs import graphs, subgraphs
from surgery.verification.regions.regions import Region

if TYPE_CHECKING:
    import onnx

_KEPT = 3
"""Number of positions kept by a Slice that kept none."""

_MAY_EMPTY = frozenset({"Compress", "Gather", "NonMaxSuppression", "NonZero", "Pad", "Slice", "Split", "TopK"})
"""Operators whose output may be empty, because of their parameters or the elements of their inputs."""

_Numbers = Mapping[int | str, Any]
"""Numeric parameters of a node, by input position or attribute name."""


def with_elements(region: Region) -> Region | None:
    """Copy a region so that nodes that kept no elements keep some; None unless both pieces have such nodes.

    Also None if a subgraph may have other empty values, which would go unnoticed.
    """
    pieces = []
    for piece in (region.before, region.after):
        found = _Opened(piece)
        if not found.has_changed or found.may_hide:
            return None
        pieces.append(found.piece)
    return replace(region, before=pieces[0], after=pieces[1])


class _Opened:
    """A copy of a piece in which nodes keep elements; `may_hide`: a subgraph may still have empty values."""

    def __init__(self, piece: onnx.ModelProto) -> None:
        self.piece = type(piece)()
        self.piece.CopyFrom(piece)
        self.has_changed = self.may_hide = False
        self._walk(self.piece.graph, {})
        for graph in graphs(self.piece.graph):
            for value in () if graph is self.piece.graph else (*graph.output, *graph.value_info):
                # The declared shapes of values inside are no longer valid.
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
    """Read the inputs of a node that are constants stored in the model, and its integer list attributes."""
    found: dict[int | str, Any] = {a.name: np.array(a.ints, np.int64) for a in node.attribute if a.ints}
    for place, name in enumerate(node.input):
        tensor = known.get(name)
        if tensor is not None and not tensor.external_data:
            found[place] = to_array(tensor)
    return found


def _give(graph: onnx.GraphProto, node: onnx.NodeProto, place: int | str, array: Any) -> None:
    """Replace the numbers of an input or an attribute of a node."""
    from onnx import helper

    if isinstance(place, str):
        kept = [attribute for attribute in node.attribute if attribute.name != place]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute(place, array.tolist())])
        return
    name = f"{node.output[0]}/kept{place}"
    graph.initializer.append(from_array(array, name))
    node.input[place] = name


def _slice(numbers: _Numbers) -> _Numbers:
    """Move the end of ranges that end where they begin or before, if both count from the same end of the axis."""
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
    """Select everything where nothing is selected."""
    wanted = numbers.get(1)
    return {} if wanted is None or wanted.any() or not wanted.size else {1: np.ones_like(wanted)}


def _pad(numbers: _Numbers) -> _Numbers:
    """Turn negative pads, which crop, into positive pads of the same size."""
    place: int | str = 1 if 1 in numbers else "pads"
    pads = numbers.get(place)
    return {} if pads is None or (pads >= 0).all() else {place: np.abs(pads)}


_CHANGES: Mapping[str, Callable[[_Numbers], _Numbers]] = {"Slice": _slice, "Compress": _compress, "Pad": _pad}
"""Functions that return replacement numbers for the nodes of an operator, empty where they stay the same."""
