"""Match a compiled pattern against a graph, node by node, with backtracking over the order of operands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from surgery.base.operators import traits
from surgery.model.graph.values import Node, Refusal, Value
from surgery.model.patterns.compiled_pattern import CompiledPattern
from surgery.model.patterns.pattern_text import Attribute, NodePattern, PatternInput

if TYPE_CHECKING:
    from surgery.model.graph.graph import Graph

Binding = Value | list[Value] | None
Bindings = dict[str, Any]


class Match:
    """A match of a pattern. Each name of the pattern is an attribute.

    `m.x` is a `Value` (None if it is optional and absent), `m.xs` is a list for a variadic input, and `m.p` is the
    value of an attribute bound to `p`. `m.node("y")` is the node that produces `y`, and `m.root` the node of the last
    line.
    """

    def __init__(self, graph: Graph, plan: CompiledPattern, bindings: Bindings, nodes: Mapping[int, Node]) -> None:
        self.graph = graph
        self._plan = plan
        self._bindings = bindings
        self._nodes = nodes

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self._bindings:
            raise AttributeError(f"the pattern has no name '{name}'; it has {', '.join(sorted(self._bindings))}")
        return self._bindings[name]

    @property
    def bindings(self) -> Bindings:
        """The binding of each name of the pattern."""
        return self._bindings

    def bound(self, name: str) -> Any:
        """Return the binding of any name, even one that is not an identifier; None if the pattern has no such name."""
        return self._bindings.get(name)

    @property
    def root(self) -> Node:
        """The node of the last line."""
        return self._nodes[self._plan.anchor]

    @property
    def nodes(self) -> list[Node]:
        """The matched nodes in the order of the pattern's lines."""
        return [self._nodes[index] for index in sorted(self._nodes)]

    @property
    def outputs(self) -> list[Value | None]:
        """The values that the pattern produces and does not read; None for an absent optional one."""
        return [self._bindings[name] for name in self.output_names]

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of `outputs`."""
        return self._plan.outputs

    def inputs(self) -> Iterator[tuple[str, Value]]:
        """Yield the values that the pattern reads and does not produce, after their names."""
        made = {result.name for pattern in self._plan.nodes for result in pattern.results}
        for name, bound in self._bindings.items():
            if name not in made:
                for value in bound if isinstance(bound, list) else [bound]:
                    if isinstance(value, Value):
                        yield name, value

    def node(self, name: str) -> Node:
        """Return the node that produces the value of that name."""
        for index, pattern in enumerate(self._plan.nodes):
            if any(result.name == name for result in pattern.results):
                return self._nodes[index]
        raise AttributeError(f"no line of the pattern defines '{name}'")

    def require(self, condition: object, reason: str) -> None:
        """Refuse this match for `reason` unless the condition holds."""
        if not condition:
            raise Refusal(reason)

    @staticmethod
    def broadcasts_to(small: Value, large: Value) -> bool:
        """Return whether an elementwise operation on both provably has the shape of `large`."""
        inner, outer = small.shape, large.shape
        if inner is None or outer is None or len(inner) > len(outer):
            return False
        pairs = zip(reversed(inner), reversed(outer))
        return all(dim == 1 or (dim is not None and dim == extent) for dim, extent in pairs)


def matches(graph: Graph, plan: CompiledPattern, anchor: Node) -> Iterator[Match]:
    """Yield each match of the pattern with its last line at `anchor`; boundaries are not checked yet."""
    for bindings in _fit(plan.nodes[plan.anchor], anchor, {}):
        yield from _extend(graph, plan, 0, bindings, {plan.anchor: anchor})


def _extend(
    graph: Graph, plan: CompiledPattern, step: int, bindings: Bindings, nodes: dict[int, Node]
) -> Iterator[Match]:
    if step == len(plan.steps):
        yield Match(graph, plan, bindings, nodes)
        return
    todo = plan.steps[step]
    value = bindings.get(todo.via)
    if not isinstance(value, Value):
        return
    producer = value.producer
    candidates = value.consumers if todo.consumer_of else [producer] if producer is not None else []
    for candidate in candidates:
        if candidate in nodes.values():
            continue
        for extended in _fit(plan.nodes[todo.node], candidate, bindings):
            yield from _extend(graph, plan, step + 1, extended, {**nodes, todo.node: candidate})


def _fit(pattern: NodePattern, node: Node, bindings: Bindings) -> Iterator[Bindings]:
    """Yield the bindings under which a node fits one line."""
    if (node.ir.domain, node.ir.op_type) not in pattern.ops:
        return
    bound = dict(bindings)
    if not (_fit_attributes(pattern, node, bound) and _fit_results(pattern, node, bound)):
        return
    inputs = node.inputs
    for order in orders(pattern, node, inputs):
        attempt = dict(bound)
        if _fit_operands(pattern.operands, order, attempt):
            yield attempt


def orders(pattern: NodePattern, node: Node, inputs: list[Value | None]) -> Iterator[list[Value | None]]:
    """Yield the orders in which the inputs of a node may match the operands of a line."""
    yield inputs
    swappable = len(inputs) == 2 and len(pattern.operands) == 2 and pattern.operands[0] != pattern.operands[1]
    if swappable and node.ir.domain == "" and node.ir.op_type in traits.COMMUTATIVE and inputs[0] != inputs[1]:
        yield [inputs[1], inputs[0]]


def _fit_attributes(pattern: NodePattern, node: Node, bound: Bindings) -> bool:
    for attribute in pattern.attributes:
        try:
            actual = node.attr(attribute.name)
        except Refusal:
            return False
        if attribute.binding is not None:
            if bound.setdefault(attribute.binding, actual) != actual:
                return False
        elif not same_attribute(attribute, actual):
            return False
    return True


def same_attribute(attribute: Attribute, actual: Any) -> bool:
    """Return whether an attribute has the value in the pattern."""
    expected = attribute.value
    if isinstance(expected, tuple):
        return actual is not None and list(expected) == list(actual)
    if isinstance(expected, float) and isinstance(actual, float):
        return bool(np.float32(expected) == np.float32(actual))  # attributes are stored as float32
    return bool(expected == actual)


def _fit_results(pattern: NodePattern, node: Node, bound: Bindings) -> bool:
    actual = node.outputs
    for position, result in enumerate(pattern.results):
        value = actual[position] if position < len(actual) and actual[position].name else None
        if value is None and not result.optional:
            return False
        if bound.setdefault(result.name, value) != value:
            return False
    return not any(value.is_used for value in actual[len(pattern.results) :])


def _fit_operands(operands: tuple[PatternInput, ...], inputs: list[Value | None], bound: Bindings) -> bool:
    for position, operand in enumerate(operands):
        if operand.variadic:
            rest = inputs[position:]
            return bool(bound.setdefault(operand.name or "", rest) == rest)
        if not _fit_operand(operand, inputs[position] if position < len(inputs) else None, bound):
            return False
    return all(value is None for value in inputs[len(operands) :])


def _fit_operand(operand: PatternInput, value: Value | None, bound: Bindings) -> bool:
    if operand.name is not None:
        if value is None and not operand.optional:
            return False
        return bool(bound.setdefault(operand.name, value) == value)
    return fits_literal(operand, value)


def fits_literal(operand: PatternInput, value: Value | None) -> bool:
    """Return whether a value is a constant with the elements in the pattern."""
    tensor = value.tensor if value is not None else None
    if tensor is None or not (tensor.dtype.is_floating_point() or tensor.dtype.is_integer()):
        return False
    if operand.elements is not None:
        return tensor.size == len(operand.elements) and _equals(tensor.numpy(), operand.elements)
    # Only small tensors are read: a large tensor of equal elements is not a constant that an author wrote.
    if not 0 < tensor.size <= 4096 or operand.scalar is None:
        return False
    nearly = operand.nearly and tensor.dtype.is_floating_point()
    return (_is_near if nearly else _equals)(tensor.numpy(), operand.scalar)


def _is_near(array: np.ndarray[Any, Any], expected: float) -> bool:
    """Compare within the rounding errors of computing a number in a few steps in the type of the tensor."""
    error = 4 * float(ml_dtypes.finfo(array.dtype).eps) * abs(expected)  # type: ignore[no-untyped-call]
    return bool(np.all(np.abs(array.astype(np.float64) - expected) <= error))


def _equals(array: np.ndarray[Any, Any], expected: tuple[int | float, ...] | float) -> bool:
    """Compare in the element type of a float tensor, so that 0.1 matches the nearest float32."""
    try:
        wanted = np.asarray(expected)
        wanted = wanted if array.dtype.kind in "iu" else wanted.astype(array.dtype)
    except (TypeError, ValueError, OverflowError):
        return False
    return bool(np.all(array.reshape(-1) == wanted.reshape(-1)))
