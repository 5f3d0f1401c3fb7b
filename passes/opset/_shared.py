"""A node on its way from one opset to another, and the functions that take it a step further.

A *transition* is an operator going from one version to the next. Most change nothing that a node can have: more
types, another optional input. The others have an adapter, a function that is registered by the operator and by the
version it leads to. A transition that is neither is a blocker.
"""

# The text of some operators changed in a way that reads like a change of meaning, and they count as the same all
# the same. ONNX Runtime 1.31 does not tell the versions of the first four apart, over a grid of attributes; it runs
# neither version of the last two, which only allow what was not allowed before.
# - ConvTranspose 11: on which side SAME_UPPER, SAME_LOWER and output_shape put an odd padding.
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
    """Declare what takes these operators from their version before opset `to` to the one of opset `to`."""

    def declare(function: Adapter) -> Adapter:
        for op in ops:
            _ADAPTERS[op, to] = function
        return function

    return declare


def is_handled(op: str, version: int) -> bool:
    """Return whether there is an adapter that leads to this version of the operator."""
    return (op, version) in _ADAPTERS


class Draft:
    """A node as it will be; the graph is untouched until `commit`, and then still in the hands of the site.

    Adapters change `op`, `inputs` and the attributes. What they build with `new` stands before the node, and is
    written as opset `target` has it, so no adapter has to look at it again.
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
        """Return an attribute as a Python value, else `default`; refuse when it is a parameter of a function."""
        if name not in self._attributes:
            return default
        held = self._attributes[name]
        return self.node.attr(name) if held is self.node.attributes.get(name) else held

    def take(self, name: str, default: Any = None) -> Any:
        """Return an attribute like `attr`, and drop it."""
        value = self.attr(name, default)
        self._attributes.pop(name, None)
        return value

    def needed(self, name: str) -> Any:
        """Return an attribute that the operator cannot do without, and drop it."""
        value = self.take(name)
        self.require(value is not None, f"{self.op} has no {name}")
        return value

    def set(self, name: str, value: Any) -> None:
        """Set an attribute."""
        self._attributes[name] = value

    # Inputs and outputs

    def input(self, index: int) -> Value:
        """Return an input that the operator cannot do without."""
        value = self.inputs[index] if index < len(self.inputs) else None
        if value is None:
            raise Refusal("a required input is missing")
        return value

    def set_input(self, index: int, value: Value | None) -> None:
        """Set an input; those between that the node does not have yet are omitted."""
        self.inputs += [None] * (index + 1 - len(self.inputs))
        self.inputs[index] = value

    def kind(self, value: Value) -> str | None:
        """Return the type of a value as the schemas write it, "tensor(float)"; None when it is not known."""
        return self._kinds.get(value) or _types.spelt(value.type)

    def is_read(self, index: int) -> bool:
        """Return whether anything reads an output."""
        return index < self.outputs and self.node.outputs[index].is_used

    def wrap(self, function: Callable[[Value], Value]) -> None:
        """Let `function` make the first output of the node from the first output of what the node becomes."""
        self._after.insert(0, function)

    # Building

    def constant(self, array: np.ndarray[Any, Any], name: str) -> Value:
        """Make a constant, or find the same one made for another node of the same graph."""
        key = (self.node.scope, array.dtype, array.shape, array.tobytes())
        if key not in self._made:
            self._made[key] = self.new.constant(array, name)
        return self._made[key]

    def integers(self, values: Sequence[int], name: str) -> Value:
        """Make a one-dimensional int64 constant like `constant`."""
        return self.constant(np.array(values, dtype=np.int64), name)

    def unsqueeze(self, value: Value, axes: Sequence[int]) -> Value:
        """Insert axes of extent 1; they count in the result."""
        if self.target < 13:
            return self.new.node("Unsqueeze", value, axes=list(axes))
        return self.new.node("Unsqueeze", value, self.integers(axes, "axes"))

    def commit(self) -> None:
        """Write the draft into the site: edit the node where it stands, or put another one in its place."""
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
    """Let a site take all nodes of the default domain to opset `target`; return what blocks, with the reasons."""
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
    """Refuse unless a node of the old version is one of the new version as it is."""
    found = _schemas.change(draft.op, old, new)
    if found.broken is not None:
        raise Refusal(found.broken)
    for position, allowed in found.narrowed.items():
        value = draft.input(position)
        kind = draft.kind(value)
        draft.require(kind is not None, "the type of the input is not known")
        draft.require(kind in allowed, f"{draft.op} of this type was removed")
