"""Parallel nodes after a Split that process all parts of one tensor alike, matched step by step.

A `Bundle` holds one value for each part; the values lie side by side along `axis`. The search starts from the bundle
of the parts themselves. Each tuple of nodes that do the same with the values of bundles, and otherwise read the same
values, adds further bundles.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from surgery import Builder, Node, Refusal, Value

BINARY = ("Add", "Div", "Mul", "Sub")


@dataclass(frozen=True)
class Bundle:
    """Values of the same rank that are the parts, of these sizes, of one tensor along `axis`."""

    values: tuple[Value, ...]
    axis: int
    rank: int
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """Parallel nodes that become one node: how to build it from the merged inputs, and the bundles it produces.

    `perms_after` holds the permutation of each part that must still be applied after the Split, None for none.
    """

    nodes: tuple[Node, ...]
    make: Callable[[Builder, list[Value | None]], tuple[Value, ...]]
    outputs: tuple[Bundle, ...]
    perms_after: tuple[list[int] | None, ...] = ()

    @property
    def saved(self) -> int:
        """The number of nodes removed, not counting the Splits after them."""
        return len(self.nodes) - 1 - sum(perm is not None for perm in self.perms_after)


@dataclass
class Lanes:
    """All that can be computed once for all parts: the steps in order, and the bundles by their first value."""

    start: Bundle
    steps: list[Step] = field(default_factory=list)
    bundles: dict[Value, Bundle] = field(default_factory=dict)
    paired: set[Node] = field(default_factory=set)

    def ends(self) -> list[Bundle]:
        """List the bundles whose parts are read separately."""
        last = {output.values[0] for step in self.steps if step.perms_after for output in step.outputs}
        return [bundle for bundle in self.bundles.values() if bundle.values[0] in last or self._read_apart(bundle)]

    def _read_apart(self, bundle: Bundle) -> bool:
        return any(value.is_output or set(value.consumers) - self.paired for value in bundle.values)


def follow(start: Bundle) -> Lanes:
    """Follow the parts downstream as far as all of them are processed alike."""
    lanes = Lanes(start, bundles={start.values[0]: start})
    todo = deque([start])
    while todo:
        bundle = todo.popleft()
        for reader in bundle.values[0].consumers:
            step = _step(reader, bundle, lanes) if reader not in lanes.paired else None
            if step is None:
                continue
            lanes.steps.append(step)
            lanes.paired.update(step.nodes)
            for output in step.outputs:
                lanes.bundles[output.values[0]] = output
                if not step.perms_after:
                    todo.append(output)
    return lanes


def _step(reader: Node, bundle: Bundle, lanes: Lanes) -> Step | None:
    rule = RULES.get(reader.op, _elementwise if reader.is_unary else None)
    if rule is None or reader.scope is not bundle.values[0].scope:
        return None
    nodes = [reader]
    for position in range(1, len(bundle.values)):
        twin = next((n for n in bundle.values[position].consumers if _alike(reader, n, position, lanes, nodes)), None)
        if twin is None:
            return None
        nodes.append(twin)
    bundles = [None if value is None else lanes.bundles.get(value) for value in reader.inputs]
    try:
        return rule(tuple(nodes), bundles)
    except Refusal:
        return None


def _alike(first: Node, other: Node, position: int, lanes: Lanes, taken: Sequence[Node]) -> bool:
    """Return whether a node does to the part at `position` what the first node does to the first part."""
    if other.op != first.op or other in taken or other in lanes.paired or other.scope is not first.scope:
        return False
    if len(other.inputs) != len(first.inputs) or len(other.outputs) != len(first.outputs):
        return False
    orders = [other.inputs, other.inputs[::-1]] if first.commutes and len(first.inputs) == 2 else [other.inputs]
    if not any(_same_inputs(first, order, position, lanes) for order in orders):
        return False
    return first.op == "Transpose" or _attributes(first) == _attributes(other)


def _same_inputs(first: Node, others: list[Value | None], position: int, lanes: Lanes) -> bool:
    for mine, its in zip(first.inputs, others):
        bundle = None if mine is None else lanes.bundles.get(mine)
        if bundle is not None:
            if its != bundle.values[position]:
                return False
        elif mine != its and first.op != "Reshape" and not _equal(mine, its):
            return False
    return True


def _equal(one: Value | None, other: Value | None) -> bool:
    if one is None or other is None or one.dtype != other.dtype:
        return False
    if not (one.is_constant and other.is_constant) or one.static_shape != other.static_shape or (one.size or 65) > 64:
        return False
    return bool(np.array_equal(one.constant, other.constant))  # type: ignore[arg-type]


def _attributes(node: Node) -> dict[str, Any]:
    return {name: node.attr(name) for name in sorted(node.attributes)}


Rule = Callable[[tuple[Node, ...], list[Bundle | None]], Step | None]


def _outputs(nodes: tuple[Node, ...], axis: int, like: Bundle, rank: int | None = None) -> tuple[Bundle, ...]:
    columns = zip(*(node.outputs for node in nodes))
    return tuple(Bundle(column, axis, like.rank if rank is None else rank, like.sizes) for column in columns)


def _same(node: Node) -> Callable[[Builder, list[Value | None]], tuple[Value, ...]]:
    """Return a function that builds the node again on merged inputs."""

    def make(new: Builder, inputs: list[Value | None]) -> tuple[Value, ...]:
        return new.nodes(node.op, *inputs, outputs=len(node.outputs), attributes=dict(node.attributes))

    return make


def _elementwise(nodes: tuple[Node, ...], bundles: list[Bundle | None]) -> Step | None:
    first = next(bundle for bundle in bundles if bundle is not None)
    if (nodes[0].opset < 7 and not nodes[0].is_unary) or not _fit(first, bundles):
        return None
    for value, bundle in zip(nodes[0].inputs, bundles):
        if bundle is None and not _broadcasts_along(value, first):
            return None
    return Step(nodes, _same(nodes[0]), _outputs(nodes, first.axis, first))


def _broadcasts_along(value: Value | None, bundle: Bundle) -> bool:
    """Return whether a shared operand applies equally to all parts: its dim along the axis is 1 or missing."""
    extents = None if value is None else value.shape
    if extents is None or len(extents) > bundle.rank:
        return False
    from_end = bundle.rank - bundle.axis
    return len(extents) < from_end or extents[-from_end] == 1


def _along_another_axis(nodes: tuple[Node, ...], bundles: list[Bundle | None]) -> Step | None:
    """Merge Concat, Softmax or Split nodes along an axis other than that of the parts."""
    first = bundles[0]
    if first is None or (nodes[0].op == "Concat" and None in bundles):
        return None
    axis = nodes[0].attr("axis")
    if axis is None or axis % first.rank == first.axis or (nodes[0].op == "Softmax" and nodes[0].opset < 13):
        return None
    if not _fit(first, bundles) or (nodes[0].op == "Split" and bundles[1:] not in ([], [None])):
        return None
    return Step(nodes, _same(nodes[0]), _outputs(nodes, first.axis, first))


def _fit(first: Bundle, others: list[Bundle | None]) -> bool:
    """Return whether all bundles have the same axis, rank and sizes."""
    kind = first.axis, first.rank, first.sizes
    return all(other is None or (other.axis, other.rank, other.sizes) == kind for other in others)


def _slice(nodes: tuple[Node, ...], bundles: list[Bundle | None]) -> Step | None:
    first, axes = bundles[0], nodes[0].input(3)
    elements = None if axes is None or not axes.is_constant else axes.elements
    if first is None or elements is None or any(bundle is not None for bundle in bundles[1:]):
        return None
    if any(int(axis) % first.rank == first.axis for axis in elements):
        return None
    return Step(nodes, _same(nodes[0]), _outputs(nodes, first.axis, first))


def _transpose(nodes: tuple[Node, ...], bundles: list[Bundle | None]) -> Step | None:
    first = bundles[0]
    perms = [node.attr("perm") for node in nodes]
    if first is None or any(perm is None or len(perm) != first.rank for perm in perms):
        return None
    common = max(perms, key=lambda perm: (perms.count(perm), perm == sorted(perm), -perms.index(perm)))
    # Axis j of a part's result is axis perm[j] of the source, which `common` moves to common.index(perm[j]).
    perms_after = tuple(None if perm == common else [common.index(axis) for axis in perm] for perm in perms)
    if all(perm is None for perm in perms_after):
        perms_after = ()
    elif 1 + sum(perm is not None for perm in perms_after) >= len(nodes):
        return None

    def make(new: Builder, inputs: list[Value | None]) -> tuple[Value, ...]:
        return (new.node("Transpose", inputs[0], perm=common),)

    return Step(nodes, make, _outputs(nodes, common.index(first.axis), first), perms_after)


def _reshape(nodes: tuple[Node, ...], bundles: list[Bundle | None]) -> Step | None:
    """Merge the Reshapes that cut the last dim of each part into (heads, ...)."""
    first = bundles[0]
    wanted = [None if (shape := node.input(1)) is None or not shape.is_constant else shape.elements for node in nodes]
    if first is None or first.axis != first.rank - 1 or bundles[1] is not None or any(w is None for w in wanted):
        return None
    if any(node.opset >= 14 and node.attr("allowzero") and 0 in (w or ()) for node, w in zip(nodes, wanted)):
        return None
    found = heads(first, nodes, [[int(item) for item in w or ()] for w in wanted])
    if found is None:
        return None
    target, axis, sizes = found

    def make(new: Builder, inputs: list[Value | None]) -> tuple[Value, ...]:
        return (new.node("Reshape", inputs[0], new.constant(np.array(target, np.int64), "shape")),)

    output = Bundle(tuple(node.outputs[0] for node in nodes), axis, len(target), sizes)
    return Step(nodes, make, (output,))


def heads(
    parts: Bundle, nodes: tuple[Node, ...], targets: list[list[int]]
) -> tuple[list[int], int, tuple[int, ...]] | None:
    """Return the shape that cuts all parts at once, the axis of the heads, and the number of heads of each part.

    Each target must consist of dims that regroup all but the last dim of the part, the number of heads, and dims that
    all parts share. A -1 may stand for the heads or a later dim if the dims before the heads are those of the part.
    Return None if the targets do not fit.
    """
    filled = [_filled(target, size, node, parts.rank) for target, size, node in zip(targets, parts.sizes, nodes)]
    length = len(targets[0])
    for axis in range(length - 1, -1, -1):
        fits = all(
            target is not None
            and filled[0] is not None
            and len(target) == length
            and all(dim > 0 for dim in target[axis:])
            and np.prod(target[axis:]) == size
            and target[:axis] == filled[0][:axis]
            and target[axis + 1 :] == filled[0][axis + 1 :]
            and all(dim != 0 or place < parts.rank - 1 for place, dim in enumerate(target[:axis]))
            for target, size in zip(filled, parts.sizes)
        )
        if fits:
            sizes = tuple(target[axis] for target in filled if target is not None)
            return [*filled[0][:axis], sum(sizes), *filled[0][axis + 1 :]], axis, sizes  # type: ignore[index]
    return None


def _filled(target: list[int], size: int, node: Node, rank: int) -> list[int] | None:
    """Replace each dim of a target shape with its known value: 0 if it is copied, else a number if possible."""
    before, after = node.required_input(0).shape, node.outputs[0].shape
    known = after is not None and before is not None and len(after) == len(target)
    filled = list(target)
    for place in range(len(target)) if known else ():
        assert before is not None and after is not None
        dim = after[place]
        if place < rank - 1 and dim is not None and dim == before[place]:
            filled[place] = 0
        elif place >= rank - 1 and isinstance(dim, int) and dim > 0:
            filled[place] = dim
    if filled.count(-1) > 1:
        return None
    place = filled.index(-1) if -1 in filled else -1
    if place < rank - 1:
        return filled
    others = int(np.prod([dim for dim in filled[rank - 1 :] if dim != -1]))
    if any(filled[: rank - 1]) or others <= 0 or size % others:
        return None
    return [size // others if dim == -1 else dim for dim in filled]


RULES: dict[str, Rule] = {
    **dict.fromkeys(BINARY, _elementwise),
    "Concat": _along_another_axis,
    "Reshape": _reshape,
    "Slice": _slice,
    "Softmax": _along_another_axis,
    "Split": _along_another_axis,
    "Transpose": _transpose,
}
"""The rule that merges parallel nodes of each operator; unary ones, ONNX Runtime's too, follow `_elementwise`."""


def ranges(count: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of at least two adjacent items, longest first."""
    for length in range(count, 1, -1):
        for low in range(count - length + 1):
            yield low, low + length
