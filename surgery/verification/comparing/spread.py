"""The error distribution of an output: the numbers of elements by the size of their errors, in powers of two.

Errors are shares of a unit: the tolerance, or the root mean square of the output if a step is lossy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from surgery.base.operators.dtypes import Array
from surgery.verification.comparing.details import Element, ErrorUnit, OutputErrors

_LEAST, _MOST = -40, 24
"""The smallest and the largest power of two; errors beyond are counted with these."""


@dataclass
class Spread:
    """The errors of one output so far, as shares of a unit.

    `counts[i]` elements have errors between `2**(_LEAST + i - 1)` and `2**(_LEAST + i)` units, `equal` ones have none,
    and the errors of `endless` ones are not finite.
    """

    equal: int = 0
    endless: int = 0
    largest: float = 0.0
    worst: Element | None = None
    counts: Array = field(default_factory=lambda: np.zeros(_MOST - _LEAST + 1, np.int64))

    def add(self, shares: Array) -> None:
        """Count elements by the shares of their errors."""
        shares = shares.reshape(-1)
        moved = shares[shares > 0]
        self.equal += shares.size - moved.size
        finite = moved[np.isfinite(moved)]
        self.endless += moved.size - finite.size
        if finite.size:
            powers = np.clip(np.frexp(finite)[1], _LEAST, _MOST) - _LEAST
            self.counts += np.bincount(powers, minlength=self.counts.size)

    def record(self, share: float, element: Element | None) -> None:
        """Note the worst element of a tensor."""
        if self.worst is None or share > self.largest:
            self.largest, self.worst = share, element

    def errors(self, name: str, unit: ErrorUnit = "tolerance") -> OutputErrors:
        """Return the findings as plain values."""
        used = np.flatnonzero(self.counts)
        first, last = (int(used[0]), int(used[-1]) + 1) if used.size else (0, 0)
        return OutputErrors(
            name,
            self.equal + self.endless + int(self.counts.sum()),
            self.equal,
            self.endless,
            self.largest,
            self.worst,
            _LEAST + first - 1,
            tuple(int(count) for count in self.counts[first:last]),
            unit,
        )


def all_errors(spreads: Mapping[str, Spread] | None, unit: ErrorUnit = "tolerance") -> tuple[OutputErrors, ...]:
    """Return the errors of each output, the worst output first."""
    found = [spread.errors(name, unit) for name, spread in (spreads or {}).items()]
    return tuple(sorted(found, key=_severity))


def _severity(errors: OutputErrors) -> Any:
    return not errors.endless, -errors.largest, errors.name
