"""Magnitudes of values in the bodies of If, Loop and Scan, measured while the model runs on calibration inputs.

Values of a body cannot be outputs of the model, because their shapes may differ between iterations. Instead, each body
outputs a matrix with two numbers per value: the largest finite magnitude of its elements, and the largest reciprocal of
a nonzero magnitude. The node with the body outputs the maximum of both over its iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from surgery.model.proto.extract import only

if TYPE_CHECKING:
    import onnx

_FIRST_OPSET = 9
"""The first opset with Where, and with Scan in its current form."""

_AXES_ARE_INPUTS = 18
"""The first opset in which the axes of ReduceMax are an input."""

_TINY = 1e-38
"""Magnitudes below this count as 0: some of their reciprocals are infinite."""

_BODIES = {"If": ("then_branch", "else_branch"), "Loop": ("body",), "Scan": ("body",)}


@dataclass(frozen=True)
class _MeasuredRanges:
    """The name of a matrix with a row of two numbers for each of the named values."""

    matrix: str
    names: tuple[str, ...]


class BodyRanges:
    """Adds nodes to a model that measure float32 values in bodies; `fresh` returns unique names.

    Bodies of nodes with one of the `excluded` results are left out.
    """

    def __init__(
        self, wanted: Collection[str], opset: int, fresh: Callable[[str], str], excluded: Collection[str] = ()
    ) -> None:
        self._wanted = frozenset(wanted)
        self._opset = opset
        self._fresh = fresh
        self._excluded = excluded

    def measure(self, model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, tuple[str, ...]]]:
        """Return a model whose only outputs are matrices, and for each matrix the values that its rows describe.

        The given model is modified. Values in subgraphs of other operators, or in functions, are left out.
        """
        found = self._in_nodes(model.graph) if self._opset >= _FIRST_OPSET else []
        return only(model, [each.matrix for each in found]), {each.matrix: each.names for each in found}

    def _in_nodes(self, graph: onnx.GraphProto) -> list[_MeasuredRanges]:
        """Make the measurements of bodies outputs of the nodes of a graph; return the resulting matrices."""
        found = []
        for node in list(graph.node):
            is_excluded = any(name in self._excluded for name in node.output)
            names = _BODIES.get(node.op_type, ()) if node.domain in ("", "ai.onnx") and not is_excluded else ()
            bodies = [attribute.g for name in names for attribute in node.attribute if attribute.name == name]
            inside = [self._in_body(body) for body in bodies]
            every = tuple(dict.fromkeys(name for each in inside for name in each.names))
            if every:
                found.append(self._hand_out(graph, node, bodies, inside, every))
        return found

    def _in_body(self, body: onnx.GraphProto) -> _MeasuredRanges:
        """Measure the wanted values of a body and of the bodies nested in it, as one matrix."""
        nested = self._in_nodes(body)
        made = [value.name for value in body.input] + [name for node in body.node for name in node.output]
        own = [name for name in dict.fromkeys(made) if name in self._wanted]
        rows = [self._row(body, name) for name in own] + [each.matrix for each in nested]
        names = (*own, *(name for each in nested for name in each.names))
        return _MeasuredRanges(self._add(body, "Concat", rows, axis=0) if rows else "", names)

    def _row(self, body: onnx.GraphProto, name: str) -> str:
        """Measure one value; return the name of a matrix with one row."""
        size = self._add(body, "Abs", [name])
        # Neither infinity nor NaN is less than infinity.
        finite = self._add(body, "Less", [size, self._constant(body, np.inf)])
        size = self._add(body, "Where", [finite, size, zero := self._constant(body, 0.0)])
        positive = self._add(body, "Greater", [size, self._constant(body, _TINY)])
        reciprocal = self._add(body, "Where", [positive, self._add(body, "Reciprocal", [size]), zero])
        pair = [self._largest(body, each) for each in (size, reciprocal)]
        return self._add(body, "Concat", pair, axis=1)

    def _largest(self, body: onnx.GraphProto, name: str) -> str:
        """Return the largest of the magnitudes, or 0 if there are none, as a matrix with one element."""
        flat = self._add(body, "Reshape", [name, self._constant(body, np.array([-1]))])
        some = self._add(body, "Concat", [flat, self._constant(body, np.zeros(1, np.float32))], axis=0)
        largest = self._add(body, "ReduceMax", [some], keepdims=0)
        return self._add(body, "Reshape", [largest, self._constant(body, np.array([1, 1]))])

    def _hand_out(
        self,
        graph: onnx.GraphProto,
        node: onnx.NodeProto,
        bodies: Sequence[onnx.GraphProto],
        inside: Sequence[_MeasuredRanges],
        every: tuple[str, ...],
    ) -> _MeasuredRanges:
        import onnx

        for body, each in zip(bodies, inside):
            nothing = np.zeros((len(every), 2), np.float32)
            result = each.matrix if each.names == every else self._spread(body, each, every, nothing)
            body.output.append(onnx.helper.make_tensor_value_info(result, onnx.TensorProto.FLOAT, nothing.shape))
        outputs = len(bodies[0].output) - (node.op_type == "Loop")
        node.output.extend([""] * (outputs - 1 - len(node.output)))
        node.output.append(made := self._fresh("ranges"))
        if node.op_type == "If":
            return _MeasuredRanges(made, every)
        for attribute in node.attribute:
            if attribute.name in ("scan_output_axes", "scan_output_directions"):
                attribute.ints.append(0)
        # A row of zeros in case there are no iterations.
        zeros = self._constant(graph, np.zeros((1, len(every), 2), np.float32))
        most = self._add(graph, "Concat", [made, zeros], axis=0)
        return _MeasuredRanges(self._over_iterations(graph, most), every)

    def _over_iterations(self, graph: onnx.GraphProto, name: str) -> str:
        """Return the maximum along the first axis."""
        if self._opset < _AXES_ARE_INPUTS:
            return self._add(graph, "ReduceMax", [name], axes=[0], keepdims=0)
        return self._add(graph, "ReduceMax", [name, self._constant(graph, np.array([0]))], keepdims=0)

    def _spread(
        self, body: onnx.GraphProto, each: _MeasuredRanges, every: tuple[str, ...], nothing: np.ndarray[Any, Any]
    ) -> str:
        """Move the rows of a matrix to their positions among the rows of all branches, with zeros in between."""
        if not each.names:
            return self._constant(body, nothing)
        below = self._add(body, "Concat", [each.matrix, self._constant(body, nothing[:1])], axis=0)
        rows = [each.names.index(name) if name in each.names else len(each.names) for name in every]
        return self._add(body, "Gather", [below, self._constant(body, np.array(rows))], axis=0)

    def _add(self, graph: onnx.GraphProto, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        import onnx

        made = self._fresh("ranges")
        graph.node.append(onnx.helper.make_node(op, inputs, [made], **attributes))
        return made

    def _constant(self, graph: onnx.GraphProto, content: Any) -> str:
        import onnx

        array = content if isinstance(content, np.ndarray) else np.array(content, np.float32)
        made = self._fresh("ranges")
        tensor = onnx.numpy_helper.from_array(array)
        graph.node.append(onnx.helper.make_node("Constant", [], [made], value=tensor))
        return made


def extremes(matrix: np.ndarray[Any, Any], names: Sequence[str]) -> Iterator[tuple[str, float, float]]:
    """Yield for each value the largest magnitude of its elements, and the smallest nonzero one (infinite if none)."""
    for name, (largest, reciprocal) in zip(names, matrix):
        yield name, float(largest), 1.0 / float(reciprocal) if reciprocal > 0 else float("inf")
