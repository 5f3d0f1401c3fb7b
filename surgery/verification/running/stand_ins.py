"""Stand-ins for custom operators: the rest of a model runs with examples of what these operators may return.

The shape of a result is the declared one; else that of the first input, with the extents that constants downstream
demand, such as the channels of a Conv that reads it. Its elements mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from surgery.base.operators import traits
from surgery.base.operators.subgraphs import subgraphs
from surgery.model.runtime.custom_operators import custom_nodes

if TYPE_CHECKING:
    import onnx

Extents = dict[int, int]
"""Extents by axis; negative axes count from the end."""

_FIRST_SLICE = 10
"""The first opset in which the bounds of Slice are inputs."""

_KEEPING = traits.UNARY_ELEMENTWISE | {"Cast", "Dropout", "Identity"}
_END = 2**31 - 1


def with_stand_ins(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model without custom operators: their results have example shapes, and elements that mean nothing."""
    import onnx

    result = onnx.ModelProto()
    result.CopyFrom(model)
    functions = {(function.domain, function.name) for function in model.functions}
    direct = {
        id(node): node
        for node in custom_nodes(result)
        if (node.domain, node.op_type) not in functions and not any(subgraphs(node)) and node.input and node.output
    }
    if not direct:
        return result
    making = _Making(result)
    made = [new for node in result.graph.node for new in (making.nodes(node) if id(node) in direct else [node])]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in made]
    del result.graph.node[:]
    result.graph.node.extend(copies)
    return result


class _Making:
    """Makes the stand-ins for the nodes of one model."""

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self._declared = {value.name: value.type for value in (*graph.value_info, *graph.output)}
        self._extents = {one.name: list(one.dims) for one in graph.initializer}
        self._places = {
            dim.dim_param: (value.name, axis)
            for value in graph.input
            for axis, dim in enumerate(value.type.tensor_type.shape.dim)
            if dim.dim_param
        }
        self._readers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
        for node in graph.node:
            for index, name in enumerate(node.input):
                self._readers.setdefault(name, []).append((node, index))
        opsets = {item.domain: item.version for item in model.opset_import}
        self._slices = opsets.get("", 0) >= _FIRST_SLICE

    def nodes(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        """Yield the nodes that compute the results of a custom operator."""
        source = next((name for name in node.input if name and name not in self._extents), node.input[0])
        for number, name in enumerate(one for one in node.output if one):
            kind = self._declared.get(name)
            yield from self._result(name, source, kind, node.name if not number else "")

    def _result(self, name: str, source: str, kind: onnx.TypeProto | None, title: str) -> Iterator[onnx.NodeProto]:
        import onnx.helper as h

        shape, number, expanded = (f"{name}/{what}" for what in ("shape", "number", "expanded"))
        made = list(self._shape(name, source, kind, shape)) if self._slices else []
        yield from made
        if made:
            yield h.make_node("ReduceMax", [source], [number], keepdims=0)
            yield h.make_node("Expand", [number, shape], [expanded])
            source = expanded
        dtype = 0 if kind is None else kind.tensor_type.elem_type
        more: dict[str, Any] = {"to": dtype} if dtype else {}
        yield h.make_node("Cast" if dtype else "Identity", [source], [name], name=title, **more)

    def _shape(self, name: str, source: str, kind: onnx.TypeProto | None, result: str) -> Iterator[onnx.NodeProto]:
        """Yield nodes that compute the shape of a value; none if nothing is known of it."""
        import onnx.helper as h

        dims = [] if kind is None else list(kind.tensor_type.shape.dim)
        if dims and all(dim.HasField("dim_value") or dim.dim_param in self._places for dim in dims):
            parts = [f"{result}/{number}" for number in range(len(dims))]
            for dim, part in zip(dims, parts):
                if dim.HasField("dim_value"):
                    yield _number(dim.dim_value, part)
                else:
                    port, axis = self._places[dim.dim_param]
                    yield h.make_node("Shape", [port], [f"{part}/of"])
                    yield from _cut(f"{part}/of", axis, axis + 1, part)
            yield h.make_node("Concat", parts, [result], axis=0)
        elif extents := dict(self._demands(name)):
            yield from _replaced(source, extents, result)

    def _demands(self, name: str) -> Iterator[tuple[int, int]]:
        """Yield the extents of a value that constants demand of its readers, also of those that keep its shape."""
        pending, seen = [name], {name}
        while pending:
            for node, index in self._readers.get(pending.pop(), ()):
                yield from _demand(node, index, self._extents)
                if node.op_type in _KEEPING and index == 0 and node.output and node.output[0] not in seen:
                    seen.add(node.output[0])
                    pending.append(node.output[0])


def _demand(node: onnx.NodeProto, index: int, constants: Mapping[str, list[int]]) -> Iterator[tuple[int, int]]:
    """Yield the extents that a node demands of its input at an index, given the extents of constants."""
    others = [constants.get(name) for name in node.input]
    first, other = (*others, None, None)[:2]
    attributes = {one.name: one.i for one in node.attribute}
    op = node.op_type
    if op in ("Conv", "BatchNormalization", "InstanceNormalization", "ConvTranspose") and index == 0 and other:
        grouped = attributes.get("group", 1) if op == "Conv" else 1
        yield 1, other[1] * grouped if op == "Conv" else other[0]
    elif op in ("MatMul", "Gemm") and index == 0 and other and len(other) > 1:
        yield -2 if attributes.get("transA") else -1, other[-1] if attributes.get("transB") else other[-2]
    elif op == "MatMul" and index == 1 and first and len(first) > 1:
        yield -2, first[-1]
    elif op == "LayerNormalization" and index == 0 and other and attributes.get("axis", -1) == -1:
        yield -1, other[-1]
    elif op in traits.BROADCASTING:
        constant = next((dims for number, dims in enumerate(others) if number != index and dims), [])
        yield from ((axis, extent) for axis, extent in enumerate(constant, -len(constant)) if extent > 1)


def _replaced(source: str, extents: Extents, result: str) -> Iterator[onnx.NodeProto]:
    """Yield nodes that compute the shape of a value with some extents replaced."""
    import onnx.helper as h

    shape = f"{result}/own"
    yield h.make_node("Shape", [source], [shape])
    for number, (axis, extent) in enumerate(sorted(extents.items())):
        parts = [f"{result}/{number}{part}" for part in "abc"]
        yield from _cut(shape, 0, axis, parts[0])
        yield _number(extent, parts[1])
        yield from _cut(shape, axis + 1 or _END, _END, parts[2])
        shape = result if number == len(extents) - 1 else f"{result}/{number}"
        yield h.make_node("Concat", parts, [shape], axis=0)


def _number(value: int, result: str) -> onnx.NodeProto:
    """Return the node of a vector with one number."""
    import onnx.helper as h

    return h.make_node("Constant", [], [result], value=h.make_tensor(result, 7, [1], [value]))


def _cut(vector: str, begin: int, end: int, result: str) -> Iterator[onnx.NodeProto]:
    """Yield nodes that cut a part out of a vector."""
    import onnx.helper as h

    yield _number(begin, f"{result}/begin")
    yield _number(end, f"{result}/end")
    yield h.make_node("Slice", [vector, f"{result}/begin", f"{result}/end"], [result])
