"""Parts of a model that the IR cannot represent, kept next to it for a lossless round trip.

When a model is imported, it is exported again at once. Wherever that *plain* export differs from the
original, both messages are attached to the IR object, in its `meta`: they live and die with the object. A
later export is a three-way merge, see `merging`. So unknown fields, fields that are present but empty, the order
of metadata and the like survive, and no list of such things must be complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

import onnx

from surgery.storage.merging import merge, wire

if TYPE_CHECKING:
    import onnx_ir as ir

KEY: Final = "surgery.residue"


class Residue:
    """An original message, and what the IR made of it when nothing had been changed."""

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
    """What belongs to a graph or a function as a whole.

    `shell` is the message without its lists, `model` that of the model around it, because onnx_ir forgets the
    `meta` of a model when it clones one; the orders name the entries of a list as they were; the loose
    entries name values that the graph does not have.
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
        """Whether lists of the message stood in another order than that of the nodes and of names."""
        return bool(self.value_order or self.annotation_order) or self.loose_values != self._sorted_loose()

    def forget_order(self) -> None:
        """Let the lists stand in the order of the nodes, and what belongs to no value of the graph in that of names."""
        self.value_order, self.annotation_order = {}, {}
        self.loose_values = self._sorted_loose()

    def rename(self, names: Mapping[str, str]) -> None:
        """Follow values that get other names."""
        self.value_order = {names.get(name, name): place for name, place in self.value_order.items()}
        self.annotation_order = {names.get(name, name): place for name, place in self.annotation_order.items()}
        for annotation in self.loose_annotations:
            for entry in annotation.quant_parameter_tensor_names:
                entry.value = names.get(entry.value, entry.value)

    def _sorted_loose(self) -> list[onnx.ValueInfoProto]:
        return sorted(self.loose_values, key=lambda entry: entry.name)


def residue_of(owner: ir.Graph | ir.Function) -> GraphResidue | None:
    """Return what a graph or a function has next to it, None when it was made here."""
    found = owner.meta.get(KEY)
    return found if isinstance(found, GraphResidue) else None
