"""A graph that records the queries of a pass and its reasons for declining."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import onnx_ir as ir

from surgery.engine.why.decision_trace import Tracer, deciding, is_of
from surgery.engine.why.describe import named, typed
from surgery.model.graph.builder import Builder
from surgery.model.graph.graph import Graph
from surgery.model.graph.values import Node, Refusal, Value
from surgery.model.shapes.facts import Fact, dims
from surgery.model.shapes.table import ShapeTable

_MOST_UNKNOWN = 3
_FAR = 200
"""Maximum number of nodes upstream that are searched for the origin of an unknown shape."""


@dataclass(frozen=True)
class Declined:
    """One refusal: the node, the reason, the line of code, and the requested facts that are unknown.

    `values` has the values in that line and the nodes concerned. `depth` is the line in the pass itself; of two
    refusals by one function, the deeper one got further.
    """

    node: Node | None
    reason: str
    where: str
    values: str
    depth: int
    unknown: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


class WatchedFacts(ShapeTable):
    """Facts that record the values that they were requested for."""

    def __init__(self, model: ir.Model) -> None:
        super().__init__(model)
        self.asked: dict[ir.Value, Fact] = {}

    def of(self, value: ir.Value) -> Fact:
        """Return the known facts about a value, and record the request."""
        fact = super().of(value)
        self.asked[value] = fact
        return fact


class TracingGraph(Graph):
    """A graph that records queries: `looked` has the requested operators and the number of nodes of each.

    `package` is the package with the code of the pass.
    """

    def __init__(self, model: ir.Model, package: str, **more: Any) -> None:
        super().__init__(model, **more)
        self._package = package
        self.looked: dict[str, int] = {}
        self.declined: list[Declined] = []
        self.tracer = Tracer(package)
        self.facts = WatchedFacts(model)

    def adopt(self, model: ir.Model) -> None:
        """Replace the model by another one."""
        super().adopt(model)
        self.facts = WatchedFacts(model)

    def nodes(self, *ops: str) -> list[Node]:
        """List the nodes of these operators, and record the request."""
        for op in ops or ("",):
            self.looked.setdefault(op, len(super().nodes(op) if op else super().nodes()))
        return _Followed(super().nodes(*ops), self.tracer)

    @contextmanager
    def site(self, anchor: Node | None = None) -> Iterator[Builder]:
        """Open a site, and record where and why it is declined."""
        assert isinstance(self.facts, WatchedFacts)
        self.facts.asked.clear()
        before = len(self.refusals)
        place = ("", "", 1 << 30)
        with super().site(anchor) as builder:
            try:
                yield builder
            except Refusal as refusal:
                place = _place(refusal.__traceback__, self._package)
                raise
        if len(self.refusals) > before:
            unknown = tuple(self._unknown())
            read, made = ((), ()) if anchor is None else (_types(anchor.inputs), _types(anchor.outputs))
            self.declined.append(Declined(anchor, self.refusals[-1].reason, *place, unknown, read, made))

    def _unknown(self) -> Iterator[str]:
        """Yield descriptions of requested facts that are unknown, latest first."""
        assert isinstance(self.facts, WatchedFacts)
        gaps = [(value, self._gap(value, fact)) for value, fact in list(self.facts.asked.items())]
        found = {self._origin(value): text for value, text in gaps if text}
        for origin, text in list(found.items())[::-1][:_MOST_UNKNOWN]:
            maker = origin.producer()
            since = "" if maker is None else f", nor that of what {named(Node(self, maker))} makes"
            yield f"{text}{since if Value(self, origin).shape is None else ''}"

    def _origin(self, value: ir.Value) -> ir.Value:
        """Follow a value of unknown shape upstream to the first one whose producer has inputs of known shapes."""
        seen = {value}
        while (maker := value.producer()) is not None and len(seen) < _FAR:
            unknown = [one for one in maker.inputs if one is not None and Value(self, one).shape is None]
            if not unknown or unknown[0] in seen:
                break
            value = unknown[0]
            seen.add(value)
        return value

    def _gap(self, value: ir.Value, fact: Fact) -> str:
        if value.graph is None or not value.name:  # a value that the site would have created
            return ""
        shape = dims(fact.shape if fact.shape is not None else value.shape)
        if shape is None:
            kind = Value(self, value).type
            return f"the shape of '{value.name}'" if kind is None or isinstance(kind, ir.TensorType) else ""
        missing = [str(axis) for axis, dim in enumerate(shape) if dim is None]
        return f"dim {', '.join(missing)} of '{value.name}'" if missing else ""


class _Followed(list[Node]):
    """A list of nodes that reports the progress of a loop to the tracer, and skips removed nodes."""

    def __init__(self, nodes: Iterable[Node], tracer: Tracer) -> None:
        super().__init__(nodes)
        self._tracer = tracer

    def __iter__(self) -> Iterator[Node]:
        home = None
        for node in super().__iter__():
            if node.ir.graph is not None:
                home = sys._getframe(1)
                self._tracer.take(node, home)
                yield node
        if home is not None:
            self._tracer.take(None, None)


def _types(values: Iterable[Value | None]) -> tuple[str, ...]:
    return tuple("" if value is None else f"{typed(value)} {value.name}" for value in values)


def _place(trace: TracebackType | None, package: str) -> tuple[str, str, int]:
    """Return the line of a pass that raised a refusal, the values in it, and the current line of its outer function."""
    steps = traceback.walk_tb(trace)
    frames = [(frame, line) for frame, line in steps if is_of(package, frame)]
    if not frames:
        return "", "", 1 << 30
    where, _, values = deciding(*frames[-1])
    return where, values, frames[0][1]
