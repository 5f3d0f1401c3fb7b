"""Values that enter and leave the bodies of If, Loop and Scan, in a narrower type.

The nodes of a body are converted like all others, with Casts in the body. A boundary takes the narrower type if no
element can change: the values that cross it were cast from the narrower type, or their readers cast them to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from surgery import Builder, Graph, Node, Value, data_type

from ._narrow_casts import Casts
from ._narrow_nodes import is_default, is_float, is_moving

_FLOAT = data_type("float")
_ADDING = frozenset({"Add", "Sub", "Sum"})
_FIRST_SCAN = 9
"""The opset in which Scan took its present form; before, it ran over a batch."""


@dataclass(frozen=True)
class Boundary:
    """Values that must share a type: an input of a node, the input of its body, outputs of bodies, the node's output.

    `position` is the position of the node's input. `trips` are the minimum and maximum numbers of iterations: without
    an iteration, a loop returns its input as its output.
    """

    node: Node
    results: tuple[tuple[Any, int], ...] = ()
    made: Value | None = None
    formal: Value | None = None
    position: int | None = None
    trips: tuple[int, int | None] = (1, 1)

    @property
    def given(self) -> Value | None:
        """The value that the node reads from outside."""
        return None if self.position is None else self.node.input(self.position)

    def inner(self) -> list[Value]:
        """List the outputs of the bodies."""
        return [Value(self.node.graph, scope.outputs[index]) for scope, index in self.results]

    def values(self) -> list[Value]:
        """List all values that must share a type."""
        return [value for value in (self.given, self.formal, *self.inner(), self.made) if value is not None]


@dataclass
class Boundaries:
    """Changes the types of boundaries, each at most once."""

    graph: Graph
    casts: Casts
    _done: set[tuple[Node, Value]] = field(default_factory=set)

    def cross(self) -> bool:
        """Change boundaries to the narrower type where this keeps every element; return whether any was changed.

        Inner bodies come first, because the outer boundaries depend on their outputs.
        """
        changed = False
        for node in self.graph.nodes("If", "Loop", "Scan")[::-1]:
            if node.is_removed or self.graph.in_function(node) or self.graph.opset < self.casts.format.carried_from:
                continue
            for boundary in list(boundaries(node)):
                key = node, boundary.formal or boundary.made or boundary.inner()[0]
                if key not in self._done and self._is_better(boundary):
                    self._done.add(key)
                    with self.graph.follow_up(node) as new:
                        self._change(new, boundary)
                    changed = True
        return changed

    def _is_better(self, boundary: Boundary) -> bool:
        """Return whether the narrower type changes no element of a boundary and needs no additional Casts."""
        empty = any(not len(scope) for scope, _ in boundary.results)
        if (
            empty
            or not all(map(is_float, boundary.values()))
            or (boundary.formal is not None and boundary.formal.is_output)
        ):
            return False
        inner, given, formal, made = boundary.inner(), boundary.given, boundary.formal, boundary.made
        wide_inside = formal is not None and self.casts.is_read_wide(formal)
        wide_outside = made is not None and made.is_used and self.casts.is_read_wide(made)
        exact_inside = all(map(self.casts.holds, inner))
        exact_given = given is None or self.casts.holds(given)
        if wide_inside and not (exact_inside and exact_given):
            return False
        if wide_outside and not (exact_inside and (exact_given or boundary.trips[0])):
            return False
        arriving = [value for value in (given, *inner) if value is not None and not value.is_constant]
        casts = sum(self.casts.source(value) is None for value in arriving) + wide_inside + wide_outside
        spared = sum(self.casts.source(value) is not None for value in arriving)
        spared += sum(value is not None and self.casts.is_read_narrow(value) for value in (formal, made))
        return bool(spared) and casts <= spared

    def _change(self, new: Builder, boundary: Boundary) -> None:
        narrow, node = self.casts.format.dtype, boundary.node
        given, formal, made = boundary.given, boundary.formal, boundary.made
        for scope, index in boundary.results:
            value = Value(self.graph, scope.outputs[index])
            last = Node(self.graph, scope[-1])
            new.set_result(scope, index, self.casts.narrow(new, value, last), narrow)
        if given is not None and boundary.position is not None:
            new.set_input(node, boundary.position, self.casts.narrow(new, given, node))
        if formal is not None:
            reader = next(iter(formal.consumers), None)
            if reader is not None:
                place = new.at(self.casts.outer(formal, reader))
                place.replace(formal, place.node("Cast", formal, to=_FLOAT))
            new.set_element_type(formal, narrow)
            new.changes(formal)
        if made is not None:
            if made.is_used:
                new.replace(made, new.node("Cast", made, to=_FLOAT))
            new.set_element_type(made, narrow)
            if not made.is_output:  # the Cast takes the name of an output
                new.changes(made)


def boundaries(node: Node) -> Iterator[Boundary]:
    """List the boundaries of an If, a Loop or a Scan."""
    if not is_default(node):
        return
    if node.op == "If":
        branches = [node.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
        for index, made in enumerate(node.outputs):
            yield Boundary(node, tuple((branch, index) for branch in branches), made)
    elif node.op == "Loop":
        yield from _of_loop(node)
    elif node.opset >= _FIRST_SCAN:
        yield from _of_scan(node)


def _of_loop(node: Node) -> Iterator[Boundary]:
    body = node.attributes["body"].as_graph()
    carried, count, condition = len(node.inputs) - 2, node.input(0), node.input(1)
    most = None if count is None else count.scalar
    runs = (count is None or (most or 0) > 0) and (condition is None or bool(condition.scalar))
    for index, made in enumerate(node.outputs):
        results = ((body, index + 1),)
        if index < carried:
            yield Boundary(node, results, made, Value(node.graph, body.inputs[index + 2]), index + 2, (int(runs), most))
        else:
            yield Boundary(node, results, made)


def _of_scan(node: Node) -> Iterator[Boundary]:
    body, scanned = node.attributes["body"].as_graph(), node.attr("num_scan_inputs")
    carried = len(node.inputs) - scanned
    axes = node.attr("scan_input_axes") or [0]
    first = node.input(carried)
    length = None if first is None or first.shape is None else first.shape[axes[0]]
    trips = (length, length) if isinstance(length, int) else (0, None)
    for index, formal in enumerate(body.inputs):
        if index < carried:
            made = node.outputs[index]
            yield Boundary(node, ((body, index),), made, Value(node.graph, formal), index, trips)
        else:
            yield Boundary(node, formal=Value(node.graph, formal), position=index)
    for index, made in enumerate(node.outputs[carried:], carried):
        yield Boundary(node, ((body, index),), made)


def running_sums(graph: Graph, most: int) -> set[Node]:
    """Find the nodes that add to a value carried between iterations, more than `most` or an unknown number of times.

    Such a sum grows while its addends do not, until they are lost in rounding.
    """
    found: set[Node] = set()
    for node in graph.nodes("Loop", "Scan"):
        for boundary in boundaries(node):
            trips = boundary.trips[1]
            if boundary.formal is not None and boundary.results and (trips is None or trips > most):
                maker = _moved(boundary.inner()[0]).producer
                operands = maker.inputs if maker is not None and is_default(maker) and maker.op in _ADDING else []
                if maker is not None and any(each and _moved(each) == boundary.formal for each in operands):
                    found.add(maker)
    return found


def _moved(value: Value) -> Value:
    """Follow a value upstream through operators that only move elements."""
    while (maker := value.producer) is not None and is_moving(maker) and (first := maker.input(0)) is not None:
        value = first
    return value
