"""What a pass promises about the results of the model it changed."""

from __future__ import annotations

from enum import Enum


class Parity(Enum):
    """The promise that a pass makes, and that verification holds it to.

    EXACT: every output is bit-identical, because no arithmetic changed.
    CLOSE: the same mathematics in another order; only rounding differs.
    LOSSY: the pass trades accuracy on purpose; the recipe opts in.
    """

    EXACT = "exact"
    CLOSE = "close"
    LOSSY = "lossy"
