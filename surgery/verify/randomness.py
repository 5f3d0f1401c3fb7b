"""Which outputs depend on random operators, and which on the values of the inputs at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from surgery import ops

if TYPE_CHECKING:
    import onnx

SHAPE_ONLY = frozenset(
    {"Shape", "Size", "EyeLike", "SequenceLength", "OptionalHasElement", "RandomNormalLike", "RandomUniformLike"}
)
"""Operators whose outputs depend on the shape or the form of their input, not on its elements."""


@dataclass(frozen=True)
class Origins:
    """What the outputs of a model depend on.

    `random`: outputs that depend on a random operator; `operators`: those operators; `inputs`: for each output the
    inputs whose elements it depends on, not counting those of which only the shape matters.
    """

    random: frozenset[str]
    operators: frozenset[str]
    inputs: Mapping[str, frozenset[str]]


@dataclass
class _Walk:
    functions: dict[tuple[str, str], onnx.FunctionProto]
    off: set[str]
    operators: set[str] = field(default_factory=set)


RANDOM = 1
"""The mark of randomness; each input has a bit of its own above it."""


def origins(model: onnx.ModelProto) -> Origins:
    """Follow randomness and the inputs through the graph, subgraphs and functions included."""
    initializers = {tensor.name for tensor in model.graph.initializer}
    initializers |= {tensor.values.name for tensor in model.graph.sparse_initializer}
    fed = [value.name for value in model.graph.input if value.name not in initializers]
    bits = {name: RANDOM << (1 + position) for position, name in enumerate(fed)}
    marks = dict(bits)
    functions = {(function.domain, function.name): function for function in model.functions}
    walk = _Walk(functions, {tensor.name for tensor in model.graph.initializer if _is_zero(tensor)})
    _follow(walk, model.graph.node, marks, 0)
    outputs = [output.name for output in model.graph.output]
    return Origins(
        random=frozenset(name for name in outputs if marks.get(name, 0) & RANDOM),
        operators=frozenset(walk.operators),
        inputs={
            output: frozenset(name for name, bit in bits.items() if marks.get(output, 0) & bit) for output in outputs
        },
    )


def _follow(walk: _Walk, nodes: Iterable[onnx.NodeProto], marks: dict[str, int], depth: int) -> None:
    """Mark the values that nodes compute. `marks` holds the values in sight and is extended in place."""
    for node in nodes:
        inputs = [marks.get(name, 0) for name in node.input if name]
        mark = 0
        for item in inputs:
            mark |= item
        function = walk.functions.get((node.domain, node.op_type))
        if function is not None and depth < 64:
            inner = dict(zip(function.input, (marks.get(name, 0) for name in node.input)))
            _follow(walk, function.node, inner, depth + 1)
            marks.update(zip(node.output, (inner.get(name, 0) for name in function.output)))
            continue
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                mark |= _inside(walk, graph, marks, mark, depth)
        if node.op_type == "Constant" and any(_is_zero(attribute.t) for attribute in node.attribute):
            walk.off.update(node.output)
        if is_random(node, walk.off):
            walk.operators.add(node.op_type)
            mark |= RANDOM
        if node.op_type in SHAPE_ONLY and not node.domain:
            mark &= RANDOM
        for position, name in enumerate(node.output):
            is_mask = node.op_type == "Dropout" and not node.domain and position == 1
            marks[name] = 0 if is_mask and not mark & RANDOM else mark


def _inside(walk: _Walk, graph: onnx.GraphProto, outer: dict[str, int], mark: int, depth: int) -> int:
    """Return what the outputs of a subgraph depend on; whatever goes into its node may go into its inputs."""
    marks = {**outer, **dict.fromkeys((value.name for value in graph.input), mark)}
    if graph.input:
        # What one iteration of a Loop or Scan computes goes into the next one.
        _follow(walk, graph.node, marks, depth)
        for output in graph.output:
            mark |= marks.get(output.name, 0)
        marks.update(dict.fromkeys((value.name for value in graph.input), mark))
    _follow(walk, graph.node, marks, depth)
    for output in graph.output:
        mark |= marks.get(output.name, 0)
    return mark


def is_random(node: onnx.NodeProto, off: Set[str] = frozenset()) -> bool:
    """Tell whether a node draws random numbers; `off` names the values known to be zero or false.

    An operator with a seed draws the same numbers in each session. Dropout draws when it may be in training mode,
    with a ratio that is not zero.
    """
    if node.domain not in ("", "ai.onnx"):
        return False
    if node.op_type == "Dropout":
        return len(node.input) > 2 and bool(node.input[2]) and not off & set(node.input[1:3])
    return node.op_type in ops.RANDOM and all(attribute.name != "seed" for attribute in node.attribute)


def _is_zero(tensor: onnx.TensorProto) -> bool:
    """Whether a tensor is one zero, or false, stored in place."""
    if tensor.data_type == 0 or any(extent != 1 for extent in tensor.dims) or tensor.external_data:
        return False
    if tensor.raw_data:
        return not any(tensor.raw_data)
    return not any([*tensor.int32_data, *tensor.float_data, *tensor.int64_data, *tensor.double_data])
