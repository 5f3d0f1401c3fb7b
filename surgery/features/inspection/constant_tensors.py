"""The constant tensors of a model: the largest, those with several consumers, and duplicates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from surgery.base.json_record import Record
from surgery.model.graph.graph import Graph
from surgery.model.graph.values import Value

_LEAST = 1024
"""Minimum size in bytes of a duplicate or tied tensor that is reported."""


@dataclass(frozen=True)
class Weight(Record):
    """A constant tensor: its element type, dims, size in bytes, and the number of node inputs that read it."""

    name: str
    type: str
    dims: tuple[int, ...]
    bytes: int
    reads: int


@dataclass(frozen=True)
class WeightSummary:
    """The constant tensors, largest first. `duplicates` are groups of names of equal tensors, of 1 KiB or more."""

    every: tuple[Weight, ...]
    duplicates: tuple[tuple[str, ...], ...]

    @property
    def tied(self) -> tuple[Weight, ...]:
        """The tensors of 1 KiB or more that several node inputs read."""
        return tuple(weight for weight in self.every if weight.reads > 1 and weight.bytes >= _LEAST)

    @property
    def wasted(self) -> int:
        """The number of bytes that merging duplicates would save."""
        sizes = {weight.name: weight.bytes for weight in self.every}
        return sum(sizes[names[0]] * (len(names) - 1) for names in self.duplicates)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "biggest": [weight.to_json() for weight in self.every[:20]],
            "tied": [weight.to_json() for weight in self.tied],
            "duplicates": [list(names) for names in self.duplicates],
            "wasted": self.wasted,
        }


def weights(graph: Graph) -> WeightSummary:
    """Collect the constants of all scopes; only possible duplicates are read, piece by piece."""
    held = [(_weight(value), value) for value in graph.constants() if value.ir.const_value is not None]
    held.sort(key=lambda pair: -pair[0].bytes)
    large = [value for weight, value in held if weight.bytes >= _LEAST and weight.type != "string"]
    duplicates = tuple(tuple(value.name for value in same) for same in graph.equal_tensors(large))
    return WeightSummary(tuple(weight for weight, _ in held), duplicates)


def _weight(value: Value) -> Weight:
    tensor = value.ir.const_value
    assert tensor is not None
    return Weight(value.name, tensor.dtype.name.lower(), tuple(tensor.shape.numpy()), tensor.nbytes, value.reads)
