"""Parts of a model that the IR cannot represent, kept with it for a lossless round trip.

When a model is imported, it is immediately exported again. Wherever this *plain* export differs from the original, both
messages are attached to the IR object, in its `meta`, so that they are dropped with the object. A later export is a
three-way merge, see `merging`. So unknown fields, empty but present fields, the order of metadata and the like are
preserved, without a list of all such features.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

import onnx

from surgery.model.storage.message_merging import merge, wire

if TYPE_CHECKING:
    import onnx_ir as ir

KEY: Final = "surgery.residue"


class Residue:
    """An original message, and its export from the IR before any change."""

    __slots__ = ("original", "plain", "plain_bytes")

    def __init__(self, original: Any, plain: Any) -> None:
        self.original = deepcopy(original)
        self.plain = deepcopy(plain)
        self.plain_bytes = wire(plain)

    def restore(self, current: Any) -> None:
        """Merge the original into an export of the same object, in place."""
        if wire(current) == self.plain_bytes:
            current.CopyFrom(self.original)
        else:
            current.CopyFrom(merge(self.original, self.plain, current))


class GraphResidue:
    """The residue of a graph or a function as a whole.

    `shell` is for the message without its lists, and `model` for the enclosing model, because onnx_ir drops the `meta`
    of a model when cloning it; the orders have the original positions of list entries by name; the loose entries are
    about values that the graph does not have.
    """

    __slots__ = (
        "annotation_order",
        "loose_annotations",
        "loose_values",
        "model",
        "shell",
        "unnamed_initializers",
        "value_order",
    )

    def __init__(self) -> None:
        self.shell: Residue | None = None
        self.model: Residue | None = None
        self.value_order: dict[str, int] = {}
        self.annotation_order: dict[str, int] = {}
        self.loose_values: list[onnx.ValueInfoProto] = []
        self.loose_annotations: list[onnx.TensorAnnotation] = []
        self.unnamed_initializers: list[onnx.TensorProto] = []

    @property
    def has_order(self) -> bool:
        """Whether a list of the message had another order than that of the nodes, or of names for loose entries."""
        return bool(self.value_order or self.annotation_order) or self.loose_values != self._sorted_loose()

    def forget_order(self) -> None:
        """Sort the lists in the order of the nodes, and loose entries by name."""
        self.value_order, self.annotation_order = {}, {}
        self.loose_values = self._sorted_loose()

    def rename(self, names: Mapping[str, str]) -> None:
        """Apply new names of values."""
        self.value_order = {names.get(name, name): place for name, place in self.value_order.items()}
        self.annotation_order = {names.get(name, name): place for name, place in self.annotation_order.items()}
        for annotation in self.loose_annotations:
            for entry in annotation.quant_parameter_tensor_names:
                entry.value = names.get(entry.value, entry.value)

    def _sorted_loose(self) -> list[onnx.ValueInfoProto]:
        return sorted(self.loose_values, key=lambda entry: entry.name)


def residue_of(owner: ir.Graph | ir.Function) -> GraphResidue | None:
    """Return the residue of a graph or a function; None if it was not imported."""
    found = owner.meta.get(KEY)
    return found if isinstance(found, GraphResidue) else None
