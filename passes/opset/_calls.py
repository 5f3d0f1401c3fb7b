"""A call of an operator while it is being lowered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from surgery import Node, Refusal, Value

from . import _forms, _schemas


class Call:
    """A call of an operator, from the model or new; changing it changes nothing else.

    `attributes` holds Python values, or the onnx-ir attributes of `node`, which is None for a new call.
    """

    def __init__(
        self,
        op: str,
        version: int,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, Any],
        outputs: int = 1,
        node: Node | None = None,
    ) -> None:
        self.op = op
        self.version = version
        self.inputs = list(inputs)
        self.attributes = dict(attributes)
        self.outputs = outputs
        self.node = node

    def attr(self, name: str, default: Any = None) -> Any:
        """Return an attribute as a Python value, or `default`, or the default of the operator's version."""
        if name not in self.attributes:
            if not _schemas.schemas_of(self.op):
                return default
            return _forms.form(self.op, self.version).defaults.get(name) if default is None else default
        held = self.attributes[name]
        is_old = self.node is not None and held is self.node.attributes.get(name)
        return self.node.attr(name) if self.node is not None and is_old else held

    def take(self, name: str, default: Any = None) -> Any:
        """Return an attribute like `attr`, and remove it."""
        value = self.attr(name, default)
        self.attributes.pop(name, None)
        return value

    def find(self, index: int) -> Value | None:
        """Return an input, or None if it is omitted or absent."""
        return self.inputs[index] if index < len(self.inputs) else None

    def input(self, index: int) -> Value:
        """Return a required input."""
        value = self.find(index)
        if value is None:
            raise Refusal("a required input is missing")
        return value

    def is_read(self, index: int) -> bool:
        """Return whether anything may read an output."""
        return index < self.outputs and (self.node is None or self.node.outputs[index].is_used)

    def first(self, count: int) -> list[Value | None]:
        """Return the first `count` inputs, None for those that are absent."""
        return [self.find(index) for index in range(count)]
