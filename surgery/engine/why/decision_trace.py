"""The line of code at which a pass skips a node without giving a reason.

A graph pass gives reasons for interesting refusals, and silently skips unrelated nodes. To explain these too, the run
is traced, and the last decision about each node is recorded.
"""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from surgery.engine.why.describe import contents, is_small, listed, named, typed
from surgery.model.graph.values import Node, Refusal, Value

_ENDS = re.compile(r"(continue|break|pass|return( None| False)?|raise .*)$")
_QUOTED = re.compile(r"f?\"[^\"]*\"")
_CHAIN = re.compile(r"(?<![\w.\"'])[a-z_]\w*(?:\.\w+)*(?![\w(\"'])")
_NO_VALUE = object()
_MOST_LINES = 6
_MOST_NODES = 2
_LONG = 80
_NEAR = 3
"""A function that returns nothing within this many lines after a call that did passes on the callee's decision."""


@dataclass(frozen=True)
class SkippingLine:
    """A line of code that skips a node, and the values of its variables for one of the nodes."""

    where: str
    values: str


@dataclass(frozen=True)
class _Return:
    """A function returned nothing: the decision, and the frame and line of the caller."""

    decision: SkippingLine
    caller: FrameType | None
    caller_line: int


def is_of(package: str, frame: FrameType) -> bool:
    """Return whether code belongs to the package of a pass, rather than to the engine or a library."""
    module = str(frame.f_globals.get("__name__", ""))
    return module == package or module.startswith(f"{package}.")


class Tracer:
    """Follows the code of a pass in `package` from node to node."""

    def __init__(self, package: str) -> None:
        self._package = package
        self.decisions: dict[Node, SkippingLine] = {}
        self.asked: Node | None = None
        self._seen: dict[tuple[str, int], SkippingLine] = {}
        self._node: Node | None = None
        self._home: FrameType | None = None
        self._header = 0
        self._last = 0
        self._returned: _Return | None = None

    def take(self, node: Node | None, home: FrameType | None) -> None:
        """Record that the loop in the frame `home` moves on to a node, or ends (None)."""
        if self._node is not None and self._home is not None and self._last:
            self.decisions[self._node] = self._decision(self._home)
        self._node, self._home, self._returned, self._last = node, home, None, 0
        self._header = home.f_lineno if home is not None else 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Trace the code in the block, unless a debugger is tracing."""
        if sys.gettrace() is not None:
            yield
            return
        sys.settrace(self._on_call)
        try:
            yield
        finally:
            sys.settrace(None)
            self.take(None, None)

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._on_step if is_of(self._package, frame) else None

    def _on_step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if self._node is None:
            return self._on_step
        if event == "line" and frame is self._home and frame.f_lineno != self._header:
            self._last = frame.f_lineno
        elif event == "return" and frame is not self._home and (argument is None or argument is False):
            self._on_nothing(frame)
        return self._on_step

    def _on_nothing(self, frame: FrameType) -> None:
        inner, line = self._returned, frame.f_lineno
        caller = frame.f_back
        at = caller.f_lineno if caller is not None else 0
        if inner is not None and inner.caller is frame and 0 <= line - inner.caller_line <= _NEAR:
            self._returned = _Return(inner.decision, caller, at)
        else:
            self._returned = _Return(self._decision_at(frame, line), caller, at)

    def _decision(self, home: FrameType) -> SkippingLine:
        inner = self._returned
        if inner is not None and inner.caller is home and 0 <= self._last - inner.caller_line <= _NEAR:
            return inner.decision
        return self._decision_at(home, self._last)

    def _decision_at(self, frame: FrameType, line: int) -> SkippingLine:
        """Return the decision of a line of code, with values from its first occurrence or from the requested node."""
        key = (frame.f_code.co_filename, line)
        if key not in self._seen or self._node == self.asked:
            place, text, values = deciding(frame, line)
            self._seen[key] = SkippingLine(f"{place}: {text}", values)
        return self._seen[key]


def deciding(frame: FrameType, line: int) -> tuple[str, str, str]:
    """Return the place of a line of code, the condition that it belongs to, and the values in the condition."""
    place, text = _condition(frame.f_code.co_filename, line)
    return place, text, ", ".join(_values(text, frame.f_locals))


def _values(text: str, names: Mapping[str, Any]) -> Iterator[str]:
    """Format the values of names and attributes in a line of code, and of local nodes, without calling functions."""
    nodes = [name for name, value in names.items() if isinstance(value, Node)]
    for chain in dict.fromkeys([*_CHAIN.findall(_QUOTED.sub("", text)), *nodes[:_MOST_NODES]]):
        value = _look(chain.split("."), names)
        if isinstance(value, Node):
            yield f"{chain} = {named(value)}"
        elif isinstance(value, Value):
            held = f" {contents(value)}" if is_small(value) else ""
            shared = not value.is_constant and len(value.consumers) > 1
            readers = f" read by {listed(value.consumers)}" if shared else ""
            yield f"{chain} = {typed(value)} '{value.name}'{held}{readers}"
        elif isinstance(value, bool | int | float | str | tuple | list | None) and len(repr(value)) < _LONG:
            yield f"{chain} = {value!r}"


def _look(chain: Sequence[str], names: Mapping[str, Any]) -> Any:
    """Follow attributes of objects of the engine only; attributes of other objects may have side effects."""
    value = names.get(chain[0], _NO_VALUE)
    for part in chain[1:]:
        if not type(value).__module__.startswith("surgery."):
            return _NO_VALUE
        try:
            value = getattr(value, part)
        except (AttributeError, Refusal):
            return _NO_VALUE
    return value


def _condition(file: str, line: int) -> tuple[str, str]:
    """Return the place and full text of a line of code; for a bare end of a branch, those of the condition above it."""
    text = linecache.getline(file, line)
    if _ENDS.match(text.strip()):
        line = next((above for above in _above(file, line)), line)
        text = linecache.getline(file, line)
    place = f"{Path(file).parent.name}/{Path(file).name}:{line}"
    for _ in range(_MOST_LINES):
        if text.count("(") <= text.count(")"):
            break
        line += 1
        text = f"{text.rstrip()} {linecache.getline(file, line).strip()}"
    return place, text.strip()


def _above(file: str, line: int) -> Iterator[int]:
    """Yield the lines that begin the blocks containing a line, innermost first; `):` continues what is above it."""
    indent = _indent(linecache.getline(file, line))
    for above in range(line - 1, 0, -1):
        text = linecache.getline(file, above)
        if text.strip() and _indent(text) < indent and text.strip()[0] not in ")]}":
            indent = _indent(text)
            yield above


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())
