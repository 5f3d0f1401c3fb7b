"""Rows of a checkpoint tensor in another order than in the model: gates of recurrent layers, rotary positions.

The dims are the same in either order, so only names and metadata of the checkpoint, the graph and the mapping file tell
which one it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

Array = np.ndarray[Any, Any]

Rotation = Literal["halves", "pairs"]
"""Which two elements of a head a rotary embedding rotates: those of two halves (Hugging Face), or two neighbors."""

OF_TORCH: Final[Mapping[str, tuple[int, ...]]] = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}
"""For each gate of an ONNX operator, its position in PyTorch: i, o, f, c from i, f, g, o, and z, r, h from r, z, n."""


@dataclass(frozen=True)
class Gates:
    """The gates of each direction, and of both biases, of an initializer in another order.

    `blocks` is the number of directions, times two for biases.
    """

    operator: str
    blocks: int

    @property
    def title(self) -> str:
        """The text in reports."""
        return f"gates of {self.operator} in the order of ONNX"

    def fits(self, rows: int) -> bool:
        """Return whether so many rows of all blocks can be divided into gates."""
        return rows % (self.blocks * len(OF_TORCH[self.operator])) == 0

    def applied(self, array: Array) -> Array:
        """Reorder all elements of an initializer, in any dims."""
        order = OF_TORCH[self.operator]
        return array.reshape(self.blocks, len(order), -1)[:, list(order)].reshape(array.shape)


@dataclass(frozen=True)
class Rotary:
    """The outputs of each head of Q or K, from pairs to halves, or from halves to pairs.

    `axis` is the axis of the outputs in the checkpoint: 0 in [out, in], and 1 in [in, out].
    """

    heads: int
    to: Rotation
    axis: int = 0

    @property
    def title(self) -> str:
        """The text in reports."""
        return f"rotary {self.to} of {self.heads} heads"

    def fits(self, rows: int) -> bool:
        """Return whether so many rows can be divided into heads with an even number of rows."""
        return self.heads > 0 and rows % (2 * self.heads) == 0

    def applied(self, array: Array) -> Array:
        """Reorder the outputs."""
        axis, dims = self.axis, array.shape
        half = dims[axis] // self.heads // 2
        inner = (half, 2) if self.to == "halves" else (2, half)
        heads = array.reshape(*dims[:axis], self.heads, *inner, *dims[axis + 1 :])
        return heads.swapaxes(axis + 1, axis + 2).reshape(dims)
