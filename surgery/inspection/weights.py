"""The constant tensors of a model: the largest, those with several consumers, and duplicates."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from surgery.graph.graph import Graph
from surgery.graph.values import Value

_LEAST = 1024
"""Bytes from which it matters that a tensor is there twice."""
_SAMPLE = 512
"""Bytes at either end of a tensor that are compared first."""
_PIECE = 1 << 22


@dataclass(frozen=True)
class Weight:
    """A constant tensor: its element type, its dims, its bytes, and how many inputs of nodes it is."""

    name: str
    type: str
    dims: tuple[int, ...]
    bytes: int
    reads: int

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**vars(self), "dims": list(self.dims)}


@dataclass(frozen=True)
class Weights:
    """The constant tensors, the biggest first. `duplicates` are names of the same bits, of 1 KiB or more."""

    every: tuple[Weight, ...]
    duplicates: tuple[tuple[str, ...], ...]

    @property
    def tied(self) -> tuple[Weight, ...]:
        """Those that several inputs of nodes are, of 1 KiB and more."""
        return tuple(weight for weight in self.every if weight.reads > 1 and weight.bytes >= _LEAST)

    @property
    def wasted(self) -> int:
        """The bytes that the file would be smaller by if duplicates were one tensor."""
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


def weights(graph: Graph) -> Weights:
    """Look at the constants of all scopes; only those that may be there twice are read, and piece by piece."""
    held = [(_weight(value), value) for value in graph.constants() if value.ir.const_value is not None]
    held.sort(key=lambda pair: -pair[0].bytes)
    return Weights(tuple(weight for weight, _ in held), tuple(_duplicates(held)))


def _weight(value: Value) -> Weight:
    tensor = value.ir.const_value
    assert tensor is not None
    return Weight(value.name, tensor.dtype.name.lower(), tuple(tensor.shape.numpy()), tensor.nbytes, value.reads)


def _duplicates(held: Iterable[tuple[Weight, Value]]) -> Iterator[tuple[str, ...]]:
    alike: dict[Any, list[Value]] = defaultdict(list)
    for weight, value in held:
        if weight.bytes >= _LEAST and weight.type != "string":
            alike[weight.type, weight.dims].append(value)
    for group in alike.values():
        for values in _same(group, _ends):
            for same in _same(values, _digest):
                yield tuple(value.name for value in same)


def _same(values: list[Value], key: Any) -> Iterator[list[Value]]:
    """Yield the groups of more than one value with the same key."""
    if len(values) < 2:
        return
    groups: dict[bytes, list[Value]] = defaultdict(list)
    for value in values:
        groups[key(value)].append(value)
    yield from (group for group in groups.values() if len(group) > 1)


def _bytes(value: Value) -> np.ndarray[Any, Any]:
    tensor = value.ir.const_value
    assert tensor is not None
    return np.ascontiguousarray(tensor.numpy()).reshape(-1).view(np.uint8)


def _ends(value: Value) -> bytes:
    data = _bytes(value)
    return bytes(data[:_SAMPLE]) + bytes(data[-_SAMPLE:])


def _digest(value: Value) -> bytes:
    data, digest = _bytes(value), hashlib.sha256()
    for start in range(0, len(data), _PIECE):
        digest.update(data[start : start + _PIECE].data)
    return digest.digest()
