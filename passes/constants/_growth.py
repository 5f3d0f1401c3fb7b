"""The growth of a file, in bytes, when a value becomes a constant."""

from collections import Counter
from typing import Any

from surgery import Graph, Value

from ._shared import value_bytes

SMALL = 1024
"""Size in bytes below which a constant does not count as growth."""
LEAST_ROOM = 1 << 14
"""Bytes by which every model may grow, however few constants it has."""
GROWTH_KEY = "surgery.growth"
"""The metadata key of a tensor for the bytes by which it is larger than the constants it was computed from."""


class Room:
    """The bytes by which a file may still grow; growth recorded on constants by earlier runs is deducted."""

    def __init__(self, graph: Graph, max_growth: int, max_percent: float) -> None:
        tensors = [value.tensor for value in graph.constants()]
        tensors += [node.outputs[0].tensor for node in graph.nodes("Constant")]
        sizes = [tensor.nbytes for tensor in tensors if tensor is not None]
        self._noted = sum(_note(tensor) for tensor in tensors if tensor is not None)
        share = int((sum(sizes) - self._noted) * max_percent / 100)
        self._left = min(max_growth, max(share, LEAST_ROOM)) - self._noted

    def has(self, growth: int) -> bool:
        """Return whether the file may grow by this many more bytes."""
        return growth <= max(self._left, 0)

    def take(self, growth: int) -> None:
        """Deduct bytes from the room that is left."""
        self._left -= growth
        self._noted += growth

    def growth(self, value: Value, tensor: Any) -> int:
        """Return the bytes by which the file grows when `tensor` replaces a value, and record them on the tensor."""
        if tensor.nbytes < SMALL and not self._noted:
            return 0
        freed, noted, _ = _freed(value)
        growth = _growth(tensor.nbytes, freed)
        if growth + noted > 0:
            tensor.metadata_props[GROWTH_KEY] = str(growth + noted)
        return growth


def expected_growth(value: Value) -> tuple[int, float]:
    """Return the bytes by which the file grows when a value is folded, in total and per removed node.

    Both are 0 if the size is not known yet.
    """
    size = value_bytes(value)
    if size is None or size < SMALL:
        return 0, 0
    freed, _, nodes = _freed(value)
    return _growth(size, freed), _growth(size, freed) / nodes


def _growth(size: int, freed: int) -> int:
    return size - freed if freed < size and size >= SMALL else 0


def _note(tensor: Any) -> int:
    text = tensor.metadata_props.get(GROWTH_KEY, "0")
    return int(text) if text.isdecimal() else 0


def _freed(value: Value) -> tuple[int, int, int]:
    """Return what is removed when a value is replaced: constant bytes, bytes recorded on them, number of nodes.

    `gone` counts the reads of each value that no longer exist.
    """
    freed = noted = nodes = 0
    gone = Counter({value: _reads(value)})
    pending = [value]
    while pending:
        here = pending.pop()
        tensor = here.tensor
        if tensor is not None:
            freed += tensor.nbytes
            noted += _note(tensor)
        node = here.producer
        if node is None or any(output.name and gone[output] < _reads(output) for output in node.outputs):
            continue
        nodes += 1
        for operand in node.inputs:
            if operand is not None:
                gone[operand] += 1
                if gone[operand] == _reads(operand):
                    pending.append(operand)
    return freed, noted, max(nodes, 1)


def _reads(value: Value) -> int:
    return value.reads + value.is_output
