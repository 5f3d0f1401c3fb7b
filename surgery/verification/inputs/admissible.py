"""The extents of each symbolic dim that the graph admits, by shapes inferred with symbols. Runs in a worker process.

Where a tensor that was scaled down and up again meets one that was not, only some multiples make the two equal; an
initial state of fixed extent pins the batch. The extents found here are tried first, and hold if the model accepts
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

import numpy as np
import numpy.typing as npt

from surgery.model.shapes.declarations import Extent
from surgery.verification.inputs.demands import Demand
from surgery.verification.inputs.expressions import Integers, Reader

MOST = 4096
"""The largest extent that is considered, unless a dim has to be larger."""

_LONG = (range(MOST + 1, 1 << 16, 8), range(1 << 16, 1 << 20, 80), (16000, 22050, 24000, 32000, 44100, 48000, 480000))
"""Extents of signals, which are considered for dims that have to be larger; the last ones are whole seconds."""

EXTENTS: Integers = np.array(sorted({*range(1, MOST + 1), *chain(*_LONG)}))
"""The extents that are considered; the first `MOST` are consecutive."""

Holds = npt.NDArray[np.bool_]


def admissible(names: Iterable[str], wanted: Iterable[Demand], aliases: Mapping[str, Extent]) -> dict[str, Holds]:
    """Return for each dim that the graph restricts which of `EXTENTS` it admits.

    A demand that contradicts earlier ones is ignored.
    """
    reader = DemandEvaluator(Reader(dict.fromkeys(names, EXTENTS), aliases))
    found: dict[str, Holds] = {}
    for demand in wanted:
        used, holds = reader.judge(demand)
        if len(used) == 1:
            (name,) = used
            both = holds & found.get(name, np.True_)
            if both.any():
                found[name] = both
    return {name: holds for name, holds in found.items() if not holds.all()}


def listed(holds: Holds) -> list[int]:
    """Return the admitted extents: those up to `MOST`, or if there are none the larger ones."""
    admitted: list[int] = EXTENTS[holds].tolist()
    return [extent for extent in admitted if extent <= MOST] or admitted


class DemandEvaluator:
    """Evaluates demands for all extents of the dims at once."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.known: dict[Extent, tuple[frozenset[str], Integers] | None] = {}

    def judge(self, demand: Demand) -> tuple[frozenset[str], Holds]:
        """Return the dims of a demand, and where it holds; no dims if it cannot be evaluated."""
        left, right = self.read(demand.left), self.read(demand.right)
        if left is None or right is None:
            return frozenset(), np.ones(1, bool)
        used = left[0] | right[0]
        if demand.least:
            return used, left[1] >= right[1]
        holds = left[1] == right[1]
        # Two extents that follow from the same dim are meant to be equal; one that meets a constant may be broadcast.
        loose = demand.broadcast and not (left[0] and right[0])
        return used, holds | (left[1] == 1) | (right[1] == 1) if loose else holds

    def read(self, extent: Extent) -> tuple[frozenset[str], Integers] | None:
        """Return the dims that an extent depends on, and its values."""
        if extent not in self.known:
            self.known[extent] = self.reader.read(extent)
        return self.known[extent]
