"""The outputs that depend on random operators, and the inputs whose values each output depends on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from surgery.base.operators import traits
from surgery.base.operators.forms import key_of
from surgery.base.operators.moving import FORM_ONLY
from surgery.base.operators.subgraphs import BODIES, graphs, initializer_names, subgraphs

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class Origins:
    """The dependencies of the outputs of a model.

    `random`: the outputs that depend on a random operator; `operators`: those operators; `inputs`: for each output, the
    inputs whose elements it depends on, without inputs of which only the shape matters.
    """

    random: frozenset[str]
    operators: frozenset[str]
    inputs: Mapping[str, frozenset[str]]


@dataclass
class _RandomnessWalk:
    functions: dict[tuple[str, str], onnx.FunctionProto]
    off: set[str]
    known: dict[tuple[tuple[str, str], tuple[int, ...]], list[int]] = field(default_factory=dict)
    operators: set[str] = field(default_factory=set)


RANDOM = 1
"""The mark of randomness; each input has its own higher bit."""


def origins(model: onnx.ModelProto) -> Origins:
    """Follow randomness and the inputs through the graph, including subgraphs and functions."""
    initializers = initializer_names(model.graph)
    fed = [value.name for value in model.graph.input if value.name not in initializers]
    bits = {name: RANDOM << (1 + position) for position, name in enumerate(fed)}
    marks = dict(bits)
    functions = {(function.domain, function.name): function for function in model.functions}
    walk = _RandomnessWalk(functions, {tensor.name for tensor in model.graph.initializer if is_zero(tensor)})
    _follow(walk, model.graph.node, marks, 0)
    outputs = [output.name for output in model.graph.output]
    return Origins(
        random=frozenset(name for name in outputs if marks.get(name, 0) & RANDOM),
        operators=frozenset(walk.operators),
        inputs={
            output: frozenset(name for name, bit in bits.items() if marks.get(output, 0) & bit) for output in outputs
        },
    )


def _follow(walk: _RandomnessWalk, nodes: Iterable[onnx.NodeProto], marks: dict[str, int], depth: int) -> None:
    """Mark the values that nodes compute. `marks` has the visible values and is extended in place."""
    for node in nodes:
        op, mark, drawn = node.op_type, 0, 0
        for name in node.input:
            mark |= marks.get(name, 0)
        function = walk.functions.get((node.domain, op)) if walk.functions else None
        if function is not None and depth < 64:
            given = [marks.get(name, 0) for name in node.input]
            marks.update(zip(node.output, _from_function(walk, function, given, depth)))
            continue
        if key_of(node.domain, op) in traits.DRAWING and is_random(node, walk.off):
            walk.operators.add(op)
            drawn = RANDOM
        inner = [graph for graph in subgraphs(node) if graph.output]
        if inner:
            found = _from_bodies(walk, node, inner, marks, depth)
            marks.update((name, item | drawn) for name, item in zip(node.output, found))
            continue
        if gives_zero(node):
            walk.off.update(node.output)
        if op in FORM_ONLY and not node.domain:
            mark &= RANDOM
        mark |= drawn
        for name in node.output:
            marks[name] = mark
        if op == "Dropout" and not node.domain and len(node.output) > 1 and not mark & RANDOM:
            marks[node.output[1]] = 0  # the mask


def _from_function(walk: _RandomnessWalk, function: onnx.FunctionProto, given: list[int], depth: int) -> list[int]:
    """Return the marks of the outputs of a function; each combination of input marks is followed once."""
    key = (function.domain, function.name), tuple(given)
    if key not in walk.known:
        marks = dict(zip(function.input, given))
        _follow(walk, function.node, marks, depth + 1)
        walk.known[key] = [marks.get(name, 0) for name in function.output]
    return walk.known[key]


def _from_bodies(
    walk: _RandomnessWalk, node: onnx.NodeProto, bodies: Sequence[onnx.GraphProto], outer: dict[str, int], depth: int
) -> list[int]:
    """Return the marks of the outputs of a node with subgraphs."""
    given = [outer.get(name, 0) for name in node.input]
    deciding, hidden = BODIES.get(node.op_type, (len(given), 0))
    control = 0
    for item in given[:deciding]:
        control |= item
    results = [control] * len(node.output)
    for body in bodies:
        found = _settle(walk, body, outer, given, hidden if node.op_type in ("Loop", "Scan") else None, depth)
        for item in found[:hidden]:
            control |= item
        for position, item in enumerate(found[hidden : hidden + len(results)]):
            results[position] |= item
    return [item | control for item in results]


def _settle(
    walk: _RandomnessWalk,
    body: onnx.GraphProto,
    outer: dict[str, int],
    given: list[int],
    hidden: int | None,
    depth: int,
) -> list[int]:
    """Return the marks of the outputs of a subgraph; for a loop, iterate until the carried marks are stable."""
    inputs = [value.name for value in body.input]
    entering = {name: given[position] if position < len(given) else 0 for position, name in enumerate(inputs)}
    for _ in range(len(inputs) + 2):
        marks = {**outer, **entering}
        _follow(walk, body.node, marks, depth)
        found = [marks.get(output.name, 0) for output in body.output]
        if hidden is None:
            break
        # A Loop carries its outputs from the second on (the first is the condition), a Scan from the first on.
        carried = dict(zip(inputs[2 * hidden :], found[hidden:]))
        merged = {name: mark | carried.get(name, 0) for name, mark in entering.items()}
        if merged == entering:
            break
        entering = merged
    return found


def is_random(node: onnx.NodeProto, off: Set[str] = frozenset()) -> bool:
    """Return whether a node draws random numbers; `off` has the names of values known to be zero or false.

    An operator with a seed draws the same numbers in each session. Dropout draws if it may be in training mode with a
    nonzero ratio.
    """
    key = key_of(node.domain, node.op_type)
    if key not in traits.DRAWING or any(attribute.name == "seed" for attribute in node.attribute):
        return False
    return key != "Dropout" or (len(node.input) > 2 and bool(node.input[2]) and not off & set(node.input[1:3]))


def gives_zero(node: onnx.NodeProto) -> bool:
    """Return whether a node is a Constant with a single zero, or false, in any of its forms."""
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
        return False
    for attribute in node.attribute:
        if attribute.name == "value" and attribute.HasField("t"):
            return is_zero(attribute.t)
        if attribute.name in ("value_float", "value_int") and not attribute.ref_attr_name:
            return not (attribute.f or attribute.i)
        if attribute.name in ("value_floats", "value_ints") and not attribute.ref_attr_name:
            return [*attribute.floats, *attribute.ints] == [0]
    return False


def is_zero(tensor: onnx.TensorProto) -> bool:
    """Return whether a tensor is a single zero, or false, stored in the model."""
    if tensor.data_type == 0 or any(extent != 1 for extent in tensor.dims) or tensor.external_data:
        return False
    if tensor.raw_data:
        return not any(tensor.raw_data)
    return not any([*tensor.int32_data, *tensor.float_data, *tensor.int64_data, *tensor.double_data])


def counts_runs(model: onnx.ModelProto) -> bool:
    """Return whether a run may depend on earlier ones of the session: random operators continue their sequences.

    Those with a seed begin anew in each run, see `sessions.run`.
    """
    scopes: list[Any] = [model.graph, *model.functions]
    nodes = (node for scope in scopes for inner in graphs(scope) for node in inner.node)
    # Dropout is in training mode by its third input, or before opset 7 by an attribute.
    old = any(item.domain in ("", "ai.onnx") and item.version < 7 for item in model.opset_import)
    return any(is_random(node) or (old and node.op_type == "Dropout") for node in nodes)
