"""Conversion of operators to a narrower float type, each as a site with Casts around it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np

from surgery import Builder, Graph, Node, Refusal, UsageError, Value, data_type, narrowing

from ._narrow_boundaries import Boundaries, running_sums
from ._narrow_casts import Casts
from ._narrow_divisors import LOST, divisor_of, divisors, fragile
from ._narrow_format import Format
from ._narrow_functions import Functions
from ._narrow_jumps import LARGEST_ERROR, angle_error, deciding, is_jumping
from ._narrow_masks import covered, masks, parts
from ._narrow_nodes import (
    QUANTIZING,
    counting,
    floats,
    is_default,
    is_float,
    is_moving,
    is_widening,
    reads_table,
    very_large,
)
from ._narrow_norms import norms
from ._narrow_ranges import Range, Ranges, measured
from ._narrow_rows import Rows
from ._narrow_sums import sum_inside

Runtime = Literal["cpu", "any"]

_FLOAT = data_type("float")
_LARGEST_DRIFT = 2.0**-6
"""The largest rounding error of a sum over iterations, relative to the sum, if each iteration rounds it."""

_SMALL = 4096
"""Maximum number of elements of a constant addend that is compared with the sum."""

KEPT = "it is excluded and stays in float32"


@dataclass(frozen=True)
class Wishes:
    """The options of the user: see the options of the passes."""

    format: Format
    keep_io_types: bool
    keep: frozenset[Node]
    ops: frozenset[str]
    margin: float
    runtime: Runtime


@dataclass
class _Candidate:
    """A node to convert: which of its inputs and outputs, or a reason against it, and their measured ranges."""

    node: Node
    found: Any
    ranges: dict[Value, Range] = field(default_factory=dict)


class _Guard(Protocol):
    """What refuses a site unless a condition holds."""

    def require(self, condition: object, reason: str) -> None:
        """Raise Refusal with the reason unless the condition holds."""


class _Trial:
    """A guard outside of any site."""

    def require(self, condition: object, reason: str) -> None:
        """Raise Refusal with the reason unless the condition holds."""
        if not condition:
            raise Refusal(reason)


def operators_in_float32(graph: Graph, ops: Sequence[str]) -> frozenset[str]:
    """Return the operators that stay in float32; the report names those that no node has."""
    present = {node.op for node in graph.nodes()}
    missing = [op for op in dict.fromkeys(ops) if op not in present]
    if missing:
        todo = "'keep' takes nodes by name, such as '*/LayerNorm/*'"
        graph.remarks.append(f"no node has the operator {' or '.join(missing)}; {todo}")
    return frozenset(ops)


class Narrowing:
    """Converts a graph. All facts are collected before the first site, so that no site depends on an earlier one."""

    def __init__(self, graph: Graph, wishes: Wishes) -> None:
        self.graph = graph
        self.wishes = wishes
        self.format = wishes.format
        if wishes.margin < 0:
            raise UsageError("the margin is below 0", todo="give 1 or more, or 0 to measure nothing")
        self.limit = self.format.greatest / wishes.margin if wishes.margin else math.inf
        self.casts = Casts(graph, wishes.format, wishes.runtime)
        self.counting = counting(graph)
        self.running_sums = running_sums(graph, int(_LARGEST_DRIFT * 2**wishes.format.digits))
        self.very_large = very_large(graph, lambda value: self.casts.loss(value, value.tensor).overflow > 0)
        self.inputs = [] if wishes.keep_io_types else [value for value in graph.inputs() if is_float(value)]
        self.outputs = [] if wishes.keep_io_types else [value.name for value in graph.outputs() if is_float(value)]
        self.candidates = list(self._candidates())
        self.ranges = self._measured()
        self.fragile = fragile(graph, self.ranges, self.format)
        self.deciding = deciding(graph, self.ranges, self.format)
        self.casts.masks = frozenset(masks(graph, self.ranges, self.limit, self.format))
        self.covered = covered(self.casts.masks, self.ranges, self.limit)
        self.rows = Rows(self.format)
        self.casts.fitting = frozenset(name for name, one in self.ranges.items() if one.largest <= self.limit)
        self.whole: Mapping[Node, str] = {}
        self.whole = dict(self._norms_in_float32())

    def _candidates(self) -> Iterator[_Candidate]:
        for node in self.graph.nodes():
            if node.has_subgraphs or is_widening(node) or node.identifier in self.graph.functions:
                continue
            if self.graph.in_function(node):
                continue
            if is_moving(node) and not reads_table(node):
                continue
            if any(floats(node)) and any(is_float(one) for one in node.outputs):
                found = narrowing(node, self.format.dtype, self.wishes.runtime)
                yield _Candidate(node, found)

    def _norms_in_float32(self) -> Iterator[tuple[Node, str]]:
        """Yield the nodes of norms of which another node stays in float32, with the reason of that one."""
        candidates = {candidate.node: candidate for candidate in self.candidates}
        for nodes in norms(self.graph):
            found = [candidates[node] for node in nodes if node in candidates]
            reason = next(filter(None, map(self._refusal, found)), "")
            if reason:
                yield from ((node, f"a part of the norm stays in float32: {reason}") for node in nodes)

    def _refusal(self, candidate: _Candidate) -> str:
        """Return the reason against a candidate by itself; empty if it can be converted."""
        try:
            self._check(_Trial(), candidate)
        except Refusal as refusal:
            return refusal.reason
        return ""

    def _measured(self) -> Ranges:
        wanted = [*self.inputs, *(value for value in self.graph.outputs() if value.name in self.outputs)]
        wanted += divisors(self.graph)
        wanted += [value for value in parts(self.graph) if not value.is_constant]
        for candidate in self.candidates:
            if not isinstance(candidate.found, str):
                wanted += [value for value in _narrowed(candidate) if not value.is_constant]
        ranges = measured(self.graph, wanted) if wanted and self.wishes.margin else {}
        for candidate in self.candidates:
            if not isinstance(candidate.found, str):
                known = ((value, ranges.get(value.name)) for value in _narrowed(candidate))
                candidate.ranges = {value: found for value, found in known if found is not None}
        return ranges

    def run(self) -> None:
        """Convert all nodes that can be converted."""
        for port in self.inputs:
            self._take(port)
        for candidate in self.candidates:
            with self.graph.site(candidate.node) as new:
                self._check(new, candidate)
                self._convert(new, candidate)
        self._call_copies()
        # A value with which a site replaced an output has the output's name.
        now = {port.name: port for port in self.graph.outputs()}
        for name in self.outputs:
            self._give(now[name])
        self.casts.settle()
        boundaries = Boundaries(self.graph, self.casts)
        while boundaries.cross():
            self.casts.settle()

    def _call_copies(self) -> None:
        """Call functions in the narrower type."""
        functions = Functions(self.graph, self.format, self.wishes.keep, self.wishes.margin > 0)
        for calls in functions.calls:
            copy = functions.copy(calls, self._convert_body)
            for call in calls:
                with self.graph.site(call) as new:
                    new.require(call not in self.wishes.keep and call.op not in self.wishes.ops, KEPT)
                    self._check_opset(new)
                    new.require(copy.body is not None, copy.reason)
                    functions.call(new, call, copy, self.casts)
        functions.drop_uncalled()

    def _convert_body(self, body: Graph, keep: frozenset[Node]) -> Casts:
        inside = Narrowing(body, replace(self.wishes, keep=keep, keep_io_types=True))
        inside.run()
        return inside.casts

    # Inputs and outputs of the model

    def _take(self, port: Value) -> None:
        with self.graph.site(next(iter(self.graph.below([port])), None)) as new:
            self._check_opset(new)
            new.require(not port.is_overridable, f"{port.name} has a default value")
            new.require(not port.is_output, f"{port.name} is an input and an output")
            self._check_range(new, port, self.ranges.get(port.name))
            small = f"numbers that are 0 or denormal in {self.format.name}"
            new.require(port not in self.fragile, f"a division or a logarithm depends on {port.name}, {small}")
            new.replace(port, new.node("Cast", port, to=_FLOAT))
            new.set_port(port, self.format.dtype)
            to = int(self.format.dtype)
            new.relate_input(port, f"x = Cast<to={_FLOAT:d}>(y)", inverse=f"y = Cast<to={to}>(x)", y=port)

    def _give(self, port: Value) -> None:
        name = port.name
        with self.graph.site() as new:
            new.require(not port.is_input, f"{name} is an input and an output")
            self._check_opset(new)
            self._check_range(new, port, self.ranges.get(name))
            made = new.node("Cast", port, to=self.format.dtype)
            new.set_port(made, self.format.dtype, port.declared_dims)
            new.drop_output(port)
            new.add_output(made, name)
            new.relate_output(name, f"y = Cast<to={int(self.format.dtype)}>(x)", x=port)

    # Guards

    def _check(self, new: _Guard, candidate: _Candidate) -> None:
        node, name = candidate.node, self.format.name
        new.require(node not in self.wishes.keep and node.op not in self.wishes.ops, KEPT)
        self._check_opset(new)
        new.require(not isinstance(candidate.found, str), candidate.found)
        new.require(not (is_default(node) and node.op in QUANTIZING), "the scale of quantized values stays in float32")
        new.require(not node.is_random, "it draws random numbers")
        read = [value for value in floats(node) if value in self.counting and value not in self.casts.masks]
        limit = 2**self.format.digits
        new.require(not read, f"it computes with integers, which {name} holds up to {limit} only")
        running = node in self.running_sums
        new.require(
            not running, f"it sums up over iterations, in which {name} loses addends that are small relative to the sum"
        )
        for value in _narrowed(candidate):
            if value not in self.casts.masks:
                self._check_weight(new, value, candidate)
                large = value in self.very_large and value not in candidate.ranges
                new.require(not large, f"{value.name} may hold a constant that overflows in {name}")
        for value, found in candidate.ranges.items():
            if value not in self.casts.masks:
                self._check_range(new, value, found)
        self._check_inside(new, candidate)
        new.require(node not in self.whole, self.whole.get(node, ""))

    def _check_opset(self, new: _Guard) -> None:
        first = self.format.opset
        new.require(self.graph.opset, "the model does not import ai.onnx, which a Cast needs")
        new.require(self.graph.opset >= first, f"a Cast to {self.format.name} needs opset {first}")

    def _check_weight(self, new: _Guard, value: Value, candidate: _Candidate) -> None:
        tensor = value.tensor
        if tensor is None:
            return
        loss = self.casts.loss(value, tensor)
        of = f"of the {loss.count} elements of {value.name}"
        new.require(not loss.overflow, f"{loss.overflow} {of} overflow in {self.format.name}")
        lost = f"{loss.zeros} {of} become 0 and {loss.denormal} denormal in {self.format.name}"
        vanishes = loss.relative > 2.0 ** (1 - self.format.digits) and not self._is_small_addend(value, candidate)
        new.require(not vanishes, lost)

    def _is_small_addend(self, value: Value, candidate: _Candidate) -> bool:
        """Return whether the loss of a constant vanishes in the rounding of the sum, as that of an epsilon may."""
        node, tensor = candidate.node, value.tensor
        total = candidate.ranges.get(node.outputs[0])
        if tensor is None or total is None or node.op not in ("Add", "Sum") or tensor.size > _SMALL:
            return False
        array = tensor.numpy()
        error = float(np.abs(self.format.narrowed(array).astype(np.float64) - array).max(initial=0))
        return error <= 2.0**-self.format.digits * total.smallest

    def _check_range(self, new: _Guard, value: Value, found: Range | None) -> None:
        if found is None:
            return
        name, limit = self.format.name, self.limit
        new.require(found.largest <= limit, f"{value.name} reaches {found.largest:.3g}, too large for {name}")
        is_lost = found.faintest < LOST * self.format.smallest
        small = found.faintest if is_lost else found.largest
        new.require(
            not (is_lost or 0 < found.largest < self.format.normal),
            f"{value.name} stays below {small:.3g}, where {name} is denormal",
        )

    def _check_inside(self, new: _Guard, candidate: _Candidate) -> None:
        """Refuse if an intermediate result or a divisor of the operator is out of range."""
        node, ranges = candidate.node, candidate.ranges
        inside = sum_inside(node, {value.name: found for value, found in ranges.items()})
        new.require(inside <= self.limit, f"a sum inside reaches {inside:.3g}, too large for {self.format.name}")
        if not is_default(node):
            return
        small = f"numbers that are 0 or denormal in {self.format.name}"
        new.require(divisor_of(node) not in self.fragile.small, f"it divides by, or takes the logarithm of, {small}")
        made = any(value in self.fragile.small for value in node.outputs)
        new.require(not made, f"a division or a logarithm depends on its results, {small}")
        near = any(value in self.fragile.exact for value in node.outputs)
        lost = f"a difference of its results that {self.format.name} rounds away"
        new.require(not near, f"a division or a logarithm depends on {lost}")
        reads = f"numbers that it reads, or on their difference, and {self.format.name} loses them"
        new.require(node not in self.fragile.readers, f"a division or a logarithm depends on {reads}")
        self._check_jumps(new, candidate)

    def _check_jumps(self, new: _Guard, candidate: _Candidate) -> None:
        """Refuse if a rounding error moves a result of the operator, or of one that depends on it, by a whole step."""
        node, name = candidate.node, self.format.name
        error = angle_error(node, self.ranges, self.format)
        angle = (
            f"the angle reaches {error * 2**self.format.digits:.3g}, which {name} holds with an error of {error:.3g}"
        )
        new.require(error <= LARGEST_ERROR, angle)
        new.require(
            not is_jumping(node), f"the rounding of its operands to {name} may move its results by a whole step"
        )
        reader = next((self.deciding[value] for value in node.outputs if value in self.deciding), "")
        new.require(not reader, f"{reader} depends on its results, and jumps where {name} rounds them")

    # The conversion

    def _convert(self, new: Builder, candidate: _Candidate) -> None:
        node, found = candidate.node, candidate.found
        given: Mapping[int, Value] | None = None
        if any(value in self.covered for value in node.inputs):
            given = self.rows.hide(new, node, lambda value: self.casts.narrow(new, value, node))
            if given is None:
                return
        self.casts.rebuild(new, node, found.inputs, found.outputs, given)


def _narrowed(candidate: _Candidate) -> list[Value]:
    """List the values that a node would read and output in the narrower type."""
    inputs = [value for place, value in enumerate(candidate.node.inputs) if place in candidate.found.inputs]
    outputs = [value for place, value in enumerate(candidate.node.outputs) if place in candidate.found.outputs]
    return [value for value in (*inputs, *outputs) if value is not None and value.name]
