"""Calls of model-local functions in a narrower type, by means of a copy of the function for the type.

All calls with the same types and attributes share a copy, which is converted like a model. Its inputs and outputs have
the narrower type if nothing inside needs them in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from surgery import Builder, Graph, Node, Refusal, UsageError, Value, WorkerError, data_type

from ._narrow_casts import Casts
from ._narrow_format import Format
from ._narrow_nodes import is_float
from ._narrow_ranges import MAGNITUDES

_FLOAT = data_type("float")
_MOST_BYTES = 1 << 26
"""Maximum size of the operands of calls that are kept to measure ranges inside functions."""

Convert = Callable[[Graph, frozenset[Node]], Casts]
"""Converts the body of a function; the given nodes stay in float32."""


@dataclass(frozen=True)
class Copy:
    """The body of a function in the narrower type, and its inputs and outputs of that type; or a reason against it."""

    body: Graph | None
    reason: str = ""
    inputs: frozenset[int] = frozenset()
    outputs: frozenset[int] = frozenset()


@dataclass(frozen=True)
class _Operands:
    """Operands recorded at the calls of a function, for the calibration of its body."""

    given: Sequence[dict[str, Any]]
    is_drawn = False

    def feeds(self) -> Sequence[dict[str, Any]]:
        return self.given


class Functions:
    """Finds function calls with operands or results in float32, and makes copies of the called functions."""

    def __init__(self, graph: Graph, format: Format, keep: frozenset[Node], measures: bool) -> None:  # noqa: A002
        self.graph = graph
        self.format = format
        self.keep = keep
        self.measures = measures
        self.calls = list(self._groups())
        self._names: dict[int, str] = {}

    def _groups(self) -> Iterator[list[Node]]:
        """Yield groups of calls of a function with the same types and attributes, outside function bodies."""
        groups: dict[Any, list[Node]] = {}
        for node in self.graph.nodes():
            if node.identifier in self.graph.functions and not self.graph.in_function(node):
                kinds = tuple(None if value is None else str(value.type) for value in node.inputs)
                held = tuple(sorted((name, str(attribute.value)) for name, attribute in node.attributes.items()))
                groups.setdefault((node.identifier, kinds, held), []).append(node)
        for calls in groups.values():
            if any(is_float(value) for call in calls for value in (*call.inputs, *call.outputs)):
                yield calls

    def copy(self, calls: Sequence[Node], convert: Convert) -> Copy:
        """Convert a copy of the body of a function."""
        try:
            body = self.graph.body_of(calls)
        except Refusal as refusal:
            return Copy(None, refusal.reason)
        originals = list(self.graph.functions[calls[0].identifier])
        if self.measures:
            body.calibration = self._calibration(calls, body.inputs())
        keep = frozenset(
            copy for node, copy in zip(originals, body.main_nodes()) if Node(self.graph, node) in self.keep
        )
        casts = convert(body, keep)
        if not body.sites:
            reason = body.refusals[0].reason if body.refusals else "nothing in the function is computed in float32"
            return Copy(None, reason)
        inputs = frozenset(place for place, port in enumerate(body.inputs()) if self._open_input(body, port, casts))
        casts.settle()
        outputs = frozenset(
            place for place, port in enumerate(body.outputs()) if self._open_output(body, place, port, casts)
        )
        return Copy(body, "", inputs, outputs)

    def _calibration(self, calls: Sequence[Node], ports: Sequence[Value]) -> Any:
        """Record the operands of calls in the main graph; None if they are too large or cannot be recorded."""
        feeds: list[dict[str, Any]] = []
        total = 0
        for call in calls:
            if call.scope is not self.graph.main:
                continue
            operands = {port.name: value for port, value in zip(ports, call.inputs) if value is not None}
            fixed = {name: value.constant for name, value in operands.items() if value.is_constant}
            recorded: dict[Value, list[np.ndarray[Any, Any]]] = {}
            try:
                for value, array in self.graph.recordings(
                    [v for v in operands.values() if not v.is_constant], MAGNITUDES
                ):
                    recorded.setdefault(value, []).append(array)
                    total += array.nbytes
                    if total > _MOST_BYTES:
                        return None
            except (UsageError, WorkerError):
                return None
            sets = max(map(len, recorded.values()), default=0)
            complete = [
                value for value in operands.values() if value.is_constant or len(recorded.get(value, ())) == sets
            ]
            if len(complete) == len(operands):
                varied = [(name, value) for name, value in operands.items() if name not in fixed]
                feeds += [fixed | {name: recorded[value][n] for name, value in varied} for n in range(sets)]
        return _Operands(feeds) if feeds else None

    def _open_input(self, body: Graph, port: Value, casts: Casts) -> bool:
        if not is_float(port) or casts.is_read_wide(port) or not casts.is_read_narrow(port):
            return False
        with body.follow_up(port.consumers[0]) as new:
            place = new.at(casts.outer(port, port.consumers[0]))
            place.replace(port, place.node("Cast", port, to=_FLOAT))
            new.set_element_type(port, self.format.dtype)
        return True

    def _open_output(self, body: Graph, place: int, port: Value, casts: Casts) -> bool:
        source = casts.source(port) if is_float(port) else None
        if source is None:
            return False
        with body.follow_up() as new:
            new.set_result(body.main, place, source, self.format.dtype)
        return True

    def call(self, new: Builder, call: Node, copy: Copy, casts: Casts) -> None:
        """Replace a call of the function with a call of its copy."""
        assert copy.body is not None
        name = self._names.get(id(copy))
        if name is None or (call.domain, name, "") not in self.graph.functions:
            name = new.define_body(copy.body, call.domain, f"{call.identifier[1]}_{self.format.name}")
            self._names[id(copy)] = name
        operands = [
            casts.narrow(new, value, call) if value is not None and place in copy.inputs else value
            for place, value in enumerate(call.inputs)
        ]
        made = new.nodes(f"{call.domain}::{name}", *operands, outputs=len(call.outputs), name=call.name or None)
        for place, (old, result) in enumerate(zip(call.outputs, made)):
            if old.is_used:
                new.replace(old, new.node("Cast", result, to=_FLOAT) if place in copy.outputs else result)

    def drop_uncalled(self) -> None:
        """Remove functions whose calls have all been replaced with calls of copies."""
        uncalled = {function.identifier(): function for function in self.graph.uncalled()}
        for function in [uncalled[key] for key in {calls[0].identifier for calls in self.calls} if key in uncalled]:
            with self.graph.follow_up() as new:
                new.drop_function(function)
