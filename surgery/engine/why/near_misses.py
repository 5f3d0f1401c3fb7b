"""Near misses: places where most of a pattern matches, with the mismatches.

The matcher stops at the first mismatch for speed. Here, a match grows from any line across mismatches, which are
collected: a wrong operator is accepted instead of the right one, a wrong constant is recorded. Only the best few
continuations are kept at each step, so the cost per place is bounded by the size of the pattern.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Literal

from surgery.engine.why.describe import contents, listed, named, source
from surgery.model.graph.values import Node, Refusal, Value
from surgery.model.patterns.compiled_pattern import CompiledPattern
from surgery.model.patterns.match import Bindings, fits_literal, orders, same_attribute
from surgery.model.patterns.pattern_text import Attribute, NodePattern, PatternInput

FaultKind = Literal[
    "operator", "between", "source", "reader", "constant", "attribute", "input", "output", "value", "order"
]

_WIDTH = 4
"""Number of continuations kept at each step."""
_FEW = 3
"""Patterns with at most this many lines are grown from every node with a suitable operator."""
_MOST_READERS = 16
"""Maximum number of readers of a value that are tried as the next node of a pattern."""


@dataclass(frozen=True)
class Fault:
    """A mismatch with a line of the pattern; `line` counts the pattern's nodes from 0.

    `found` is the actual item, converted to text when `actual` is read.
    """

    line: int
    kind: FaultKind
    node: Node
    expected: str
    found: Value | Node | str | None

    @property
    def actual(self) -> str:
        """The actual item as text."""
        match self.found:
            case Node():
                return f"{named(self.found)} in between" if self.kind == "between" else named(self.found)
            case Value():
                return _FOUND[self.kind](self.found)
            case None:
                return "none"
        return self.found

    @property
    def weight(self) -> int:
        """The weight of the mismatch; a wrong operator counts more than a wrong constant."""
        return 2 if self.kind in ("operator", "source", "reader") else 1


def _readers(value: Value) -> str:
    readers = [listed(value.consumers)] if value.ir._uses else []
    return " and ".join([*readers, *(["the graph output"] if value.is_output else [])]) or "nothing"


def _constant(value: Value) -> str:
    return f"{contents(value)} ('{value.name}')" if value.is_constant and value.name else source(value)


def _in_use(value: Value) -> str:
    return f"'{value.name}' read by {_readers(value)}"


def _name(value: Value) -> str:
    return f"'{value.name}'"


_FOUND = defaultdict(lambda: _name, {"source": source, "reader": _readers, "constant": _constant, "output": _in_use})


@dataclass(frozen=True)
class Route:
    """A path to the node of a line: as the producer of the value `via`, or as one of its readers."""

    line: int
    via: str
    consumer_of: bool


@dataclass(frozen=True)
class Partial:
    """A partial match. `nodes` has the node of each line that was reached, matching or not."""

    plan: CompiledPattern
    nodes: Mapping[int, Node]
    bindings: Bindings
    faults: tuple[Fault, ...]
    tried: frozenset[Route]

    @cached_property
    def distance(self) -> int:
        """The total weight of the mismatches."""
        return sum(fault.weight for fault in self.faults)

    @cached_property
    def matched(self) -> int:
        """The number of matching lines."""
        return len(self.nodes.keys() - {fault.line for fault in self.faults})

    @cached_property
    def rank(self) -> tuple[int, int]:
        """The sort key for partial matches around one node; the smallest is the best."""
        return self.distance + len(self.plan.nodes) - len(self.nodes), -self.matched

    def blames(self, line: int) -> bool:
        """Return whether a line is at fault."""
        return any(fault.line == line for fault in self.faults)

    def but(self, *faults: Fault, **bound: object) -> Partial:
        """Return this match with additional faults and names bound to other values."""
        bindings = {**self.bindings, **bound} if bound else self.bindings
        return Partial(self.plan, self.nodes, bindings, (*self.faults, *faults), self.tried)

    def placed(self, line: int, node: Node, bindings: Bindings, faults: Iterable[Fault]) -> Partial:
        """Return this match with a node assigned to a line."""
        return Partial(self.plan, {**self.nodes, line: node}, bindings, (*self.faults, *faults), self.tried)


class Grower:
    """Grows partial matches of one pattern."""

    def __init__(self, plan: CompiledPattern) -> None:
        self.plan = plan
        self._routes = _routes(plan)

    def grow(self, line: int, node: Node, limit: int) -> Partial | None:
        """Match as much of the pattern as possible with `node` as `line`; None if the distance exceeds `limit`."""
        empty = Partial(self.plan, {}, {}, (), frozenset())
        is_op = _is_op(self.plan.nodes[line], node)
        states = list(_placed(empty, line, node) if is_op else _substituted(empty, line, node))
        done: list[Partial] = []
        while states:
            onward: list[Partial] = []
            for state in states:
                route = next((one for one in self._routes if _is_open(state, one)), None)
                if route is None:
                    done.append(state)
                else:
                    onward += _advance(state, route)
            states = sorted((state for state in onward if state.distance <= limit), key=_rank)[:_WIDTH]
        return min(done, key=_rank, default=None)

    def may_start(self, line: int, node: Node) -> bool:
        """Return whether a node with the operator of a line has a neighbour that the pattern wants, or needs none."""
        if len(self.plan.nodes) <= _FEW:
            return True
        pattern = self.plan.nodes[line]
        ends = {operand.name: value for operand, value in zip(pattern.operands, node.inputs)}
        if len(pattern.operands) == 2:
            ends |= {f"{operand.name}'": value for operand, value in zip(pattern.operands, node.inputs[::-1])}
        ends |= {result.name: value for result, value in zip(pattern.results, node.outputs)}
        return any(
            _is_op(self.plan.nodes[route.line], end)
            for route in self._routes
            if route.line != line
            for name in (route.via, f"{route.via}'")
            if (value := ends.get(name)) is not None
            for end in _ends(value, route)
        )


def _rank(state: Partial) -> tuple[int, int]:
    return state.rank


def _routes(plan: CompiledPattern) -> tuple[Route, ...]:
    """List the routes between lines: upstream first, since a value has one producer; through shared inputs last."""
    makers = {result.name: line for line, pattern in enumerate(plan.nodes) for result in pattern.results}
    reads = [
        (line, operand.name)
        for line, pattern in enumerate(plan.nodes)
        for operand in pattern.operands
        if operand.name is not None and not operand.variadic
    ]
    up = [Route(makers[name], name, consumer_of=False) for _, name in reads if name in makers]
    down = [Route(line, name, consumer_of=True) for line, name in reads if name in makers]
    beside = [Route(line, name, consumer_of=True) for line, name in reads if name not in makers]
    return tuple(dict.fromkeys([*up, *down, *beside]))


def _is_open(state: Partial, route: Route) -> bool:
    if route.line in state.nodes or route in state.tried:
        return False
    return isinstance(state.bindings.get(route.via), Value)


def _advance(state: Partial, route: Route) -> Iterator[Partial]:
    """Yield the states that result from searching for the node of a line along a route."""
    state = Partial(state.plan, state.nodes, state.bindings, state.faults, state.tried | {route})
    value: Value = state.bindings[route.via]
    pattern = state.plan.nodes[route.line]
    used = state.nodes.values()
    beside = [node for node in _ends(value, route) if node not in used]
    fitting = [node for node in beside if _is_op(pattern, node)]
    for node in fitting:
        yield from _placed(state, route.line, node)
    if fitting:
        return
    if state.blames(route.line):
        yield state
        return
    yield state.but(_blame(state, route, value))
    if len(beside) == 1:
        yield from _stepped_over(state, route, beside[0])
        yield from _substituted(state, route.line, beside[0])


def _ends(value: Value, route: Route) -> list[Node]:
    """List the nodes at the end of a route."""
    if not route.consumer_of:
        return [] if value.producer is None else [value.producer]
    uses = islice(value.ir._uses, _MOST_READERS)  # `uses()` would copy a long list
    return [Node(value.graph, node) for node in dict.fromkeys(use.node for use in uses)]


def _blame(state: Partial, route: Route, value: Value) -> Fault:
    """Return the fault that no node at the end of a route matches its line."""
    wanted = _op_names(state.plan.nodes[route.line])
    at = next(node for node in state.nodes.values() if value in (*node.inputs, *node.outputs))
    if not route.consumer_of:
        return Fault(route.line, "source", at, f"the result of {wanted}", value)
    return Fault(route.line, "reader", at, f"{wanted} to read '{value.name}'", value)


def _stepped_over(state: Partial, route: Route, node: Node) -> Iterator[Partial]:
    """Continue after an extra node between two nodes of the pattern, such as a Cast."""
    pattern = state.plan.nodes[route.line]
    fault = Fault(route.line, "between", node, _op_names(pattern), node)
    for value in node.outputs if route.consumer_of else node.inputs:
        for beyond in _ends(value, route) if value is not None else ():
            if _is_op(pattern, beyond) and beyond not in state.nodes.values():
                yield from _placed(state.but(fault, **{route.via: value}), route.line, beyond)


def _substituted(state: Partial, line: int, node: Node) -> Iterator[Partial]:
    """Assign a node of another operator to a line, so that the nodes beyond it are examined too."""
    pattern = state.plan.nodes[line]
    bound = dict(state.bindings)
    for result, made in zip(pattern.results, node.outputs):
        bound.setdefault(result.name, made)
    for operand, value in zip(pattern.operands, node.inputs):
        if operand.name is not None and not operand.variadic and value is not None:
            bound.setdefault(operand.name, value)
    yield state.placed(line, node, bound, [Fault(line, "operator", node, _op_names(pattern), node)])


def _placed(state: Partial, line: int, node: Node) -> Iterator[Partial]:
    """Assign a node to a line, in each order of its inputs, and record the mismatches."""
    pattern = state.plan.nodes[line]
    bound = dict(state.bindings)
    common = list(_attribute_faults(pattern, line, node, bound))
    common += _result_faults(pattern, line, node, bound, blamed=state.blames(line))
    inputs = node.inputs
    ways = list(orders(pattern, node, inputs))
    if len(ways) == 1 and len(inputs) == len(pattern.operands) == 2 and inputs[0] != inputs[1]:
        attempt = dict(bound)
        if not any(_operand_faults(pattern, line, node, inputs[::-1], attempt)):
            fault = Fault(line, "order", node, _line_text(pattern), "its inputs in the reverse order")
            yield state.placed(line, node, attempt, [*common, fault])
    for order in ways:
        attempt = dict(bound)
        yield state.placed(line, node, attempt, [*common, *_operand_faults(pattern, line, node, order, attempt)])


def _attribute_faults(pattern: NodePattern, line: int, node: Node, bound: Bindings) -> Iterator[Fault]:
    for attribute in pattern.attributes:
        try:
            actual = node.attr(attribute.name)
        except Refusal:
            what = f"{attribute.name}, a parameter of the function"
            yield Fault(line, "attribute", node, _attribute_text(attribute), what)
            continue
        if attribute.binding is not None:
            bound[attribute.binding] = actual
        elif not same_attribute(attribute, actual):
            found = f"{attribute.name} = {actual}" if actual is not None else f"no {attribute.name}"
            by_default = "" if actual is None or node.has_attr(attribute.name) else " by default"
            yield Fault(line, "attribute", node, _attribute_text(attribute), found + by_default)


def _result_faults(pattern: NodePattern, line: int, node: Node, bound: Bindings, blamed: bool) -> Iterator[Fault]:
    """Compare outputs; a different value is not reported if the route to this line is already at fault."""
    actual = node.outputs
    for position, result in enumerate(pattern.results):
        value = actual[position] if position < len(actual) and actual[position].name else None
        if value is None and not result.optional:
            yield Fault(line, "output", node, f"an output {position} ({result.name})", None)
            continue
        known = bound.setdefault(result.name, value)
        if known != value and not blamed:
            yield Fault(line, "value", node, f"{_spoken(known)} as its output {result.name}", value)
    for value in actual[len(pattern.results) :]:
        if value.is_used:
            expected = f"{len(pattern.results)} outputs in use" if len(pattern.results) > 1 else "one output in use"
            yield Fault(line, "output", node, expected, value)


def _operand_faults(
    pattern: NodePattern, line: int, node: Node, inputs: list[Value | None], bound: Bindings
) -> Iterator[Fault]:
    for position, operand in enumerate(pattern.operands):
        if operand.variadic:
            bound.setdefault(operand.name or "", inputs[position:])
            return
        value = inputs[position] if position < len(inputs) else None
        if operand.name is None:
            if not fits_literal(operand, value):
                yield Fault(line, "constant", node, _literal_text(operand), value)
        elif value is None and not operand.optional:
            yield Fault(line, "input", node, f"an input {position} ({operand.name})", None)
        elif (known := bound.setdefault(operand.name, value)) != value:
            yield Fault(line, "value", node, f"{_spoken(known)} as {operand.name}", value)
    given = sum(value is not None for value in inputs[len(pattern.operands) :])
    if given:
        count = len(pattern.operands)
        yield Fault(line, "input", node, "1 input" if count == 1 else f"{count} inputs", str(count + given))


def _is_op(pattern: NodePattern, node: Node) -> bool:
    return (node.ir.domain, node.ir.op_type) in pattern.ops


def _op_names(pattern: NodePattern) -> str:
    return " or ".join(f"{domain}::{op}" if domain else op for domain, op in pattern.ops)


def _line_text(pattern: NodePattern) -> str:
    operands = (operand.name or _literal_text(operand) for operand in pattern.operands)
    return f"{_op_names(pattern)}({', '.join(operands)})"


def _attribute_text(attribute: Attribute) -> str:
    value = list(attribute.value) if isinstance(attribute.value, tuple) else attribute.value
    return f"{attribute.name} = {value if attribute.binding is None else 'a known value'}"


def _literal_text(operand: PatternInput) -> str:
    if operand.elements is not None:
        return f"{{{', '.join(str(item) for item in operand.elements)}}}"
    return f"{'~' if operand.nearly else ''}{operand.scalar}"


def _spoken(value: object) -> str:
    return f"'{value.name}'" if isinstance(value, Value) else "nothing" if value is None else "several values"


def seeds(plan: CompiledPattern, nodes: Mapping[tuple[str, str], Iterable[Node]]) -> Iterator[tuple[int, Node]]:
    """Yield the starting points of matches as pairs of a line and a node, rarest operators first."""
    lines = [
        (line, [node for op in pattern.ops for node in nodes.get(op, ())]) for line, pattern in enumerate(plan.nodes)
    ]
    for line, found in sorted(lines, key=lambda pair: len(pair[1])):
        for node in found:
            yield line, node
