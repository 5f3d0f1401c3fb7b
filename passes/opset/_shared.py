"""Conversion of a node to a newer opset, and the registry of the adapters that do one step of it.

A *transition* is the step of an operator from one version to the next. Most transitions do not affect existing nodes:
they add types, or an optional input. The others have an adapter, a function that is registered by the operator and the
new version. A transition of neither kind is a blocker.
"""

# The text of some operators changed in a way that reads like a change of meaning, but their versions are treated as
# equal. ONNX Runtime 1.31 computes the same for both versions of the first four, over a grid of attributes; it runs
# neither version of the last two, which only allow what was not allowed before.
# - ConvTranspose 11: the side on which SAME_UPPER, SAME_LOWER and output_shape put an odd padding.
# - AveragePool 11 and 19, MaxPool 12: the formula of the output's extent with auto_pad.
# - AveragePool 22, MaxPool 22: with ceil_mode, windows that would start in the padding at the end do not count.
# - OneHot 11: an index from -depth to -1 counts from the end; before, indices had to be non-negative.
# - Mod 28: a floating-point remainder without fmod, which was not allowed before.
# - Range 27: accumulation in float32, of types that were not allowed before.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from surgery import Builder, Graph, Node, Refusal, Value

from . import _schemas, _types
from ._functions import Calls
from ._lowering import Known

Adapter = Callable[["Draft"], None]

_ADAPTERS: dict[tuple[str, int], Adapter] = {}


def adapter(*ops: str, to: int) -> Callable[[Adapter], Adapter]:
    """Register an adapter that converts these operators from their version before opset `to` to that of opset `to`."""

    def declare(function: Adapter) -> Adapter:
        for op in ops:
            _ADAPTERS[op, to] = function
        return function

    return declare


def is_handled(op: str, version: int) -> bool:
    """Return whether an adapter to this version of the operator exists."""
    return (op, version) in _ADAPTERS


class Draft:
    """A node as it will be; the graph does not change until `commit`, which writes to the site.

    Adapters change `op`, `inputs` and the attributes. The nodes that they build with `new` are placed before the node,
    in the form of opset `target`, so no adapter has to process them again.
    """

    def __init__(
        self,
        node: Node,
        new: Builder,
        target: int,
        made: dict[tuple[Any, ...], Value],
        kinds: Mapping[Value, str] | None = None,
    ) -> None:
        self.node = node
        self.new = new
        self.target = target
        self._made = made
        self._kinds = kinds or {}
        self.op = node.op
        self.inputs = node.inputs
        self.outputs = len(node.outputs)
        self._attributes: dict[str, Any] = dict(node.attributes)
        self._after: list[Callable[[Value], Value]] = []

    def require(self, condition: object, reason: str) -> None:
        """Make the node a blocker for `reason` unless the condition holds."""
        self.new.require(condition, reason)

    # Attributes

    def has(self, name: str) -> bool:
        """Return whether the attribute is given."""
        return name in self._attributes

    def attr(self, name: str, default: Any = None) -> Any:
        """Return an attribute as a Python value, or `default`; refuse if it is a parameter of a function."""
        if name not in self._attributes:
            return default
        held = self._attributes[name]
        return self.node.attr(name) if held is self.node.attributes.get(name) else held

    def take(self, name: str, default: Any = None) -> Any:
        """Return an attribute like `attr`, and remove it."""
        value = self.attr(name, default)
        self._attributes.pop(name, None)
        return value

    def needed(self, name: str) -> Any:
        """Return a required attribute, and remove it."""
        value = self.take(name)
        self.require(value is not None, f"{self.op} has no {name}")
        return value

    def set(self, name: str, value: Any) -> None:
        """Set an attribute."""
        self._attributes[name] = value

    # Inputs and outputs

    def input(self, index: int) -> Value:
        """Return a required input."""
        value = self.inputs[index] if index < len(self.inputs) else None
        if value is None:
            raise Refusal("a required input is missing")
        return value

    def set_input(self, index: int, value: Value | None) -> None:
        """Set an input; missing inputs before it are added as omitted ones."""
        self.inputs += [None] * (index + 1 - len(self.inputs))
        self.inputs[index] = value

    def kind(self, value: Value) -> str | None:
        """Return the type of a value as the schemas write it, "tensor(float)"; None if it is not known."""
        return self._kinds.get(value) or _types.spelt(value.type)

    def is_read(self, index: int) -> bool:
        """Return whether anything reads an output."""
        return index < self.outputs and self.node.outputs[index].is_used

    def wrap(self, function: Callable[[Value], Value]) -> None:
        """Compute the first output of the node by applying `function` to the first output of the new node."""
        self._after.insert(0, function)

    # Building

    def constant(self, array: np.ndarray[Any, Any], name: str) -> Value:
        """Add a constant, or return an equal one added for another node of the same graph."""
        key = (self.node.scope, array.dtype, array.shape, array.tobytes())
        if key not in self._made:
            self._made[key] = self.new.constant(array, name)
        return self._made[key]

    def integers(self, values: Sequence[int], name: str) -> Value:
        """Add a one-dimensional int64 constant like `constant`."""
        return self.constant(np.array(values, dtype=np.int64), name)

    def unsqueeze(self, value: Value, axes: Sequence[int]) -> Value:
        """Insert axes of extent 1; `axes` count in the result."""
        if self.target < 13:
            return self.new.node("Unsqueeze", value, axes=list(axes))
        return self.new.node("Unsqueeze", value, self.integers(axes, "axes"))

    def commit(self) -> None:
        """Write the draft to the site: edit the node in place, or replace it with a new one."""
        node, before = self.node, self.node.attributes
        if self.op != node.op or self.outputs != len(node.outputs) or self._after:
            self._replace()
            return
        for index in range(max(len(self.inputs), len(node.inputs))):
            value = self.inputs[index] if index < len(self.inputs) else None
            if value != node.input(index):
                self.new.set_input(node, index, value)
        for name in (*before, *self._attributes):
            if self._attributes.get(name) is not before.get(name):
                self.new.set_attribute(node, name, self._attributes.get(name))

    def _replace(self) -> None:
        made = list(
            self.new.nodes(
                self.op,
                *self.inputs,
                outputs=self.outputs,
                name=self.node.name or None,
                attributes=self._attributes,
            )
        )
        for function in self._after:
            made[0] = function(made[0])
        for old, value in zip(self.node.outputs, made):
            if old.name:
                self.new.replace(old, value)


def upgrade(graph: Graph, new: Builder, target: int) -> list[tuple[Node, str]]:
    """Convert all nodes of the default domain to opset `target` within one site; return blockers with reasons."""
    blockers: list[tuple[Node, str]] = []
    made: dict[tuple[Any, ...], Value] = {}
    known = Known()
    Calls(graph, known).follow()
    functions = graph.functions
    for node in graph.nodes():
        call = node.identifier
        if node.domain or call in functions or node.opset == target:
            continue
        try:
            _convert(Draft(node, new.at(node), target, made, known.kinds))
        except Refusal as refusal:
            blockers.append((node, refusal.reason))
    if graph.opset not in (0, target):
        new.set_opset(target)
        new.raise_ir_version(_schemas.ir_version_for(target))
    for function in functions.values():
        if function.opset_imports.get("", target) != target:
            new.set_opset(target, function=function)
            new.raise_ir_version(_schemas.ir_version_for(target))
    return blockers


def _convert(draft: Draft) -> None:
    node = draft.node
    version = _schemas.version_at(node.op, node.opset)
    if version is None:
        raise Refusal(f"opset {node.opset} has no {node.op}")
    while (step := _schemas.next_version(draft.op, version, draft.target)) is not None:
        if not _schemas.has_attribute(draft.op, step, _schemas.LEGACY_ATTRIBUTE):
            draft.take(_schemas.LEGACY_ATTRIBUTE)
        adapt = _ADAPTERS.get((draft.op, step))
        if adapt is not None:
            adapt(draft)
        else:
            _keep(draft, version, step)
        version = step
    draft.commit()


def _keep(draft: Draft, old: int, new: int) -> None:
    """Refuse unless a node of the old version is also valid, with the same meaning, in the new version."""
    found = _schemas.change(draft.op, old, new)
    if found.broken is not None:
        raise Refusal(found.broken)
    for position, allowed in found.narrowed.items():
        value = draft.input(position)
        kind = draft.kind(value)
        draft.require(kind is not None, "the type of the input is not known")
        draft.require(kind in allowed, f"{draft.op} of this type was removed")
